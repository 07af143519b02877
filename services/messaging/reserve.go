package messaging

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/storage"
)

// reservation holds the slots and the places in the queue of rows that are
// stored as claimed, so that they can be sent when their transaction commits,
// without a claim of their own.
type reservation struct {
	d    *dispatcher
	rows []*driver.Row
	held map[*driver.Row]*job
	// lease is the token of the lease under which the slots were given.
	lease string
	// timer gives them back when nobody tells how the transaction ended.
	timer *time.Timer
}

// reservationLimit is how long a slot waits for the end of a transaction.
const reservationLimit = 10 * time.Minute

// reserve promises slots to the rows that can be sent at once, and places in the
// queue to those that can be sent soon, and marks both as in flight. A row gets
// one only when its target is known and active, nothing of it waits in the
// store, there is room for a request to it, and no other row of its ordering
// key is here. A caller's own transaction gets none: nobody tells whether it
// will be committed.
func (d *dispatcher) reserve(ctx context.Context, rows []*driver.Row) *reservation {
	r := &reservation{d: d, rows: rows}
	if storage.Foreign(ctx) {
		return r
	}
	now, held := time.Now(), d.lease()
	d.mu.Lock()
	defer d.mu.Unlock()
	if held.Ranges == 0 || !d.started || d.stopping || d.alone || len(d.quarantine) > 0 {
		return r
	}
	token := ""
	for _, row := range rows {
		if row.Status != StatusPending || !d.acceptable(row, now) {
			continue
		}
		t := d.targets[row.TargetID]
		j := d.newJob(row, t, now.Add(d.cfg.QueueWait))
		switch {
		case d.sendableNow(t, now):
			j.holds = slot
			t.reserved++
			d.reserved++
		case d.queued+d.placed < 2*d.cfg.BatchSize && t.room(now) > 0 && len(row.Payload) <= driver.MaxClaimedPayload:
			j.holds = place
			t.placed++
			d.placed++
		default:
			continue
		}
		if token == "" {
			token, r.lease = uuid.NewString(), held.Token
			r.held = make(map[*driver.Row]*job)
		}
		if row.OrderKey != 0 {
			d.lanes[row.OrderKey] = new(lane)
		}
		row.Status, row.ClaimToken, row.ClaimedBy = StatusInFlight, token, d.cfg.Node
		r.held[row] = j
		d.reserving++
	}
	if r.held != nil {
		r.timer = time.AfterFunc(d.cfg.SlowAfter, r.slow)
	}
	return r
}

// slow takes back what the rows of a slow transaction hold, so that no other
// row waits for it; they join the queue when it commits. When nobody has told
// in the end how it ended, they are given up.
func (r *reservation) slow() {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	for _, j := range r.held {
		r.d.unreserve(j)
	}
	if len(r.held) > 0 {
		r.timer = time.AfterFunc(r.d.reservationLimit, func() {
			r.d.suspect()
			r.release(r.rows...)
		})
	}
	r.d.pump()
}

// acceptable tells that a row may be claimed as it is stored. d.mu is held.
func (d *dispatcher) acceptable(row *driver.Row, now time.Time) bool {
	t := d.targets[row.TargetID]
	switch {
	case t == nil || t.cfg == nil || t.stale || t.off || t.ready:
		return false
	case t.cfg.row.State != TargetActive || now.Before(t.pausedTil) || now.Before(t.limiter.next) || !t.limiter.openUntil.IsZero():
		return false
	case !d.serves(t, row.Partition):
		return false
	}
	return row.OrderKey == 0 || d.lanes[row.OrderKey] == nil && d.releasing[row.OrderKey] == 0
}

// sendableNow tells that a request to a target could begin. d.mu is held.
func (d *dispatcher) sendableNow(t *target, now time.Time) bool {
	return t.queued+t.placed == 0 && t.inFlight+t.reserved < t.limiter.allowed(now) && d.prompt+d.reserved < d.cfg.MaxInFlight
}

// release gives the slots of rows back and makes them pending again: the same
// rows may be stored by a later try.
func (r *reservation) release(rows ...*driver.Row) {
	if r.held == nil {
		return
	}
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	for _, row := range rows {
		if j := r.take(row); j != nil {
			row.Status, row.ClaimToken, row.ClaimedBy = StatusPending, "", ""
			r.d.leaveLane(row.OrderKey, false)
		}
	}
	if len(r.held) == 0 {
		r.timer.Stop()
	}
	r.d.pump()
}

// unknown gives the slots back when the answer to the commit was lost, and the
// rows too, if they are stored: nothing here waits for the end of their claims.
// Until the store has told, no later row of their ordering keys is sent.
func (r *reservation) unknown() {
	d := r.d
	var giveBack []*job
	d.mu.Lock()
	if r.timer == nil {
		d.mu.Unlock()
		return
	}
	r.timer.Stop()
	for row := range r.held {
		j := r.take(row)
		stored := *row // the caller may try to store its own again
		j.row = &stored
		row.Status, row.ClaimToken, row.ClaimedBy = StatusPending, "", ""
		d.release(j)
		giveBack = append(giveBack, j)
		giveBack = append(giveBack, d.leaveLane(stored.OrderKey, true)...)
	}
	d.pump()
	d.mu.Unlock()
	d.giveBack(giveBack)
	d.suspect() // the commit may still be under way
}

// take ends the wait for the transaction of a row, nil when it was ended before.
// d.mu is held.
func (r *reservation) take(row *driver.Row) *job {
	j := r.held[row]
	if j == nil {
		return nil
	}
	delete(r.held, row)
	r.d.unreserve(j)
	r.d.reserving--
	kick(r.d.unreserved)
	return j
}

// unreserve takes back what a row holds. d.mu is held.
func (d *dispatcher) unreserve(j *job) {
	switch j.holds {
	case slot:
		j.target.reserved--
		d.reserved--
	case place:
		j.target.placed--
		d.placed--
	}
	j.holds = nothing
	d.enter(j.target)
}

// committed sends the rows that were stored as claimed, and has the others
// claimed in their turn.
func (r *reservation) committed(waiting []*driver.Row) {
	d := r.d
	var giveBack []*job
	d.mu.Lock()
	if r.timer != nil {
		r.timer.Stop()
	}
	late := d.stopping
	for _, row := range r.rows {
		first := r.held[row] != nil && r.held[row].holds == slot
		j := r.take(row)
		if j == nil {
			continue
		}
		j.target.queued++
		d.queued++
		d.runnable(j, first)
		d.watchStale(j.sendBy)
		late = late || !d.serves(j.target, row.Partition)
	}
	if late { // to be served by another process, or by the next one
		giveBack = d.takeQueued(func(j *job) bool { return d.stopping || !d.serves(j.target, j.row.Partition) })
	}
	d.pump()
	d.mu.Unlock()
	d.waiting(waiting...)
	d.giveBack(giveBack)
}
