package realtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/storage"
)

// worker consumes one range of a consumer.
type worker struct {
	c      *consumer
	first  int
	signal chan struct{} // there may be events
	retry  chan struct{} // try again now
	// woken tells that the signal is a wake-up and not a poll, certain that
	// events were committed in this process.
	woken, certain atomic.Bool
	failure        atomic.Pointer[driver.Failure]

	mu sync.Mutex
	// seen is the range as last read or saved. Its position may be old, when
	// another node has moved it: then looking finds what is already handled,
	// and the batch, which locks the range, starts from the true position.
	seen driver.Range
	// searched is the last look that found nothing.
	searched search

	isolation isolation
	outages   int // failures in a row that are not the handler's
}

// search is a look into a range from a stored position: nothing was there up to
// another one. The stored one stays, so that a range at rest writes nothing, and
// reading goes on from it, so that a log tells when that has become expensive.
type search struct {
	from, to string
	last     int
}

// look gives the worker its range as a survey has it, and makes it look into
// the log unless nothing can be there.
func (w *worker) look(r driver.Range, ahead func(position string) bool) {
	w.see(r)
	if r.Failure == nil {
		w.failure.Store(nil) // another node, or Skip, has got past it
	}
	if !w.upToDate(r, ahead) {
		poke(w.signal)
	}
}

// upToDate tells whether the range was searched up to the log's end.
func (w *worker) upToDate(r driver.Range, ahead func(position string) bool) bool {
	w.mu.Lock()
	last := w.searched
	w.mu.Unlock()
	return last.to != "" && last.from == r.Position && last.last == r.Last && !ahead(last.to)
}

func (w *worker) rest(s search) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.searched = s
}

func (w *worker) see(r driver.Range) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = r
}

func (w *worker) known() driver.Range {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

// run handles batches until the stop, or until the range is gone.
func (w *worker) run(ctx context.Context) {
	s := w.c.s
	for {
		select {
		case <-s.stop:
			return
		case <-ctx.Done():
			return
		case <-w.signal:
		}
		for more := true; more; {
			var err error
			more, err = w.step(ctx)
			switch {
			case errors.Is(err, driver.ErrNoRange), ctx.Err() != nil:
				return
			case err != nil:
				more = true
				if !s.wait(ctx, jitter(w.pause()), w.retry) {
					return
				}
			}
			if s.stopping() {
				return
			}
		}
	}
}

func (w *worker) pause() time.Duration {
	if w.outages > 0 {
		return backoff(w.c.cfg, w.outages)
	}
	return w.isolation.pause()
}

// step looks whether there is something to do and handles one batch. It tells
// whether to come again at once. Errors are logged here.
func (w *worker) step(ctx context.Context) (more bool, err error) {
	s, r, woken := w.c.s, w.known(), w.woken.Swap(false)
	if !r.Enabled || !s.serves(w.first) {
		return false, nil
	}
	// After a commit here there is something: looking first would only delay it.
	if !w.certain.Swap(false) {
		// Without a lock, so that a consumer with nothing to do writes nothing.
		page, err := s.log.Read(ctx, driver.Query{Position: r.Position, First: r.First, Last: r.Last, Limit: 1})
		switch {
		case errors.Is(err, driver.ErrForeignPosition): // locking the range repairs it
		case err != nil:
			w.outage(ctx, err)
			return false, err
		case len(page.Events) == 0 && !page.Stale:
			w.outages = 0
			w.rest(search{from: r.Position, to: page.Next, last: r.Last})
			return false, nil
		}
		if !woken {
			s.polled.Store(true)
		}
	}
	for {
		b, err := w.batch(ctx)
		if err != nil {
			return false, w.failed(ctx, b, err)
		}
		w.outages = 0
		if n := len(b.events); n > 0 {
			w.isolation.succeeded(n)
			if f := w.failure.Swap(nil); f != nil {
				s.cfg.Logger.InfoContext(ctx, "consumer is no longer stuck",
					slog.String("consumer", w.c.cfg.Name), slog.String("event", f.EventID))
			}
		}
		if !b.more {
			return len(b.events) > 0, nil
		}
		if s.stopping() || !s.serves(w.first) {
			return false, nil
		}
	}
}

// batch is one batch as far as it came.
type batch struct {
	position string
	events   []*event.Event
	// handled tells that the handler returned, with err.
	handled bool
	err     error
	more    bool
}

// batch handles one batch in one transaction.
func (w *worker) batch(ctx context.Context) (batch, error) {
	s := w.c.s
	var b batch
	var r driver.Range
	err := s.tx.InTx(ctx, func(ctx context.Context) error {
		b = batch{}
		var err error
		if r, err = s.log.Lock(ctx, w.c.cfg.Name, w.first); err != nil {
			return err
		}
		if !r.Enabled {
			return nil
		}
		b.position = r.Position
		page, err := s.log.Read(ctx, driver.Query{
			Position: r.Position, First: r.First, Last: r.Last, Limit: w.isolation.limit(),
		})
		if err != nil || len(page.Events) == 0 && !page.Stale {
			return err
		}
		b.events, b.more = page.Events, page.More
		if len(b.events) > 0 {
			b.err = w.apply(ctx, b.events)
			b.handled = true
			if b.err != nil {
				return b.err
			}
			r.Failure = nil
		}
		r.Position, r.UpdatedAt = page.Next, s.now()
		return s.log.Save(ctx, r)
	})
	if err == nil {
		w.see(r)
	}
	return b, err
}

// handle calls the handler and turns a panic into an error.
func handle(ctx context.Context, h Handler, events []*event.Event) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return h(ctx, events)
}

// failed sorts out why a batch failed and notes it. It returns err.
func (w *worker) failed(ctx context.Context, b batch, err error) error {
	var unknown *storage.CommitUnknownError
	switch {
	case errors.Is(err, driver.ErrNoRange), ctx.Err() != nil:
		return err
	case !b.handled, storage.IsConnectionLost(err), errors.As(err, &unknown):
		// Nobody's fault among the events.
		w.outage(ctx, err)
		return err
	}
	s := w.c.s
	w.outages = 0
	w.isolation.failed(len(b.events))
	attrs := []slog.Attr{
		slog.String("consumer", w.c.cfg.Name), slog.Int("first_partition", w.first), slog.Int("events", len(b.events)),
		slog.String("first_event", b.events[0].ID), slog.Int64("first_sequence", b.events[0].Sequence), slog.Any("error", err),
	}
	var p *PanicError
	if errors.As(err, &p) {
		attrs = append(attrs, slog.String("stack", string(p.Stack)))
	}
	if len(b.events) > 1 || !w.isolation.stuck() {
		s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "consumer failed, its batch is tried again", attrs...)
		return err
	}
	f := &driver.Failure{
		EventID: b.events[0].ID, Sequence: b.events[0].Sequence, Attempts: w.isolation.alone,
		Error: printable(err.Error()), Since: s.now(),
	}
	if old := w.failure.Load(); old != nil && old.EventID == f.EventID {
		f.Since = old.Since
	} else {
		s.cfg.Logger.LogAttrs(ctx, slog.LevelError, "consumer is stuck at an event", attrs...)
	}
	w.failure.Store(f)
	if err := w.record(ctx, b.position, f); err != nil {
		w.outage(ctx, fmt.Errorf("record that it is stuck: %w", err))
	}
	return err
}

// record stores the failure, unless another node has moved the range on.
func (w *worker) record(ctx context.Context, position string, f *driver.Failure) error {
	s := w.c.s
	return s.tx.InTx(ctx, func(ctx context.Context) error {
		r, err := s.log.Lock(ctx, w.c.cfg.Name, w.first)
		if err != nil || r.Position != position {
			return err
		}
		r.Failure, r.UpdatedAt = f, s.now()
		return s.log.Save(ctx, r)
	})
}

// outage notes a failure of the database. Only the first in a row is logged as
// an error.
func (w *worker) outage(ctx context.Context, err error) {
	w.outages++
	level := slog.LevelDebug
	if w.outages == 1 {
		level = slog.LevelError
	}
	if ctx.Err() == nil {
		w.c.s.cfg.Logger.LogAttrs(ctx, level, "consumer can't work, waiting for the database",
			slog.String("consumer", w.c.cfg.Name), slog.Int("first_partition", w.first), slog.Any("error", err))
	}
}
