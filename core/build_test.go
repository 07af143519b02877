package core_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/objecthost/objecthost/core"
)

// Many lookups of one unbuilt singleton share one construction, and none of
// them takes the others for a cycle.
func TestSingleflight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		host := hostOf(t)
		release := make(chan struct{})
		var calls, disposed atomic.Int32
		base, top := core.NewKey[int]("base"), core.NewKey[int]("top")
		must(t, core.ProvideFactory(host, base, core.FactoryOf[int]{
			New:     func(context.Context, string) (int, error) { calls.Add(1); <-release; return 5, nil },
			Dispose: func(context.Context, int) error { disposed.Add(1); return nil },
		}))
		must(t, core.ProvideFactory(host, top, core.FactoryOf[int]{DependsOn: []string{"base"}, New: func(ctx context.Context, _ string) (int, error) {
			v, err := core.Lookup(ctx, host, base)
			return v + 1, err
		}}))
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				if v, err := core.Lookup(t.Context(), host, base); v != 5 || err != nil {
					t.Errorf("base = %d, %v", v, err)
				}
			})
			wg.Go(func() {
				if v, err := core.Lookup(t.Context(), host, top); v != 6 || err != nil {
					t.Errorf("top = %d, %v", v, err)
				}
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := core.Lookup(ctx, host, base); !errors.Is(err, context.Canceled) {
			t.Errorf("Lookup with an ended context = %v", err)
		}
		close(release)
		wg.Wait()
		if calls.Load() != 1 || disposed.Load() != 0 {
			t.Errorf("made %d times, disposed of %d times", calls.Load(), disposed.Load())
		}
	})
}

// When the last lookup gives up, the construction is cancelled, what it still
// makes is disposed of, and the next lookup begins anew. Failures are not kept.
func TestConstructionIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		host := hostOf(t)
		var calls int
		var disposed []int
		must(t, core.ProvideFactory(host, numKey, core.FactoryOf[int]{
			New: func(ctx context.Context, _ string) (int, error) {
				calls++
				switch calls {
				case 1:
					<-ctx.Done()
				case 2:
					return 0, errBroken
				case 3:
					panic("three")
				}
				return calls, nil
			},
			Dispose: func(_ context.Context, n int) error { disposed = append(disposed, n); return nil },
		}))
		ctx, cancel := context.WithTimeout(t.Context(), minute)
		defer cancel()
		if _, err := core.Lookup(ctx, host, numKey); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("first Lookup = %v", err)
		}
		synctest.Wait()
		if !slices.Equal(disposed, []int{1}) {
			t.Errorf("disposed = %v, want [1]", disposed)
		}
		if _, err := core.Lookup(t.Context(), host, numKey); !errors.Is(err, errBroken) {
			t.Errorf("second Lookup = %v", err)
		}
		var pe *core.PanicError
		if _, err := core.Lookup(t.Context(), host, numKey); !errors.As(err, &pe) || pe.Plugin != "a" || pe.Phase != "factory of number" {
			t.Errorf("third Lookup = %v", err)
		}
		if v, err := core.Lookup(t.Context(), host, numKey); v != 4 || err != nil {
			t.Errorf("fourth Lookup = %d, %v", v, err)
		}
	})
}

func TestScopeIsClearedDuringConstruction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		host := hostOf(t)
		var disposed []string
		key := core.NewKey[string]("s")
		must(t, core.ProvideFactory(host, key, core.FactoryOf[string]{
			Lifetime: core.LifetimeScoped,
			New:      func(ctx context.Context, scope string) (string, error) { <-ctx.Done(); return scope, nil },
			Dispose:  func(_ context.Context, s string) error { disposed = append(disposed, s); return nil },
		}))
		result := make(chan error)
		go func() {
			_, err := core.Scoped(t.Context(), host, key, "x")
			result <- err
		}()
		synctest.Wait()
		must(t, core.ClearScope(t.Context(), host, "x"))
		if err := <-result; !errors.Is(err, core.ErrScopeCleared) {
			t.Errorf("Scoped = %v", err)
		}
		synctest.Wait()
		if !slices.Equal(disposed, []string{"x"}) {
			t.Errorf("disposed = %q", disposed)
		}
	})
}

// A true cycle is reported with its whole path, whoever meets it, also when its
// ends are built by different goroutines.
func TestCycles(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		edges map[string]string
		kinds map[string]core.Lifetime
		want  []string
	}{
		{"self", map[string]string{"a": "a"}, nil, []string{"a", "a"}},
		{"three", map[string]string{"b": "c", "c": "a", "a": "b", "x": "b"}, nil, []string{"a", "b", "c", "a"}},
		{"transients", map[string]string{"a": "b", "b": "a"}, map[string]core.Lifetime{"a": core.LifetimeTransient, "b": core.LifetimeTransient}, []string{"a", "b", "a"}},
		{"mixed", map[string]string{"a": "b", "b": "c", "c": "a"}, map[string]core.Lifetime{"b": core.LifetimeTransient}, []string{"a", "b", "c", "a"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				host := hostOf(t)
				for from, to := range tt.edges {
					must(t, core.ProvideFactory(host, core.NewKey[int](from), core.FactoryOf[int]{
						Lifetime: tt.kinds[from],
						New:      func(ctx context.Context, _ string) (int, error) { return core.Lookup(ctx, host, core.NewKey[int](to)) },
					}))
				}
				var wg sync.WaitGroup
				for from := range tt.edges {
					for range 3 {
						wg.Go(func() {
							_, err := core.Lookup(t.Context(), host, core.NewKey[int](from))
							var cycle *core.CycleError
							if !errors.As(err, &cycle) || cycle.Kind != "service" || !slices.Equal(cycle.Path, tt.want) {
								t.Errorf("Lookup of %s = %v", from, err)
							}
						})
					}
				}
				wg.Wait()
			})
		})
	}
}

func TestDeclaredCycle(t *testing.T) {
	t.Parallel()
	host := hostOf(t)
	provide := func(name string, deps ...string) error {
		return core.ProvideFactory(host, core.NewKey[int](name), core.FactoryOf[int]{New: constant(1), DependsOn: deps})
	}
	must(t, provide("a", "b", "x"))
	must(t, provide("b", "c"))
	err := provide("c", "x", "a")
	var cycle *core.CycleError
	if !errors.As(err, &cycle) || !slices.Equal(cycle.Path, []string{"c", "a", "b", "c"}) {
		t.Errorf("ProvideFactory = %v", err)
	}
}

// A context that outlives its construction looks things up like any other.
func TestContextOfAFinishedConstruction(t *testing.T) {
	t.Parallel()
	host := hostOf(t)
	var kept context.Context
	each := core.NewKey[int]("each")
	must(t, core.ProvideFactory(host, each, core.FactoryOf[int]{Lifetime: core.LifetimeTransient,
		New: func(ctx context.Context, _ string) (int, error) { kept = ctx; return 1, nil }}))
	for range 2 {
		ctx := kept
		if ctx == nil {
			ctx = t.Context()
		}
		if _, err := core.Lookup(ctx, host, each); err != nil {
			t.Errorf("Lookup = %v", err)
		}
	}
}

// Stop does not wait for a construction that ignores its context.
func TestStopDuringConstruction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var disposed atomic.Int32
		k := newKernel(t, core.Config{}, named("a", nil))
		must(t, core.ProvideFactory(k.Host(), numKey, core.FactoryOf[int]{
			New:     func(context.Context, string) (int, error) { <-release; return 1, nil },
			Dispose: func(context.Context, int) error { disposed.Add(1); return nil },
		}))
		must(t, k.Start(t.Context()))
		result := make(chan error, 1)
		go func() {
			_, err := core.Lookup(context.Background(), k.Host(), numKey)
			result <- err
		}()
		synctest.Wait()
		must(t, k.Stop(t.Context()))
		close(release)
		var sealed *core.SealedError
		if err := <-result; !errors.As(err, &sealed) {
			t.Errorf("Lookup = %v", err)
		}
		synctest.Wait()
		if disposed.Load() != 1 {
			t.Errorf("disposed %d times", disposed.Load())
		}
	})
}
