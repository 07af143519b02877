package process

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes put the process into a group of its own and end it with its host.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// spawner runs functions on one thread that never ends: the kernel sends the
// signal of Pdeathsig when the thread ends that started the process, not the
// whole host.
var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		// It belongs to the whole program, whoever came first.
		pprof.SetGoroutineLabels(context.Background())
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

func onSpawner(f func() error) (err error) {
	done := make(chan struct{})
	spawner() <- func() { defer close(done); err = f() }
	<-done
	return err
}

// startBounded starts a command and sets its limits at once. The first
// instructions run without them, which is before the plugin's own code has
// read a byte from the host.
func startBounded(cmd *exec.Cmd, l Limits, g *group) (err error) {
	if err := g.start(cmd); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()
	if g != nil {
		l.Processes = 0 // the group bounds them
	}
	for _, limit := range []struct {
		resource int
		value    uint64
	}{{unix.RLIMIT_DATA, l.Memory}, {unix.RLIMIT_NOFILE, l.Files}, {unix.RLIMIT_CPU, uint64(l.CPU.Seconds())}, {unix.RLIMIT_NPROC, l.Processes}, {unix.RLIMIT_CORE, 0}} {
		if limit.value == 0 && limit.resource != unix.RLIMIT_CORE {
			continue
		}
		bound := unix.Rlimit{Cur: limit.value, Max: limit.value}
		if err := unix.Prlimit(cmd.Process.Pid, limit.resource, &bound, nil); err != nil {
			return fmt.Errorf("limit: %w", err)
		}
	}
	return nil
}

// Memory is the resident memory of a process in bytes, 0 when it is not known.
func Memory(pid int) uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}
