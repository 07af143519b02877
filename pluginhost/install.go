package pluginhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/pluginhost/bundle"
	"github.com/objecthost/objecthost/services/data"
)

// Install adds the bundle in the folder source while the host runs: it checks
// and copies it, starts it, asks it how it is, and ties in what it contributes.
// When one of that fails nothing of it remains. Errors are those of the bundle,
// *[ConflictError], *[StartError] and *core.ConfigError.
func (m *Manager) Install(ctx context.Context, source string, c Change) (_ Status, err error) {
	m.changing.Lock()
	defer m.changing.Unlock()
	staged, keyID, err := m.stage(source)
	if err != nil {
		return Status{}, err
	}
	defer func() { err = errors.Join(err, staged.Discard()) }() // nothing is there any more when it was installed
	name := staged.Manifest.Name
	if _, err := m.plugin(name); err == nil {
		return Status{}, &ConflictError{Plugin: name, Reason: "it is installed already: upgrade it"}
	}
	for _, other := range m.manifests() {
		if other.ID == staged.Manifest.ID {
			return Status{}, &ConflictError{Plugin: name, Reason: fmt.Sprintf("there is a plugin with the id %s already", other.ID)}
		}
	}
	e := c.entryOf(staged, keyID, bundle.Entry{Enabled: true})
	a := newAdapter(m, staged, e)
	a.home = filepath.Join(m.cfg.Dir, name)
	if err := a.prepare(ctx, liveContext{m.host, a.id}); err != nil {
		return Status{}, err
	}
	if err := a.replace(ctx, staged, e); err != nil {
		return Status{}, errors.Join(err, a.Stop(context.WithoutCancel(ctx)))
	}
	m.add(a)
	return a.status(), nil
}

// Upgrade replaces a plugin by the bundle in the folder source, or, when that
// is "", by what was put into the plugin's own folder. The new version is
// started beside the old one; see [Manager.Install] for what can go wrong,
// after which the old one goes on.
func (m *Manager) Upgrade(ctx context.Context, name, source string, c Change) (_ Status, err error) {
	m.changing.Lock()
	defer m.changing.Unlock()
	a, err := m.plugin(name)
	if err != nil {
		return Status{}, err
	}
	if source == "" {
		b, e, err := a.installed()
		if err != nil {
			return Status{}, err
		}
		if err := a.replace(ctx, b, c.entryOf(b, e.KeyID, e)); err != nil {
			return Status{}, err
		}
		return a.status(), nil
	}
	staged, keyID, err := m.stage(source)
	if err != nil {
		return Status{}, err
	}
	defer func() { err = errors.Join(err, staged.Discard()) }()
	if staged.Manifest.Name != name {
		return Status{}, &ConflictError{Plugin: name, Reason: "the bundle is of plugin " + staged.Manifest.Name}
	}
	old := *a.entry.Load()
	old.Enabled = !a.off.Load()
	if err := a.replace(ctx, staged, c.entryOf(staged, keyID, old)); err != nil {
		return Status{}, err
	}
	return a.status(), nil
}

// Uninstall ends a plugin and removes what it contributed, its bundle, and the
// events that wait for it. Records of its objects stay, and its values unless
// purge is set. Its objects stay defined until the host is started anew.
func (m *Manager) Uninstall(ctx context.Context, name string, purge bool) error {
	m.changing.Lock()
	defer m.changing.Unlock()
	a, err := m.plugin(name)
	if err != nil {
		return err
	}
	if err := a.uninstall(ctx, purge); err != nil {
		return err
	}
	m.drop(a)
	return nil
}

func (a *adapter) uninstall(ctx context.Context, purge bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		return errGone
	}
	a.off.Store(true)
	if err := a.sup.shutDown(ctx); err != nil {
		return err
	}
	if err := a.wiring.stop(ctx); err != nil {
		return err
	}
	if err := a.manager.board.apply(ctx, a.wiring, nil); err != nil {
		return err
	}
	if purge {
		if err := a.wiring.store.Clear(ctx, a.name); err != nil {
			return err
		}
	}
	a.gone = true
	a.end()
	a.manager.metrics.forget(a.name)
	return bundle.Remove(a.manager.cfg.Dir, a.home, a.name)
}

// stage copies a bundle, checks its signature and that it runs here.
func (m *Manager) stage(source string) (*bundle.Bundle, string, error) {
	trust, err := bundle.LoadTrust(TrustDir(m.cfg.Dir))
	if err != nil {
		return nil, "", err
	}
	staged, err := bundle.Stage(m.cfg.Dir, source)
	if err != nil {
		return nil, "", err
	}
	keyID, err := staged.Verify(trust)
	if m.cfg.Dev {
		err = nil
	}
	if err == nil {
		err = staged.Manifest.RunsOn(runtime.GOOS + "/" + runtime.GOARCH)
	}
	if err != nil {
		return nil, "", errors.Join(err, staged.Discard())
	}
	return staged, keyID, nil
}

// manifests are those of all plugins, the ones that were installed since the
// boot included.
func (m *Manager) manifests() []core.Manifest { return m.Current(m.host.Manifests()) }

// Current brings the kernel's manifests up to date: without the plugins that
// were uninstalled since the boot, with those that were installed, and with the
// versions that run.
func (m *Manager) Current(boot []core.Manifest) []core.Manifest {
	now := map[string]core.Manifest{}
	for _, a := range m.all() {
		now[a.id] = a.Manifest()
	}
	var all []core.Manifest
	for _, b := range boot {
		current, ours := now[b.ID]
		switch {
		case ours:
			all = append(all, current)
			delete(now, b.ID)
		case !m.wasHere(b.ID):
			all = append(all, b)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(now)) {
		all = append(all, now[id])
	}
	return all
}

// wasHere tells that a plugin of the boot has been uninstalled: the kernel still
// knows it.
func (m *Manager) wasHere(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.adapters {
		if a.id == id {
			return false
		}
	}
	for _, a := range m.booted {
		if a.id == id {
			return true
		}
	}
	return false
}

// conflict tells why a version that was not there at the boot cannot run beside
// other plugins, nil when it can.
func (m *Manager) conflict(b *bundle.Bundle, engine *data.Engine) error {
	fail := func(format string, args ...any) error {
		return &ConflictError{Plugin: b.Manifest.Name, Reason: fmt.Sprintf(format, args...)}
	}
	there := map[string]bool{}
	for _, other := range m.manifests() {
		there[other.ID] = true
		if ns := b.Manifest.Contributes.Namespace; ns != "" && other.Namespace == ns && other.ID != b.Manifest.ID {
			return fail("the namespace %s belongs to plugin %s", ns, other.ID)
		}
	}
	for _, id := range b.Manifest.Contributes.DependsOn {
		if !there[id] {
			return fail("it depends on plugin %s, which is not there", id)
		}
	}
	m.mu.Lock()
	mine := m.defined[b.Manifest.ID]
	m.mu.Unlock()
	for _, o := range b.Manifest.Contributes.Objects {
		if _, err := engine.Object(o.Name); err == nil && !slices.Contains(mine, o.Name) {
			return fail("the object %s belongs to somebody else", o.Name)
		}
	}
	return nil
}

// note remembers which objects a plugin has defined, also after it is gone:
// they stay defined until the host is started anew.
func (m *Manager) note(id string, objects []object.Schema) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range objects {
		m.defined[id] = append(m.defined[id], o.Name)
	}
}

// liveContext is the host as a plugin sees it that was installed since the boot:
// what it provides is the manager's in the kernel.
type liveContext struct {
	core.Context
	id string
}

func (c liveContext) PluginID() string        { return c.id }
func (c liveContext) Config() json.RawMessage { return nil }
func (c liveContext) Log() *slog.Logger       { return c.Context.Log().With("plugin_id", c.id) }
