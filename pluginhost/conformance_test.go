package pluginhost_test

import (
	"os"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/coretest"
	"github.com/objecthost/objecthost/pluginhost"
	"github.com/objecthost/objecthost/pluginhost/hosttest"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// TestConformance: a plugin in a process of its own, and one in the host's that
// is served like it, keep to the rules of every plugin.
func TestConformance(t *testing.T) {
	run, err := os.MkdirTemp("", "co") //nolint:usetesting // the paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	cfg := quick()
	cfg.Dir, cfg.RunDir, cfg.Dev = t.TempDir(), run, true
	hosttest.Build(t, cfg.Dir, hosttest.Plugin{Name: "fixture", Binary: fixture, Capabilities: grants()})
	for place, pick := range map[string]func(*testing.T, *pluginhost.Manager) core.Plugin{
		"process": func(_ *testing.T, m *pluginhost.Manager) core.Plugin { return m.Plugins()[1] },
		"in the host": func(t *testing.T, m *pluginhost.Manager) core.Plugin {
			p, err := m.InProcess("inside", inside{}, grants())
			if err != nil {
				t.Fatal(err)
			}
			return p
		},
	} {
		t.Run(place, func(t *testing.T) {
			db := storagetest.Open(t, storagetest.SQLite(t), storage.Config{})
			var manager *pluginhost.Manager // of the case that runs
			coretest.RunWith(t, coretest.Setup{
				New: func() core.Plugin {
					var err error
					if manager, err = pluginhost.New(db, cfg); err != nil {
						t.Fatal(err)
					}
					return pick(t, manager)
				},
				Partners: func() []core.Plugin { return append(hosttest.Services(t, db, objects()...), manager.Plugins()[0]) },
				Prompt:   30 * time.Second,
			})
		})
	}
}
