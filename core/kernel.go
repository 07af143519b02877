package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Kernel runs plugins. Make one with [New]; it runs once, from Start to Stop.
// All methods are safe for concurrent use. No lock is held while a plugin's
// code runs, so plugins may call back into the kernel from anywhere.
type Kernel struct {
	config   Config
	registry *registry
	hooks    hooks
	host     *host

	mu      sync.Mutex
	state   State
	members []*member // in start order once Start has found it
	metrics Metrics   // without Plugins
	stopErr error
	// stopWanted tells a running Start that Stop was called; cancelBoot ends
	// its context.
	stopWanted bool
	cancelBoot context.CancelCauseFunc
	// hurried tells that a caller of Stop is out of time; cancelTeardown ends
	// the context of the teardown under way.
	hurried        bool
	cancelTeardown context.CancelFunc
	readyEmitted   bool

	// quiet is closed when health checks must end; checks are those under way,
	// added only while the state is running.
	quiet  chan struct{}
	checks sync.WaitGroup
	// done is closed when the state is stopped.
	done chan struct{}
}

// member is a plugin in a kernel. Its fields below phase are guarded by the
// kernel's mutex.
type member struct {
	plugin   Plugin
	manifest Manifest
	host     *host

	phase       Phase
	state       State
	initialized bool // Init was called
	metrics     PluginMetrics
	health      Health
	flight      chan struct{} // closed when the check under way is recorded
	checking    bool          // CheckHealth has not returned
}

// New returns a kernel. A setting that is out of bounds is reported by Start.
func New(config Config) *Kernel {
	k := &Kernel{
		config: config.withDefaults(),
		state:  StateIdle,
		quiet:  make(chan struct{}),
		done:   make(chan struct{}),
	}
	k.registry = newRegistry(func(ctx context.Context, in *instance, raw any) {
		if err := k.dispose(ctx, in, raw); err != nil {
			k.config.Logger.Error("dropped service not disposed", "service", in.service.name, "error", err)
		}
	})
	k.host = &host{kernel: k, log: k.config.Logger}
	return k
}

// Use adds plugins. Either all are added or none: the error joins a
// *[ManifestError] for each invalid field, a *[DuplicatePluginError], a
// *[PanicError] of Manifest, or is a *[StateError] once Start or Stop was
// called.
func (k *Kernel) Use(plugins ...Plugin) error {
	var added []*member
	var errs []error
	for _, p := range plugins {
		m, err := k.admit(p)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		added = append(added, m)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state != StateIdle {
		return &StateError{Op: "add plugins", State: k.state}
	}
	all := slices.Clone(k.members)
	for _, m := range added {
		if slices.ContainsFunc(all, func(o *member) bool { return o.manifest.ID == m.manifest.ID }) {
			errs = append(errs, &DuplicatePluginError{ID: m.manifest.ID})
		}
		all = append(all, m)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	k.members = all
	return nil
}

// admit asks a plugin for its manifest and checks it.
func (k *Kernel) admit(p Plugin) (*member, error) {
	if p == nil {
		return nil, &ManifestError{Field: "Plugin", Reason: "is nil"}
	}
	m := &member{plugin: p, phase: PhaseRegister, state: StateIdle}
	err := protect(fmt.Sprintf("%T", p), PhaseRegister, func() error {
		m.manifest = p.Manifest()
		return nil
	})
	if err != nil {
		return nil, err
	}
	id := m.manifest.ID
	m.manifest.Version = or(m.manifest.Version, "0.0.0")
	m.metrics.Plugin = id
	m.health = Health{Plugin: id, State: HealthUnknown}
	m.host = &host{kernel: k, member: m, id: id, log: k.config.Logger.With("plugin", id)}
	return m, errors.Join(ValidateManifest(m.manifest)...)
}

// Host is the kernel as the host program sees it: it may provide services
// before Start and look them up until Stop has ended. Its PluginID is empty.
func (k *Kernel) Host() Context { return k.host }

// State returns where the kernel stands.
func (k *Kernel) State() State {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

// Plugins returns the plugins in start order, before Start in the order of
// their registration. It checks nothing: the health is the latest known.
func (k *Kernel) Plugins() []PluginInfo {
	k.mu.Lock()
	defer k.mu.Unlock()
	infos := make([]PluginInfo, len(k.members))
	for i, m := range k.members {
		infos[i] = PluginInfo{Manifest: m.manifest, State: m.state, Health: m.health}
	}
	return infos
}

// Metrics returns what has been measured so far.
func (k *Kernel) Metrics() Metrics {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := k.metrics
	all.Plugins = make([]PluginMetrics, len(k.members))
	for i, m := range k.members {
		all.Plugins[i] = m.metrics
	}
	return all
}

// declarer is the plugin whose manifest promises the service. The caller holds
// the lock.
func (k *Kernel) declarer(service string) string {
	for _, m := range k.members {
		if slices.Contains(m.manifest.Provides, service) {
			return m.manifest.ID
		}
	}
	return ""
}

// enter notes that a plugin has come to a phase.
func (k *Kernel) enter(m *member, phase Phase, state State) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m.phase, m.state = phase, state
	if phase == PhaseInit {
		m.initialized = true
	}
	if state != StateRunning {
		m.health = Health{Plugin: m.manifest.ID, State: HealthUnknown}
	}
}

// measure notes how long a phase took.
func (k *Kernel) measure(field *time.Duration, since time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	*field = time.Since(since)
}
