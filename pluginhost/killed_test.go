package pluginhost_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/objecthost/objecthost/pluginhost"
)

// TestHostProcess is the host that TestCase_PLG_01_KilledHost kills. Run by itself it has
// nothing to do.
func TestHostProcess(t *testing.T) {
	mode, ok := os.LookupEnv("PLUGINHOST_TEST_MODE")
	if !ok {
		return
	}
	h := start(t, mode, nil)
	fmt.Printf("plugin %d\n", wantState(t, h, pluginhost.StateReady).PID)
	select {}
}

// TestCase_PLG_01_RestartAfterKill: what a plugin moved out of its process group before its
// host was killed is ended by the next host, where there are control groups.
func TestCase_PLG_01_RestartAfterKill(t *testing.T) {
	temp, err := os.MkdirTemp("", "killed") //nolint:usetesting // the paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(temp) })
	host, pid := hostProcess(t, "stray", temp)
	child := childOf(t, pid)
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = host.Wait() // killed, as it says
	eventually(t, "the end of the plugin", func() bool { return !alive(pid) })
	if !alive(child) {
		t.Fatal("the child has ended already")
	}
	h := start(t, "", nil)
	wantState(t, h, pluginhost.StateReady)
	if !cgroup(t) {
		kill(t, child)
	}
	eventually(t, "the end of the child", func() bool { return !alive(child) })
}

// hostProcess starts a host in a process of its own and returns its plugin's
// process.
func hostProcess(t *testing.T, mode, temp string) (*exec.Cmd, int) {
	t.Helper()
	host := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHostProcess$")
	host.Env = append(os.Environ(), envFixture+"="+fixture, "PLUGINHOST_TEST_MODE="+mode, "TMPDIR="+temp)
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	lines := bufio.NewScanner(out)
	for pid == 0 && lines.Scan() {
		_, _ = fmt.Sscanf(lines.Text(), "plugin %d", &pid)
	}
	if pid == 0 || !alive(pid) {
		t.Fatalf("the plugin's process %d does not run", pid)
	}
	return host, pid
}

// TestCase_PLG_01_KilledHost: nothing outlives a host that is killed by SIGKILL, whatever
// the plugin is doing.
func TestCase_PLG_01_KilledHost(t *testing.T) {
	for _, mode := range []string{"", "flood", "hang-stop", "stopped"} {
		t.Run("mode "+mode, func(t *testing.T) {
			t.Parallel()
			// The host cannot remove its folders; they lie in one of ours.
			temp, err := os.MkdirTemp("", "killed") //nolint:usetesting // the paths of sockets are short
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(temp) })
			host, pid := hostProcess(t, strings.TrimPrefix(mode, "stopped"), temp)
			if mode == "stopped" {
				if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			if err := host.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = host.Wait() // killed, as it says
			eventually(t, "the end of the plugin", func() bool { return !alive(pid) })
		})
	}
}
