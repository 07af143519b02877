package messaging

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/storage/lease"
)

// A cluster divides the partitions among its nodes by leases; a node claims
// rows of the partitions that it holds. Caps are divided with them, so that the
// nodes together keep to what is set. Where that would leave a node less than
// one, where a rate is limited, or where all rows have one ordering key, the whole target is served by one node: the
// one that holds the target's home range.

// spread tells that the rows of a target are served by the nodes that hold
// their partitions.
func (t *target) spread() bool {
	return t.cfg == nil || !t.cfg.Serial && t.cfg.RatePerSecond <= 0 && (t.cfg.MaxConcurrency == 0 || t.cfg.MaxConcurrency >= lease.Ranges)
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
	return driver.Lease{Token: held.Token, Partitions: d.partitions}
}

// hold notes what is served here. d.mu is held.
func (d *dispatcher) hold(held lease.Set) {
	d.held, d.partitions = held, nil
	if held != lease.All {
		d.partitions = held.Partitions()
	}
}

// view is what to look at in the store.
func (d *dispatcher) view() (v driver.View) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.partitions == nil {
		return v
	}
	v.Partitions, v.Anywhere = d.partitions, []int64{}
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
	d.hold(held)
	d.suspicious = true // another process may have ended
	for _, t := range d.targets {
		t.limiter.bound(d.limitOf(t))
	}
	giveBack := d.takeQueued(func(j *job) bool { return !d.serves(j.target, j.row.Partition) })
	d.pump()
	d.mu.Unlock()
	d.giveBack(giveBack)
	kick(d.pollKick)
	// A claim that began before may still take rows of the lost ranges, and
	// would make the next holder pass over them while they are locked.
	select {
	case d.claimSlot <- struct{}{}:
		<-d.claimSlot
	case <-ctx.Done():
		return
	}
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

// jobsSettled takes back what [dispatcher.begin] and [dispatcher.release]
// counted, once the outcomes of the jobs are saved or given up.
func (d *dispatcher) jobsSettled(batch []item) {
	d.mu.Lock()
	for i := range batch {
		j := batch[i].job
		if !j.started.IsZero() {
			d.busy[j.servedBy]--
		}
		if key := j.row.OrderKey; key != 0 && batch[i].outcome.Released {
			if d.releasing[key]--; d.releasing[key] <= 0 {
				delete(d.releasing, key)
				if d.claiming {
					d.released[key] = struct{}{}
				}
			}
		}
	}
	if d.rec.backlog() <= d.backlogLimit() && d.queued < d.lowWater() {
		d.kickClaim()
	}
	d.mu.Unlock()
	kick(d.settled)
}

// Nodes reaches the other processes that share the store. Announcements are
// wake-ups: one that is lost costs time, never a delivery.
type Nodes interface {
	// Announce tells the other nodes about a name after ctx's transaction.
	Announce(ctx context.Context, name, detail string) error
	// OnAnnounce has fn called for announcements of other nodes. Without details
	// it is to look at everything.
	OnAnnounce(name string, fn func(details []string))
}

// What is announced: rows of a target in a range that wait, with the detail
// "target.range", and a target that was written, with its number.
const (
	topicWaiting = "outbox"
	topicTarget  = "outbox-target"
)

// listen registers for what other nodes announce.
func (d *dispatcher) listen() {
	if d.cfg.Nodes == nil {
		return
	}
	d.cfg.Nodes.OnAnnounce(topicWaiting, func(details []string) {
		if details == nil {
			kick(d.pollKick)
			return
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, detail := range details {
			var id int64
			var r int
			if _, err := fmt.Sscanf(detail, "%d.%d", &id, &r); err == nil && r >= 0 && r < lease.Ranges && d.started && !d.stopping {
				if t := d.target(id); d.serves(t, r*(event.Partitions/lease.Ranges)) {
					d.markReady(t)
				}
			}
		}
	})
	d.cfg.Nodes.OnAnnounce(topicTarget, func(details []string) {
		for _, detail := range details {
			if id, err := strconv.ParseInt(detail, 10, 64); err == nil {
				d.targetChanged(id)
			}
		}
		if details == nil {
			d.allStale()
		}
	})
}

// allStale makes every target be read again before its next claim.
func (d *dispatcher) allStale() {
	d.mu.Lock()
	ids := slices.Collect(maps.Keys(d.targets))
	d.mu.Unlock()
	for _, id := range ids {
		d.targetChanged(id)
	}
}

// waiting notes that rows wait, here or on the nodes that serve them.
func (d *dispatcher) waiting(rows ...*driver.Row) {
	var others map[string]struct{}
	d.mu.Lock()
	for _, row := range rows {
		t := d.target(row.TargetID)
		switch {
		case d.serves(t, row.Partition):
			if d.started && !d.stopping {
				d.markReady(t)
			}
		case d.cfg.Nodes != nil:
			if others == nil {
				others = make(map[string]struct{})
			}
			others[fmt.Sprintf("%d.%d", t.id, t.rangeOf(row.Partition))] = struct{}{}
		}
	}
	d.mu.Unlock()
	for detail := range others {
		d.announce(topicWaiting, detail)
	}
}

func (d *dispatcher) announce(topic, detail string) {
	if d.cfg.Nodes == nil {
		return
	}
	if err := d.cfg.Nodes.Announce(context.Background(), topic, detail); err != nil {
		d.log.Warn("wake other nodes", "error", err)
	}
}
