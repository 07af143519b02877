package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/pluginhost/bundle"
	"github.com/objecthost/objecthost/pluginhost/process"
	"github.com/objecthost/objecthost/pluginhost/sqlstore"
	"github.com/objecthost/objecthost/services/auth"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/storage"
)

// PluginID is the id of the manager's own plugin.
const PluginID = "com.objectstack.service.pluginhost"

// PermissionManage is what the routes of the manager ask for.
const PermissionManage = "plugins.manage"

// ServiceKey is the service of the manager.
var ServiceKey = core.NewKey[*Manager]("pluginhost")

// ErrUnknownPlugin is returned for a name that no plugin has.
var ErrUnknownPlugin = errors.New("pluginhost: there is no such plugin")

// Manager runs the plugins of a folder. It is safe for concurrent use.
type Manager struct {
	cfg     Config
	db      *storage.DB
	group   *process.Cgroup // nil where there is none
	board   *board
	metrics *metrics
	host    core.Context // from Init on
	// quiet ends when the HTTP server begins to shut down.
	quiet context.Context
	hush  context.CancelFunc

	changing sync.Mutex // one install, upgrade or uninstall at a time

	mu       sync.Mutex
	adapters []*adapter          // by name
	booted   []*adapter          // those that the kernel has
	defined  map[string][]string // objects by plugin id, also of those that are gone
}

// New reads the folder. Bundles that are broken or whose signature, lock or
// platform do not hold do not keep the others from running: they are failed.
// Only what makes the folder as a whole unreadable is an error.
func New(db *storage.DB, cfg Config) (*Manager, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	for _, path := range []*string{&cfg.Dir, &cfg.RunDir} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return nil, err
		}
		*path = absolute
	}
	if err := cfg.validate(); err != nil { // now with whole paths
		return nil, err
	}
	group, err := cfg.cgroup()
	if err != nil {
		return nil, err
	}
	bundles, err := cfg.find()
	if err != nil {
		return nil, err
	}
	lock, err := bundle.LoadLock(cfg.Dir)
	if err != nil {
		return nil, err
	}
	m := &Manager{cfg: cfg, db: db, group: group, board: newBoard(), defined: map[string][]string{}}
	m.metrics = newMetrics(m)
	m.quiet, m.hush = context.WithCancel(context.Background())
	for _, b := range bundles {
		entry, locked := lock[b.Manifest.Name]
		if !locked && cfg.Dev {
			entry = devEntry(b)
		}
		m.add(newAdapter(m, b, entry))
		m.note(b.Manifest.ID, b.Manifest.Contributes.Objects)
	}
	m.booted = slices.Clone(m.adapters)
	return m, nil
}

// Plugins are the manager itself and a plugin for each that was found, to be
// given to the kernel.
func (m *Manager) Plugins() []core.Plugin {
	all := []core.Plugin{managerPlugin{m}}
	for _, a := range m.booted {
		all = append(all, a)
	}
	return all
}

func (m *Manager) add(a *adapter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.adapters = append(m.adapters, a)
	slices.SortFunc(m.adapters, func(a, b *adapter) int { return strings.Compare(a.name, b.name) })
}

func (m *Manager) drop(a *adapter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.adapters = slices.DeleteFunc(m.adapters, func(o *adapter) bool { return o == a })
}

func (m *Manager) all() []*adapter {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.adapters)
}

// Status lists the plugins by name.
func (m *Manager) Status() []Status {
	adapters := m.all()
	all := make([]Status, len(adapters))
	for i, a := range adapters {
		all[i] = a.status()
	}
	return all
}

func (m *Manager) plugin(name string) (*adapter, error) {
	for _, a := range m.all() {
		if a.name == name {
			return a, nil
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrUnknownPlugin, name)
}

// Enable switches a plugin on, remembers it in the lock file, and waits until it
// is ready or has failed, within ctx.
func (m *Manager) Enable(ctx context.Context, name string) error {
	a, err := m.plugin(name)
	if err != nil {
		return err
	}
	if err := m.remember(name, true); err != nil {
		return err
	}
	return a.enable(ctx)
}

// Disable switches a plugin off and remembers it. When it returns without an
// error the process has ended and nothing of the plugin is called any more.
func (m *Manager) Disable(ctx context.Context, name string) error {
	a, err := m.plugin(name)
	if err != nil {
		return err
	}
	if err := m.remember(name, false); err != nil {
		return err
	}
	return a.disable(ctx)
}

// Restart stops a plugin and starts what is in its folder, also when it is
// failed.
func (m *Manager) Restart(ctx context.Context, name string) error {
	a, err := m.plugin(name)
	if err != nil {
		return err
	}
	return a.restart(ctx)
}

// Logs returns the last n lines of a plugin's log.
func (m *Manager) Logs(name string, n int) ([]string, error) {
	a, err := m.plugin(name)
	if err != nil {
		return nil, err
	}
	lines, _, _, _ := a.logs.tail(n)
	return lines, nil
}

// Follow calls line with the last n lines of a plugin's log and then with each
// that comes, until line returns an error, ctx ends, the plugin is uninstalled,
// or the host's HTTP server shuts down. Lines that come faster than they are
// taken are left out.
func (m *Manager) Follow(ctx context.Context, name string, n int, line func(string) error) error {
	a, err := m.plugin(name)
	if err != nil {
		return err
	}
	ctx, cancel := a.bound(ctx)
	defer cancel()
	defer context.AfterFunc(m.quiet, cancel)()
	return a.logs.follow(ctx, n, line)
}

// remember writes into the lock file whether a plugin is on. One that is not in
// it runs by the development switch, which remembers nothing.
func (m *Manager) remember(name string, enabled bool) error {
	return bundle.UpdateLock(m.cfg.Dir, func(l bundle.Lock) error {
		if e, ok := l[name]; ok {
			e.Enabled = enabled
			l[name] = e
		}
		return nil
	})
}

// managerPlugin is the manager as a plugin.
type managerPlugin struct{ *Manager }

var (
	_ core.Plugin  = managerPlugin{}
	_ core.Starter = managerPlugin{}
	_ core.Stopper = managerPlugin{}
)

// Manifest implements core.Plugin.
func (p managerPlugin) Manifest() core.Manifest {
	return core.Manifest{
		ID: PluginID, Version: "1.0.0", Provides: []string{ServiceKey.Name()},
		// It stops before what the plugins that it installed work with.
		After:       append([]string{data.PluginID, realtime.PluginID, messaging.PluginID, auth.PluginID}, used...),
		StopTimeout: p.cfg.StopGrace + 2*killTime,
		Contributes: core.Contributions{
			Permissions: []core.Permission{{Name: PermissionManage, Description: "See, install, start, stop and remove plugins", Host: true}},
			Routes:      p.routes(),
		},
	}
}

// Init provides the manager and removes what dead hosts left behind.
func (p managerPlugin) Init(ctx context.Context, host core.Context) error {
	if p.group != nil {
		if err := p.group.Sweep(); err != nil {
			host.Log().Warn("end what earlier hosts left behind", "error", err)
		}
	}
	if err := p.cfg.sweep(); err != nil {
		return err
	}
	p.host = host
	server, err := optional(ctx, host, serverKey)
	if err != nil {
		return err
	}
	if server != nil {
		server.OnShutdown(p.hush)
	}
	return core.Provide(host, ServiceKey, p.Manager)
}

// Stop ends the plugins that were installed since the boot; the kernel has
// stopped the others.
func (p managerPlugin) Stop(ctx context.Context) error {
	all := p.all()
	errs := make([]error, len(all))
	var stopping sync.WaitGroup
	for i, a := range all {
		if !slices.Contains(p.booted, a) {
			stopping.Go(func() { errs[i] = a.Stop(ctx) })
		}
	}
	stopping.Wait()
	return errors.Join(errs...)
}

// Start migrates the tables.
func (p managerPlugin) Start(ctx context.Context) error {
	return p.db.Migrate(ctx, sqlstore.Migrations())
}
