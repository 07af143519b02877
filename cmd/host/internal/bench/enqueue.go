package bench

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// enqueue measures deliveries that are stored one by one, each durable before
// its caller goes on, while they are sent.
func enqueue(ctx context.Context, b *box) (Figures, error) {
	if err := b.putTargets(ctx, b.cfg.Webhooks); err != nil {
		return Figures{}, err
	}
	runs, err := b.repeat(ctx, b.enqueueOnce)
	if err != nil {
		return Figures{}, err
	}
	return summarize(Enqueue, runs), nil
}

func (b *box) enqueueOnce(ctx context.Context) (r run, err error) {
	rows := b.cfg.Rows
	after, err := b.boundary(ctx)
	if err != nil {
		return r, err
	}
	m := newMeter(rows)
	service, err := b.lone(m)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, stop(ctx, service)) }()
	if err := service.Start(ctx); err != nil {
		return r, err
	}
	start, err := b.watch(ctx)
	if err != nil {
		return r, err
	}
	ids, stored := make([]string, rows), make([]time.Time, rows)
	err = concurrently(ctx, b.cfg.Writers, rows, func(ctx context.Context, i int) error {
		made, err := service.Enqueue(ctx, b.request(i, b.cfg.Webhooks))
		ids[i], stored[i] = made.ID, time.Now()
		return err
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
	due := make(map[string]time.Time, rows)
	for i, id := range ids {
		due[id] = stored[i]
	}
	r.waits, err = b.waits(due)
	return r, err
}

// concurrently calls do for every i below n from a number of goroutines, and
// stops at the first error.
func concurrently(ctx context.Context, goroutines, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var work sync.WaitGroup
	for range goroutines {
		work.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	work.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// waits are the times from each delivery's due time to its arrival. A request
// that was faster than the caller's return from the commit counts as 0.
func (b *box) waits(due map[string]time.Time) ([]time.Duration, error) {
	at, err := b.receiver.arrivals()
	if err != nil {
		return nil, err
	}
	waits := make([]time.Duration, 0, len(due))
	for id, from := range due {
		if ns, ok := at[id]; ok {
			waits = append(waits, max(time.Unix(0, ns).Sub(from), 0))
		}
	}
	return waits, nil
}
