package messaging

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/objecthost/objecthost/services/messaging/driver"
)

// job is a claimed row on its way through this process.
type job struct {
	row    *driver.Row
	target *target
	host   *host
	// sendBy is the end of the queue wait: no request starts after it.
	sendBy  time.Time
	started time.Time
	slow    bool
	// holds is what is promised to a row that is being stored.
	holds holding
	// servedBy is the range that the job was begun under.
	servedBy int
	// prev and next link the jobs that hold a prompt slot, oldest first.
	prev, next *job
}

// holding is what a row has of the dispatcher before its transaction commits: a
// slot to be sent at once, or a place in the queue.
type holding int8

const (
	nothing holding = iota
	slot
	place
)

func (j *job) retry() bool { return j.row.Attempts > 0 }

// target is the scheduling state of one target.
type target struct {
	id     int64
	cfg    *targetConfig // nil until loaded
	first  []*job        // claimed rows that were never tried, in order
	again  []*job        // claimed rows that are tried again
	queued int           // claimed rows not started, those in lanes included
	// inFlight counts requests, reserved slots and placed places in the queue
	// promised to rows that are being enqueued.
	inFlight, reserved, placed int
	limiter                    limiter
	rate                       *rate.Limiter
	// ready tells that the store may have due rows; gen grows each time that
	// is learned, so that a claim that began before does not clear it.
	ready bool
	gen   uint64
	// stale tells that the target must be read again before its next claim,
	// off that its receiver said 410 and the hold is being saved.
	stale, off bool
	// changes counts the reasons to read the target again, so that a reading
	// that began before the last one does not count.
	changes int
	// sends goes off when the target may send again, due when a row of its is
	// due. moreDue tells that other rows may become due later, tookDue that a
	// due retry was claimed since the store was last asked for the next one.
	sends, due       alarm
	moreDue, tookDue bool
	pausedTil        time.Time
	inRing           bool
	turn             int
	// done counts ended requests since lastClaim, for the prefetch.
	done      int
	lastClaim time.Time
	// failing and touched spare writes of the target that change nothing.
	failing bool
	touched time.Time
}

// host is one host and port.
type host struct {
	name     string
	inFlight int
	waiting  []*target
}

// lane keeps the order of one ordering key: its head is queued or in flight,
// the rest waits here.
type lane struct{ waiting []*job }

// ring is a queue of targets served in turn.
type ring struct{ items []*target }

func (r *ring) push(t *target) { r.items = append(r.items, t) }
func (r *ring) pop() *target {
	t := r.items[0]
	r.items[0] = nil
	r.items = r.items[1:]
	return t
}

// orgRing serves organizations in turn, and the targets of each in turn.
type orgRing struct {
	orgs  []string
	rings map[string]*ring
}

func (o *orgRing) push(t *target) {
	org := t.cfg.row.OrganizationID
	r := o.rings[org]
	if r == nil {
		r = new(ring)
		if o.rings == nil {
			o.rings = make(map[string]*ring)
		}
		o.rings[org] = r
	}
	if len(r.items) == 0 {
		o.orgs = append(o.orgs, org)
	}
	r.push(t)
}

// pop returns the next target, nil when there is none.
func (o *orgRing) pop() *target {
	if len(o.orgs) == 0 {
		return nil
	}
	org := o.orgs[0]
	o.orgs = o.orgs[1:]
	r := o.rings[org]
	t := r.pop()
	if len(r.items) > 0 {
		o.orgs = append(o.orgs, org)
	} else {
		delete(o.rings, org)
	}
	return t
}

// enqueue puts a claimed job into its lane or its target's queue.
func (d *dispatcher) enqueue(j *job) {
	j.target.queued++
	d.queued++
	if key := j.row.OrderKey; key != 0 {
		if l := d.lanes[key]; l != nil {
			l.waiting = append(l.waiting, j)
			return
		}
		d.lanes[key] = new(lane)
	}
	d.runnable(j, false)
}

// runnable puts a job that nothing has to precede into its target's queue.
func (d *dispatcher) runnable(j *job, front bool) {
	t := j.target
	if j.row.CrashCount >= quarantineAt {
		d.quarantine = append(d.quarantine, j)
		return
	}
	q := &t.first
	if j.retry() {
		q = &t.again
	}
	if front {
		*q = append([]*job{j}, *q...)
	} else {
		*q = append(*q, j)
	}
	d.enter(t)
}

// enter puts a target with runnable jobs into the ring.
func (d *dispatcher) enter(t *target) {
	if !t.inRing && len(t.first)+len(t.again) > 0 {
		t.inRing = true
		d.ring.push(t)
	}
}

// pump starts jobs while there are free slots.
func (d *dispatcher) pump() {
	if d.stopping {
		return
	}
	now := time.Now()
	for {
		if len(d.quarantine) > 0 {
			if d.inFlight() > 0 {
				return
			}
			j := d.quarantine[0]
			d.quarantine = d.quarantine[1:]
			d.alone = true
			d.begin(j, now)
			return
		}
		if d.alone {
			return
		}
		if d.prompt+d.reserved >= d.cfg.MaxInFlight {
			d.demoteSlow(now)
			if d.prompt+d.reserved >= d.cfg.MaxInFlight {
				return
			}
		}
		j := d.pick(now)
		if j == nil {
			return
		}
		d.begin(j, now)
	}
}

func (d *dispatcher) inFlight() int { return d.prompt + d.slow + d.reserved }

// pick returns the next job in turn, nil when none may start.
func (d *dispatcher) pick(now time.Time) *job {
	for t := d.ring.pop(); t != nil; t = d.ring.pop() {
		t.inRing = false
		if j := d.pickFrom(t, now); j != nil {
			d.enter(t)
			return j
		}
	}
	return nil
}

// pickFrom takes the next job of a target. A target that may not send now
// leaves the ring; what holds it back brings it in again.
func (d *dispatcher) pickFrom(t *target, now time.Time) *job {
	if t.off {
		return nil // the saved hold gives its rows back
	}
	if now.Before(t.pausedTil) {
		d.wakeAt(t, t.pausedTil, now)
		return nil
	}
	allowed := t.limiter.allowed(now)
	if allowed == 0 {
		d.wakeAt(t, t.limiter.openUntil, now)
		return nil
	}
	if t.inFlight+t.reserved >= allowed {
		return nil // a finished request brings it back
	}
	if next := t.limiter.next; now.Before(next) {
		d.wakeAt(t, next, now)
		return nil
	}
	q := t.next(d.retrying < d.retryShare())
	if q == nil {
		return nil
	}
	j := (*q)[0]
	if j.host.inFlight >= d.share(d.cfg.MaxPerHost) {
		j.host.waiting = append(j.host.waiting, t)
		return nil
	}
	if t.rate != nil {
		if r := t.rate.ReserveN(now, 1); r.DelayFrom(now) > 0 {
			at := now.Add(r.DelayFrom(now))
			r.CancelAt(now)
			d.wakeAt(t, at, now)
			return nil
		}
	}
	(*q)[0] = nil
	*q = (*q)[1:]
	return j
}

// retryShare is the number of slots that retries may take: the rest is kept
// for first attempts.
func (d *dispatcher) retryShare() int { return max(1, d.cfg.MaxInFlight*3/4) }

// next chooses between first attempts and retries: every fourth turn belongs
// to the retries, the others to first attempts, as long as there are both.
func (t *target) next(retriesAllowed bool) *[]*job {
	retries := retriesAllowed && len(t.again) > 0
	t.turn++
	switch {
	case len(t.first) > 0 && (!retries || t.turn%4 != 0):
		return &t.first
	case retries:
		return &t.again
	}
	return nil
}

// begin gives a job a slot and a worker.
func (d *dispatcher) begin(j *job, now time.Time) {
	j.started, j.servedBy = now, j.target.rangeOf(j.row.Partition)
	d.busy[j.servedBy]++
	j.target.queued--
	d.queued--
	j.target.inFlight++
	j.target.limiter.began(now)
	j.host.inFlight++
	d.prompt++
	if j.retry() {
		d.retrying++
	}
	d.linkPrompt(j)
	d.outstanding++
	if d.outstanding > d.workers {
		d.workers++
		d.wg.Add(1)
		go d.worker()
	}
	d.work <- j
	if d.queued < d.lowWater() {
		d.kickClaim()
	}
}

// finished takes back a job's slot and lets the next ones start. blocked tells
// that the row goes on blocking its ordering key; the jobs behind it are then
// returned, to be given back.
func (d *dispatcher) finished(j *job, blocked bool) (giveBack []*job) {
	j.target.inFlight--
	j.target.done++
	j.host.inFlight--
	d.outstanding--
	if j.slow {
		d.slow--
	} else {
		d.prompt--
		d.unlinkPrompt(j)
	}
	if j.retry() {
		d.retrying--
	}
	d.alone = false
	giveBack = d.leaveLane(j.row.OrderKey, blocked)
	d.enter(j.target)
	for _, t := range j.host.waiting {
		d.enter(t)
	}
	j.host.waiting = j.host.waiting[:0]
	if j.host.inFlight == 0 && len(j.host.waiting) == 0 {
		delete(d.hosts, j.host.name)
	}
	if j.target.ready {
		d.kickClaim()
	}
	return giveBack
}

// leaveLane lets the next job of a lane become runnable. With blocked set the
// whole lane is given back instead.
func (d *dispatcher) leaveLane(key int64, blocked bool) (giveBack []*job) {
	l := d.lanes[key]
	if key == 0 || l == nil {
		return nil
	}
	if blocked {
		giveBack = l.waiting
		for _, j := range giveBack {
			j.target.queued--
			d.queued--
		}
		d.release(giveBack...)
		l.waiting = nil
	}
	if len(l.waiting) == 0 {
		delete(d.lanes, key)
		return giveBack
	}
	next := l.waiting[0]
	l.waiting[0] = nil
	l.waiting = l.waiting[1:]
	d.runnable(next, true)
	return giveBack
}

// The jobs that hold a prompt slot, in the order of their start.

func (d *dispatcher) linkPrompt(j *job) {
	j.prev, j.next = d.newest, nil
	if d.newest != nil {
		d.newest.next = j
	} else {
		d.oldest = j
	}
	d.newest = j
}

func (d *dispatcher) unlinkPrompt(j *job) {
	if j.prev != nil {
		j.prev.next = j.next
	} else {
		d.oldest = j.next
	}
	if j.next != nil {
		j.next.prev = j.prev
	} else {
		d.newest = j.prev
	}
	j.prev, j.next = nil, nil
}

// demoteSlow frees the prompt slots of requests that have taken longer than
// SlowAfter, and sets a timer for the oldest that has not.
func (d *dispatcher) demoteSlow(now time.Time) {
	for j := d.oldest; j != nil && d.slow < d.cfg.MaxSlow; j = d.oldest {
		wait := d.cfg.SlowAfter - now.Sub(j.started)
		if wait > 0 {
			d.pumpAfter(wait)
			return
		}
		d.unlinkPrompt(j)
		j.slow = true
		d.prompt--
		d.slow++
	}
}

// pumpAfter runs pump once when wait has passed.
func (d *dispatcher) pumpAfter(wait time.Duration) {
	if d.pumpTimer != nil {
		return
	}
	d.pumpTimer = time.AfterFunc(wait, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.pumpTimer = nil
		d.pump()
	})
}

// dueAt notes when a row of a target is due. Only the first such time is kept;
// once that row is claimed, the store is asked for the next one. The
// millisecond is for the database's clock, which counts in whole ones.
func (d *dispatcher) dueAt(t *target, at, now time.Time) {
	t.moreDue = true
	t.due.set(at.Add(time.Millisecond), now, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		t.due.timer = nil
		d.markReady(t)
	})
}

// wakeAt brings a target back when it may send again.
func (d *dispatcher) wakeAt(t *target, at, now time.Time) {
	t.sends.set(at, now, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		t.sends.timer = nil
		d.enter(t)
		if t.ready {
			d.kickClaim()
		}
		d.pump()
	})
}

// alarm is a timer that the earliest time asked for wins.
type alarm struct {
	at    time.Time
	timer *time.Timer
}

// set makes fn run at a time unless it will earlier. fn sets timer to nil.
func (a *alarm) set(at, now time.Time, fn func()) {
	if a.timer != nil && !a.at.After(at) {
		return
	}
	a.stop()
	a.at = at
	a.timer = time.AfterFunc(at.Sub(now), fn)
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

func (d *dispatcher) markReady(t *target) {
	t.ready = true
	t.gen++
	d.kickClaim()
}
