package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/storage"
)

// appendAndConsume is the scenario of [Events].
const appendAndConsume = "events"

// consumerName names the consumer of [Events] in the log.
const consumerName = "bench"

// Events measures the event log: batches of 100 events are appended while a
// durable consumer reads them. Rows are events in the log, unique ones are
// those that the consumer has handled in a committed transaction.
func Events(ctx context.Context, cfg Config) (*Report, error) {
	return measure(ctx, cfg, []string{appendAndConsume}, map[string]scenario{appendAndConsume: events})
}

// consumed is what a consumer has handled.
type consumed struct {
	want int
	done chan struct{}

	mu   sync.Mutex
	at   map[string]time.Time // by event
	last time.Time
}

// handle counts a batch once its transaction has committed.
func (c *consumed) handle(ctx context.Context, batch []*event.Event) error {
	storage.AfterCommit(ctx, func(context.Context) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.last = time.Now()
		before := len(c.at)
		for _, e := range batch {
			c.at[e.ID] = c.last
		}
		if before < c.want && len(c.at) >= c.want {
			close(c.done)
		}
	})
	return nil
}

func events(ctx context.Context, b *box) (f Figures, err error) {
	var runs []run
	for i := range b.cfg.Runs {
		baseline, err := b.baseline(ctx, b.cfg.Rows)
		if err != nil {
			return f, err
		}
		r, err := b.eventsOnce(ctx)
		if err != nil {
			return f, err
		}
		r.baseline = baseline
		b.progress("run %d: bare client %.0f/s, log %.0f events/s", i+1, baseline, r.rate)
		runs = append(runs, r)
	}
	f = summarize(appendAndConsume, runs)
	f.EventsPerSecond, f.DeliveriesPerSecond, f.BodyBytes = f.DeliveriesPerSecond, 0, 0
	return f, nil
}

func (b *box) eventsOnce(ctx context.Context) (r run, err error) {
	batches := (b.cfg.Rows + recordBatch - 1) / recordBatch
	rows := batches * recordBatch
	before, err := b.db.count(ctx, "SELECT count(*) FROM sys_event")
	if err != nil {
		return r, err
	}
	c := &consumed{want: rows, done: make(chan struct{}), at: map[string]time.Time{}}
	log, err := b.events()
	if err != nil {
		return r, err
	}
	if err := log.Consume(realtime.ConsumerConfig{Name: consumerName}, c.handle); err != nil {
		return r, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanLimit)
		defer cancel()
		err = errors.Join(err, log.Stop(ctx))
	}()
	if err := errors.Join(log.Prepare(ctx), log.Start(ctx)); err != nil {
		return r, err
	}
	start, err := b.watch(ctx)
	if err != nil {
		return r, err
	}
	stored := make([]time.Time, batches)
	made := make([][]*event.Event, batches)
	err = concurrently(ctx, b.cfg.Writers, batches, func(ctx context.Context, i int) error {
		made[i] = eventBatch(i * recordBatch)
		err := log.Append(ctx, made[i]...)
		stored[i] = time.Now()
		return err
	})
	if err != nil {
		return r, err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		return r, fmt.Errorf("%d events were not all handled: %w", rows, context.Cause(ctx))
	}
	u, err := b.db.usage(ctx)
	if err != nil {
		return r, err
	}
	if err := b.profile.stop(); err != nil {
		return r, err
	}
	after, err := b.db.count(ctx, "SELECT count(*) FROM sys_event")
	if err != nil {
		return r, err
	}
	_, r.peak = memory()
	r.host, r.database, r.cpuMeasured = u.since(start.usage)
	c.mu.Lock()
	defer c.mu.Unlock()
	r.rate = float64(rows) / c.last.Sub(start.at).Seconds()
	r.rows, r.unique = after-before, len(c.at)
	if r.rows != rows || r.unique != rows {
		return r, fmt.Errorf("%d events were appended, %d are in the log, %d were handled", rows, r.rows, r.unique)
	}
	for i, batch := range made {
		for _, e := range batch {
			r.waits = append(r.waits, max(c.at[e.ID].Sub(stored[i]), 0))
		}
	}
	return r, nil
}

// eventBatch are events about records of their own, of about bodySize bytes.
func eventBatch(first int) []*event.Event {
	after, _ := json.Marshal(map[string]string{"text": filler}) // a map of strings always encodes
	batch := make([]*event.Event, recordBatch)
	for i := range batch {
		batch[i] = &event.Event{Type: event.RecordCreated, Object: recordObject, RecordID: strconv.Itoa(first + i), After: after}
	}
	return batch
}
