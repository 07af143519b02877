package messaging

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/storage/lease"
)

const (
	// quarantineAt is the crash count from which a row is sent alone, deadAt
	// the one at which it ends dead: three crashes in company, three alone.
	quarantineAt = driver.AloneAt
	deadAt       = 6
	// stopReserve is the part of the grace time that is kept for saving
	// outcomes and giving rows back.
	stopReserve = 5
	// minShare is the number of rows that a claim takes of a target at least,
	// when it has room for them: few rows of each of many targets cost more
	// than many rows of a few, which take turns. In a file it is the lower one:
	// rows that were stored together share pages, whatever their targets.
	minShare, minFileShare = 20, 5
	// maxAhead is the largest number of rows of a target that wait here beyond
	// its free slots.
	maxAhead = 1024
)

// dispatcher claims due rows, sends them in turn, and has their outcomes
// recorded. One mutex guards its state; no store and no network is touched
// while it is held.
type dispatcher struct {
	s   *Service
	cfg Config
	log *slog.Logger
	rec *outcomeWriter

	mu       sync.Mutex
	started  bool
	stopping bool
	targets  map[int64]*target
	hosts    map[string]*host
	lanes    map[int64]*lane
	ring     orgRing
	// quarantine holds rows that are sent alone, alone tells that one is.
	quarantine []*job
	alone      bool
	// prompt and slow count requests in flight, reserved the slots and placed
	// the places in the queue promised to rows being enqueued, retrying the retries among the requests, queued the
	// claimed rows that wait.
	prompt, slow, reserved, placed, retrying, queued int
	outstanding, workers                             int
	// reserving counts the rows whose transactions are not over.
	reserving             int
	oldest, newest        *job
	pumpTimer, staleTimer *time.Timer
	lastErr               error
	// held are the ranges of partitions that are served here, busy the requests
	// of each range whose outcomes are not saved yet.
	held lease.Set
	// partitions lists those of held, nil for all.
	partitions []int64
	// releasing counts, by ordering key, the rows whose give-back is not saved
	// yet: no later row of their key may be sent before they wait again.
	// released are those that were saved while a claim was made, which may not
	// have seen them wait.
	releasing map[int64]int
	claiming  bool
	// suspicious and suspectUntil tell that orphaned claims are looked for,
	// lookedAt when they last were.
	suspicious             bool
	suspectUntil, lookedAt time.Time
	released               map[int64]struct{}
	busy                   [lease.Ranges]int

	// claimable is closed once the claims of a process that died have been
	// taken back: the first claim of this one must not be among them.
	claimable chan struct{}
	recovered sync.Once

	work       chan *job
	claimKick  chan struct{}
	pollKick   chan struct{}
	unreserved chan struct{} // a transaction of reserved rows is over
	settled    chan struct{} // outcomes were saved
	claimSlot  chan struct{} // taken while a claim is made
	// reservationLimit is the constant of that name but in tests.
	reservationLimit time.Duration
	payloadSem       *semaphore.Weighted
	loops            context.CancelFunc // ends the loops
	sends            context.CancelFunc // cuts requests off
	sendCtx          context.Context    // of the requests, not of one call: it ends with the dispatcher
	wg               sync.WaitGroup     // workers
	loopWG           sync.WaitGroup
}

func newDispatcher(s *Service) *dispatcher {
	d := &dispatcher{
		s: s, cfg: s.cfg, log: s.cfg.Logger,
		targets: make(map[int64]*target), hosts: make(map[string]*host), lanes: make(map[int64]*lane),
		work:      make(chan *job, s.cfg.MaxInFlight+s.cfg.MaxSlow+1),
		claimKick: make(chan struct{}, 1), pollKick: make(chan struct{}, 1), unreserved: make(chan struct{}, 1), settled: make(chan struct{}, 1), claimSlot: make(chan struct{}, 1), releasing: make(map[int64]int), released: make(map[int64]struct{}), held: lease.All, suspicious: true, reservationLimit: reservationLimit,
		payloadSem: semaphore.NewWeighted(int64(s.cfg.PayloadMemory)), claimable: make(chan struct{}),
	}
	d.rec = newOutcomeWriter(d)
	if s.cfg.Leases != nil {
		d.hold(s.cfg.Leases.Held().Ranges)
		s.cfg.Leases.Watch(d.leasesChanged)
	}
	d.listen()
	return d
}

func (d *dispatcher) start(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.started || d.stopping {
		return nil
	}
	d.started = true
	loopCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d.loops = cancel
	d.sendCtx, d.sends = context.WithCancel(context.WithoutCancel(ctx))
	for _, loop := range []func(context.Context){d.claimLoop, d.pollLoop, d.cleanLoop} {
		d.loopWG.Add(1)
		go func() {
			defer d.loopWG.Done()
			loop(loopCtx)
		}()
	}
	d.rec.start()
	return nil
}

// stop ends claiming, gives queued rows back, waits for requests in flight
// until most of the grace time has passed, cuts off the rest and saves.
func (d *dispatcher) stop(ctx context.Context) error {
	d.mu.Lock()
	if !d.started || d.stopping {
		d.stopping = true
		d.mu.Unlock()
		return nil
	}
	d.stopping = true
	giveBack := d.takeQueued(func(*job) bool { return true })
	for _, t := range []*time.Timer{d.pumpTimer, d.staleTimer} {
		if t != nil {
			t.Stop()
		}
	}
	for _, t := range d.targets {
		t.sends.stop()
		t.due.stop()
	}
	close(d.work)
	d.mu.Unlock()

	d.loops()
	d.loopWG.Wait()
	d.giveBack(giveBack)
	d.awaitReserved(ctx)
	answered := make(chan struct{})
	go func() { d.wg.Wait(); close(answered) }()
	cut := time.NewTimer(cutAfter(ctx))
	defer cut.Stop()
	select {
	case <-answered:
	case <-cut.C:
	case <-ctx.Done():
	}
	d.sends()
	<-answered
	return d.rec.stop(ctx)
}

// awaitReserved waits for the transactions of reserved rows: their rows are
// given back when they commit.
func (d *dispatcher) awaitReserved(ctx context.Context) {
	for {
		d.mu.Lock()
		open := d.reserving
		d.mu.Unlock()
		if open == 0 {
			return
		}
		select {
		case <-d.unreserved:
		case <-ctx.Done():
			return
		}
	}
}

// cutAfter leaves a part of the grace time for saving.
func cutAfter(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return maxTimeout
	}
	left := time.Until(deadline)
	return left - min(left/stopReserve, time.Second)
}

func (d *dispatcher) health() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lastErr
}

// setErr notes whether the store answered, and logs changes.
func (d *dispatcher) setErr(err error) {
	d.mu.Lock()
	changed := (err == nil) != (d.lastErr == nil)
	d.lastErr = err
	d.mu.Unlock()
	if !changed {
		return
	}
	if err != nil {
		d.log.Error("outbox store does not answer, waiting for it", "error", err)
	} else {
		d.log.Info("outbox store answers again")
	}
}

func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (d *dispatcher) kickClaim() { kick(d.claimKick) }

// lowWater is the number of waiting claimed rows below which more are claimed:
// so many that the senders have work until the next claim is made.
func (d *dispatcher) lowWater() int { return d.cfg.BatchSize }

// backlogLimit is the number of unsaved outcomes from which no more rows are
// claimed: a store that is slower than the receivers sets the pace, and what a
// crash would have sent again stays small. One batch is saved while the next
// gathers.
func (d *dispatcher) backlogLimit() int { return 2 * d.cfg.BatchSize }

// due notes that a row of a target is due after a delay that has just been
// saved.
func (d *dispatcher) due(t *target, in time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.stopping {
		now := time.Now()
		d.dueAt(t, now.Add(in), now)
	}
}

// targetChanged makes the next claim of the target read it again, and gives
// back what was claimed under its old form.
func (d *dispatcher) targetChanged(id int64) {
	d.mu.Lock()
	if !d.started || d.stopping {
		d.mu.Unlock()
		return
	}
	t := d.target(id)
	t.stale, t.off = true, false
	t.changes++
	giveBack := d.takeQueued(func(j *job) bool { return j.target == t })
	d.markReady(t)
	d.mu.Unlock()
	d.giveBack(giveBack)
	kick(d.pollKick) // a target that is gone has rows to sweep
}

// target returns the state of a target, made on first use.
func (d *dispatcher) target(id int64) *target {
	t := d.targets[id]
	if t == nil {
		t = &target{id: id, limiter: newLimiter(d.cfg.MaxPerTarget), lastClaim: time.Now()}
		d.targets[id] = t
	}
	return t
}

func (d *dispatcher) host(name string) *host {
	h := d.hosts[name]
	if h == nil {
		h = &host{name: name}
		d.hosts[name] = h
	}
	return h
}

// takeQueued removes the claimed jobs that wait and that match, and with each
// the jobs behind it in its lane, which must not overtake it. d.mu is held.
func (d *dispatcher) takeQueued(match func(*job) bool) []*job {
	var taken []*job
	take := func(j *job) {
		j.target.queued--
		d.queued--
		taken = append(taken, j)
	}
	filter := func(q []*job) []*job {
		return slices.DeleteFunc(q, func(j *job) bool {
			if !match(j) {
				return false
			}
			take(j)
			return true
		})
	}
	for _, l := range d.lanes {
		if i := slices.IndexFunc(l.waiting, match); i >= 0 {
			for _, j := range l.waiting[i:] {
				take(j)
			}
			l.waiting = slices.Delete(l.waiting, i, len(l.waiting))
		}
	}
	behind := len(taken)
	for _, t := range d.targets {
		t.first, t.again = filter(t.first), filter(t.again)
	}
	d.quarantine = filter(d.quarantine)
	heads := taken[behind:]
	d.release(taken...)
	for _, head := range heads {
		taken = append(taken, d.leaveLane(head.row.OrderKey, true)...)
	}
	return taken
}

// giveBack returns claimed rows to pending as if they had not been claimed. The
// caller has counted them as releasing, see [dispatcher.release].
func (d *dispatcher) giveBack(jobs []*job) {
	for _, j := range jobs {
		d.rec.add(released(j))
	}
}

func released(j *job) item {
	return item{job: j, outcome: driver.Outcome{ID: j.row.ID, Token: j.row.ClaimToken, Status: StatusPending, Released: true}}
}

// release counts jobs that are about to be given back. d.mu is held.
func (d *dispatcher) release(jobs ...*job) {
	for _, j := range jobs {
		if key := j.row.OrderKey; key != 0 {
			d.releasing[key]++
		}
	}
}

// claimLoop claims due rows whenever something may be due and there is room.
func (d *dispatcher) claimLoop(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-d.claimable:
	}
	pause := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.claimKick:
		}
		err := d.claim(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			pause = 0
			continue
		}
		d.setErr(err)
		pause = min(max(2*pause, 50*time.Millisecond), d.cfg.PollInterval)
		if !sleep(ctx, pause) {
			return
		}
		d.kickClaim()
	}
}

// sleep waits for a while; false when ctx ended.
func sleep(ctx context.Context, wait time.Duration) bool {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// claim takes due rows of the targets that have room for them.
func (d *dispatcher) claim(ctx context.Context) error {
	if err := d.loadTargets(ctx); err != nil {
		return err
	}
	d.claimSlot <- struct{}{}
	defer func() {
		d.mu.Lock()
		d.claiming = false
		clear(d.released)
		d.mu.Unlock()
		<-d.claimSlot
	}()
	c := d.wants()
	if len(c.wants) == 0 {
		return nil
	}
	return d.claimWants(ctx, c)
}

// claimWants claims for several targets at once. A claim that the store
// refuses is split until the target that it refuses stands alone; that one
// waits for the next look at the store, and no other does.
func (d *dispatcher) claimWants(ctx context.Context, c claim) error {
	began := time.Now()
	rows, err := d.cfg.Store.Claim(ctx, driver.ClaimRequest{
		Node: d.cfg.Node, Token: uuid.NewString(), Wants: c.wants, Hold: d.cfg.hold(), Lease: c.lease,
	})
	switch {
	case err == nil:
		d.setErr(nil)
		d.accept(rows, c, began.Add(d.cfg.QueueWait))
		return nil
	case away(err) || ctx.Err() != nil:
		d.suspect() // the claim may have been made all the same
		return err
	case len(c.wants) > 1:
		a, b := c, c
		half := len(c.wants) / 2
		a.wants, b.wants = c.wants[:half], c.wants[half:]
		return errors.Join(d.claimWants(ctx, a), d.claimWants(ctx, b))
	}
	d.log.Error("claim rows of a target", "target_id", c.wants[0].TargetID, "error", err)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.targets[c.wants[0].TargetID].ready = false
	return nil
}

// wants lists what to claim: of every ready target as many rows as it can take
// soon, within what this process may hold.
func (d *dispatcher) wants() (c claim) {
	held := d.lease()
	d.mu.Lock()
	defer d.mu.Unlock()
	if held.Ranges == 0 || d.stopping || d.queued >= d.lowWater() || d.rec.backlog() > d.backlogLimit() {
		return c
	}
	now := time.Now()
	var eligible []*target
	for _, t := range d.targets {
		if t.ready && t.cfg != nil && !t.stale && t.cfg.row.State == TargetActive && d.served(t) && t.room(now) > 0 {
			eligible = append(eligible, t)
		}
	}
	if len(eligible) == 0 {
		return c
	}
	budget := d.cfg.BatchSize
	// The longest unserved first, so that a budget smaller than the number of
	// targets goes round.
	slices.SortFunc(eligible, func(a, b *target) int { return a.lastClaim.Compare(b.lastClaim) })
	least := minShare
	if d.cfg.Exclusive {
		least = minFileShare
	}
	share := max(budget/len(eligible), least)
	d.claiming = true
	c = claim{wants: make([]driver.Want, 0, len(eligible)), gens: make(map[int64]uint64, len(eligible)), lease: d.leased(held)}
	for _, t := range eligible {
		n := min(t.room(now), share, budget)
		if n == 0 {
			break
		}
		budget -= n
		c.wants = append(c.wants, driver.Want{TargetID: t.id, First: n, Retry: max(1, n/4), Anywhere: !t.spread()})
		c.gens[t.id] = t.gen
		t.lastClaim, t.done = now, 0
	}
	return c
}

// claim is what a claim asks for, with the targets' generations at that time.
type claim struct {
	wants []driver.Want
	gens  map[int64]uint64
	lease driver.Lease
}

// room is the number of rows that are worth claiming for a target: its free
// slots, and what it will have used up by the time of the next claim.
func (t *target) room(now time.Time) int {
	if t.off || now.Before(t.pausedTil) {
		return 0
	}
	allowed := t.limiter.allowed(now)
	if allowed == 0 {
		return 0
	}
	ahead := 0
	if since := now.Sub(t.lastClaim); t.limiter.openUntil.IsZero() && since > 0 {
		perSecond := float64(t.done) / since.Seconds()
		ahead = min(int(perSecond/10), maxAhead) // a tenth of a second's worth
	}
	return allowed + ahead - t.inFlight - t.reserved - t.placed - t.queued
}

// accept takes over claimed rows.
func (d *dispatcher) accept(rows []*driver.Row, c claim, sendBy time.Time) {
	got := make(map[int64]driver.Want, len(c.wants))
	var giveBack []*job
	d.mu.Lock()
	for _, r := range rows {
		t := d.target(r.TargetID)
		n := got[r.TargetID]
		if r.Attempts > 0 {
			n.Retry++
		} else {
			n.First++
		}
		got[r.TargetID] = n
		j := d.newJob(r, t, sendBy)
		if d.stopping || t.cfg == nil || t.cfg.row.Version != r.TargetVersion {
			t.stale = true
			giveBack = append(giveBack, j)
			d.release(j)
			continue
		}
		// The lease was lost meanwhile, or an earlier row of its key is on its
		// way back.
		if !d.serves(t, r.Partition) || d.comesBack(r.OrderKey) {
			giveBack = append(giveBack, j)
			d.release(j)
			continue
		}
		d.enqueue(j)
	}
	for _, w := range c.wants {
		t := d.targets[w.TargetID]
		n := got[w.TargetID]
		t.tookDue = t.tookDue || n.Retry > 0
		if n.First < w.First && n.Retry < w.Retry && t.gen == c.gens[w.TargetID] {
			t.ready = false
			if t.moreDue && t.tookDue {
				t.moreDue, t.tookDue = false, false
				kick(d.pollKick)
			}
		}
	}
	d.watchStale(sendBy)
	d.pump()
	if len(rows) > 0 && d.queued < d.lowWater() {
		d.kickClaim()
	}
	d.mu.Unlock()
	d.giveBack(giveBack)
}

// comesBack tells that a claim may have passed over an earlier row of a key,
// which is being given back or was while the claim was made. d.mu is held.
func (d *dispatcher) comesBack(key int64) bool {
	_, late := d.released[key]
	return key != 0 && (late || d.releasing[key] > 0)
}

func (d *dispatcher) newJob(r *driver.Row, t *target, sendBy time.Time) *job {
	return &job{row: r, target: t, host: d.host(hostOf(r.URL)), sendBy: sendBy}
}

// watchStale gives rows back that waited for their turn longer than QueueWait,
// well before their claim ends.
func (d *dispatcher) watchStale(sendBy time.Time) {
	if d.staleTimer != nil || d.queued == 0 || d.stopping {
		return
	}
	d.staleTimer = time.AfterFunc(time.Until(sendBy), func() {
		d.mu.Lock()
		d.staleTimer = nil
		now := time.Now()
		stale := d.takeQueued(func(j *job) bool { return !now.Before(j.sendBy) })
		next := time.Time{}
		d.eachQueued(func(j *job) {
			if next.IsZero() || j.sendBy.Before(next) {
				next = j.sendBy
			}
		})
		d.watchStale(next)
		d.mu.Unlock()
		d.giveBack(stale)
	})
}

func (d *dispatcher) eachQueued(visit func(*job)) {
	for _, l := range d.lanes {
		for _, j := range l.waiting {
			visit(j)
		}
	}
	for _, t := range d.targets {
		for _, j := range t.first {
			visit(j)
		}
		for _, j := range t.again {
			visit(j)
		}
	}
	for _, j := range d.quarantine {
		visit(j)
	}
}

// loadTargets reads the targets that are ready and not read yet, or changed.
func (d *dispatcher) loadTargets(ctx context.Context) error {
	var ids []int64
	changes := make(map[int64]int)
	d.mu.Lock()
	for id, t := range d.targets {
		if t.stale || t.cfg == nil && t.ready {
			ids = append(ids, id)
			changes[id] = t.changes
		}
	}
	d.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	rows, err := d.cfg.Store.Targets(ctx, ids, nil)
	if err != nil {
		return err
	}
	configs := make([]*targetConfig, len(rows))
	for i, row := range rows {
		configs[i] = &targetConfig{row: row, Target: d.s.openTarget(row)}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range configs {
		t := d.target(c.row.ID)
		t.configure(c)
		t.limiter.bound(d.limitOf(t))
		if t.stale = t.changes != changes[t.id]; t.stale {
			d.kickClaim()
		}
	}
	return nil
}

// targetConfig is an immutable snapshot of a target.
type targetConfig struct {
	row *driver.Target
	Target

	headers sync.Map // sealed text → map[string]string, opened once
	cached  atomic.Int32
}

// configure takes over a target's settings and keeps what was learned.
func (t *target) configure(c *targetConfig) {
	t.cfg = c
	t.failing = c.row.FailingSince != 0
	switch {
	case c.RatePerSecond <= 0:
		t.rate = nil
	case t.rate == nil:
		t.rate = rate.NewLimiter(rate.Limit(c.RatePerSecond), max(1, c.RateBurst))
	default:
		t.rate.SetLimit(rate.Limit(c.RatePerSecond))
		t.rate.SetBurst(max(1, c.RateBurst))
	}
}
