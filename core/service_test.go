package core_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/objecthost/objecthost/core"
)

type (
	greeter interface{ Greet() string }
	english struct{ name string }
	loud    struct{ greeter }
)

func (e english) Greet() string { return "hello " + e.name }
func (l loud) Greet() string    { return strings.ToUpper(l.greeter.Greet()) }

var (
	greetKey = core.NewKey[greeter]("greeter")
	numKey   = core.NewKey[int]("number")
)

// hostOf returns the context of a running plugin called a.
func hostOf(t testing.TB) core.Context {
	a := named("a", nil)
	started(t, core.Config{}, a)
	return a.host
}

func constant[T any](v T) func(context.Context, string) (T, error) {
	return func(context.Context, string) (T, error) { return v, nil }
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFalsyValuesAreValues(t *testing.T) {
	t.Parallel()
	host := hostOf(t)
	must(t, core.Provide(host, core.NewKey[int]("zero"), 0))
	must(t, core.Provide(host, core.NewKey[bool]("false"), false))
	must(t, core.Provide(host, core.NewKey[string]("empty"), ""))
	must(t, core.Provide[greeter](host, greetKey, nil))
	must(t, core.Provide(host, core.NewKey[*english]("nil"), nil))
	must(t, core.ProvideFactory(host, core.NewKey[greeter]("made nil"), core.FactoryOf[greeter]{New: constant[greeter](nil)}))

	if v, err := core.Lookup(t.Context(), host, core.NewKey[int]("zero")); v != 0 || err != nil {
		t.Errorf("zero = %v, %v", v, err)
	}
	if v, err := core.Lookup(t.Context(), host, core.NewKey[bool]("false")); v || err != nil {
		t.Errorf("false = %v, %v", v, err)
	}
	if v, err := core.Lookup(t.Context(), host, core.NewKey[string]("empty")); v != "" || err != nil {
		t.Errorf("empty = %v, %v", v, err)
	}
	if v, err := core.Lookup(t.Context(), host, core.NewKey[*english]("nil")); v != nil || err != nil {
		t.Errorf("nil pointer = %v, %v", v, err)
	}
	for _, name := range []string{"greeter", "made nil"} {
		if v, err := core.Lookup(t.Context(), host, core.NewKey[greeter](name)); v != nil || err != nil {
			t.Errorf("%s = %v, %v", name, v, err)
		}
	}
	_, err := core.Lookup(t.Context(), host, core.NewKey[int]("greeter"))
	if want := `core: service "greeter" of plugin "a" is a nil, but plugin "a" wants a int`; err == nil || err.Error() != want {
		t.Errorf("nil as int = %v", err)
	}
}

func TestServiceErrors(t *testing.T) {
	t.Parallel()
	host := hostOf(t)
	must(t, core.Provide(host, numKey, 1))
	scoped, transient := core.NewKey[int]("scoped"), core.NewKey[int]("transient")
	must(t, core.ProvideFactory(host, scoped, core.FactoryOf[int]{Lifetime: core.LifetimeScoped, New: constant(1)}))
	must(t, core.ProvideFactory(host, transient, core.FactoryOf[int]{Lifetime: core.LifetimeTransient, New: func(context.Context, string) (int, error) { return 0, errBroken }}))
	lookup := func(name string) error {
		_, err := core.Lookup(t.Context(), host, core.NewKey[int](name))
		return err
	}
	inScope := func(name, scope string) error {
		_, err := core.Scoped(t.Context(), host, core.NewKey[int](name), scope)
		return err
	}
	tests := []struct {
		name string
		err  error
		want string
	}{
		{"missing", lookup("gone"), `core: service "gone" not found (asked for by plugin "a" during running; no plugin declares it)`},
		{"missing scoped", inScope("gone", "x"), `core: service "gone" not found (asked for by plugin "a" during running; no plugin declares it)`},
		{"missing replaced", core.Replace(host, core.NewKey[int]("gone"), func(n int) (int, error) { return n, nil }),
			`core: service "gone" not found (asked for by plugin "a" during running; no plugin declares it)`},
		{"duplicate value", core.Provide(host, numKey, 2), `core: service "number" of plugin "a" is already provided by plugin "a"`},
		{"duplicate factory", core.ProvideFactory(host, numKey, core.FactoryOf[int]{New: constant(1)}), `core: service "number" of plugin "a" is already provided by plugin "a"`},
		{"duplicate of a factory", core.Provide(host, scoped, 2), `core: service "scoped" of plugin "a" is already provided by plugin "a"`},
		{"scoped without scope", lookup("scoped"), `core: service "scoped" (plugin "a"): is scoped, look it up with a scope`},
		{"empty scope", inScope("scoped", ""), `core: service "scoped" (plugin "a"): a scope must not be empty`},
		{"value with scope", inScope("number", "x"), `core: service "number" (plugin "a"): is not scoped`},
		{"factory error", lookup("transient"), `core: factory of transient of plugin "a": broken`},
		{"no name", core.Provide(host, core.NewKey[int](""), 1), `core: service "" (plugin "a"): a service needs a name`},
		{"no New", core.ProvideFactory(host, core.NewKey[int]("n"), core.FactoryOf[int]{}), `core: service "n" (plugin "a"): a factory needs New`},
		{"lifetime", core.ProvideFactory(host, core.NewKey[int]("n"), core.FactoryOf[int]{Lifetime: 7, New: constant(1)}), `core: service "n" (plugin "a"): unknown lifetime(7)`},
		{"disposed transient", core.ProvideFactory(host, core.NewKey[int]("n"), core.FactoryOf[int]{
			Lifetime: core.LifetimeTransient, New: constant(1), Dispose: func(context.Context, int) error { return nil },
		}), `core: service "n" (plugin "a"): transient instances belong to their callers and are not disposed`},
		{"clear no scope", core.ClearScope(t.Context(), host, ""), `core: service "" (plugin "a"): a scope must not be empty`},
		{"declared cycle", core.ProvideFactory(host, core.NewKey[int]("n"), core.FactoryOf[int]{New: constant(1), DependsOn: []string{"number", "n"}}),
			`core: service dependency cycle: n -> n`},
		{"reserved hook", host.Emit(t.Context(), core.HookReady, nil), `core: hooks under kernel: are emitted by the kernel only: "kernel:ready"`},
	}
	for _, tt := range tests {
		if tt.err == nil || tt.err.Error() != tt.want {
			t.Errorf("%s = %v\nwant %s", tt.name, tt.err, tt.want)
		}
	}
	if !core.IsServiceNotFound(tests[0].err) || core.IsServiceNotFound(tests[3].err) {
		t.Error("IsServiceNotFound is wrong")
	}
	if !errors.Is(tests[9].err, errBroken) {
		t.Errorf("factory error does not match its cause: %v", tests[9].err)
	}
}

// A missing service tells who asked, during what, and who would provide it.
func TestMissingServiceNamesItsProvider(t *testing.T) {
	t.Parallel()
	a, b := named("a", nil), named("b", nil)
	b.manifest.Provides = []string{"number"}
	b.init = func(_ context.Context, host core.Context) error { return core.Provide(host, numKey, 1) }
	var err error
	a.init = func(ctx context.Context, host core.Context) error {
		_, err = core.Lookup(ctx, host, numKey)
		return nil
	}
	started(t, core.Config{}, a, b)
	var missing *core.ServiceNotFoundError
	if !errors.As(err, &missing) {
		t.Fatalf("Lookup = %v", err)
	}
	want := &core.ServiceNotFoundError{Service: "number", Plugin: "a", During: core.PhaseInit, DeclaredBy: "b"}
	if diff := cmp.Diff(want, missing); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
	if want := `core: service "number" not found (asked for by plugin "a" during init; plugin "b" declares it)`; err.Error() != want {
		t.Errorf("error = %s", err)
	}
}

func TestTypes(t *testing.T) {
	t.Parallel()
	a, b := named("a", nil), named("b", nil)
	b.init = func(_ context.Context, host core.Context) error {
		return core.Provide(host, greetKey, greeter(english{"bob"}))
	}
	started(t, core.Config{}, a, b)
	own, err := core.Lookup(t.Context(), a.host, core.NewKey[interface{ Greet() string }]("greeter"))
	if err != nil || own.Greet() != "hello bob" {
		t.Errorf("own interface = %v, %v", own, err)
	}
	wrong := core.NewKey[fmt.Stringer]("greeter")
	const want = `core: service "greeter" of plugin "b" is a core_test.english, but plugin "a" wants a fmt.Stringer`
	var te *core.TypeError
	if _, err := core.Lookup(t.Context(), a.host, wrong); !errors.As(err, &te) || err.Error() != want {
		t.Errorf("Lookup = %v", err)
	}
	err = core.Replace(a.host, wrong, func(s fmt.Stringer) (fmt.Stringer, error) { return s, nil })
	if !errors.As(err, &te) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("Replace = %v", err)
	}
}

func TestLifetimes(t *testing.T) {
	t.Parallel()
	host := hostOf(t)
	made := map[string]int{}
	provide := func(name string, lifetime core.Lifetime) core.Key[string] {
		key := core.NewKey[string](name)
		must(t, core.ProvideFactory(host, key, core.FactoryOf[string]{
			Lifetime: lifetime,
			New: func(_ context.Context, scope string) (string, error) {
				made[name]++
				return fmt.Sprintf("%s%s#%d", name, scope, made[name]), nil
			},
		}))
		return key
	}
	single, each, scoped := provide("single", core.LifetimeSingleton), provide("each", core.LifetimeTransient), provide("scoped", core.LifetimeScoped)
	var got []string
	note := func(v string, err error) {
		must(t, err)
		got = append(got, v)
	}
	for range 2 {
		note(core.Lookup(t.Context(), host, single))
		note(core.Lookup(t.Context(), host, each))
		note(core.Scoped(t.Context(), host, scoped, "/x"))
		note(core.Scoped(t.Context(), host, scoped, "/y"))
	}
	must(t, core.ClearScope(t.Context(), host, "/x"))
	note(core.Scoped(t.Context(), host, scoped, "/x"))
	note(core.Scoped(t.Context(), host, scoped, "/y"))
	want := []string{
		"single#1", "each#1", "scoped/x#1", "scoped/y#2",
		"single#1", "each#2", "scoped/x#1", "scoped/y#2",
		"scoped/x#3", "scoped/y#2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("instances (-want +got):\n%s", diff)
	}
	infos := []core.ServiceInfo{
		{Name: "each", Provider: "a", Lifetime: core.LifetimeTransient},
		{Name: "scoped", Provider: "a", Lifetime: core.LifetimeScoped},
		{Name: "single", Provider: "a", Lifetime: core.LifetimeSingleton},
	}
	if diff := cmp.Diff(infos, host.Services()); diff != "" {
		t.Errorf("Services (-want +got):\n%s", diff)
	}
}

// Instances are released in the reverse order of their creation: those of a
// scope when it is cleared, the rest after the plugins have stopped. One that
// fails keeps none of the others.
func TestDispose(t *testing.T) {
	t.Parallel()
	j := &journal{}
	a := named("a", j)
	factory := func(name string, lifetime core.Lifetime, fail error) core.FactoryOf[string] {
		return core.FactoryOf[string]{
			Lifetime: lifetime,
			New:      func(_ context.Context, scope string) (string, error) { return name + scope, nil },
			Dispose: func(_ context.Context, v string) error {
				j.add("dispose " + v)
				if v == "panics" {
					panic(v)
				}
				return fail
			},
		}
	}
	keys := map[string]core.Key[string]{}
	for _, name := range []string{"one", "two", "panics", "fails", "unused", "s", "t"} {
		keys[name] = core.NewKey[string](name)
	}
	k := newKernel(t, core.Config{}, a)
	must(t, k.Start(t.Context()))
	must(t, core.ProvideFactory(a.host, keys["one"], factory("one", core.LifetimeSingleton, nil)))
	must(t, core.ProvideFactory(a.host, keys["two"], factory("two", core.LifetimeSingleton, nil)))
	must(t, core.ProvideFactory(a.host, keys["panics"], factory("panics", core.LifetimeSingleton, nil)))
	must(t, core.ProvideFactory(a.host, keys["fails"], factory("fails", core.LifetimeSingleton, errBroken)))
	must(t, core.ProvideFactory(a.host, keys["unused"], factory("unused", core.LifetimeSingleton, nil)))
	must(t, core.ProvideFactory(a.host, keys["s"], factory("s", core.LifetimeScoped, errBroken)))
	must(t, core.ProvideFactory(a.host, keys["t"], factory("t", core.LifetimeScoped, nil)))
	for _, get := range []string{"two", "s/x", "panics", "t/x", "fails", "s/y", "one"} {
		name, scope, isScoped := strings.Cut(get, "/")
		var err error
		if isScoped {
			_, err = core.Scoped(t.Context(), a.host, keys[name], "/"+scope)
		} else {
			_, err = core.Lookup(t.Context(), a.host, keys[name])
		}
		must(t, err)
	}
	must(t, core.Replace(a.host, keys["one"], func(string) (string, error) { return "replaced", nil }))

	err := core.ClearScope(t.Context(), a.host, "/x")
	if want := `core: dispose s of plugin "a": broken`; err == nil || err.Error() != want {
		t.Errorf("ClearScope = %v", err)
	}
	if err := core.ClearScope(t.Context(), a.host, "/x"); err != nil {
		t.Errorf("second ClearScope = %v", err)
	}
	err = k.Stop(t.Context())
	want := "core: dispose s of plugin \"a\": broken\ncore: dispose fails of plugin \"a\": broken\ncore: dispose panics of plugin \"a\" panicked: panics"
	if err == nil || err.Error() != want {
		t.Errorf("Stop = %v\nwant %s", err, want)
	}
	events := []string{
		"init a", "start a", "dispose t/x", "dispose s/x", "stop a",
		"dispose one", "dispose s/y", "dispose fails", "dispose panics", "dispose two",
	}
	if diff := cmp.Diff(events, j.list()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	var sealed *core.SealedError
	if _, err := core.Lookup(t.Context(), k.Host(), keys["one"]); !errors.As(err, &sealed) {
		t.Errorf("Lookup after Stop = %v", err)
	}
}

// Replace works on values and on factories of every lifetime, made or not.
func TestReplace(t *testing.T) {
	t.Parallel()
	bob := greeter(english{"bob"})
	tests := []struct {
		name    string
		provide func(core.Context) error
		scope   string
	}{
		{"value", func(h core.Context) error { return core.Provide(h, greetKey, bob) }, ""},
		{"singleton", func(h core.Context) error {
			return core.ProvideFactory(h, greetKey, core.FactoryOf[greeter]{New: constant(bob)})
		}, ""},
		{"transient", func(h core.Context) error {
			return core.ProvideFactory(h, greetKey, core.FactoryOf[greeter]{New: constant(bob), Lifetime: core.LifetimeTransient})
		}, ""},
		{"scoped", func(h core.Context) error {
			return core.ProvideFactory(h, greetKey, core.FactoryOf[greeter]{New: constant(bob), Lifetime: core.LifetimeScoped})
		}, "x"},
	}
	for _, tt := range tests {
		for _, made := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s made=%t", tt.name, made), func(t *testing.T) {
				t.Parallel()
				host := hostOf(t)
				must(t, tt.provide(host))
				get := func() string {
					var g greeter
					var err error
					if tt.scope != "" {
						g, err = core.Scoped(t.Context(), host, greetKey, tt.scope)
					} else {
						g, err = core.Lookup(t.Context(), host, greetKey)
					}
					must(t, err)
					return g.Greet()
				}
				if made && get() != "hello bob" {
					t.Error("not bob at first")
				}
				must(t, core.Replace(host, greetKey, func(g greeter) (greeter, error) { return loud{g}, nil }))
				must(t, core.Replace(host, greetKey, func(g greeter) (greeter, error) { return english{g.Greet()}, nil }))
				if got, want := get(), "hello HELLO BOB"; got != want {
					t.Errorf("greeting = %q, want %q", got, want)
				}
				if made && tt.name != "transient" {
					err := core.Replace(host, greetKey, func(greeter) (greeter, error) { return nil, errBroken })
					if !errors.Is(err, errBroken) {
						t.Errorf("failing Replace = %v", err)
					}
					err = core.Replace(host, greetKey, func(greeter) (greeter, error) { panic("wrap") })
					var pe *core.PanicError
					if !errors.As(err, &pe) || pe.Plugin != "a" {
						t.Errorf("panicking Replace = %v", err)
					}
					if got, want := get(), "hello HELLO BOB"; got != want {
						t.Errorf("greeting after failures = %q, want %q", got, want)
					}
				}
			})
		}
	}
}

// Concurrent replacements all take effect, on a value and on an instance whose
// construction is under way.
func TestReplaceConcurrently(t *testing.T) {
	t.Parallel()
	host := hostOf(t)
	const n = 32
	release := make(chan struct{})
	must(t, core.Provide(host, numKey, 0))
	must(t, core.ProvideFactory(host, oneKey, core.FactoryOf[int]{New: func(context.Context, string) (int, error) { <-release; return 0, nil }}))
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = core.Lookup(t.Context(), host, oneKey) })
	for i := range n {
		for _, key := range []core.Key[int]{numKey, oneKey} {
			wg.Go(func() {
				if err := core.Replace(host, key, func(v int) (int, error) { return v + 1, nil }); err != nil {
					t.Error(err)
				}
			})
		}
		if i == n/2 {
			close(release)
		}
	}
	wg.Wait()
	for _, key := range []core.Key[int]{numKey, oneKey} {
		if v, err := core.Lookup(t.Context(), host, key); v != n || err != nil {
			t.Errorf("%s = %d, %v, want %d", key, v, err, n)
		}
	}
}

// A replacement that gets in between is not lost: the outer one runs again on
// its result.
func TestReplaceInsideReplace(t *testing.T) {
	t.Parallel()
	host := hostOf(t)
	must(t, core.Provide(host, greetKey, greeter(english{"bob"})))
	runs := 0
	must(t, core.Replace(host, greetKey, func(g greeter) (greeter, error) {
		runs++
		if runs == 1 {
			must(t, core.Replace(host, greetKey, func(g greeter) (greeter, error) { return loud{g}, nil }))
		}
		return english{g.Greet()}, nil
	}))
	got, err := core.Lookup(t.Context(), host, greetKey)
	must(t, err)
	if want := "hello HELLO BOB"; got.Greet() != want || runs != 2 {
		t.Errorf("greeting = %q after %d runs, want %q after 2", got.Greet(), runs, want)
	}
}
