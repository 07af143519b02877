package pluginhost_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/objecthost/objecthost/pluginhost"
	"github.com/objecthost/objecthost/pluginhost/hosttest"
	"github.com/objecthost/objecthost/pluginhost/process"
)

const helloPath = "/api/v1/plugins/fixture/hello/x"

// TestCase_PLG_04_HostileOutput: whatever a plugin prints, it starts and serves.
func TestCase_PLG_04_HostileOutput(t *testing.T) {
	for _, mode := range []string{"print", "bad-json", "flood", "long-line"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			h := start(t, mode, func(c *hosttest.Config) { c.PluginHost.HealthTimeout = 20 * time.Second })
			wantState(t, h, pluginhost.StateReady)
			for range 20 {
				if status, body := h.Do(t, "GET", helloPath, nil); status != 202 {
					t.Fatalf("hello = %d %s", status, body)
				}
			}
			s := h.Status(t, "fixture")
			if s.Generation != 1 {
				t.Errorf("it was started %d times", s.Generation)
			}
			switch mode {
			case "flood", "bad-json":
				eventually(t, "lines to be dropped", func() bool { return h.Status(t, "fixture").LogDropped > 0 })
			case "long-line":
				lines, err := h.Manager.Logs("fixture", 500)
				if err != nil || len(lines) == 0 || len(lines[0]) > 64<<10 {
					t.Errorf("logs = %d lines, %v", len(lines), err)
				}
			}
		})
	}
}

// TestCase_PLG_03_BadStart: the host starts, says what was wrong, and gives up in the end.
func TestCase_PLG_03_BadStart(t *testing.T) {
	tests := map[string]string{
		"die-noisily":   `cannot open the license file`,
		"silent":        `no handshake`,
		"other-version": `99`,
		"exit":          `exit status 1`,
		"init-error":    `no license`,
	}
	for mode, want := range tests {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			h := start(t, mode, func(c *hosttest.Config) {
				if mode == "silent" {
					c.PluginHost.StartTimeout = 200 * time.Millisecond
				}
			})
			s := wantState(t, h, pluginhost.StateFailed)
			if !strings.Contains(s.Reason, want) || !strings.Contains(s.Reason, "fixture") {
				t.Errorf("reason = %q, want %q and the plugin's name", s.Reason, want)
			}
			if s.Generation != 4 || s.PID != 0 {
				t.Errorf("status = %+v, want 4 generations", s)
			}
			if status, body := h.Do(t, "GET", helloPath, nil); status != 503 || !strings.Contains(body, "PLUGIN_UNAVAILABLE") {
				t.Errorf("a route of a failed plugin = %d %s", status, body)
			}
			if status, _ := h.Do(t, "GET", "/api/v1/system/plugins", nil); status != 200 {
				t.Errorf("the host itself = %d", status)
			}
			noLeftovers(t, h)
		})
	}
}

// noLeftovers stops the host and looks for what it should have removed.
func noLeftovers(t *testing.T, h *hosttest.Host) {
	t.Helper()
	h.Stop(t)
	entries, err := os.ReadDir(h.RunDir)
	if err != nil || len(entries) != 0 {
		t.Errorf("left in the run folder: %v, %v", entries, err)
	}
}

// TestHang: a process that is stopped does not answer; the host kills it and
// starts another.
func TestHang(t *testing.T) {
	h := start(t, "", nil)
	s := wantState(t, h, pluginhost.StateReady)
	if err := syscall.Kill(s.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the next generation", func() bool {
		now := h.Status(t, "fixture")
		return now.Generation == 2 && now.State == pluginhost.StateReady
	})
	if alive(s.PID) {
		t.Error("the stopped process is alive")
	}
	if status, _ := h.Do(t, "GET", helloPath, nil); status != 202 {
		t.Errorf("hello = %d", status)
	}
}

// TestCase_PLG_14_StopNeverHangs: disabling a plugin that is stopped, or whose Stop never
// returns, takes the grace time and no longer.
func TestCase_PLG_14_StopNeverHangs(t *testing.T) {
	for _, mode := range []string{"", "hang-stop"} {
		t.Run("mode "+mode, func(t *testing.T) {
			t.Parallel()
			h := start(t, mode, func(c *hosttest.Config) {
				c.PluginHost.StopGrace = 300 * time.Millisecond
				c.PluginHost.HealthInterval = time.Minute
			})
			s := wantState(t, h, pluginhost.StateReady)
			if mode == "" {
				if err := syscall.Kill(s.PID, syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			if err := h.Manager.Disable(t.Context(), "fixture"); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %s", took)
			}
			if alive(s.PID) {
				t.Error("the process is alive")
			}
			if err := h.Manager.Disable(t.Context(), "fixture"); err != nil {
				t.Errorf("a second time: %v", err)
			}
			noLeftovers(t, h)
		})
	}
}

// TestCase_PLG_02_ChildrenEndToo: what the plugin started is ended with it.
func TestCase_PLG_02_ChildrenEndToo(t *testing.T) {
	h := start(t, "child", nil)
	s := wantState(t, h, pluginhost.StateReady)
	child := childOf(t, s.PID)
	kill(t, s.PID) // it cannot see to its children any more
	eventually(t, "the end of the child of a plugin that crashed", func() bool { return !alive(child) })
	eventually(t, "the next generation", func() bool { return h.Status(t, "fixture").Generation == 2 })
	child = childOf(t, wantState(t, h, pluginhost.StateReady).PID)
	if err := h.Manager.Disable(t.Context(), "fixture"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the child", func() bool { return !alive(child) })
}

// TestForkBomb: a plugin that starts processes without an end gets as many as it
// may, the host goes on, and all of them end with the plugin.
func TestForkBomb(t *testing.T) {
	bound, has := 60, cgroup(t)
	mode := "fork-bomb"
	if !has {
		mode = "stray" // there may be no bound to run into, see docs/plugins.md
	}
	token := "fork-bomb-" + strconv.Itoa(os.Getpid())
	t.Setenv("PLUGINHOST_TEST_TOKEN", token)
	h := start(t, mode, func(c *hosttest.Config) {
		c.PluginHost.Env = []string{"PLUGINHOST_TEST_TOKEN"}
		if has {
			c.PluginHost.Limits.Processes = uint64(bound)
		}
	})
	eventually(t, "children", func() bool { n := len(marked(t, token)); return n > bound/2 || !has && n > 1 })
	for range 20 {
		if n := len(marked(t, token)); n > bound {
			t.Fatalf("%d processes, want at most %d", n, bound)
		}
		if status, _ := h.Do(t, "GET", "/api/v1/system/plugins", nil); status != 200 {
			t.Error("the host does not serve")
		}
	}
	if err := h.Manager.Disable(t.Context(), "fixture"); err != nil {
		t.Fatal(err)
	}
	for _, pid := range marked(t, token) {
		if has {
			t.Errorf("process %d outlived the plugin", pid)
		}
		kill(t, pid) // one that left the process group is nobody's any more
	}
}

// marked finds the processes that have the token in their environment.
func marked(t *testing.T, token string) (pids []int) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		pid, convErr := strconv.Atoi(strings.Split(path, "/")[2])
		if err == nil && convErr == nil && pid != os.Getpid() && strings.Contains(string(text), "TOKEN="+token+"\x00") && alive(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// cgroup tells whether plugins get control groups here.
func cgroup(t *testing.T) bool {
	t.Helper()
	_, err := process.FindCgroup("")
	if err != nil {
		t.Logf("without control groups: %v", err)
	}
	return err == nil
}

func childOf(t *testing.T, pid int) int {
	t.Helper()
	children := childrenOf(t, pid)
	if len(children) == 0 {
		t.Fatal("the plugin has no child")
	}
	return children[0]
}

func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	var children []int
	for _, path := range tasks {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			children = append(children, child)
		}
	}
	return children
}

// TestPanicIsKept: the panic that ended a plugin is shown.
func TestPanicIsKept(t *testing.T) {
	h := start(t, "", nil)
	wantState(t, h, pluginhost.StateReady)
	if status, _ := h.Do(t, "POST", "/api/v1/plugins/fixture/do/panic", nil); status != 503 {
		t.Errorf("the request in flight = %d, want 503", status)
	}
	eventually(t, "the next generation", func() bool { return h.Status(t, "fixture").Generation == 2 })
	if s := h.Status(t, "fixture"); !strings.Contains(s.LastPanic, "panic: fixture died") || !strings.Contains(s.LastPanic, "goroutine") {
		t.Errorf("last panic = %q", s.LastPanic)
	}
}

func TestUnwellIsDegraded(t *testing.T) {
	h := start(t, "unwell", nil)
	if s := wantState(t, h, pluginhost.StateDegraded); s.Reason != "the disk is full" {
		t.Errorf("reason = %q", s.Reason)
	}
	if status, _ := h.Do(t, "GET", helloPath, nil); status != 202 {
		t.Error("a degraded plugin does not serve")
	}
}

// TestEnvironment: only what is on the list is handed on.
func TestEnvironment(t *testing.T) {
	t.Setenv("HOST_DB", "postgres://secret")
	t.Setenv("TZ", "Europe/Vienna")
	h := start(t, "", nil)
	_, body := h.Do(t, "POST", "/api/v1/plugins/fixture/do/env", nil)
	if strings.Contains(body, "HOST_DB") || !strings.Contains(body, "TZ=Europe/Vienna") {
		t.Errorf("environment:\n%s", body)
	}
}

// TestCase_PLG_15_Rounds: enabling and disabling plugins 500 times leaves nothing behind:
// no goroutine, file, socket or process.
func TestCase_PLG_15_Rounds(t *testing.T) {
	const plugins, rounds = 5, 100
	token := "rounds-" + strconv.Itoa(os.Getpid())
	t.Setenv("PLUGINHOST_TEST_TOKEN", token)
	cfg := hosttest.Config{Dir: t.TempDir(), PluginHost: quick()}
	cfg.PluginHost.HealthInterval, cfg.PluginHost.Env = time.Minute, []string{"PLUGINHOST_TEST_TOKEN"}
	for i := range plugins {
		name := "tiny" + strconv.Itoa(i)
		hosttest.Build(t, cfg.Dir, hosttest.Plugin{Name: name, Binary: tiny, Transport: "plain", Files: map[string][]byte{"id": []byte("com.example." + name)}})
	}
	h := hosttest.Start(t, cfg)
	all := func(n int) {
		var running sync.WaitGroup
		for i := range plugins {
			running.Go(func() { round(t, h, "tiny"+strconv.Itoa(i), n) })
		}
		running.Wait()
		if left := marked(t, token); len(left) != 0 {
			t.Errorf("processes %v are left", left)
		}
	}
	all(3)
	goroutines, files := settled(), openFiles(t)
	all(rounds - 3)
	eventually(t, "as few goroutines as after three rounds", func() bool { return runtime.NumGoroutine() <= goroutines })
	if now := openFiles(t); now > files {
		t.Errorf("open files grew from %d to %d", files, now)
	}
	entries, err := os.ReadDir(h.RunDir)
	if err != nil || len(entries) != 0 {
		t.Errorf("left in the run folder: %v, %v", entries, err)
	}
	noLeftovers(t, h)
}

// round disables and enables a plugin n times, and disables it in the end.
func round(t *testing.T, h *hosttest.Host, name string, n int) {
	for i := range n {
		if err := h.Manager.Enable(t.Context(), name); err != nil {
			t.Errorf("round %d of %s: %v", i, name, err)
			return
		}
		s := h.Status(t, name)
		if s.State != pluginhost.StateReady || !alive(s.PID) {
			t.Errorf("round %d: %+v", i, s)
			return
		}
		if err := h.Manager.Disable(t.Context(), name); err != nil {
			t.Errorf("round %d of %s: %v", i, name, err)
			return
		}
		if alive(s.PID) {
			t.Errorf("round %d: the process of %s is alive", i, name)
			return
		}
	}
}

// settled is the number of goroutines once it has stopped falling.
func settled() int {
	n := runtime.NumGoroutine()
	for range 50 {
		time.Sleep(2 * time.Millisecond) // nothing tells when a foreign goroutine has ended
		n = min(n, runtime.NumGoroutine())
	}
	return n
}

// openFiles counts sockets, pipes and files, without those of the database,
// whose connections come and go with its load.
func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.Contains(target, ".db") {
			n++
		}
	}
	return n
}

// TestCase_PLG_06_CrashLoop: a plugin that ends at once is failed after some
// tries, for everybody to see, and a restart by hand gives it as many again.
func TestCase_PLG_06_CrashLoop(t *testing.T) {
	h := start(t, "exit", nil)
	for round := 1; round <= 2; round++ {
		s := wantState(t, h, pluginhost.StateFailed)
		if s.Generation != 4*round || !strings.Contains(s.Reason, "exit status 1") || !s.NextRetry.IsZero() {
			t.Errorf("round %d: %+v", round, s)
		}
		if status, body := h.Do(t, "GET", "/api/v1/system/plugins/fixture", nil); status != 200 || !strings.Contains(body, `"state":"failed"`) {
			t.Errorf("the API says %d %s", status, body)
		}
		if err := h.Manager.Restart(t.Context(), "fixture"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the next failures", func() bool { return h.Status(t, "fixture").Generation == 4*(round+1) })
	}
}
