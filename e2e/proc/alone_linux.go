package proc

import (
	"os/exec"
	"syscall"
)

// setAlone gives a command a namespace of process ids.
func setAlone(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
}
