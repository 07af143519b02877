package pluginhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/pluginhost/bundle"
	"github.com/objecthost/objecthost/pluginhost/process"
	"github.com/objecthost/objecthost/pluginhost/sqlstore"
	"github.com/objecthost/objecthost/pluginsdk"
	"github.com/objecthost/objecthost/services/automation"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/services/rest"
	"github.com/objecthost/objecthost/storage"
)

// The plugins whose services are needed, and those that are used when they are
// there.
var (
	needed = []string{PluginID, data.PluginID, realtime.PluginID, messaging.PluginID}
	used   = []string{rest.PluginID, automation.PluginID}
)

// adapter is an installed plugin. The kernel sees it when it was there at the
// boot; one that was installed since belongs to the manager alone. Processes
// come and go behind it.
type adapter struct {
	manager *Manager
	name    string
	id      string
	home    string                        // the folder of the installed bundle
	bundle  atomic.Pointer[bundle.Bundle] // of the version that serves
	entry   atomic.Pointer[bundle.Entry]
	log     *slog.Logger
	logs    *pluginLog
	denials *denials
	wiring  *wiring
	sup     *supervisor
	meter   *meter
	off     atomic.Bool
	version atomic.Pointer[string] // of the generation that was started last
	config  json.RawMessage        // from the host's settings, nil when they have none

	mu   sync.Mutex // one of enable, disable, restart, upgrade at a time
	gone bool       // uninstalled or stopped, under mu
	// life ends when the host stops, and with it what is under way.
	life context.Context
	end  context.CancelFunc
}

var (
	_ core.Plugin        = (*adapter)(nil)
	_ core.Starter       = (*adapter)(nil)
	_ core.Stopper       = (*adapter)(nil)
	_ core.HealthChecker = (*adapter)(nil)
)

func newAdapter(m *Manager, b *bundle.Bundle, e bundle.Entry) *adapter {
	a := &adapter{manager: m, name: b.Manifest.Name, id: b.Manifest.ID, home: b.Dir, denials: newDenials()}
	a.bundle.Store(b)
	a.entry.Store(&e)
	a.off.Store(!e.Enabled)
	a.meter = &meter{plugin: a.name, metrics: m.metrics, tracer: m.cfg.Tracer.Tracer(instrumentation)}
	a.life, a.end = context.WithCancel(context.Background())
	a.wiring = newWiring(m.board, a.name, a.id)
	a.wiring.target, a.wiring.disabled = a.target, a.off.Load
	a.setLog(slog.New(slog.DiscardHandler))
	return a
}

func (a *adapter) setLog(log *slog.Logger) {
	a.log, a.wiring.log, a.denials.log = log, log, log
	a.logs = newPluginLog(log)
}

// Manifest implements core.Plugin. Routes are set by the board, which can take
// them back.
func (a *adapter) Manifest() core.Manifest {
	m := a.bundle.Load().Manifest.Core()
	m.DependsOn, m.After = slices.Clone(m.DependsOn), slices.Clone(used)
	for _, id := range needed {
		if !slices.Contains(m.DependsOn, id) {
			m.DependsOn = append(m.DependsOn, id)
		}
	}
	if a.entry.Load().Config != nil {
		m.ConfigSchema = nil // it was configured when it was installed
	}
	// A start waits for the first attempt; a stop for the ladder.
	m.StartTimeout = a.manager.cfg.StartTimeout + killTime + killTime
	m.StopTimeout = a.manager.cfg.StopGrace + 2*killTime
	return m
}

// Init ties the plugin's contributions to the host. The process is not needed
// for that: the manifest tells what there is.
func (a *adapter) Init(ctx context.Context, host core.Context) error {
	if err := a.prepare(ctx, host); err != nil {
		return err
	}
	return a.manager.board.apply(ctx, a.wiring, a.contractOf(a.bundle.Load(), *a.entry.Load()))
}

// prepare finds what the plugin works with.
func (a *adapter) prepare(ctx context.Context, host core.Context) error {
	a.setLog(host.Log().With("plugin_name", a.name))
	a.config = host.Config()
	found, err := lookup(ctx, host, a.manager.db)
	if err != nil {
		return err
	}
	a.wiring.services = found
	cfg := a.manager.cfg
	a.sup = newSupervisor(supervisorConfig{
		name: a.name, launch: a.launch, log: a.log, policy: cfg.Restart, startTimeout: cfg.StartTimeout, grace: cfg.StopGrace,
		healthInterval: cfg.HealthInterval, healthTimeout: cfg.HealthTimeout, healthFailures: healthFailures,
	})
	return nil
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

// Stop ends the process, and an upgrade that is under way.
func (a *adapter) Stop(ctx context.Context) error {
	a.end()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = true
	if a.sup == nil {
		return nil
	}
	return errors.Join(a.wiring.stop(ctx), a.sup.shutDown(ctx))
}

// CheckHealth returns an error unless the plugin is ready or switched off.
func (a *adapter) CheckHealth(context.Context) error {
	s := a.status()
	if s.State == StateReady || s.State == StateDisabled {
		return nil
	}
	return fmt.Errorf("pluginhost: plugin %s is %s: %s", s.Name, s.State, s.Reason)
}

// contractOf is what a version contributes and may do by the operator's entry.
func (a *adapter) contractOf(b *bundle.Bundle, e bundle.Entry) *contract {
	m := b.Manifest
	return &contract{
		decl: m.Contributes, digest: b.Digest,
		policy: &policy{requested: m.Capabilities, granted: e.Grants, denials: a.denials},
	}
}

// target is the generation of a contract, or the one that runs.
func (a *adapter) target(c *contract) (guest, func(), error) {
	if c != nil {
		if i := c.process.Load(); i != nil && i.acquire() {
			return remote{i}, i.release, nil
		}
	}
	r, err := a.sup.instance()
	if err != nil {
		return nil, nil, err
	}
	i := r.(*instance)
	if !i.acquire() {
		return nil, nil, &pluginsdk.Error{Code: pluginsdk.CodeUnavailable, Retryable: true, Message: fmt.Sprintf("the plugin %s is stopping", a.name)}
	}
	return remote{i}, i.release, nil
}

func (a *adapter) status() Status {
	m := a.bundle.Load().Manifest
	s := Status{Name: a.name, ID: a.id, Version: m.Version, KeyID: a.entry.Load().KeyID, State: StateInstalled, Denied: a.denials.all()}
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
	found := services{store: sqlstore.New(store), host: host}
	var errs [5]error
	found.engine, errs[0] = core.Lookup(ctx, host, data.ServiceKey)
	found.events, errs[1] = core.Lookup(ctx, host, realtime.ServiceKey)
	found.outbox, errs[2] = core.Lookup(ctx, host, messaging.ServiceKey)
	found.server, errs[3] = optional(ctx, host, serverKey)
	found.flows, errs[4] = optional(ctx, host, automation.ServiceKey)
	return found, errors.Join(errs[:]...)
}
