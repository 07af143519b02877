package pluginhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/pluginhost/bundle"
)

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

// ConflictError is a plugin that cannot run beside another.
type ConflictError struct{ Plugin, Reason string }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("pluginhost: plugin %s: %s", e.Plugin, e.Reason)
}

// errGone is returned for a plugin that was uninstalled meanwhile, and while the
// host stops.
var errGone = errors.New("pluginhost: the plugin is not installed any more")

// bound is ctx, which also ends when the host stops.
func (a *adapter) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(a.life, cancel)
	return ctx, func() { stop(); cancel() }
}

func (a *adapter) enable(ctx context.Context) error {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		return errGone
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
	if a.gone {
		return errGone
	}
	a.off.Store(true)
	return errors.Join(a.sup.stop(ctx), a.wiring.setConsumers(ctx, false))
}

func (a *adapter) restart(ctx context.Context) error {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.gone:
		return errGone
	case a.off.Load():
		return fmt.Errorf("pluginhost: plugin %s is disabled", a.name)
	}
	if err := a.sup.stop(ctx); err != nil {
		return err
	}
	a.sup.start()
	a.sup.wait(ctx)
	a.wiring.wake()
	return nil
}

// installed reads the plugin's folder and the operator's decisions anew.
func (a *adapter) installed() (*bundle.Bundle, bundle.Entry, error) {
	b, err := bundle.Open(a.home)
	if err != nil {
		return nil, bundle.Entry{}, err
	}
	lock, err := bundle.LoadLock(a.manager.cfg.Dir)
	if err != nil {
		return nil, bundle.Entry{}, err
	}
	e, locked := lock[a.name]
	if !locked && a.manager.cfg.Dev {
		e = devEntry(b)
	}
	return b, e, nil
}

// devEntry stands for the lock's entry of a plugin that runs by the development
// switch.
func devEntry(b *bundle.Bundle) bundle.Entry {
	return bundle.Entry{Version: b.Manifest.Version, Digest: b.Digest, Enabled: true, Grants: b.Manifest.Capabilities}
}

// verify checks that a bundle is what the operator installed, and is this
// plugin.
func (a *adapter) verify(b *bundle.Bundle, e bundle.Entry) error {
	cfg := a.manager.cfg
	if b.Digest != e.Digest && !cfg.Dev {
		return &LockError{Plugin: a.name, Want: e.Digest, Got: b.Digest}
	}
	if b.Manifest.Name != a.name || b.Manifest.ID != a.id {
		return &MismatchError{a.name, "id", a.id, b.Manifest.ID}
	}
	trust, err := bundle.LoadTrust(TrustDir(cfg.Dir))
	if err != nil {
		return err
	}
	if _, err := b.Verify(trust); err != nil && !cfg.Dev {
		return err
	}
	return nil
}

// configOf is the plugin's configuration: the host's settings know it, or the
// entry in the lock file.
func (a *adapter) configOf(b *bundle.Bundle, e bundle.Entry) (json.RawMessage, error) {
	if a.config != nil {
		return a.config, nil
	}
	schema, validator := b.Manifest.Contributes.ConfigSchema, a.manager.cfg.Validator
	switch config := e.Config; {
	case schema == nil && config == nil:
		return nil, nil
	case schema == nil:
		return nil, &core.ConfigError{Plugin: a.id, Err: errors.New("the plugin takes none")}
	case validator == nil:
		return config, nil
	default:
		checked := config
		if checked == nil {
			checked = json.RawMessage("{}")
		}
		if err := validator.ValidateConfig(a.id, schema, checked); err != nil {
			return nil, &core.ConfigError{Plugin: a.id, Err: err}
		}
		return config, nil
	}
}

// launch implements the supervisor's launch: it starts what is in the plugin's
// folder. When that contributes something else than the version before, it
// takes its place.
func (a *adapter) launch(ctx context.Context, generation int, step func(State)) (running, error) {
	b, e, err := a.installed()
	if err == nil {
		err = a.verify(b, e)
	}
	if err != nil {
		return nil, permanentError{err}
	}
	a.version.Store(&b.Manifest.Version)
	next := a.contractOf(b, e)
	now := a.wiring.current.Load()
	if next.same(now) {
		next = now
	}
	i, err := a.generate(ctx, b, e, next, generation, step)
	if err != nil {
		return nil, err
	}
	if next != now {
		if err := a.manager.board.apply(ctx, a.wiring, next); err != nil {
			i.destroy()
			return nil, permanentError{err}
		}
	}
	a.bundle.Store(b)
	a.entry.Store(&e)
	return i, nil
}

// generate starts a generation of a verified bundle.
func (a *adapter) generate(ctx context.Context, b *bundle.Bundle, e bundle.Entry, next *contract, generation int, step func(State)) (*instance, error) {
	config, err := a.configOf(b, e)
	if err != nil {
		return nil, permanentError{err}
	}
	if err := a.define(ctx, b); err != nil {
		return nil, err
	}
	a.logs.begin()
	i, err := startInstance(ctx, instanceSpec{
		bundle: b, runDir: a.manager.cfg.RunDir, env: a.manager.cfg.environment(), limits: a.manager.cfg.Limits, group: a.manager.group,
		line: func(pid int, line []byte, cut bool) { a.logs.line(pid, generation, line, cut) },
		api:  &api{services: a.wiring.services, name: a.name, policy: next.policy}, config: config, meter: a.meter,
		checked: func() { step(StateVerified); step(StateStarting) },
	})
	if err != nil {
		return nil, err
	}
	next.process.Store(i)
	return i, nil
}

// define defines the objects of a version that was not there at the boot. They
// are changed additively, so that an upgrade that fails leaves the version
// before with what it had.
func (a *adapter) define(ctx context.Context, b *bundle.Bundle) error {
	objects := b.Manifest.Contributes.Objects
	if len(objects) == 0 || b.Digest == a.bundle.Load().Digest && a.wiring.current.Load() != nil {
		return nil
	}
	if err := a.manager.conflict(b, a.wiring.engine); err != nil {
		return permanentError{err}
	}
	if err := a.wiring.engine.Define(asHost(ctx), objects...); err != nil {
		return permanentError{fmt.Errorf("pluginhost: define the objects of plugin %s: %w", a.name, err)}
	}
	a.manager.note(a.id, objects)
	return nil
}

// Change tells what an install or upgrade decides besides the version.
type Change struct {
	// Grants replace what the operator granted; nil keeps it, and grants a new
	// plugin nothing.
	Grants *bundle.Capabilities
	// GrantRequested grants what the new version requests.
	GrantRequested bool
	// Config replaces the plugin's configuration; nil keeps it. The host's own
	// settings come first.
	Config json.RawMessage
	// By tells who decided.
	By string
}

// entryOf is the lock's entry of a new version.
func (c Change) entryOf(b *bundle.Bundle, keyID string, old bundle.Entry) bundle.Entry {
	e := old
	e.Version, e.Digest, e.KeyID = b.Manifest.Version, b.Digest, keyID
	if c.Config != nil {
		e.Config = c.Config
	}
	switch {
	case c.GrantRequested:
		e.Grants = b.Manifest.Capabilities
	case c.Grants != nil:
		e.Grants = *c.Grants
	default:
		return e
	}
	e.GrantedBy, e.GrantedAt = c.By, time.Now().UTC().Truncate(time.Second)
	return e
}

// replace puts a staged bundle in the place of the version that is installed:
// it starts the new one beside the old one, asks it how it is, swaps all that it
// contributes in one step, and ends the old one when its calls have ended or
// the grace time has passed. When anything fails the old one goes on as if
// nothing had been.
func (a *adapter) replace(ctx context.Context, staged *bundle.Bundle, e bundle.Entry) error {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		return errGone
	}
	if err := a.verify(staged, e); err != nil {
		return err
	}
	if a.off.Load() {
		return a.replaceOff(ctx, staged, e)
	}
	startCtx, cancelStart := context.WithTimeout(ctx, a.manager.cfg.StartTimeout)
	defer cancelStart()
	generation, next := a.sup.number(), a.contractOf(staged, e)
	i, err := a.generate(startCtx, staged, e, next, generation, func(State) {})
	if err != nil {
		return err
	}
	if err := a.swap(ctx, staged, e, i, next); err != nil {
		i.destroy()
		return err
	}
	a.version.Store(&staged.Manifest.Version)
	a.wiring.start()
	old := a.sup.adopt(i, generation)
	a.wiring.wake()
	a.log.Info("plugin upgraded", "version", staged.Manifest.Version, "generation", generation)
	if old != nil {
		o := old.(*instance)
		o.drain(a.manager.cfg.StopGrace)
		o.stop(a.manager.cfg.StopGrace)
	}
	return nil
}

// swap makes a generation that runs the one that serves.
func (a *adapter) swap(ctx context.Context, staged *bundle.Bundle, e bundle.Entry, i *instance, next *contract) error {
	healthCtx, cancel := context.WithTimeout(ctx, a.manager.cfg.HealthTimeout)
	defer cancel()
	problem, err := i.health(healthCtx)
	if err == nil && problem != "" {
		err = errors.New(problem)
	}
	if err != nil {
		return i.explain(fmt.Errorf("the new version is not well: %w", err))
	}
	old := a.wiring.current.Load()
	if err := a.manager.board.apply(ctx, a.wiring, next); err != nil {
		return err
	}
	if err := a.commit(staged, e); err != nil {
		return errors.Join(err, a.manager.board.apply(context.WithoutCancel(ctx), a.wiring, old))
	}
	return nil
}

// replaceOff replaces a plugin that is switched off; its next start shows what
// the new version is like.
func (a *adapter) replaceOff(ctx context.Context, staged *bundle.Bundle, e bundle.Entry) error {
	if _, err := a.configOf(staged, e); err != nil {
		return err
	}
	if err := a.define(ctx, staged); err != nil {
		return err
	}
	old := a.wiring.current.Load()
	if err := a.manager.board.apply(ctx, a.wiring, a.contractOf(staged, e)); err != nil {
		return err
	}
	err := a.wiring.setConsumers(ctx, false)
	if err == nil {
		err = a.commit(staged, e)
	}
	if err != nil {
		return errors.Join(err, a.manager.board.apply(context.WithoutCancel(ctx), a.wiring, old))
	}
	a.version.Store(&staged.Manifest.Version)
	return nil
}

// commit makes the staged bundle the installed one. A bundle that lies in its
// place already is only noted.
func (a *adapter) commit(staged *bundle.Bundle, e bundle.Entry) error {
	b := staged
	if staged.Dir != a.home {
		var err error
		if b, err = staged.Commit(a.manager.cfg.Dir, a.home, e); b == nil {
			return err
		}
		if err != nil { // what is left of the old version lies where nobody looks
			a.log.Warn("remove the old version of a plugin", "error", err)
		}
	}
	a.bundle.Store(b)
	a.entry.Store(&e)
	return nil
}
