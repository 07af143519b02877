package core

import (
	"context"
	"errors"
	"runtime/debug"
	"time"
)

// protect runs a plugin's function and turns a panic into a *PanicError.
func protect(plugin string, phase Phase, fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Plugin: plugin, Phase: phase, Value: v, Stack: debug.Stack()}
		}
	}()
	return fn()
}

// detach runs a plugin's function on a goroutine of its own. The channel gets
// exactly one value, also when the function ends its goroutine.
func detach(plugin string, phase Phase, fn func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		var err error = &PanicError{Plugin: plugin, Phase: phase, Value: "runtime.Goexit was called"}
		defer func() { done <- err }()
		err = protect(plugin, phase, fn)
	}()
	return done
}

// call is one bounded call of a plugin.
type call struct {
	plugin string
	phase  Phase
	limit  time.Duration
	// expired, when set, runs as soon as the context has ended before fn
	// returned, so that a late result can no longer take effect.
	expired func()
	// drain lets the result count that fn returns between the end of its
	// context and the moment it is abandoned.
	drain bool
	fn    func(ctx context.Context) error
}

// run makes the call. It returns nil, the plugin's error as a *PhaseError, a
// *PanicError, a *PhaseTimeoutError when the limit has passed, or a *PhaseError
// around the cause when ctx itself has ended. It returns at the latest grace
// after the end of the call's context.
func (c call) run(ctx context.Context, grace time.Duration) error {
	callCtx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	done := detach(c.plugin, c.phase, func() error { return c.fn(callCtx) })
	select {
	case err := <-done:
		return c.outcome(ctx, callCtx, err)
	case <-callCtx.Done():
	}
	if c.expired != nil {
		c.expired()
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case err := <-done:
		if err == nil && !c.drain {
			err = callCtx.Err()
		}
		return c.outcome(ctx, callCtx, err)
	case <-timer.C:
		return c.ended(ctx, true)
	}
}

// outcome wraps what the plugin returned. An error that only repeats the end of
// the call's context is replaced by the reason for that end.
func (c call) outcome(ctx, callCtx context.Context, err error) error {
	if err != nil && callCtx.Err() != nil && errors.Is(err, callCtx.Err()) {
		return c.ended(ctx, false)
	}
	return c.wrap(err)
}

// wrap names the plugin and the phase, unless the error is a panic, which does.
func (c call) wrap(err error) error {
	if err == nil {
		return nil
	}
	if _, panicked := err.(*PanicError); panicked {
		return err
	}
	return &PhaseError{Plugin: c.plugin, Phase: c.phase, Err: err}
}

func (c call) ended(ctx context.Context, abandoned bool) error {
	if ctx.Err() == nil {
		return &PhaseTimeoutError{Plugin: c.plugin, Phase: c.phase, After: c.limit, Abandoned: abandoned}
	}
	return &PhaseError{Plugin: c.plugin, Phase: c.phase, Err: context.Cause(ctx)}
}
