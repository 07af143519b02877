package core_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/objecthost/objecthost/core"
)

func TestEmit(t *testing.T) {
	t.Parallel()
	host := hostOf(t)
	var got []any
	host.On("x", func(_ context.Context, payload any) error { got = append(got, 1, payload); return nil })
	host.On("other", func(context.Context, any) error { got = append(got, "other"); return nil })
	host.On("x", func(context.Context, any) error { got = append(got, 2); return nil })
	must(t, host.Emit(t.Context(), "x", "p"))
	must(t, host.Emit(t.Context(), "nobody listens", nil))
	if want := []any{1, "p", 2}; !slices.Equal(got, want) {
		t.Errorf("calls = %v, want %v", got, want)
	}
}

func TestEmitPropagatesTheFirstError(t *testing.T) {
	t.Parallel()
	host := hostOf(t)
	host.On("error", func(context.Context, any) error { return errBroken })
	host.On("panic", func(context.Context, any) error { panic("oh") })
	for _, hook := range []string{"error", "panic"} {
		host.On(hook, func(context.Context, any) error { t.Errorf("the round of %s went on", hook); return nil })
	}
	err := host.Emit(t.Context(), "error", nil)
	if want := `core: hook error of plugin "a": broken`; !errors.Is(err, errBroken) || err.Error() != want {
		t.Errorf("Emit = %v, want %s", err, want)
	}
	err = host.Emit(t.Context(), "panic", nil)
	var pe *core.PanicError
	if !errors.As(err, &pe) || pe.Plugin != "a" || pe.Phase != "hook panic" {
		t.Errorf("Emit = %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errBroken)
	if err := host.Emit(ctx, "panic", nil); !errors.Is(err, errBroken) {
		t.Errorf("Emit with an ended context = %v", err)
	}
}

func TestHandlersChangeInTheMiddleOfARound(t *testing.T) {
	t.Parallel()
	host := hostOf(t)
	var got []string
	say := func(s string) core.HookHandler {
		return func(context.Context, any) error { got = append(got, s); return nil }
	}
	var removeSelf, removeLater func()
	removeSelf = host.On("x", func(context.Context, any) error {
		got = append(got, "first")
		removeSelf()
		removeLater()
		host.On("x", say("added"))
		return nil
	})
	removeLater = host.On("x", say("removed"))
	host.On("x", say("last"))
	for range 2 {
		must(t, host.Emit(t.Context(), "x", nil))
	}
	removeSelf()
	removeLater()
	if want := []string{"first", "last", "added", "last", "added"}; !slices.Equal(got, want) {
		t.Errorf("calls = %q, want %q", got, want)
	}
}

func TestNilHandlerPanics(t *testing.T) {
	t.Parallel()
	host := hostOf(t)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	host.On("x", nil)
}

// The shutdown round goes on after errors, panics and handlers that hang.
func TestShutdownHandlersAreIsolated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		j := &journal{}
		a := named("a", j)
		a.init = func(_ context.Context, host core.Context) error {
			host.On(core.HookShutdown, func(context.Context, any) error { return errBroken })
			host.On(core.HookShutdown, func(context.Context, any) error { panic("oh") })
			host.On(core.HookShutdown, func(ctx context.Context, _ any) error { return ignore(release)(ctx) })
			host.On(core.HookShutdown, func(context.Context, any) error { j.add("last handler"); return nil })
			return nil
		}
		k := newKernel(t, core.Config{HookTimeout: second}, a)
		must(t, k.Start(t.Context()))
		must(t, k.Stop(t.Context()))
		if want := []string{"init a", "start a", "last handler", "stop a"}; !slices.Equal(j.list(), want) {
			t.Errorf("events = %q, want %q", j.list(), want)
		}
	})
}

// A stopped plugin gets no more calls, and what stops after it can still emit.
func TestHandlersEndWithTheirPlugin(t *testing.T) {
	t.Parallel()
	j := &journal{}
	a, b := named("a", j), named("b", j)
	a.init = func(_ context.Context, host core.Context) error {
		host.On("x", func(context.Context, any) error { j.add("x at a"); return nil })
		return nil
	}
	b.init = func(_ context.Context, host core.Context) error {
		host.On("x", func(context.Context, any) error { j.add("x at b"); return nil })
		return nil
	}
	a.stop = func(ctx context.Context) error { return a.host.Emit(ctx, "x", nil) }
	k := newKernel(t, core.Config{}, a, b)
	must(t, k.Start(t.Context()))
	must(t, k.Stop(t.Context()))
	if want := []string{"init a", "init b", "start a", "start b", "stop b", "stop a", "x at a"}; !slices.Equal(j.list(), want) {
		t.Errorf("events = %q, want %q", j.list(), want)
	}
	var sealed *core.SealedError
	if err := b.host.Emit(t.Context(), "x", nil); !errors.As(err, &sealed) {
		t.Errorf("Emit after Stop = %v", err)
	}
	if err := core.ClearScope(t.Context(), b.host, "x"); !errors.As(err, &sealed) {
		t.Errorf("ClearScope after Stop = %v", err)
	}
}

// What nobody is told is logged, with the plugin's ID.
func TestLogs(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	plain := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "duration" {
			return slog.Attr{}
		}
		return a
	}
	a := named("a", nil)
	a.init = func(_ context.Context, host core.Context) error {
		host.Log().Warn("own record", "key", numKey)
		host.On(core.HookShutdown, func(context.Context, any) error { return errBroken })
		return nil
	}
	logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: plain, Level: slog.LevelWarn}))
	k := newKernel(t, core.Config{Logger: logger}, a)
	must(t, k.Start(t.Context()))
	must(t, k.Stop(t.Context()))
	a.host.On("late", func(context.Context, any) error { return nil })
	want := `level=WARN msg="own record" plugin=a key=number
level=ERROR msg="hook handler failed" hook=kernel:shutdown plugin=a error="core: hook kernel:shutdown of plugin \"a\": broken"
level=WARN msg="hook handler refused" plugin=a hook=late error="core: the context of plugin \"a\" is no longer valid"
`
	if got := out.String(); got != want {
		t.Errorf("log =\n%s\nwant\n%s", got, want)
	}
}
