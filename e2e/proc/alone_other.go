//go:build !linux

package proc

import "os/exec"

// setAlone does nothing: only Linux has namespaces of process ids.
func setAlone(*exec.Cmd) {}
