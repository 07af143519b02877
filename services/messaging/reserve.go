package messaging

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/storage"
)

// reservation holds the slots of rows that are stored as claimed, so that they
// can be sent when their transaction commits, without a claim of their own.
type reservation struct {
	d    *dispatcher
	held map[*driver.Row]*job
	// lease is the token of the lease under which the slots were given.
	lease string
	// timer gives the slots back when nobody tells how the transaction ended.
	timer *time.Timer
}

// reservationLimit is how long a slot waits for the end of a transaction.
const reservationLimit = 10 * time.Minute

// reserve promises slots to the rows that can be sent at once, and marks these
// as in flight. A row gets one only when its target is known, active and has
// nothing waiting, there is room for a request to it, and no other row of its
// ordering key is here. A caller's own transaction gets none: nobody tells
// whether it will be committed.
func (d *dispatcher) reserve(ctx context.Context, rows []*driver.Row) *reservation {
	r := &reservation{d: d}
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
		if row.Status != StatusPending || !d.sendableNow(row, now) {
			continue
		}
		if token == "" {
			token, r.lease = uuid.NewString(), held.Token
			r.held = make(map[*driver.Row]*job)
		}
		t := d.targets[row.TargetID]
		t.reserved++
		d.reserved++
		if row.OrderKey != 0 {
			d.lanes[row.OrderKey] = new(lane)
		}
		row.Status, row.ClaimToken, row.ClaimedBy = StatusInFlight, token, d.cfg.Node
		r.held[row] = d.newJob(row, t, now.Add(d.cfg.QueueWait))
	}
	if r.held != nil {
		r.timer = time.AfterFunc(d.reservationLimit, func() {
			d.suspect()
			r.release(rows...)
		})
	}
	return r
}

func (d *dispatcher) sendableNow(row *driver.Row, now time.Time) bool {
	t := d.targets[row.TargetID]
	switch {
	case t == nil || t.cfg == nil || t.stale || t.off || t.ready || t.queued > 0:
		return false
	case t.cfg.row.State != TargetActive || now.Before(t.pausedTil) || !t.limiter.openUntil.IsZero():
		return false
	case t.inFlight+t.reserved >= t.limiter.allowed(now) || !d.serves(t, row.Partition):
		return false
	case d.prompt+d.reserved >= d.cfg.MaxInFlight:
		return false
	}
	return row.OrderKey == 0 || d.lanes[row.OrderKey] == nil && d.releasing[row.OrderKey] == 0
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
		if j := r.held[row]; j != nil {
			delete(r.held, row)
			row.Status, row.ClaimToken, row.ClaimedBy = StatusPending, "", ""
			r.d.unreserve(j)
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
	if r.timer == nil {
		return
	}
	r.timer.Stop()
	var giveBack []*job
	d.mu.Lock()
	for row, j := range r.held {
		delete(r.held, row)
		stored := *row // the caller may try to store its own again
		j.row = &stored
		row.Status, row.ClaimToken, row.ClaimedBy = StatusPending, "", ""
		d.unreserve(j)
		d.release(j)
		giveBack = append(giveBack, j)
		giveBack = append(giveBack, d.leaveLane(stored.OrderKey, true)...)
	}
	d.pump()
	d.mu.Unlock()
	d.giveBack(giveBack)
	d.suspect() // the commit may still be under way
}

func (d *dispatcher) unreserve(j *job) {
	j.target.reserved--
	d.reserved--
	d.enter(j.target)
	kick(d.unreserved)
}

// committed sends the rows that were stored as claimed, and has the others
// claimed in their turn.
func (r *reservation) committed(waiting []*driver.Row) {
	d := r.d
	var giveBack []*job
	if r.timer != nil {
		r.timer.Stop()
	}
	d.mu.Lock()
	for row, j := range r.held {
		delete(r.held, row)
		d.unreserve(j)
		j.target.queued++
		d.queued++
		d.runnable(j, true)
		if d.stopping {
			giveBack = append(giveBack, j)
			continue
		}
		d.watchStale(j.sendBy)
	}
	if d.stopping {
		d.takeQueued(func(*job) bool { return true })
	}
	d.pump()
	d.mu.Unlock()
	d.waiting(waiting...)
	d.giveBack(giveBack)
}
