package messaging

import (
	"context"

	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/storage/lease"
)

// A cluster divides the partitions among its nodes by leases; a node claims
// rows of the partitions that it holds. Caps are divided with them, so that the
// nodes together keep to what is set. Where that would leave a node less than
// one, or where a rate is limited, the whole target is served by one node: the
// one that holds the target's home range.

// spread tells that the rows of a target are served by the nodes that hold
// their partitions.
func (t *target) spread() bool {
	return t.cfg == nil || t.cfg.RatePerSecond <= 0 && (t.cfg.MaxConcurrency == 0 || t.cfg.MaxConcurrency >= lease.Ranges)
}

// rangeOf is the range that a row of a target is served by.
func (t *target) rangeOf(partition int) int {
	if t.spread() {
		return lease.RangeOf(partition)
	}
	return int(t.id % lease.Ranges)
}

// serves tells whether a row is served here. d.mu is held.
func (d *dispatcher) serves(t *target, partition int) bool {
	return d.held == lease.All || d.held.HasRange(t.rangeOf(partition))
}

// served tells whether any row of a target can be served here. d.mu is held.
func (d *dispatcher) served(t *target) bool { return t.spread() || d.serves(t, 0) }

// share is this node's part of a number that holds for all nodes together.
func (d *dispatcher) share(n int) int {
	if d.held == lease.All || d.held == 0 {
		return n
	}
	return max(1, n*d.held.Len()/lease.Ranges)
}

// limitOf is the largest number of requests in flight to a target from here.
func (d *dispatcher) limitOf(t *target) int {
	limit := d.cfg.MaxPerTarget
	if t.cfg != nil && t.cfg.MaxConcurrency > 0 {
		limit = min(limit, t.cfg.MaxConcurrency)
	}
	if t.spread() {
		return d.share(limit)
	}
	return limit
}

// lease is what is held at this moment, and with it the right to claim.
func (d *dispatcher) lease() lease.Held {
	if d.cfg.Leases == nil {
		return lease.Held{Ranges: lease.All}
	}
	return d.cfg.Leases.Held()
}

// leased are the terms of a claim under a lease. d.mu is held.
func (d *dispatcher) leased(held lease.Held) driver.Lease {
	l := driver.Lease{Token: held.Token}
	if d.held != lease.All {
		l.Partitions = d.held.Partitions()
	}
	return l
}

// view is what to look at in the store.
func (d *dispatcher) view() (v driver.View) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held == lease.All {
		return v
	}
	v.Partitions, v.Anywhere = d.held.Partitions(), []int64{}
	for id, t := range d.targets {
		if !t.spread() && d.serves(t, 0) {
			v.Anywhere = append(v.Anywhere, id)
		}
	}
	return v
}

// leasesChanged gives back what waits here of ranges that were lost, divides
// the caps anew, and waits until nothing of the lost ranges is in flight or
// unsaved, or ctx ends.
func (d *dispatcher) leasesChanged(ctx context.Context, held lease.Set) {
	d.mu.Lock()
	lost := d.held &^ held
	d.held = held
	for _, t := range d.targets {
		t.limiter.bound(d.limitOf(t))
	}
	giveBack := d.takeQueued(func(j *job) bool { return !d.serves(j.target, j.row.Partition) })
	d.pump()
	d.mu.Unlock()
	d.giveBack(giveBack)
	kick(d.pollKick)
	for {
		d.mu.Lock()
		busy := false
		for r, n := range d.busy {
			busy = busy || n > 0 && lost.HasRange(r)
		}
		d.mu.Unlock()
		if !busy {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-d.settled:
		}
	}
}

// jobsSettled takes back what [dispatcher.begin] counted, once the outcomes of
// the jobs are saved or given up.
func (d *dispatcher) jobsSettled(batch []item) {
	d.mu.Lock()
	for i := range batch {
		if j := batch[i].job; !j.started.IsZero() {
			d.busy[j.servedBy]--
		}
	}
	d.mu.Unlock()
	kick(d.settled)
}
