package core

import (
	"context"
	"sync"
	"time"
)

// Health checks every plugin now and returns the judgements in start order. The
// checks run side by side, each bounded by its policy and by ctx, and count
// towards the thresholds like the monitor's own. Without a running kernel
// nothing is checked and every plugin is unknown.
func (k *Kernel) Health(ctx context.Context) []Health {
	k.mu.Lock()
	members := k.members
	running := k.state == StateRunning
	if running {
		k.checks.Add(1)
		defer k.checks.Done()
	}
	k.mu.Unlock()
	if running {
		ctx, cancel := k.untilQuiet(ctx)
		defer cancel()
		var wg sync.WaitGroup
		for _, m := range members {
			wg.Go(func() { k.check(ctx, m) })
		}
		wg.Wait()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]Health, len(members))
	for i, m := range members {
		all[i] = m.health
	}
	return all
}

// untilQuiet bounds ctx by the end of the health checks.
func (k *Kernel) untilQuiet(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-k.quiet:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// startMonitors begins the periodic checks of the plugins that have some. The
// caller holds the lock and has set the state to running.
func (k *Kernel) startMonitors() {
	for _, m := range k.members {
		if _, ok := m.plugin.(HealthChecker); !ok {
			m.health = Health{Plugin: m.manifest.ID, State: HealthHealthy}
			continue
		}
		k.checks.Go(func() { k.monitor(m) })
	}
}

// monitor checks a plugin at once and then at its interval.
func (k *Kernel) monitor(m *member) {
	ctx, cancel := k.untilQuiet(context.Background())
	defer cancel()
	interval := m.manifest.Health.withDefaults(k.config.Health).Interval
	for {
		k.check(ctx, m)
		timer := time.NewTimer(interval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// check checks a plugin once and records the result, or waits for a check that
// is under way. A check that ended because ctx did says nothing and is not
// recorded. While an abandoned check has not returned, no other is started and
// each attempt counts as a failure, so that a plugin that hangs costs one
// goroutine.
func (k *Kernel) check(ctx context.Context, m *member) {
	checker, ok := m.plugin.(HealthChecker)
	if !ok {
		return
	}
	policy := m.manifest.Health.withDefaults(k.config.Health)
	k.mu.Lock()
	if flight := m.flight; flight != nil {
		k.mu.Unlock()
		select {
		case <-flight:
		case <-ctx.Done():
		}
		return
	}
	if m.checking {
		defer k.mu.Unlock()
		k.observe(m, policy, &PhaseTimeoutError{Plugin: m.manifest.ID, Phase: PhaseHealth, After: policy.Timeout, Abandoned: true})
		return
	}
	flight := make(chan struct{})
	m.flight, m.checking = flight, true
	k.mu.Unlock()

	err := call{
		plugin: m.manifest.ID, phase: PhaseHealth, limit: policy.Timeout,
		fn: func(ctx context.Context) error {
			defer func() {
				k.mu.Lock()
				defer k.mu.Unlock()
				m.checking = false
			}()
			return checker.CheckHealth(ctx)
		},
	}.run(ctx, k.config.AbandonAfter)

	k.mu.Lock()
	defer k.mu.Unlock()
	m.flight = nil
	if ctx.Err() == nil {
		k.observe(m, policy, err)
	}
	close(flight)
}

// observe folds the result of a check into a plugin's health. The caller holds
// the lock.
func (k *Kernel) observe(m *member, policy HealthPolicy, err error) {
	before := m.health.State
	m.metrics.Checks++
	if err != nil {
		m.metrics.Failures++
	}
	m.health = m.health.after(err, policy)
	m.health.CheckedAt = time.Now()
	if m.health.State != before {
		k.config.Logger.Info("plugin health changed",
			"plugin", m.manifest.ID, "from", string(before), "to", string(m.health.State), "error", err)
	}
}

// after is the health machine:
//
//	unknown, healthy, degraded ── failure ──► degraded ── threshold ──► unhealthy
//	unknown, degraded, recovering ── successes reach the threshold ──► healthy
//	unhealthy ── success ──► recovering ── failure ──► unhealthy
//
// A threshold that is reached at once skips the state in between.
func (h Health) after(err error, policy HealthPolicy) Health {
	h.Err = err
	if err != nil {
		h.Failures, h.Successes = h.Failures+1, 0
		broken := h.State == HealthUnhealthy || h.State == HealthRecovering
		if broken || h.Failures >= policy.FailureThreshold {
			h.State = HealthUnhealthy
		} else {
			h.State = HealthDegraded
		}
		return h
	}
	h.Failures, h.Successes = 0, h.Successes+1
	switch {
	case h.State == HealthHealthy || h.Successes >= policy.SuccessThreshold:
		h.State = HealthHealthy
	case h.State == HealthUnhealthy:
		h.State = HealthRecovering
	}
	return h
}
