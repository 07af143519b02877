package messaging

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/storage"
)

// EventTargetHeld is the type of the event that reports that the outbox put a
// target on hold by itself. Its RecordID is the target's key, its After object
// has source, targetKey and reason.
const EventTargetHeld = "delivery.target.held"

const (
	// touchEvery is how often a target that keeps succeeding is written.
	touchEvery = time.Minute
	// failingLimit is how long a webhook may fail without one success.
	failingLimit = 5 * 24 * time.Hour
	// saveTimeout bounds one attempt to save a batch.
	saveTimeout = 30 * time.Second
	// outcomeLinger is how long a batch waits for more outcomes under load:
	// when the one before held at least lingerFrom.
	outcomeLinger = 3 * time.Millisecond
	lingerFrom    = 8
	// savers is the number of batches that are saved at once where the store
	// writes in parallel. Those after the first take no part before there is
	// a share of a batch for each: outcomes cost least in company.
	savers      = 2
	shareOfMore = 4
)

// item is an outcome on its way into the store.
type item struct {
	job      *job
	outcome  driver.Outcome
	attempt  *Attempt
	decision Decision
}

// outcomeWriter saves outcomes in batches. While one batch is being saved the
// next gathers, and under load for a moment longer, so that there is no waiting
// when there is no load and one statement for hundreds of outcomes when there
// is. It keeps outcomes through
// a loss of the store, until they are saved or their claims are.
type outcomeWriter struct {
	d *dispatcher

	mu     sync.Mutex
	items  []item
	saving int // outcomes of the batches that are being saved
	closed bool
	kick   chan struct{}
	more   chan struct{} // wakes a further saver
	// reporting keeps one order of what is told about saved batches.
	reporting sync.Mutex
	stopped   chan struct{}
	ctx       context.Context // ends when the grace time for saving is over
	cancel    context.CancelFunc
}

func newOutcomeWriter(d *dispatcher) *outcomeWriter {
	w := &outcomeWriter{d: d, kick: make(chan struct{}, 1), more: make(chan struct{}, 1), stopped: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

func (w *outcomeWriter) start() {
	var all sync.WaitGroup
	all.Go(func() { w.run(w.kick, 1) })
	if !w.d.cfg.Exclusive { // one writer at a time is all that SQLite has
		for range savers - 1 {
			all.Go(func() { w.run(w.more, w.d.cfg.BatchSize/shareOfMore) })
		}
	}
	go func() { all.Wait(); close(w.stopped) }()
}

func (w *outcomeWriter) add(it item) {
	w.mu.Lock()
	w.items = append(w.items, it)
	many := len(w.items) >= w.d.cfg.BatchSize/shareOfMore
	w.mu.Unlock()
	kick(w.kick)
	if many {
		kick(w.more)
	}
}

// backlog is the number of outcomes that are not saved yet.
func (w *outcomeWriter) backlog() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.items) + w.saving
}

// stop saves what is left. Nothing is added any more.
func (w *outcomeWriter) stop(ctx context.Context) error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	kick(w.kick)
	kick(w.more)
	select {
	case <-w.stopped:
		w.cancel()
		return nil
	case <-ctx.Done():
		w.cancel()
		<-w.stopped
		return ctx.Err()
	}
}

// run saves batches of at least so many outcomes until the writer is closed.
func (w *outcomeWriter) run(kick <-chan struct{}, least int) {
	last := 0
	for range kick {
		for {
			if last >= lingerFrom && !sleep(w.ctx, outcomeLinger) {
				return
			}
			batch, closed := w.take(least)
			last = len(batch)
			if len(batch) == 0 {
				if closed {
					return
				}
				break
			}
			if !w.save(batch) {
				return
			}
			w.saved(len(batch))
			w.d.jobsSettled(batch)
		}
	}
}

// take removes the next batch, nil when fewer outcomes wait than are asked for.
func (w *outcomeWriter) take(least int) ([]item, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.items), w.d.cfg.BatchSize)
	if n < least && !w.closed {
		n = 0
	}
	batch := w.items[:n:n]
	w.items = w.items[n:]
	w.saving += n
	if len(w.items) == 0 {
		w.items = nil
	}
	return batch, w.closed
}

func (w *outcomeWriter) saved(n int) {
	w.mu.Lock()
	w.saving -= n
	w.mu.Unlock()
}

// save stores a batch, waiting for the store while it is away; false when the
// grace time ended first. A batch that is refused is split until the refused
// outcome stands alone; that one is saved without what the receiver sent.
func (w *outcomeWriter) save(batch []item) bool {
	pause := 20 * time.Millisecond
	for {
		err := w.write(batch)
		switch {
		case err == nil:
			return true
		case w.ctx.Err() != nil:
			return false
		case !away(err) && len(batch) > 1:
			half := len(batch) / 2
			return w.save(batch[:half]) && w.save(batch[half:])
		case !away(err) && !batch[0].bare():
			w.d.log.Error("save outcome, trying without the response", "delivery_id", batch[0].outcome.ID, "error", err)
			batch = []item{batch[0].stripped()}
			continue
		case !away(err):
			// The claim's end gives the row back.
			w.d.log.Error("save outcome", "delivery_id", batch[0].outcome.ID, "error", err)
			w.d.suspect()
			w.d.targetChanged(batch[0].job.target.id)
			return true
		}
		w.d.setErr(err)
		if !sleep(w.ctx, pause) {
			return false
		}
		pause = min(2*pause, time.Second)
	}
}

// away tells that the store is not there, has no room, or does not tell
// whether it took a batch. Trying again is safe: an outcome that was saved has
// given up its claim.
func away(err error) bool {
	var unknown *storage.CommitUnknownError
	return storage.IsTransient(err) || errors.As(err, &unknown) || errors.Is(err, context.DeadlineExceeded)
}

// bare tells that nothing of the receiver's answer is left to store.
func (it *item) bare() bool { return it.outcome.ResponseBody == "" && it.outcome.Attempt == nil }

func (it item) stripped() item {
	it.outcome.ResponseBody, it.outcome.Signature, it.outcome.Attempt = "", "", nil
	return it
}

// write saves a batch with its events in one transaction.
func (w *outcomeWriter) write(batch []item) error {
	ctx, cancel := context.WithTimeout(w.ctx, saveTimeout)
	defer cancel()
	outcomes := make([]driver.Outcome, len(batch))
	for i := range batch {
		outcomes[i] = batch[i].outcome
		if a := outcomes[i].Attempt; a != nil {
			a.StartedAgo = time.Since(a.Began)
		}
	}
	touches, held := w.touches(batch)
	var applied []bool
	err := w.d.cfg.Tx.InTx(ctx, func(ctx context.Context) (err error) {
		applied, err = w.d.cfg.Store.Record(ctx, outcomes, touches)
		if err != nil {
			return err
		}
		return w.appendEvents(ctx, batch, applied, held)
	})
	if err != nil {
		return err
	}
	w.d.setErr(nil)
	w.reporting.Lock()
	for i := range batch {
		w.report(&batch[i], applied[i])
	}
	w.reporting.Unlock()
	w.noteTouches(touches)
	return nil
}

// touches sums up what the batch says about targets, leaving out what they
// know already.
func (w *outcomeWriter) touches(batch []item) (touches []driver.Touch, held []*event.Event) {
	byTarget := make(map[*target]*driver.Touch)
	var order []*target
	for i := range batch {
		it := &batch[i]
		if it.attempt == nil || it.outcome.Released {
			continue
		}
		t := it.job.target
		touch := byTarget[t]
		if touch == nil {
			touch = &driver.Touch{TargetID: t.id}
			byTarget[t] = touch
			order = append(order, t)
		}
		if it.outcome.Status == StatusSuccess {
			touch.Succeeded = true
		} else {
			touch.Failing = true
		}
		if it.decision.SwitchOffTarget {
			touch.HoldReason = "the receiver answered 410 Gone"
			held = append(held, heldEvent(it.job.row, touch.HoldReason))
		}
	}
	// In one order on every node, so that no two wait for each other's rows.
	slices.SortFunc(order, func(a, b *target) int { return cmp.Compare(a.id, b.id) })
	now := time.Now()
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	for _, t := range order {
		touch := byTarget[t]
		if touch.Succeeded {
			touch.Failing = false
		}
		if since := t.failingSince(); touch.Failing && touch.HoldReason == "" && t.cfg.row.Source == SourceWebhook &&
			!since.IsZero() && now.Sub(since) > failingLimit {
			touch.HoldReason = "no delivery succeeded for 5 days"
			held = append(held, heldEvent(&driver.Row{
				Source: t.cfg.row.Source, TargetKey: t.cfg.row.Key, OrganizationID: t.cfg.row.OrganizationID,
			}, touch.HoldReason))
		}
		fresh := touch.Failing && t.failing || touch.Succeeded && !t.failing && now.Sub(t.touched) < touchEvery
		if !fresh || touch.HoldReason != "" {
			touches = append(touches, *touch)
		}
	}
	return touches, held
}

func (t *target) failingSince() time.Time {
	if t.cfg == nil {
		return time.Time{}
	}
	return t.cfg.FailingSince
}

// noteTouches remembers what was written, after the commit.
func (w *outcomeWriter) noteTouches(touches []driver.Touch) {
	if len(touches) == 0 {
		return
	}
	w.d.mu.Lock()
	now := time.Now()
	var changed []int64
	for _, touch := range touches {
		t := w.d.target(touch.TargetID)
		t.touched = now
		if t.failing != touch.Failing || touch.HoldReason != "" {
			changed = append(changed, touch.TargetID)
		}
		t.failing = touch.Failing
	}
	w.d.mu.Unlock()
	for _, id := range changed {
		w.d.targetChanged(id)
		w.d.announce(topicTarget, strconv.FormatInt(id, 10))
	}
}

// appendEvents appends the delivery.finished events of the rows that ended,
// and reports targets that were put on hold.
func (w *outcomeWriter) appendEvents(ctx context.Context, batch []item, applied []bool, held []*event.Event) error {
	events := w.d.cfg.Events
	if events == nil {
		return nil
	}
	var ended []*driver.Row
	for i := range batch {
		it := &batch[i]
		status := it.outcome.Status
		if applied[i] && status.Terminal() && (status != StatusSuccess || it.job.row.NotifyFinished) {
			ended = append(ended, it.after())
		}
	}
	if err := w.d.s.appendFinished(ctx, ended...); err != nil {
		return err
	}
	if len(held) == 0 {
		return nil
	}
	return events.Append(ctx, held...)
}

// after is the row as the outcome leaves it.
func (it *item) after() *driver.Row {
	r := *it.job.row
	r.Status, r.Attempts, r.Error = it.outcome.Status, it.outcome.Attempts, it.outcome.Error
	r.ResponseCode, r.ResponseBody, r.Signature = it.outcome.ResponseCode, it.outcome.ResponseBody, it.outcome.Signature
	return &r
}

// report logs an outcome, wakes what it frees, and calls OnAttempt.
func (w *outcomeWriter) report(it *item, applied bool) {
	r := it.job.row
	if !applied && it.outcome.Released {
		return // not stored, or another's by now
	}
	if !applied {
		w.d.log.Warn("outcome came after its claim had ended", "delivery_id", r.ID, "attempt", it.outcome.Attempts)
		return
	}
	if it.outcome.Released {
		w.d.waiting(r)
		return
	}
	if it.outcome.Status == StatusPending {
		w.d.due(it.job.target, it.outcome.RetryIn)
	}
	level := slog.LevelInfo
	if it.outcome.Status != StatusSuccess {
		level = slog.LevelWarn
	}
	if w.d.log.Enabled(context.Background(), level) {
		attrs := []slog.Attr{
			slog.String("delivery_id", r.ID), slog.String("source", r.Source), slog.String("target", r.TargetKey),
			slog.String("label", r.Label), slog.Int("attempt", it.outcome.Attempts),
			slog.String("outcome", string(it.decision.Outcome)), slog.String("status", string(it.outcome.Status)),
		}
		if it.attempt != nil {
			attrs = append(attrs, slog.Duration("duration", it.attempt.Duration), slog.Int("response_code", it.attempt.StatusCode))
		}
		if it.outcome.Error != "" {
			attrs = append(attrs, slog.String("error", it.outcome.Error))
		}
		if it.outcome.Status == StatusPending {
			attrs = append(attrs, slog.Duration("next_retry", it.outcome.RetryIn))
		}
		w.d.log.LogAttrs(context.Background(), level, "delivery attempt", attrs...)
	}
	if it.attempt != nil && w.d.cfg.OnAttempt != nil {
		w.d.cfg.OnAttempt(deliveryOf(it.after()), *it.attempt)
	}
}

func heldEvent(r *driver.Row, reason string) *event.Event {
	after, _ := marshalPlain(map[string]any{"source": r.Source, "targetKey": r.TargetKey, "reason": reason})
	return &event.Event{
		Type: EventTargetHeld, Object: "sys_http_target", RecordID: r.TargetKey,
		After: after, OrganizationID: r.OrganizationID,
	}
}
