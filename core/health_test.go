package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/objecthost/objecthost/core"
)

// TestHealthStates feeds the monitor results, + for a success and - for a
// failure, and reads the state after each.
func TestHealthStates(t *testing.T) {
	t.Parallel()
	tests := []struct {
		failures, successes int
		results             string
		want                string
	}{
		{3, 1, "+--", "healthy degraded degraded"},
		{3, 1, "+---", "healthy degraded degraded unhealthy"},
		{3, 1, "---+", "degraded degraded unhealthy healthy"},
		{3, 1, "--+--", "degraded degraded healthy degraded degraded"},
		{1, 1, "+-+", "healthy unhealthy healthy"},
		{2, 2, "+++", "unknown healthy healthy"},
		{2, 2, "-+++", "degraded degraded healthy healthy"},
		{2, 2, "--+++", "degraded unhealthy recovering healthy healthy"},
		{2, 2, "--+-++", "degraded unhealthy recovering unhealthy recovering healthy"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d %d %s", tt.failures, tt.successes, tt.results), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := named("a", nil)
				checks := 0
				a.health = func(context.Context) error {
					checks++
					if tt.results[checks-1] == '-' {
						return errBroken
					}
					return nil
				}
				a.manifest.Health = core.HealthPolicy{Interval: minute, FailureThreshold: tt.failures, SuccessThreshold: tt.successes}
				k := newKernel(t, core.Config{}, a)
				must(t, k.Start(t.Context()))
				var got []string
				for i := range tt.results {
					if i > 0 {
						time.Sleep(minute)
					}
					synctest.Wait()
					got = append(got, string(k.Plugins()[0].Health.State))
				}
				must(t, k.Stop(t.Context()))
				if want := strings.Fields(tt.want); !slices.Equal(got, want) {
					t.Errorf("states = %q, want %q", got, want)
				}
				if m := k.Metrics().Plugins[0]; m.Checks != int64(len(tt.results)) || m.Failures != int64(strings.Count(tt.results, "-")) {
					t.Errorf("metrics = %+v", m)
				}
			})
		})
	}
}

func TestHealthReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, c := named("a", nil), named("c", nil)
		a.health = func(context.Context) error { return errBroken }
		c.health = func(context.Context) error { panic("oh") }
		k := newKernel(t, core.Config{Health: core.HealthPolicy{Interval: time.Hour}}, a, &initOnly{manifest: core.Manifest{ID: "b"}}, c)
		unknown := []core.Health{{Plugin: "a", State: core.HealthUnknown}, {Plugin: "b", State: core.HealthUnknown}, {Plugin: "c", State: core.HealthUnknown}}
		if diff := cmp.Diff(unknown, k.Health(t.Context())); diff != "" {
			t.Errorf("before Start (-want +got):\n%s", diff)
		}
		must(t, k.Start(t.Context()))
		synctest.Wait()
		now := time.Now()
		got := k.Health(t.Context())
		want := []core.Health{
			{Plugin: "a", State: core.HealthDegraded, CheckedAt: now, Failures: 2},
			{Plugin: "b", State: core.HealthHealthy},
			{Plugin: "c", State: core.HealthDegraded, CheckedAt: now, Failures: 2},
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(core.Health{}, "Err")); diff != "" {
			t.Errorf("while running (-want +got):\n%s", diff)
		}
		var pe *core.PanicError
		if !errors.Is(got[0].Err, errBroken) || !errors.As(got[2].Err, &pe) || pe.Plugin != "c" || pe.Phase != core.PhaseHealth {
			t.Errorf("errors = %v, %v", got[0].Err, got[2].Err)
		}
		must(t, k.Stop(t.Context()))
		if diff := cmp.Diff(unknown, k.Health(t.Context())); diff != "" {
			t.Errorf("after Stop (-want +got):\n%s", diff)
		}
	})
}

// Checks that are asked for at the same time share one call, and one whose
// caller gives up says nothing about the plugin.
func TestChecksAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := named("a", nil)
		var calls atomic.Int32
		release := make(chan struct{})
		a.health = func(ctx context.Context) error {
			calls.Add(1)
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		k := newKernel(t, core.Config{Health: core.HealthPolicy{Timeout: time.Hour}}, a)
		must(t, k.Start(t.Context()))
		synctest.Wait()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if got := k.Health(context.Background()); got[0].State != core.HealthHealthy {
					t.Errorf("health = %+v", got)
				}
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), second)
		defer cancel()
		if got := k.Health(ctx); got[0].State != core.HealthUnknown {
			t.Errorf("health without an answer = %+v", got)
		}
		close(release)
		wg.Wait()
		if calls.Load() != 1 {
			t.Errorf("%d calls, want 1", calls.Load())
		}
		must(t, k.Stop(t.Context()))
	})
}

// A check that ignores its context counts as failed, is not started again while
// it hangs, and neither blocks Stop nor outlives the plugin's patience.
func TestHangingCheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := named("a", nil)
		var calls atomic.Int32
		release := make(chan struct{})
		a.health = func(context.Context) error {
			if calls.Add(1) == 1 {
				<-release
			}
			return nil
		}
		k := newKernel(t, core.Config{Health: core.HealthPolicy{Interval: minute, Timeout: 5 * second}}, a)
		must(t, k.Start(t.Context()))
		time.Sleep(6 * second)
		synctest.Wait()
		var te *core.PhaseTimeoutError
		if h := k.Plugins()[0].Health; h.State != core.HealthDegraded || !errors.As(h.Err, &te) || !te.Abandoned || te.After != 5*second {
			t.Errorf("after the timeout: %+v", h)
		}
		time.Sleep(2 * minute)
		synctest.Wait()
		if h := k.Plugins()[0].Health; h.State != core.HealthUnhealthy || h.Failures != 3 || calls.Load() != 1 {
			t.Errorf("after two more: %+v, %d calls", h, calls.Load())
		}
		close(release)
		synctest.Wait()
		if h := k.Health(t.Context())[0]; h.State != core.HealthHealthy || calls.Load() != 2 {
			t.Errorf("after it returned: %+v, %d calls", h, calls.Load())
		}
		must(t, k.Stop(t.Context()))
	})
}

// No check runs once the first plugin is being stopped, neither the monitor's
// nor one that was asked for.
func TestChecksEndBeforeTeardown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := named("a", nil)
		var checking atomic.Int32
		a.health = func(ctx context.Context) error {
			checking.Add(1)
			defer checking.Add(-1)
			return obey(ctx)
		}
		a.stop = func(context.Context) error {
			if n := checking.Load(); n != 0 {
				t.Errorf("%d checks during Stop", n)
			}
			return nil
		}
		k := newKernel(t, core.Config{Health: core.HealthPolicy{Timeout: time.Hour}}, a)
		must(t, k.Start(t.Context()))
		synctest.Wait()
		go k.Health(context.Background())
		synctest.Wait()
		began := time.Now()
		must(t, k.Stop(t.Context()))
		if took := time.Since(began); took != 0 {
			t.Errorf("Stop waited %s for a check", took)
		}
	})
}

// A check that ends because its caller gave up is not held against the plugin.
func TestCheckOfAnImpatientCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := named("a", nil)
		calls := 0
		a.health = func(ctx context.Context) error {
			if calls++; calls == 1 {
				return nil
			}
			return obey(ctx)
		}
		k := newKernel(t, core.Config{Health: core.HealthPolicy{Interval: time.Hour}}, a)
		must(t, k.Start(t.Context()))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), second)
		defer cancel()
		if h := k.Health(ctx)[0]; h.State != core.HealthHealthy || h.Successes != 1 || calls != 2 {
			t.Errorf("after the caller gave up: %+v, %d calls", h, calls)
		}
		if h := k.Health(t.Context())[0]; h.State != core.HealthDegraded || h.Failures != 1 {
			t.Errorf("after its own timeout: %+v", h)
		}
		must(t, k.Stop(t.Context()))
	})
}
