package core_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/objecthost/objecthost/core"
)

// TestStartStopStress starts and stops kernels from many goroutines at once
// while services, hooks and health are used. It is meant for the race detector.
func TestStartStopStress(t *testing.T) {
	t.Parallel()
	for round := range 60 {
		j := &journal{}
		k := core.New(core.Config{})
		keys := []core.Key[int]{core.NewKey[int]("s0"), core.NewKey[int]("s1"), core.NewKey[int]("s2")}
		for i, key := range keys {
			p := named(fmt.Sprintf("p%d", i), j)
			p.init = func(_ context.Context, host core.Context) error {
				host.On("tick", func(context.Context, any) error { return nil })
				return core.ProvideFactory(host, key, core.FactoryOf[int]{
					New:     func(context.Context, string) (int, error) { return i, nil },
					Dispose: func(context.Context, int) error { return nil },
				})
			}
			must(t, k.Use(p))
		}
		var wg sync.WaitGroup
		wg.Go(func() { _ = k.Start(context.Background()) })
		for i := range 4 {
			wg.Go(func() {
				host := k.Host()
				_, _ = core.Lookup(context.Background(), host, keys[i%len(keys)])
				_ = core.Replace(host, keys[i%len(keys)], func(n int) (int, error) { return n + 1, nil })
				remove := host.On("tick", func(context.Context, any) error { return nil })
				_ = host.Emit(context.Background(), "tick", round)
				remove()
				_, _, _, _ = k.Health(context.Background()), k.Plugins(), k.Metrics(), host.Services()
				if i%2 == round%2 {
					_ = k.Stop(context.Background())
				}
			})
		}
		wg.Wait()
		must(t, k.Stop(context.Background()))
		if k.State() != core.StateStopped {
			t.Fatalf("state = %q", k.State())
		}
		calls := map[string]int{}
		for _, e := range j.list() {
			calls[e]++
		}
		for i := range keys {
			id := fmt.Sprintf("p%d", i)
			if calls["init "+id] != calls["stop "+id] || calls["stop "+id] > 1 {
				t.Fatalf("round %d: %q", round, j.list())
			}
		}
		if last := slices.Index(j.list(), "start p0"); last >= 0 && calls["stop p0"] != 1 {
			t.Fatalf("round %d: %q", round, j.list())
		}
	}
}
