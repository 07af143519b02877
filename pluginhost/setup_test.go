package pluginhost_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/pluginhost"
	"github.com/objecthost/objecthost/pluginhost/bundle"
	"github.com/objecthost/objecthost/pluginhost/hosttest"
)

// wide bounds waits for something that must happen.
const wide = 60 * time.Second

// fixture is the path of the fixture plugin.
var fixture string

// tiny is the path of a plugin that does nothing.
var tiny string

// envFixture hands the fixture's path to a test that runs in a process of its
// own.
const envFixture = "PLUGINHOST_TEST_FIXTURE"

func TestMain(m *testing.M) {
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	if fixture = os.Getenv(envFixture); fixture != "" {
		return m.Run() // a host in a process of its own, see TestHostProcess
	}
	dir, err := os.MkdirTemp("", "pluginhost-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	fixture = filepath.Join(dir, "fixture")
	tiny = filepath.Join(dir, "tiny")
	for path, pkg := range map[string]string{fixture: "./internal/fixture", tiny: "./internal/tiny"} {
		if out, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, pkg).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
			return 1
		}
	}
	return m.Run()
}

func objects() []object.Schema {
	text := func(name string) object.Field { return object.Field{Name: name, Type: object.Text} }
	var all []object.Schema
	for _, name := range []string{"fix_account", "fix_open", "fix_note", "fix_read", "fix_secret"} {
		all = append(all, object.Schema{Name: name, Fields: object.Fields{
			text("name"), text("url"), text("checked"), text("text"), {Name: "password", Type: object.Secret},
		}})
	}
	return all
}

func grants() bundle.Capabilities {
	return bundle.Capabilities{
		Objects: map[string]string{"fix_account": "write", "fix_note": "write", "fix_read": "read"},
		Events:  []string{"data.record.*"}, Hooks: []string{"fix_*"}, Egress: []string{"127.0.0.1"},
		Provides: []string{"fixture.*"}, Nodes: []string{"fixture.*"}, Routes: true, KV: true,
	}
}

// quick are times for tests.
func quick() pluginhost.Config {
	return pluginhost.Config{
		StartTimeout: 20 * time.Second, StopGrace: 5 * time.Second, HealthInterval: 100 * time.Millisecond, HealthTimeout: 500 * time.Millisecond,
		Restart: pluginhost.RestartPolicy{MinBackoff: 20 * time.Millisecond, MaxBackoff: 50 * time.Millisecond, MaxFailures: 4},
	}
}

// start starts a host with the fixture in a mode.
func start(t testing.TB, mode string, change func(*hosttest.Config)) *hosttest.Host {
	t.Helper()
	cfg := hosttest.Config{Dir: t.TempDir(), Objects: objects(), PluginHost: quick()}
	p := hosttest.Plugin{Name: "fixture", Binary: fixture, Capabilities: grants()}
	if mode != "" {
		p.Args = []string{mode}
	}
	hosttest.Build(t, cfg.Dir, p)
	if change != nil {
		change(&cfg)
	}
	return hosttest.Start(t, cfg)
}

// eventually waits until a condition holds that no signal tells of, because it
// comes about in another process.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(wide)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", wide, what)
		}
		<-tick.C
	}
}

func wantState(t testing.TB, h *hosttest.Host, want pluginhost.State) pluginhost.Status {
	t.Helper()
	eventually(t, "state "+string(want), func() bool { return h.Status(t, "fixture").State == want })
	return h.Status(t, "fixture")
}

// alive tells whether a process is there and no zombie.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}
