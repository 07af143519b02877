package pluginhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/pluginhost/bundle"
	"github.com/objecthost/objecthost/pluginhost/process"
	"github.com/objecthost/objecthost/pluginhost/sqlstore"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/storage"
)

// The plugins whose services are needed.
var needed = []string{PluginID, data.PluginID, realtime.PluginID, messaging.PluginID}

// adapter is an installed plugin as the kernel sees it. It lives as long as the
// kernel; processes come and go behind it.
type adapter struct {
	manager *Manager
	bundle  *bundle.Bundle
	entry   atomic.Pointer[bundle.Entry]
	log     *slog.Logger
	logs    *pluginLog
	policy  *policy
	wiring  *wiring
	sup     *supervisor
	meter   meter
	off     atomic.Bool
	version atomic.Pointer[string] // of the generation that was started last
	config  json.RawMessage

	mu sync.Mutex // one of enable, disable, restart at a time
}

var (
	_ core.Plugin        = (*adapter)(nil)
	_ core.Starter       = (*adapter)(nil)
	_ core.Stopper       = (*adapter)(nil)
	_ core.HealthChecker = (*adapter)(nil)
)

func newAdapter(m *Manager, b *bundle.Bundle, e bundle.Entry) *adapter {
	a := &adapter{manager: m, bundle: b}
	a.entry.Store(&e)
	a.off.Store(!e.Enabled)
	a.setLog(slog.New(slog.DiscardHandler))
	a.policy = newPolicy(a.log, b.Manifest.Capabilities, e.Grants)
	a.wiring = &wiring{name: b.Manifest.Name, decl: b.Manifest.Contributes, policy: a.policy, log: a.log, target: a.target, disabled: a.off.Load}
	return a
}

func (a *adapter) setLog(log *slog.Logger) {
	a.log = log
	a.logs = newPluginLog(log)
}

// Manifest implements core.Plugin.
func (a *adapter) Manifest() core.Manifest {
	m := a.bundle.Manifest.Core()
	for _, id := range needed {
		if !slices.Contains(m.DependsOn, id) {
			m.DependsOn = append(slices.Clone(m.DependsOn), id)
		}
	}
	m.Contributes.Routes = a.wiring.routes()
	// A start waits for the first attempt; a stop for the ladder.
	m.StartTimeout = a.manager.cfg.StartTimeout + killTime + killTime
	m.StopTimeout = a.manager.cfg.StopGrace + 2*killTime
	return m
}

// Init ties the plugin's contributions to the host. The process is not needed
// for that: the manifest tells what there is.
func (a *adapter) Init(ctx context.Context, host core.Context) error {
	log := host.Log().With("plugin_name", a.bundle.Manifest.Name, "version", a.bundle.Manifest.Version)
	a.setLog(log)
	a.policy.log, a.wiring.log = log, log
	a.config = host.Config()
	found, err := lookup(ctx, host, a.manager.db)
	if err != nil {
		return err
	}
	a.wiring.services = found
	cfg := a.manager.cfg
	a.sup = newSupervisor(supervisorConfig{
		name: a.bundle.Manifest.Name, launch: a.launch, log: log, policy: cfg.Restart, startTimeout: cfg.StartTimeout, grace: cfg.StopGrace,
		healthInterval: cfg.HealthInterval, healthTimeout: cfg.HealthTimeout, healthFailures: healthFailures,
	})
	return a.wiring.install(host)
}

// Start starts the process, unless the plugin is switched off, and waits for
// it. That it fails is the supervisor's affair and no reason not to boot.
func (a *adapter) Start(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wiring.start()
	if err := a.wiring.setConsumers(ctx, !a.off.Load()); err != nil {
		return err
	}
	if a.off.Load() {
		return a.sup.stop(ctx)
	}
	a.sup.start()
	a.sup.wait(ctx)
	a.wiring.wake()
	return nil
}

// Stop ends the process.
func (a *adapter) Stop(ctx context.Context) error {
	if a.sup == nil {
		return nil
	}
	return errors.Join(a.wiring.stop(ctx), a.sup.stop(ctx))
}

// CheckHealth returns an error unless the plugin is ready or switched off.
func (a *adapter) CheckHealth(context.Context) error {
	s := a.status()
	if s.State == StateReady || s.State == StateDisabled {
		return nil
	}
	return fmt.Errorf("pluginhost: plugin %s is %s: %s", s.Name, s.State, s.Reason)
}

func (a *adapter) enable(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.reload(); err != nil {
		return err
	}
	if err := a.wiring.setConsumers(ctx, true); err != nil {
		return err
	}
	a.off.Store(false)
	a.sup.start()
	a.sup.wait(ctx)
	a.wiring.wake()
	return nil
}

func (a *adapter) disable(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.off.Store(true)
	return errors.Join(a.sup.stop(ctx), a.wiring.setConsumers(ctx, false))
}

func (a *adapter) restart(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.off.Load() {
		return fmt.Errorf("pluginhost: plugin %s is disabled", a.bundle.Manifest.Name)
	}
	if err := a.reload(); err != nil {
		return err
	}
	if err := a.sup.stop(ctx); err != nil {
		return err
	}
	a.sup.start()
	a.sup.wait(ctx)
	a.wiring.wake()
	return nil
}

// reload reads the operator's decisions anew. What hooks, routes and services
// there are stays as it was at boot.
func (a *adapter) reload() error {
	lock, err := bundle.LoadLock(a.manager.cfg.Dir)
	if err != nil {
		return err
	}
	if e, ok := lock[a.bundle.Manifest.Name]; ok {
		a.entry.Store(&e)
		a.policy.grant(e.Grants)
	}
	return nil
}

// LockError is a plugin whose manifest is not the one that was installed.
type LockError struct {
	Plugin, Want, Got string
}

func (e *LockError) Error() string {
	if e.Want == "" {
		return fmt.Sprintf("pluginhost: plugin %s is not in the lock file: install it", e.Plugin)
	}
	return fmt.Sprintf("pluginhost: plugin %s has the manifest %s, the lock file says %s: install it again", e.Plugin, e.Got, e.Want)
}

// HostRestartError is a new version of a plugin that contributes other things
// than the host was booted with.
type HostRestartError struct{ Plugin, Version string }

func (e *HostRestartError) Error() string {
	return fmt.Sprintf("pluginhost: version %s of plugin %s contributes other things than the one that the host was started with: restart the host", e.Version, e.Plugin)
}

// verify reads the bundle anew and checks the signature and the lock, and that
// hooks, routes, events and services are those that the host was booted with.
func (a *adapter) verify() (*bundle.Bundle, error) {
	b, err := bundle.Open(a.bundle.Dir)
	if err != nil {
		return nil, err
	}
	cfg := a.manager.cfg
	if want := a.entry.Load().Digest; b.Digest != want && !cfg.Dev {
		return nil, &LockError{Plugin: a.bundle.Manifest.Name, Want: want, Got: b.Digest}
	}
	trust, err := bundle.LoadTrust(TrustDir(cfg.Dir))
	if err != nil {
		return nil, err
	}
	if _, err := b.Verify(trust); err != nil && !cfg.Dev {
		return nil, err
	}
	if !reflect.DeepEqual(b.Manifest.Contributes, a.bundle.Manifest.Contributes) || b.Manifest.ID != a.bundle.Manifest.ID {
		return nil, &HostRestartError{Plugin: b.Manifest.Name, Version: b.Manifest.Version}
	}
	return b, nil
}

// launch implements the supervisor's launch.
func (a *adapter) launch(ctx context.Context, generation int, step func(State)) (running, error) {
	b, err := a.verify()
	if err != nil {
		return nil, permanentError{err}
	}
	a.policy.request(b.Manifest.Capabilities)
	a.version.Store(&b.Manifest.Version)
	a.logs.begin()
	i, err := startInstance(ctx, instanceSpec{
		bundle: b, runDir: a.manager.cfg.RunDir, env: a.manager.cfg.environment(), limits: a.manager.cfg.Limits,
		line: func(pid int, line []byte, cut bool) { a.logs.line(pid, generation, line, cut) },
		api:  &api{services: a.wiring.services, name: b.Manifest.Name, policy: a.policy}, config: a.config, meter: &a.meter,
		checked: func() { step(StateVerified); step(StateStarting) },
	})
	if err != nil {
		return nil, err
	}
	return i, nil
}

// target is the running generation.
func (a *adapter) target() (guest, error) {
	r, err := a.sup.instance()
	if err != nil {
		return nil, err
	}
	return remote{r.(*instance)}, nil
}

func (a *adapter) status() Status {
	m := a.bundle.Manifest
	s := Status{Name: m.Name, ID: m.ID, Version: m.Version, KeyID: a.entry.Load().KeyID, State: StateInstalled, Denied: a.policy.counts()}
	if v := a.version.Load(); v != nil {
		s.Version = *v
	}
	if a.sup == nil {
		return s
	}
	a.sup.status(&s)
	a.meter.status(&s)
	_, s.LastPanic, s.LogLines, s.LogDropped = a.logs.tail(0)
	if r, err := a.sup.instance(); err == nil {
		s.PID = r.(*instance).process.PID()
		s.Memory = process.Memory(s.PID)
	}
	return s
}

// lookup finds the services that plugins work with.
func lookup(ctx context.Context, host core.Context, store *storage.DB) (services, error) {
	engine, err := core.Lookup(ctx, host, data.ServiceKey)
	if err != nil {
		return services{}, err
	}
	events, err := core.Lookup(ctx, host, realtime.ServiceKey)
	if err != nil {
		return services{}, err
	}
	outbox, err := core.Lookup(ctx, host, messaging.ServiceKey)
	if err != nil {
		return services{}, err
	}
	return services{engine: engine, events: events, outbox: outbox, store: sqlstore.New(store), host: host}, nil
}
