package core_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/object"
)

func with(m core.Manifest) *fake { return &fake{manifest: m} }

// refuse is a validator that knows one valid configuration.
type refuse struct{}

func (refuse) ValidateConfig(_ string, _, config json.RawMessage) error {
	if string(config) != `{"ok":true}` {
		return errors.New("line 1: ok is missing")
	}
	return nil
}

func TestBootIsValidatedFirst(t *testing.T) {
	t.Parallel()
	schema := json.RawMessage(`{"type":"object"}`)
	tests := []struct {
		name   string
		config core.Config
		given  []core.Manifest
		want   []string
	}{
		{
			name:  "missing dependency",
			given: []core.Manifest{{ID: "a", DependsOn: []string{"b", "c"}, After: []string{"d"}}},
			want: []string{
				`core: plugin "a" depends on "b", which is not registered`,
				`core: plugin "a" depends on "c", which is not registered`,
			},
		},
		{
			name:  "itself",
			given: []core.Manifest{{ID: "a", DependsOn: []string{"a"}}},
			want:  []string{`core: plugin dependency cycle: a -> a`},
		},
		{
			name: "two cycles over both kinds of edges",
			given: []core.Manifest{
				{ID: "x", DependsOn: []string{"a"}},
				{ID: "a", DependsOn: []string{"b"}},
				{ID: "b", After: []string{"c"}},
				{ID: "c", DependsOn: []string{"a"}},
				{ID: "d", After: []string{"e"}},
				{ID: "e", After: []string{"d"}},
			},
			want: []string{
				`core: plugin dependency cycle: a -> b -> c -> a`,
				`core: plugin dependency cycle: d -> e -> d`,
			},
		},
		{
			name: "services in the wrong order",
			given: []core.Manifest{
				{ID: "a", Requires: []string{"s", "t"}},
				{ID: "b", Provides: []string{"s"}, Requires: []string{"t"}},
				{ID: "c", Provides: []string{"t"}, Requires: []string{"s"}},
			},
			want: []string{
				`core: services are required before they are provided: "a" requires "s" of "b"; "a" requires "t" of "c"; "b" requires "t" of "c" (add the provider to DependsOn)`,
			},
		},
		{
			name:  "its own service",
			given: []core.Manifest{{ID: "a", Provides: []string{"s"}, Requires: []string{"s"}}},
			want:  []string{`core: services are required before they are provided: "a" requires "s" of "a" (add the provider to DependsOn)`},
		},
		{
			name:  "service promised twice",
			given: []core.Manifest{{ID: "a", Provides: []string{"s"}}, {ID: "b", Provides: []string{"s"}}},
			want:  []string{`core: service "s" of plugin "b" is already provided by plugin "a"`},
		},
		{
			name: "everything at once",
			given: []core.Manifest{
				{ID: "a", DependsOn: []string{"gone"}},
				{ID: "b", DependsOn: []string{"c"}},
				{ID: "c", DependsOn: []string{"b"}},
				{ID: "d", Requires: []string{"s"}},
				{ID: "e", Provides: []string{"s"}},
			},
			want: []string{
				`core: plugin "a" depends on "gone", which is not registered`,
				`core: plugin dependency cycle: b -> c -> b`,
				`core: services are required before they are provided: "d" requires "s" of "e" (add the provider to DependsOn)`,
			},
		},
		{
			name:   "settings",
			config: core.Config{InitTimeout: -1, AbandonAfter: -time.Second, Health: core.HealthPolicy{FailureThreshold: -1}},
			want: []string{
				`core: config field InitTimeout must not be negative, is -1ns`,
				`core: config field AbandonAfter must not be negative, is -1s`,
				`core: config field Health.FailureThreshold must not be negative`,
			},
		},
		{
			name: "configurations",
			config: core.Config{Validator: refuse{}, PluginConfig: map[string]json.RawMessage{
				"bad": json.RawMessage(`{"ok":false}`), "fine": json.RawMessage(`{"ok":true}`), "none": json.RawMessage(`{}`),
				"broken": json.RawMessage(`{`), "nobody": json.RawMessage(`{}`),
			}},
			given: []core.Manifest{
				{ID: "bad", ConfigSchema: schema},
				{ID: "fine", ConfigSchema: schema},
				{ID: "absent", ConfigSchema: schema},
				{ID: "none"},
				{ID: "broken", ConfigSchema: schema},
			},
			want: []string{
				`core: configuration of plugin "bad": line 1: ok is missing`,
				`core: configuration of plugin "absent": line 1: ok is missing`,
				`core: configuration of plugin "none": the plugin takes none`,
				`core: configuration of plugin "broken": is not valid JSON`,
				`core: configuration of plugin "nobody": no such plugin`,
			},
		},
		{
			name:   "no validator",
			config: core.Config{PluginConfig: map[string]json.RawMessage{"a": json.RawMessage(`{}`)}},
			given:  []core.Manifest{{ID: "a", ConfigSchema: schema}, {ID: "b", ConfigSchema: schema}},
			want:   []string{`core: configuration of plugin "a": cannot be checked, Config.Validator is not set`},
		},
		{
			name: "namespaces and objects",
			given: []core.Manifest{
				{ID: "a", Namespace: "crm", Contributes: core.Contributions{Objects: []object.Schema{{Name: "crm_account"}}}},
				{ID: "b", Namespace: "crm"},
				{ID: "c", Contributes: core.Contributions{Objects: []object.Schema{{Name: "crm_task"}, {Name: "free"}}}},
				{ID: "d", Contributes: core.Contributions{Objects: []object.Schema{{Name: "free"}}}},
			},
			want: []string{
				`core: manifest of plugin "b": Namespace "crm" belongs to plugin "a"`,
				`core: manifest of plugin "c": Contributes.Objects "crm_task" belongs to plugin "a"`,
				`core: manifest of plugin "d": Contributes.Objects "free" belongs to plugin "c"`,
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			j := &journal{}
			k := newKernel(t, tt.config)
			for _, m := range tt.given {
				if err := k.Use(&fake{manifest: m, journal: j}); err != nil {
					t.Fatal(err)
				}
			}
			err := k.Start(t.Context())
			var be *core.BootError
			if !errors.As(err, &be) || be.Phase != core.PhaseValidate || be.Plugin != "" || be.Stopped != nil {
				t.Fatalf("Start = %#v", err)
			}
			if diff := cmp.Diff(tt.want, strings.Split(be.Err.Error(), "\n")); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if got := j.list(); len(got) != 0 {
				t.Errorf("plugins were called: %q", got)
			}
			if got := k.State(); got != core.StateStopped {
				t.Errorf("state = %q", got)
			}
		})
	}
}

var (
	errBroken = errors.New("broken")
	oneKey    = core.NewKey[int]("one")
)

// TestBootFails lets plugin b of a, b, c fail in every way there is. Whatever
// happens, what was initialized is stopped in reverse order, b included.
func TestBootFails(t *testing.T) {
	t.Parallel()
	initFails := func(f func(ctx context.Context, host core.Context) error) func(*fake) {
		return func(b *fake) { b.init = f }
	}
	startFails := func(f func(ctx context.Context) error) func(*fake) {
		return func(b *fake) { b.start = f }
	}
	hookFails := func(hook string) func(*fake) {
		return initFails(func(_ context.Context, host core.Context) error {
			host.On(hook, func(context.Context, any) error { return errBroken })
			return nil
		})
	}
	inited, all := []string{"b", "a"}, []string{"c", "b", "a"}
	tests := []struct {
		name    string
		config  core.Config
		arrange func(b *fake)
		phase   core.Phase
		plugin  string
		want    string
		stopped []string
	}{
		{"init error", core.Config{}, initFails(func(context.Context, core.Context) error { return errBroken }),
			core.PhaseInit, "b", `core: init of plugin "b": broken`, inited},
		{"init panic", core.Config{}, initFails(func(context.Context, core.Context) error { panic("oh") }),
			core.PhaseInit, "b", `core: init of plugin "b" panicked: oh`, inited},
		{"init ends its goroutine", core.Config{}, initFails(func(context.Context, core.Context) error { runtime.Goexit(); return nil }),
			core.PhaseInit, "b", `core: init of plugin "b" panicked: runtime.Goexit was called`, inited},
		{"init obeys its deadline", core.Config{}, initFails(func(ctx context.Context, _ core.Context) error { return obey(ctx) }),
			core.PhaseInit, "b", `core: init of plugin "b" timed out after 30s`, inited},
		{"init keeps its own deadline", core.Config{}, func(b *fake) {
			b.manifest.InitTimeout = 5 * second
			b.init = func(ctx context.Context, _ core.Context) error { return obey(ctx) }
		}, core.PhaseInit, "b", `core: init of plugin "b" timed out after 5s`, inited},
		{"init is too late with success", core.Config{}, initFails(func(ctx context.Context, _ core.Context) error { <-ctx.Done(); return nil }),
			core.PhaseInit, "b", `core: init of plugin "b" timed out after 30s`, inited},
		{"required service", core.Config{}, func(b *fake) { b.manifest.Requires = []string{"one", "two"} },
			core.PhaseInit, "b", "core: service \"one\" not found (asked for by plugin \"b\" during init; no plugin declares it)\n" +
				`core: service "two" not found (asked for by plugin "b" during init; no plugin declares it)`, []string{"a"}},
		{"promised service", core.Config{}, func(b *fake) { b.manifest.Provides = []string{"one"} },
			core.PhaseInit, "b", `core: plugin "b" declares services that its Init did not register: one`, inited},
		{"start error", core.Config{}, startFails(func(context.Context) error { return errBroken }),
			core.PhaseStart, "b", `core: start of plugin "b": broken`, all},
		{"start panic", core.Config{}, startFails(func(context.Context) error { panic(errBroken) }),
			core.PhaseStart, "b", `core: start of plugin "b" panicked: broken`, all},
		{"start deadline", core.Config{StartTimeout: 3 * second}, startFails(obey),
			core.PhaseStart, "b", `core: start of plugin "b" timed out after 3s`, all},
		{"host's service", core.Config{RequiredServices: []string{"one", "two"}}, func(*fake) {},
			core.PhaseStart, "", `core: required services are missing: one, two`, all},
		{"factory's dependency", core.Config{}, initFails(func(_ context.Context, host core.Context) error {
			return core.ProvideFactory(host, oneKey, core.FactoryOf[int]{DependsOn: []string{"two"},
				New: func(context.Context, string) (int, error) { return 1, nil }})
		}), core.PhaseInit, "", `core: service "two" not found (asked for by plugin "b" during factory of one; no plugin declares it)`, all},
		{"ready", core.Config{}, hookFails(core.HookReady), "hook kernel:ready", "b", `core: hook kernel:ready of plugin "b": broken`, all},
		{"bootstrapped", core.Config{}, hookFails(core.HookBootstrapped), "hook kernel:bootstrapped", "b", `core: hook kernel:bootstrapped of plugin "b": broken`, all},
		{"listening", core.Config{}, hookFails(core.HookListening), "hook kernel:listening", "b", `core: hook kernel:listening of plugin "b": broken`, all},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := &journal{}
				a, b, c := named("a", j), named("b", j), named("c", j)
				tt.arrange(b)
				k := newKernel(t, tt.config, a, b, c)
				err := k.Start(t.Context())
				var be *core.BootError
				if !errors.As(err, &be) {
					t.Fatalf("Start = %v", err)
				}
				if be.Phase != tt.phase || be.Plugin != tt.plugin || be.Teardown != nil {
					t.Errorf("BootError = %+v, want phase %q of %q", be, tt.phase, tt.plugin)
				}
				if got := be.Err.Error(); got != tt.want {
					t.Errorf("error = %s\nwant    %s", got, tt.want)
				}
				var stops []string
				for _, e := range j.list() {
					if id, ok := strings.CutPrefix(e, "stop "); ok {
						stops = append(stops, id)
					}
				}
				if !slices.Equal(stops, tt.stopped) || !slices.Equal(be.Stopped, tt.stopped) {
					t.Errorf("stopped %q, reported %q, want %q", stops, be.Stopped, tt.stopped)
				}
				if got := k.State(); got != core.StateStopped {
					t.Errorf("state = %q", got)
				}
				if err := k.Stop(t.Context()); err != nil {
					t.Errorf("Stop after the failure = %v", err)
				}
			})
		})
	}
}

func TestBootErrorsAreTyped(t *testing.T) {
	t.Parallel()
	a := named("a", nil)
	a.start = func(context.Context) error { panic(errBroken) }
	a.stop = func(context.Context) error { return errors.New("stuck") }
	err := newKernel(t, core.Config{}, a).Start(t.Context())
	var pe *core.PanicError
	if !errors.Is(err, errBroken) || !errors.As(err, &pe) || pe.Plugin != "a" || pe.Phase != core.PhaseStart {
		t.Fatalf("Start = %v", err)
	}
	if !strings.Contains(string(pe.Stack), "TestBootErrorsAreTyped") {
		t.Errorf("the stack does not show the panic:\n%s", pe.Stack)
	}
	want := `core: boot failed in phase start: core: start of plugin "a" panicked: broken (teardown: core: stop of plugin "a": stuck)`
	if err.Error() != want {
		t.Errorf("Start = %v\nwant %s", err, want)
	}
}

func TestBootIsCancelled(t *testing.T) {
	t.Parallel()
	j := &journal{}
	a, b := named("a", j), named("b", j)
	ctx, cancel := context.WithCancelCause(t.Context())
	a.init = func(context.Context, core.Context) error { cancel(errBroken); return nil }
	err := newKernel(t, core.Config{}, a, b).Start(ctx)
	var be *core.BootError
	if !errors.As(err, &be) || be.Phase != core.PhaseInit || !errors.Is(err, errBroken) {
		t.Errorf("Start = %v", err)
	}
	if want := []string{"init a", "stop a"}; !slices.Equal(j.list(), want) {
		t.Errorf("events = %q, want %q", j.list(), want)
	}
}

// A plugin that ignores its deadline is left behind. What it does later changes
// nothing, and it is stopped like every other.
func TestAbandonedInitRegistersNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release, late := make(chan struct{}), make(chan error, 5)
		j := &journal{}
		a := named("a", j)
		a.init = func(ctx context.Context, host core.Context) error {
			<-release
			one := func(context.Context, string) (int, error) { return 1, nil }
			host.On("custom", func(context.Context, any) error { t.Error("late handler called"); return nil })
			late <- core.Provide(host, oneKey, 1)
			late <- core.ProvideFactory(host, oneKey, core.FactoryOf[int]{New: one})
			late <- core.Replace(host, core.NewKey[int]("hosts"), func(int) (int, error) { return 7, nil })
			_, err := core.Lookup(ctx, host, oneKey)
			late <- err
			late <- host.Emit(ctx, "custom", nil)
			return nil
		}
		k := newKernel(t, core.Config{InitTimeout: 10 * second, AbandonAfter: 2 * second}, a)
		if err := core.Provide(k.Host(), core.NewKey[int]("hosts"), 0); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		err := k.Start(t.Context())
		if got := time.Since(began); got != 12*second {
			t.Errorf("Start took %s, want 12s", got)
		}
		var te *core.PhaseTimeoutError
		if !errors.As(err, &te) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Start = %v", err)
		}
		if diff := cmp.Diff(&core.PhaseTimeoutError{Plugin: "a", Phase: core.PhaseInit, After: 10 * second, Abandoned: true}, te); diff != "" {
			t.Errorf("timeout (-want +got):\n%s", diff)
		}
		if want := []string{"init a", "stop a"}; !slices.Equal(j.list(), want) {
			t.Errorf("events = %q, want %q", j.list(), want)
		}
		close(release)
		synctest.Wait()
		for range 5 {
			var sealed *core.SealedError
			if err := <-late; !errors.As(err, &sealed) || sealed.Plugin != "a" {
				t.Errorf("late call = %v", err)
			}
		}
		if got, want := k.Host().Services(), []core.ServiceInfo{{Name: "hosts"}}; !slices.Equal(got, want) {
			t.Errorf("services = %+v", got)
		}
	})
}

// Between its deadline and its end an Init may still look things up, but not
// register.
func TestLateInitIsSealedAtTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := named("a", nil)
		var late error
		a.init = func(ctx context.Context, host core.Context) error {
			<-ctx.Done()
			synctest.Wait()
			late = core.Provide(host, oneKey, 1)
			return nil
		}
		k := newKernel(t, core.Config{}, a)
		if err := k.Start(t.Context()); err == nil {
			t.Error("Start succeeded")
		}
		var sealed *core.SealedError
		if !errors.As(late, &sealed) {
			t.Errorf("late Provide = %v", late)
		}
	})
}

func TestConfigReachesThePlugin(t *testing.T) {
	t.Parallel()
	a, b := with(core.Manifest{ID: "a", ConfigSchema: json.RawMessage(`{}`)}), with(core.Manifest{ID: "b"})
	config := core.Config{Validator: refuse{}, PluginConfig: map[string]json.RawMessage{"a": json.RawMessage(`{"ok":true}`)}}
	started(t, config, a, b)
	if got := string(a.host.Config()); got != `{"ok":true}` {
		t.Errorf("config of a = %s", got)
	}
	if got := b.host.Config(); got != nil {
		t.Errorf("config of b = %s", got)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wait := func(d time.Duration) func(context.Context) error {
			return func(context.Context) error { time.Sleep(d); return nil }
		}
		a := named("a", nil)
		a.init = func(ctx context.Context, _ core.Context) error { return wait(1 * second)(ctx) }
		a.start, a.stop = wait(2*second), wait(3*second)
		k := newKernel(t, core.Config{}, a, &initOnly{manifest: core.Manifest{ID: "b"}})
		if err := k.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := k.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := core.Metrics{Boot: 3 * second, Stop: 3 * second, Plugins: []core.PluginMetrics{
			{Plugin: "a", Init: 1 * second, Start: 2 * second, Stop: 3 * second, Checks: 1}, {Plugin: "b"},
		}}
		if diff := cmp.Diff(want, k.Metrics()); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
	})
}
