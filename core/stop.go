package core

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Stop ends the kernel: it emits HookShutdown, whose errors are only logged,
// stops the plugins in exactly the reverse order of their start, and disposes
// of the instances that factories made, latest first. Everything is tried; the
// errors are joined.
//
// Stop drains to ctx's deadline. When ctx ends, the plugins' contexts end, and
// the rest takes Config.AbandonAfter at most for each plugin that ignores that.
// Stop may be called at any time and more than once: during a boot it cancels
// the boot and waits for its teardown, before Start it keeps the kernel from
// ever starting, and all calls return together, with one result.
func (k *Kernel) Stop(ctx context.Context) error {
	// A teardown that this call does not run itself is hurried through hurry. A
	// context that has ended already counts before the teardown can begin.
	if ctx.Err() != nil {
		k.hurry()
	}
	defer context.AfterFunc(ctx, k.hurry)()
	k.mu.Lock()
	switch k.state {
	case StateStarting:
		k.stopWanted = true
		k.cancelBoot(ErrStopping)
		fallthrough
	case StateStopping, StateStopped:
		k.mu.Unlock()
		<-k.done
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.stopErr
	}
	k.state = StateStopping
	k.mu.Unlock()

	began := time.Now()
	_, err := k.teardown(ctx)
	k.measure(&k.metrics.Stop, began)
	k.finish(err)
	k.config.Logger.Info("kernel stopped", "duration", time.Since(began))
	return err
}

// hurry ends the context of the teardown, also of one that is still to begin.
func (k *Kernel) hurry() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hurried = true
	if k.cancelTeardown != nil {
		k.cancelTeardown()
	}
}

func (k *Kernel) finish(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state = StateStopped
	k.stopErr = err
	close(k.done)
}

// teardown stops every plugin whose Init was called and releases the services.
// It runs once, either for a failed boot or for Stop.
func (k *Kernel) teardown(ctx context.Context) (stopped []string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k.mu.Lock()
	k.cancelTeardown = cancel
	if k.hurried {
		cancel()
	}
	members, ready := k.members, k.readyEmitted
	k.mu.Unlock()

	close(k.quiet)
	k.checks.Wait()
	if ready {
		_, _ = k.emit(ctx, HookShutdown, false)
	}
	var errs []error
	for _, m := range slices.Backward(members) {
		if !m.initialized {
			continue
		}
		stopped = append(stopped, m.manifest.ID)
		if err := k.stopOne(ctx, m); err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, k.disposeAll(ctx, k.registry.close(k.config.AbandonAfter)))
	k.host.close()
	return stopped, errors.Join(errs...)
}

// stopOne stops a plugin and takes its context and its hook handlers away.
func (k *Kernel) stopOne(ctx context.Context, m *member) error {
	k.enter(m, PhaseStop, StateStopping)
	var err error
	if stopper, ok := m.plugin.(Stopper); ok {
		began := time.Now()
		err = call{
			plugin: m.manifest.ID, phase: PhaseStop, limit: or(m.manifest.StopTimeout, k.config.StopTimeout), drain: true, fn: stopper.Stop,
		}.run(ctx, k.config.AbandonAfter)
		k.measure(&m.metrics.Stop, began)
	}
	m.host.close()
	k.hooks.drop(m.manifest.ID)
	k.enter(m, PhaseStop, StateStopped)
	return err
}

// disposeAll releases instances one after the other and joins the errors.
func (k *Kernel) disposeAll(ctx context.Context, list []*instance) error {
	var errs []error
	for _, in := range list {
		errs = append(errs, k.dispose(ctx, in, in.raw))
	}
	return errors.Join(errs...)
}

// dispose runs the disposer of an instance's factory on what the factory made.
func (k *Kernel) dispose(ctx context.Context, in *instance, raw any) error {
	s := in.service
	if s.factory.Dispose == nil {
		return nil
	}
	return call{
		plugin: s.owner, phase: PhaseDispose + Phase(" "+s.name), limit: k.config.StopTimeout, drain: true,
		fn: func(ctx context.Context) error { return s.factory.Dispose(ctx, raw) },
	}.run(ctx, k.config.AbandonAfter)
}
