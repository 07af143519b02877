package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Start boots the kernel: it validates and orders the plugins, initializes all,
// starts all, and emits HookReady, HookBootstrapped and HookListening. It
// returns once everything runs; ctx bounds the boot only.
//
// When anything fails, everything that was initialized is stopped in reverse
// order, the failing plugin included, and Start returns a *[BootError]. Errors
// that can be known beforehand are found before the first Init and reported
// together. A second Start, or one after Stop, returns a *[StateError].
func (k *Kernel) Start(ctx context.Context) error {
	began := time.Now()
	bootCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	k.mu.Lock()
	if k.state != StateIdle {
		defer k.mu.Unlock()
		return &StateError{Op: "start", State: k.state}
	}
	k.state = StateStarting
	k.cancelBoot = cancel
	k.mu.Unlock()

	failure := k.boot(bootCtx)
	if failure == nil && k.run() {
		k.measure(&k.metrics.Boot, began)
		k.config.Logger.Info("kernel started", "plugins", len(k.members), "duration", time.Since(began))
		return nil
	}
	if failure == nil {
		failure = &BootError{Phase: PhaseStart, Err: ErrStopping}
	}
	failure.Stopped, failure.Teardown = k.teardown(context.WithoutCancel(ctx))
	k.measure(&k.metrics.Boot, began)
	k.finish(nil)
	return failure
}

// run ends the boot and starts the health monitor, unless Stop was called.
func (k *Kernel) run() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopWanted {
		return false
	}
	k.state = StateRunning
	k.startMonitors()
	return true
}

func (k *Kernel) boot(ctx context.Context) *BootError {
	if err := k.prepare(); err != nil {
		return &BootError{Phase: PhaseValidate, Err: err}
	}
	for _, m := range k.members {
		if err := k.initialize(ctx, m); err != nil {
			return &BootError{Plugin: m.manifest.ID, Phase: PhaseInit, Err: err}
		}
	}
	if err := k.checkFactories(); err != nil {
		return &BootError{Phase: PhaseInit, Err: err}
	}
	for _, m := range k.members {
		if err := k.start(ctx, m); err != nil {
			return &BootError{Plugin: m.manifest.ID, Phase: PhaseStart, Err: err}
		}
	}
	if err := k.checkRequired(); err != nil {
		return &BootError{Phase: PhaseStart, Err: err}
	}
	k.mu.Lock()
	k.readyEmitted = true
	k.mu.Unlock()
	for _, hook := range []string{HookReady, HookBootstrapped, HookListening} {
		if plugin, err := k.emit(ctx, hook, true); err != nil {
			return &BootError{Plugin: plugin, Phase: hookPhase(hook), Err: err}
		}
	}
	return nil
}

// prepare does what has no side effects: it checks the settings, the manifests
// against each other and the configurations, and fixes the start order.
func (k *Kernel) prepare() error {
	k.mu.Lock()
	members := k.members
	k.mu.Unlock()
	order, errs := resolve(members)
	errs = append(errs, k.config.validate())
	errs = append(errs, conflicts(members)...)
	errs = append(errs, k.checkConfigs(members)...)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.members = order
	return nil
}

// checkConfigs returns a *ConfigError for each configuration that its plugin
// does not take.
func (k *Kernel) checkConfigs(members []*member) []error {
	var errs []error
	fail := func(plugin string, err error) {
		errs = append(errs, &ConfigError{Plugin: plugin, Err: err})
	}
	unknown := maps.Clone(k.config.PluginConfig)
	for _, m := range members {
		id, schema := m.manifest.ID, m.manifest.ConfigSchema
		config, given := k.config.PluginConfig[id]
		delete(unknown, id)
		switch {
		case given && !json.Valid(config):
			fail(id, errors.New("is not valid JSON"))
		case given && schema == nil:
			fail(id, errors.New("the plugin takes none"))
		case given && k.config.Validator == nil:
			fail(id, errors.New("cannot be checked, Config.Validator is not set"))
		case schema != nil && k.config.Validator != nil:
			if !given {
				config = json.RawMessage("{}")
			}
			if err := k.config.Validator.ValidateConfig(id, schema, config); err != nil {
				fail(id, err)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(unknown)) {
		fail(id, errors.New("no such plugin"))
	}
	return errs
}

// initialize calls Init, after looking once more for what it requires.
func (k *Kernel) initialize(ctx context.Context, m *member) error {
	id := m.manifest.ID
	if ctx.Err() != nil {
		return &PhaseError{Plugin: id, Phase: PhaseInit, Err: context.Cause(ctx)}
	}
	var missing []error
	for _, name := range m.manifest.Requires {
		if !k.registry.has(name) {
			k.mu.Lock()
			missing = append(missing, &ServiceNotFoundError{Service: name, Plugin: id, During: PhaseInit, DeclaredBy: k.declarer(name)})
			k.mu.Unlock()
		}
	}
	if missing != nil {
		return errors.Join(missing...)
	}
	k.enter(m, PhaseInit, StateStarting)
	began := time.Now()
	err := call{
		plugin: id, phase: PhaseInit, limit: or(m.manifest.InitTimeout, k.config.InitTimeout), expired: m.host.seal,
		fn: func(ctx context.Context) error { return m.plugin.Init(ctx, m.host) },
	}.run(ctx, k.config.AbandonAfter)
	k.measure(&m.metrics.Init, began)
	if err != nil {
		m.host.seal()
		return err
	}
	var absent []string
	for _, name := range m.manifest.Provides {
		if !k.registry.has(name) {
			absent = append(absent, name)
		}
	}
	if absent != nil {
		return &MissingServicesError{Plugin: id, Services: absent}
	}
	return nil
}

// start calls Start of a plugin that has one.
func (k *Kernel) start(ctx context.Context, m *member) error {
	id := m.manifest.ID
	if ctx.Err() != nil {
		return &PhaseError{Plugin: id, Phase: PhaseStart, Err: context.Cause(ctx)}
	}
	k.enter(m, PhaseStart, StateStarting)
	if starter, ok := m.plugin.(Starter); ok {
		began := time.Now()
		err := call{
			plugin: id, phase: PhaseStart, limit: or(m.manifest.StartTimeout, k.config.StartTimeout), expired: m.host.seal, fn: starter.Start,
		}.run(ctx, k.config.AbandonAfter)
		k.measure(&m.metrics.Start, began)
		if err != nil {
			m.host.seal()
			return err
		}
	}
	k.enter(m, PhaseRunning, StateRunning)
	k.config.Logger.Debug("plugin started", "plugin", id)
	return nil
}

// checkFactories looks for declared dependencies that nobody has registered.
func (k *Kernel) checkFactories() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for _, missing := range k.registry.undeclared() {
		missing.DeclaredBy = k.declarer(missing.Service)
		errs = append(errs, missing)
	}
	return errors.Join(errs...)
}

func (k *Kernel) checkRequired() error {
	var missing []string
	for _, name := range k.config.RequiredServices {
		if !k.registry.has(name) {
			missing = append(missing, name)
		}
	}
	if missing == nil {
		return nil
	}
	return &MissingServicesError{Services: missing}
}

// emit runs a round of one of the kernel's own hooks. With propagate the first
// error ends it and is returned with its plugin; otherwise errors are logged.
func (k *Kernel) emit(ctx context.Context, hook string, propagate bool) (plugin string, err error) {
	for s, ok := k.hooks.next(hook, 0); ok; s, ok = k.hooks.next(hook, s.number) {
		if propagate && ctx.Err() != nil {
			return "", fmt.Errorf("core: %s: %w", hookPhase(hook), context.Cause(ctx))
		}
		err := call{
			plugin: s.plugin, phase: hookPhase(hook), limit: k.config.HookTimeout, drain: true,
			fn: func(ctx context.Context) error { return s.handle(ctx, nil) },
		}.run(ctx, k.config.AbandonAfter)
		if err != nil && propagate {
			return s.plugin, err
		}
		if err != nil {
			k.config.Logger.Error("hook handler failed", "hook", hook, "plugin", s.plugin, "error", err)
		}
	}
	return "", nil
}
