package messaging

import (
	"context"
	"fmt"
	"time"

	"github.com/objecthost/objecthost/services/messaging/driver"
)

// minPollSpacing is the least time between two looks, pollShare how many times
// as long as a look the loop pauses after it: the looks that due retries ask
// for are bounded by both.
const (
	minPollSpacing = 10 * time.Millisecond
	pollShare      = 9
)

// afterOutcomes is how long expired claims wait for outcomes that are being
// saved.
const afterOutcomes = 50 * time.Millisecond

// pollLoop looks at what waits in the store: what other processes wrote, what
// this one found at its start, claims that have ended, rows of targets that
// are gone. Commits of this process wake the claim loop without it.
func (d *dispatcher) pollLoop(ctx context.Context) {
	exclusive := d.cfg.Exclusive
	for {
		wait := d.cfg.PollInterval
		began := time.Now()
		next, err := d.look(ctx, &exclusive)
		spacing := max(minPollSpacing, pollShare*time.Since(began))
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			d.setErr(err)
			wait = min(wait, time.Second)
		default:
			d.setErr(nil)
			wait = min(wait, next)
		}
		spacing = min(spacing, wait)
		if !sleep(ctx, spacing) {
			return
		}
		timer := time.NewTimer(wait - spacing)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-d.pollKick:
			timer.Stop()
		}
	}
}

// look takes back all claims first as long as exclusive is set, and then polls.
// Only then may this process claim: its claims must not be among those.
func (d *dispatcher) look(ctx context.Context, exclusive *bool) (time.Duration, error) {
	if *exclusive {
		if err := d.expire(ctx, true); err != nil {
			return 0, err
		}
		*exclusive = false
	}
	d.recovered.Do(func() { close(d.claimable) })
	return d.poll(ctx)
}

// poll looks once and returns when to look again at the latest.
func (d *dispatcher) poll(ctx context.Context) (time.Duration, error) {
	outlook, err := d.cfg.Store.Outlook(ctx, d.view())
	if err != nil {
		return 0, err
	}
	next, err := d.orphans(ctx)
	if err != nil {
		return 0, err
	}
	if outlook.Gone {
		if err := d.sweep(ctx); err != nil {
			return 0, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopping {
		return next, nil
	}
	now := time.Now()
	for _, due := range outlook.Due {
		t := d.target(due.TargetID)
		switch {
		case due.Elsewhere && t.cfg != nil:
		case due.Elsewhere || due.In <= 0:
			t.moreDue = true
			d.markReady(t)
		default:
			d.dueAt(t, now.Add(due.In), now)
		}
	}
	return next, nil
}

// orphansEvery is the time between looks for orphaned claims without a reason.
const orphansEvery = 30 * time.Second

// suspect has the store looked at for orphaned claims for as long as a claim of
// this process could last: one may be stored that it does not know of.
func (d *dispatcher) suspect() {
	d.mu.Lock()
	d.suspicious = true
	d.suspectUntil = time.Now().Add(d.cfg.hold() + maxTimeout)
	d.mu.Unlock()
	kick(d.pollKick)
}

// orphans takes back claims that have ended without an outcome, when there is a
// reason to look for some, and returns when to look again at the latest.
func (d *dispatcher) orphans(ctx context.Context) (time.Duration, error) {
	// Without leases nothing tells when another process ends.
	alone := d.cfg.Exclusive || d.cfg.Leases != nil
	now := time.Now()
	d.mu.Lock()
	look := !alone || d.suspicious || now.Before(d.suspectUntil) || now.Sub(d.lookedAt) >= orphansEvery
	if look {
		d.suspicious, d.lookedAt = false, now
	}
	d.mu.Unlock()
	if !look {
		return d.cfg.PollInterval, nil
	}
	claims, err := d.cfg.Store.Claims(ctx, d.cfg.Node, d.cfg.Leases != nil)
	again := d.cfg.PollInterval
	switch {
	case err != nil:
	case !claims.Some:
		return again, nil
	case claims.EndIn > 0:
		again = min(again, claims.EndIn)
	case d.rec.backlog() > 0:
		// After a loss of the store the outcomes that were kept come first:
		// their rows did not crash.
		again = afterOutcomes
	default:
		// The requeued rows are due: look again at once.
		again, err = 0, d.expire(ctx, false)
	}
	d.mu.Lock()
	d.suspicious = true
	d.mu.Unlock()
	return again, err
}

// expire takes back claims that have ended.
func (d *dispatcher) expire(ctx context.Context, all bool) error {
	for {
		var requeued int
		var dead []*driver.Row
		err := d.cfg.Tx.InTx(ctx, func(ctx context.Context) (err error) {
			requeued, dead, err = d.cfg.Store.Expire(ctx, all, deadAt, d.cfg.BatchSize)
			if err != nil {
				return fmt.Errorf("expire claims: %w", err)
			}
			return d.s.appendFinished(ctx, dead...)
		})
		if err != nil {
			return err
		}
		if requeued+len(dead) > 0 {
			d.log.Warn("claims ended without an outcome", "requeued", requeued, "dead", len(dead), "at_start", all)
		}
		if requeued+len(dead) < d.cfg.BatchSize {
			return nil
		}
	}
}

// sweep ends waiting rows of targets that are gone.
func (d *dispatcher) sweep(ctx context.Context) error {
	for {
		var rows []*driver.Row
		err := d.cfg.Tx.InTx(ctx, func(ctx context.Context) (err error) {
			rows, err = d.cfg.Store.Sweep(ctx, d.cfg.BatchSize)
			if err != nil {
				return fmt.Errorf("sweep deliveries: %w", err)
			}
			return d.s.appendFinished(ctx, rows...)
		})
		if err != nil || len(rows) < d.cfg.BatchSize {
			return err
		}
	}
}

// cleanLoop removes rows whose retention is over, in small batches with pauses
// as long as the batches, so that live traffic keeps half of the store.
func (d *dispatcher) cleanLoop(ctx context.Context) {
	const batch = 500
	wait, after := d.cfg.CleanInterval, ""
	for sleep(ctx, wait) {
		began := time.Now()
		cleaned, err := d.cfg.Store.Clean(ctx, driver.Clean{Keep: d.cfg.Retention, Limit: batch, After: after})
		if err != nil && ctx.Err() == nil {
			d.log.Warn("retention clean-up", "error", err)
		}
		wait, after = d.cfg.CleanInterval, ""
		if err == nil && !cleaned.Done {
			wait, after = max(time.Since(began), time.Millisecond), cleaned.Last
		}
	}
}
