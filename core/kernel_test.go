package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/objecthost/objecthost/core"
)

func TestLifeInOrder(t *testing.T) {
	t.Parallel()
	j := &journal{}
	web, db := named("web", j), named("db", j)
	web.manifest.DependsOn = []string{"db"}
	key := core.NewKey[string]("conn")
	db.init = func(_ context.Context, host core.Context) error {
		for _, hook := range []string{core.HookReady, core.HookBootstrapped, core.HookListening, core.HookShutdown} {
			host.On(hook, func(context.Context, any) error {
				j.add(hook)
				return nil
			})
		}
		return core.ProvideFactory(host, key, core.FactoryOf[string]{
			New:     func(context.Context, string) (string, error) { return "c", nil },
			Dispose: func(_ context.Context, v string) error { j.add("dispose " + v); return nil },
		})
	}
	web.start = func(ctx context.Context) error {
		_, err := core.Lookup(ctx, web.host, key)
		return err
	}
	k := newKernel(t, core.Config{}, web, db)
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := k.State(); got != core.StateRunning {
		t.Errorf("state after Start = %q", got)
	}
	var ids []string
	for _, m := range web.host.Manifests() {
		ids = append(ids, m.ID+" "+m.Version)
	}
	if want := []string{"db 0.0.0", "web 0.0.0"}; !slices.Equal(ids, want) {
		t.Errorf("Manifests = %q, want %q", ids, want)
	}
	if err := k.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"init db", "init web", "start db", "start web",
		core.HookReady, core.HookBootstrapped, core.HookListening,
		core.HookShutdown, "stop web", "stop db", "dispose c",
	}
	if diff := cmp.Diff(want, j.list()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if got := k.State(); got != core.StateStopped {
		t.Errorf("state after Stop = %q", got)
	}
}

func TestUseRefuses(t *testing.T) {
	t.Parallel()
	var nilPlugin core.Plugin
	tests := []struct {
		name    string
		plugins []core.Plugin
		want    string
	}{
		{"nil", []core.Plugin{nilPlugin}, `core: manifest of plugin "": Plugin is nil`},
		{"same ID", []core.Plugin{named("a", nil), named("a", nil)}, `core: plugin "a" is already registered`},
		{"manifest", []core.Plugin{named("a b", nil)}, `core: manifest of plugin "a b": ID must be letters, digits, _ and - separated by dots, at most 128 characters`},
		{"panic", []core.Plugin{&panicking{}}, `core: register of plugin "*core_test.panicking" panicked: no manifest`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			k := core.New(core.Config{})
			err := k.Use(append([]core.Plugin{named("fine", nil)}, tt.plugins...)...)
			if err == nil || err.Error() != tt.want {
				t.Errorf("Use = %v, want %s", err, tt.want)
			}
			if n := len(k.Plugins()); n != 0 {
				t.Errorf("%d plugins were added by a refused call", n)
			}
		})
	}
}

type panicking struct{ fake }

func (*panicking) Manifest() core.Manifest { panic("no manifest") }

func TestWrongState(t *testing.T) {
	t.Parallel()
	k := started(t, core.Config{}, named("a", nil))
	var se *core.StateError
	if err := k.Use(named("b", nil)); !errors.As(err, &se) || se.State != core.StateRunning {
		t.Errorf("Use while running = %v", err)
	}
	if err := k.Start(t.Context()); err == nil || err.Error() != "core: cannot start: the kernel is running" {
		t.Errorf("second Start = %v", err)
	}
	if got := k.State(); got != core.StateRunning {
		t.Errorf("state = %q", got)
	}
}

func TestStopFirst(t *testing.T) {
	t.Parallel()
	j := &journal{}
	k := newKernel(t, core.Config{}, named("a", j))
	for range 2 {
		if err := k.Stop(t.Context()); err != nil {
			t.Errorf("Stop = %v", err)
		}
	}
	if err := k.Start(t.Context()); err == nil || err.Error() != "core: cannot start: the kernel is stopped" {
		t.Errorf("Start = %v", err)
	}
	if got := j.list(); len(got) != 0 {
		t.Errorf("the plugin was called: %q", got)
	}
}

func TestStopCallsShareOneResult(t *testing.T) {
	t.Parallel()
	j := &journal{}
	a := named("a", j)
	broken := errors.New("broken")
	a.stop = func(context.Context) error { return broken }
	k := newKernel(t, core.Config{}, a)
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			err := k.Stop(context.Background())
			var pe *core.PhaseError
			if !errors.Is(err, broken) || !errors.As(err, &pe) || pe.Plugin != "a" || pe.Phase != core.PhaseStop {
				t.Errorf("Stop = %v", err)
			}
		})
	}
	wg.Wait()
	if want := []string{"init a", "start a", "stop a"}; !slices.Equal(j.list(), want) {
		t.Errorf("events = %q, want %q", j.list(), want)
	}
}

func TestStopDuringBoot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		a, b, c := named("a", j), named("b", j), named("c", j)
		b.start = obey
		k := newKernel(t, core.Config{}, a, b, c)
		result := make(chan error, 1)
		go func() { result <- k.Start(context.Background()) }()
		synctest.Wait()
		if err := k.Stop(t.Context()); err != nil {
			t.Errorf("Stop = %v", err)
		}
		err := <-result
		var be *core.BootError
		if !errors.As(err, &be) || be.Plugin != "b" || !errors.Is(err, core.ErrStopping) {
			t.Fatalf("Start = %v", err)
		}
		want := []string{"init a", "init b", "init c", "start a", "start b", "stop c", "stop b", "stop a"}
		if diff := cmp.Diff(want, j.list()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

// A Stop whose context has ended hurries a teardown that another call runs.
func TestStopHurries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := named("a", nil)
		a.stop = obey
		k := newKernel(t, core.Config{StopTimeout: time.Hour}, a)
		if err := k.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		go func() { _ = k.Stop(context.Background()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), minute)
		defer cancel()
		if err := k.Stop(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Stop = %v", err)
		}
		if got := time.Since(began); got != minute {
			t.Errorf("stopped after %s, want 1m", got)
		}
	})
}

// Stop bounds every plugin: an abandoned one costs StopTimeout and
// AbandonAfter, and the others are stopped all the same.
func TestStopAbandons(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		j := &journal{}
		a, b, c := named("a", j), named("b", j), named("c", j)
		b.stop = ignore(release)
		c.stop = func(context.Context) error { panic("c") }
		k := newKernel(t, core.Config{StopTimeout: 10 * second, AbandonAfter: 2 * second}, a, b, c)
		if err := k.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		err := k.Stop(t.Context())
		if got := time.Since(began); got != 12*second {
			t.Errorf("Stop took %s, want 12s", got)
		}
		want := "core: stop of plugin \"c\" panicked: c\ncore: stop of plugin \"b\" timed out after 10s and was abandoned"
		if err == nil || err.Error() != want {
			t.Errorf("Stop = %v\nwant %s", err, want)
		}
		if got := j.list(); got[len(got)-1] != "stop a" {
			t.Errorf("a was not stopped last: %q", got)
		}
		if got := k.Metrics(); got.Stop != 12*second || got.Plugins[1].Stop != 12*second || got.Plugins[0].Stop != 0 {
			t.Errorf("metrics = %+v", got)
		}
	})
}

// Stop from inside the plugins themselves must not lock up.
func TestStopFromPlugins(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"init", "start", "stop", "hook", "shutdown"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := &journal{}
				a := named("a", j)
				k := newKernel(t, core.Config{}, a)
				stop := func(ctx context.Context) error { return k.Stop(ctx) }
				onHook := func(ctx context.Context, _ any) error { return k.Stop(ctx) }
				a.init = func(ctx context.Context, host core.Context) error {
					switch where {
					case "init":
						return k.Stop(ctx)
					case "hook":
						host.On(core.HookListening, onHook)
					case "shutdown":
						host.On(core.HookShutdown, onHook)
					}
					return nil
				}
				switch where {
				case "start":
					a.start = stop
				case "stop":
					a.stop = stop
				}
				_ = k.Start(t.Context())
				_ = k.Stop(t.Context())
				if got := k.State(); got != core.StateStopped {
					t.Errorf("state = %q", got)
				}
				n := 0
				for _, e := range j.list() {
					if e == "stop a" {
						n++
					}
				}
				if n != 1 {
					t.Errorf("stopped %d times: %q", n, j.list())
				}
			})
		})
	}
}

// Plugins may call every method of the kernel from everywhere.
func TestNoLockIsHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k *core.Kernel
		calls := 0
		poke := func(ctx context.Context) error {
			calls++
			_, _, _ = k.State(), k.Plugins(), k.Metrics()
			_, _ = k.Host().Manifests(), k.Host().Services()
			if len(k.Plugins()) != 1 {
				return fmt.Errorf("%d plugins", len(k.Plugins()))
			}
			return k.Host().Emit(ctx, "custom", nil)
		}
		a := named("a", nil)
		a.start, a.stop, a.health = poke, poke, poke
		key := core.NewKey[int]("n")
		a.init = func(ctx context.Context, host core.Context) error {
			host.On(core.HookReady, func(ctx context.Context, _ any) error { return poke(ctx) })
			err := core.ProvideFactory(host, key, core.FactoryOf[int]{
				New:     func(ctx context.Context, _ string) (int, error) { return 1, poke(ctx) },
				Dispose: func(ctx context.Context, _ int) error { calls++; _ = k.Plugins(); return nil },
			})
			if err != nil {
				return err
			}
			if _, err := core.Lookup(ctx, host, key); err != nil {
				return err
			}
			err = core.Replace(host, key, func(n int) (int, error) { return n + 1, poke(ctx) })
			return errors.Join(err, poke(ctx))
		}
		k = newKernel(t, core.Config{}, a)
		if err := k.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := k.Health(t.Context()); got[0].State != core.HealthHealthy {
			t.Errorf("health = %+v", got)
		}
		if err := k.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if calls != 9 {
			t.Errorf("calls = %d, want 9", calls)
		}
	})
}

// A Stop that comes while the last handler of the boot runs wins.
func TestStopAtTheEndOfTheBoot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		a := named("a", j)
		var k *core.Kernel
		stopped := make(chan error, 1)
		a.init = func(_ context.Context, host core.Context) error {
			host.On(core.HookListening, func(ctx context.Context, _ any) error {
				go func() { stopped <- k.Stop(context.Background()) }()
				<-ctx.Done()
				return nil
			})
			return nil
		}
		k = newKernel(t, core.Config{}, a)
		if err := k.Start(t.Context()); !errors.Is(err, core.ErrStopping) {
			t.Errorf("Start = %v", err)
		}
		must(t, <-stopped)
		if want := []string{"init a", "start a", "stop a"}; !slices.Equal(j.list(), want) {
			t.Errorf("events = %q, want %q", j.list(), want)
		}
	})
}

// The teardown of a boot that was cancelled has its own time, unless a Stop
// that is out of time asked for it.
func TestTeardownOfACancelledBoot(t *testing.T) {
	t.Parallel()
	for _, hurried := range []bool{false, true} {
		t.Run(fmt.Sprintf("hurried=%t", hurried), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := named("a", nil)
				a.start = obey
				var atStop error
				a.stop = func(ctx context.Context) error { atStop = ctx.Err(); return nil }
				k := newKernel(t, core.Config{}, a)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				result := make(chan error, 1)
				go func() { result <- k.Start(ctx) }()
				synctest.Wait()
				var want error
				if hurried {
					ended, end := context.WithCancel(t.Context())
					end()
					must(t, k.Stop(ended))
					want = context.Canceled
				} else {
					cancel()
				}
				if err := <-result; !errors.Is(err, context.Canceled) && !errors.Is(err, core.ErrStopping) {
					t.Errorf("Start = %v", err)
				}
				if !errors.Is(atStop, want) {
					t.Errorf("context of Stop = %v, want %v", atStop, want)
				}
			})
		})
	}
}
