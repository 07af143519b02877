package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/storage"
)

// recordBatch is how many records are created at once.
const recordBatch = 100

// records measures the whole way: record, event, match, delivery.
func records(ctx context.Context, b *box) (f Figures, err error) {
	h, err := b.startHost(ctx)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, h.stop(ctx)) }()
	if err := b.addWebhook(ctx, h); err != nil {
		return f, err
	}
	runs, err := b.repeat(ctx, func(ctx context.Context) (run, error) { return b.recordsOnce(ctx, h) })
	if err != nil {
		return f, err
	}
	return summarize(Records, runs), nil
}

func (b *box) recordsOnce(ctx context.Context, h *host) (r run, err error) {
	batches := (b.cfg.Rows + recordBatch - 1) / recordBatch
	rows := batches * recordBatch
	after, err := b.boundary(ctx)
	if err != nil {
		return r, err
	}
	m := newMeter(rows)
	h.meter.Store(m)
	start, err := b.watch(ctx)
	if err != nil {
		return r, err
	}
	var mu sync.Mutex
	stored := make(map[string]time.Time, rows) // by record id
	err = concurrently(ctx, b.cfg.RecordWriters, batches, func(ctx context.Context, i int) error {
		values := make([]data.Record, recordBatch)
		for j := range values {
			values[j] = record(i*recordBatch + j)
		}
		made, err := h.engine.CreateMany(system(ctx), recordObject, values)
		if err != nil {
			return fmt.Errorf("create records: %w", err)
		}
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		for _, rec := range made.Records {
			stored[rec["id"].(string)] = now
		}
		return nil
	})
	if err != nil {
		return r, err
	}
	end, err := m.wait(ctx)
	if err != nil {
		return r, err
	}
	if err := b.finish(ctx, &r, start, end, after, rows); err != nil {
		return r, err
	}
	r.waits, err = b.recordWaits(ctx, after, stored)
	return r, err
}

// recordWaits are the times from the commit of each record to the arrival of
// its delivery.
func (b *box) recordWaits(ctx context.Context, after string, stored map[string]time.Time) ([]time.Duration, error) {
	due := make(map[string]time.Time, len(stored))
	rows, err := b.db.Read(ctx).QueryContext(ctx, b.db.sql("SELECT id, payload_json FROM sys_http_delivery WHERE id > ?"), after)
	if err != nil {
		return nil, fmt.Errorf("read the deliveries: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		var payload []byte
		if err := rows.Scan(&id, &payload); err != nil {
			return nil, fmt.Errorf("read the deliveries: %w", err)
		}
		var body struct {
			RecordID string `json:"recordId"`
		}
		if err := json.Unmarshal(payload, &body); err != nil {
			return nil, fmt.Errorf("read the body of delivery %s: %w", id, err)
		}
		from, ok := stored[body.RecordID]
		if !ok {
			return nil, fmt.Errorf("delivery %s is about record %q, which nobody made", id, body.RecordID)
		}
		due[id] = from
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the deliveries: %w", err)
	}
	return b.waits(due)
}

// The idle host gets a record every latencyPause, some before the ones that
// count: connections are open then.
const (
	latencyPause  = 40 * time.Millisecond
	latencyWarmUp = 5
)

// latency measures the way of single records on a host that does nothing else.
func latency(ctx context.Context, b *box) (f Figures, err error) {
	h, err := b.startHost(ctx)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, h.stop(ctx)) }()
	if err := b.addWebhook(ctx, h); err != nil {
		return f, err
	}
	var mu sync.Mutex
	stored := map[string]time.Time{}
	h.engine.WithinWrite(recordObject, func(ctx context.Context, c *data.Change) error {
		id := c.ID
		storage.AfterCommit(ctx, func(context.Context) {
			mu.Lock()
			defer mu.Unlock()
			stored[id] = time.Now()
		})
		return nil
	})
	if _, err := b.latencyOnce(ctx, h, latencyWarmUp, stored); err != nil {
		return f, err
	}
	runs := make([]run, b.cfg.Runs)
	for i := range runs {
		if runs[i], err = b.latencyOnce(ctx, h, b.cfg.Samples, stored); err != nil {
			return f, err
		}
		b.progress("run %d: p50 %.2f ms, p99 %.2f ms", i+1, millis(percentile(runs[i].waits, 50)), millis(percentile(runs[i].waits, 99)))
	}
	f = summarize(Latency, runs)
	// The rate is that of the pauses, and processor time is that of waiting.
	f.Ratio, f.DeliveriesPerSecond, f.BaselinePerSecond, f.HostCPUSecondsPer1000, f.DatabaseCPUSecondsPer1000, f.CPUSecondsPer1000 = 0, 0, 0, 0, 0, 0
	return f, nil
}

func (b *box) latencyOnce(ctx context.Context, h *host, samples int, stored map[string]time.Time) (run, error) {
	after, err := b.boundary(ctx)
	if err != nil {
		return run{}, err
	}
	r, err := b.singleRecords(ctx, h, after, samples)
	if err != nil {
		return r, err
	}
	r.baseline = 1
	r.waits, err = b.recordWaits(ctx, after, stored)
	return r, err
}

// singleRecords creates records one after the other, with pauses, and waits for
// their deliveries to end.
func (b *box) singleRecords(ctx context.Context, h *host, after string, n int) (r run, err error) {
	if err := b.receiver.reset(); err != nil {
		return r, err
	}
	m := newMeter(n)
	h.meter.Store(m)
	start, err := b.watch(ctx)
	if err != nil {
		return r, err
	}
	err = paced(ctx, latencyPause, n, func(i int) error {
		_, err := h.engine.Create(system(ctx), recordObject, record(i))
		return err
	})
	if err != nil {
		return r, err
	}
	end, err := m.wait(ctx)
	if err != nil {
		return r, err
	}
	return r, b.finish(ctx, &r, start, end, after, n)
}

// paced calls do for every i below n, one call per pause.
func paced(ctx context.Context, pause time.Duration, n int, do func(i int) error) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for i := range n {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := do(i); err != nil {
			return err
		}
	}
	return nil
}
