package coretest

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/objecthost/objecthost/core"
)

// testCase is one rule. run returns what is wrong.
type testCase struct {
	name string
	run  func(ctx context.Context, s Setup) error
}

var cases = []testCase{
	{"manifest", checkManifest},
	{"start and stop", checkStartStop},
	{"stop without start", checkStopWithoutStart},
	{"stop twice", checkStopTwice},
	{"cancelled init", func(ctx context.Context, s Setup) error { return s.checkCancelled(ctx, core.PhaseInit) }},
	{"cancelled start", func(ctx context.Context, s Setup) error { return s.checkCancelled(ctx, core.PhaseStart) }},
	{"cancelled stop", func(ctx context.Context, s Setup) error { return s.checkCancelled(ctx, core.PhaseStop) }},
}

func checkManifest(_ context.Context, s Setup) error {
	p := s.New()
	first := p.Manifest()
	errs := core.ValidateManifest(first)
	for _, again := range []core.Manifest{p.Manifest(), s.New().Manifest()} {
		// Handlers cannot be compared; that they are there is validated.
		if !reflect.DeepEqual(identityOf(first), identityOf(again)) {
			errs = append(errs, fmt.Errorf("the manifest changes from %+v to %+v", identityOf(first), identityOf(again)))
		}
	}
	return errors.Join(errs...)
}

// identityOf is a manifest without what it contributes.
func identityOf(m core.Manifest) core.Manifest {
	m.Contributes = core.Contributions{}
	return m
}

func checkStartStop(ctx context.Context, s Setup) error {
	for range 2 {
		p := s.New()
		k, err := s.kernel(p)
		if err != nil {
			return err
		}
		if err := k.Start(ctx); err != nil {
			return err
		}
		healthErr := sound(k.Health(ctx), p.Manifest().ID)
		if err := errors.Join(healthErr, k.Stop(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// sound returns an error when the plugin's health check hangs or panics. What
// it says about the plugin's world is its own affair.
func sound(all []core.Health, id string) error {
	for _, h := range all {
		var timeout *core.PhaseTimeoutError
		var panicked *core.PanicError
		if h.Plugin == id && (errors.As(h.Err, &timeout) || errors.As(h.Err, &panicked)) {
			return h.Err
		}
	}
	return nil
}

// saboteur fails in Init, after all others have been initialized.
type saboteur struct{ after []string }

var errSabotage = errors.New("coretest: sabotage")

func (s saboteur) Manifest() core.Manifest {
	return core.Manifest{ID: "coretest.saboteur", After: s.after}
}

func (saboteur) Init(context.Context, core.Context) error { return errSabotage }

func checkStopWithoutStart(ctx context.Context, s Setup) error {
	p := s.New()
	k, err := s.kernel(p, saboteur{after: []string{p.Manifest().ID}})
	if err != nil {
		return err
	}
	err = k.Start(ctx)
	if !errors.Is(err, errSabotage) {
		return fmt.Errorf("init: %w", err)
	}
	var boot *core.BootError
	if errors.As(err, &boot) && boot.Teardown != nil {
		return fmt.Errorf("stop without start: %w", boot.Teardown)
	}
	return nil
}

func checkStopTwice(ctx context.Context, s Setup) error {
	p := s.New()
	k, err := s.kernel(p)
	if err != nil {
		return err
	}
	if err := k.Start(ctx); err != nil {
		return err
	}
	if err := errors.Join(k.Stop(ctx), k.Stop(ctx)); err != nil {
		return err
	}
	stopper, ok := p.(core.Stopper)
	if !ok {
		return nil
	}
	if err := s.promptly(func() error { return stopper.Stop(ctx) }); err != nil {
		return fmt.Errorf("second stop: %w", err)
	}
	return nil
}

// checkCancelled runs one phase with a context that has ended. The phase may
// succeed or fail, but it returns promptly and leaves a plugin that stops.
func (s Setup) checkCancelled(ctx context.Context, phase core.Phase) error {
	p := &hasty{Plugin: s.New(), setup: s, phase: phase}
	k, err := s.kernel(p)
	if err != nil {
		return err
	}
	err = k.Start(ctx)
	var boot *core.BootError
	switch {
	case p.stray != nil:
	case errors.As(err, &boot) && (boot.Plugin != p.Manifest().ID || boot.Phase != phase):
		return err // something else went wrong
	case boot != nil && boot.Teardown != nil:
		return fmt.Errorf("stop after a cancelled %s: %w", phase, boot.Teardown)
	}
	stopErr := k.Stop(ctx)
	if phase == core.PhaseStop {
		stopErr = nil // a drain that was cut short may say so
	}
	if p.stray != nil {
		return p.stray
	}
	return stopErr
}

// hasty passes a context that has ended to one phase of a plugin.
type hasty struct {
	core.Plugin
	setup Setup
	phase core.Phase
	// stray is set when the phase panicked or did not return promptly.
	stray error
}

var (
	_ core.Starter       = (*hasty)(nil)
	_ core.Stopper       = (*hasty)(nil)
	_ core.HealthChecker = (*hasty)(nil)
)

func (h *hasty) Init(ctx context.Context, host core.Context) error {
	return h.pass(ctx, core.PhaseInit, func(ctx context.Context) error { return h.Plugin.Init(ctx, host) })
}

func (h *hasty) Start(ctx context.Context) error {
	if p, ok := h.Plugin.(core.Starter); ok {
		return h.pass(ctx, core.PhaseStart, p.Start)
	}
	return nil
}

func (h *hasty) Stop(ctx context.Context) error {
	if p, ok := h.Plugin.(core.Stopper); ok {
		return h.pass(ctx, core.PhaseStop, p.Stop)
	}
	return nil
}

func (h *hasty) CheckHealth(ctx context.Context) error {
	if p, ok := h.Plugin.(core.HealthChecker); ok {
		return p.CheckHealth(ctx)
	}
	return nil
}

func (h *hasty) pass(ctx context.Context, phase core.Phase, call func(context.Context) error) error {
	if phase != h.phase {
		return call(ctx)
	}
	err := h.setup.promptly(func() error { return call(cancelled(ctx)) })
	var stray *strayError
	if errors.As(err, &stray) {
		h.stray = fmt.Errorf("%s with an ended context %w", phase, err)
	}
	return err
}
