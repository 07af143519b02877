package lease

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// TestEndedProcess: a process of this machine is known to have ended at once,
// also while nobody has asked for its status, and when its id is in use again.
func TestEndedProcess(t *testing.T) {
	t.Parallel()
	me := strings.Fields(self())
	if len(me) != 4 {
		t.Fatalf("self = %q", me)
	}
	if ended(self()) {
		t.Error("this process is said to have ended")
	}
	at := func(pid int, began string) string { return fmt.Sprintf("%s %s %d %s", me[0], me[1], pid, began) }
	child := exec.CommandContext(t.Context(), "sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := child.Process.Pid
	began, _ := startOf(pid)
	if ended(at(pid, began)) {
		t.Error("a running child is said to have ended")
	}
	if !ended(at(pid, began+"1")) {
		t.Error("another process with the same id goes for the old one")
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for { // until the kernel has made a zombie of it
		if _, zombie := startOf(pid); zombie {
			break
		}
	}
	if !ended(at(pid, began)) {
		t.Error("a zombie is said to run")
	}
	_ = child.Wait()
	if !ended(at(pid, began)) {
		t.Error("a child that is gone is said to run")
	}
	for _, unknown := range []string{"", "x", "other " + me[1] + " 1 1", me[0] + " pid:[1] 1 1"} {
		if ended(unknown) {
			t.Errorf("%q is said to have ended", unknown)
		}
	}
}
