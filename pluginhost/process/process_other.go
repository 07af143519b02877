//go:build unix && !linux

package process

import (
	"errors"
	"os/exec"
	"syscall"
)

// attributes put the process into a group of its own. That the host has died
// shows by the end of standard input.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func onSpawner(f func() error) error { return f() }

// startBounded refuses limits, which need Linux, rather than to ignore them.
func startBounded(cmd *exec.Cmd, l Limits, _ *group) error {
	if l != (Limits{}) {
		return errors.New("limits of plugins need Linux")
	}
	return cmd.Start()
}

// Memory is not known here.
func Memory(int) uint64 { return 0 }
