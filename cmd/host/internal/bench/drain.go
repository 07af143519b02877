package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/objecthost/objecthost/services/messaging"
)

// source is that of the deliveries which the bench enqueues itself.
const source = "bench"

// enqueueBatch is how many deliveries are stored at once before a drain.
const enqueueBatch = 500

// drain measures how fast waiting deliveries are sent, and once more with
// finished rows in the table when there are to be some.
func drain(ctx context.Context, b *box) (Figures, error) {
	if err := b.putTargets(ctx, b.cfg.Webhooks); err != nil {
		return Figures{}, err
	}
	runs, err := b.repeat(ctx, b.drainOnce)
	if err != nil {
		return Figures{}, err
	}
	f := summarize(Drain, runs)
	if b.cfg.Finished == 0 {
		return f, nil
	}
	if err := b.fillFinished(ctx, b.cfg.Finished); err != nil {
		return f, fmt.Errorf("fill the table: %w", err)
	}
	if runs, err = b.repeat(ctx, b.drainOnce); err != nil {
		return f, err
	}
	with := summarize(Drain, runs)
	f.Rows, f.Unique, f.AttemptRows = f.Rows+with.Rows, f.Unique+with.Unique, f.AttemptRows+with.AttemptRows
	f.FinishedRows, f.RatioWithFinished, f.FinishedRatio = b.cfg.Finished, with.Ratio, round(with.Ratio/f.Ratio, 3)
	return f, nil
}

// repeat runs the bare client and then once, several times.
func (b *box) repeat(ctx context.Context, once func(context.Context) (run, error)) ([]run, error) {
	runs := make([]run, b.cfg.Runs)
	for i := range runs {
		baseline, err := b.baseline(ctx, b.cfg.Rows)
		if err != nil {
			return nil, err
		}
		if err := b.receiver.reset(); err != nil {
			return nil, err
		}
		if runs[i], err = once(ctx); err != nil {
			return nil, err
		}
		r := &runs[i]
		r.baseline = baseline
		b.progress("run %d: bare client %.0f/s, host %.0f/s, ratio %.3f, CPU %.3f + %.3f s per 1,000", i+1, baseline, r.rate, r.rate/baseline,
			r.host.Seconds()/float64(r.rows)*1000, r.database.Seconds()/float64(r.rows)*1000)
	}
	return runs, nil
}

// putTargets makes the targets of n webhooks, each with the secret that signs.
func (b *box) putTargets(ctx context.Context, n int) error {
	service, err := b.lone(newMeter(0))
	if err != nil {
		return err
	}
	defer func() { _ = stop(ctx, service) }() // it was never started
	return b.db.InTx(ctx, func(ctx context.Context) error {
		for i := range n {
			err := service.PutTarget(ctx, messaging.Target{Source: source, Key: hook(i), State: messaging.TargetActive, Secret: b.receiver.secret})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func hook(i int) string { return "hook-" + strconv.Itoa(i) }

// request is the i-th delivery, to one of n webhooks.
func (b *box) request(i, n int) messaging.Request {
	key := hook(i % n)
	return messaging.Request{
		Source: source, RefID: key, Label: label, URL: b.url(i % n), Payload: makeBody(i),
		OrderingKey: key + ":" + strconv.Itoa(i),
	}
}

func (b *box) drainOnce(ctx context.Context) (r run, err error) {
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
	for at := 0; at < rows; at += enqueueBatch {
		reqs := make([]messaging.Request, min(enqueueBatch, rows-at))
		for i := range reqs {
			reqs[i] = b.request(at+i, b.cfg.Webhooks)
		}
		if _, err := service.EnqueueBatch(ctx, reqs); err != nil {
			return r, err
		}
	}
	start, err := b.watch(ctx)
	if err != nil {
		return r, err
	}
	if err := service.Start(ctx); err != nil {
		return r, err
	}
	end, err := m.wait(ctx)
	if err != nil {
		return r, err
	}
	if err := b.finish(ctx, &r, start, end, after, rows); err != nil {
		return r, err
	}
	at, err := b.receiver.arrivals()
	for _, ns := range at {
		r.waits = append(r.waits, time.Unix(0, ns).Sub(start.at))
	}
	return r, err
}

// watched is the beginning of what is measured.
type watched struct {
	at    time.Time
	usage usage
}

// watch begins to measure.
func (b *box) watch(ctx context.Context) (w watched, err error) {
	if err := b.profile.start(); err != nil {
		return w, err
	}
	debug.FreeOSMemory()
	forgetPeak()
	if w.usage, err = b.db.usage(ctx); err != nil {
		return w, err
	}
	w.at = time.Now()
	return w, nil
}

// finish fills in a run of rows deliveries that ended at end.
func (b *box) finish(ctx context.Context, r *run, start watched, end time.Time, after string, rows int) error {
	u, err := b.db.usage(ctx)
	if err != nil {
		return err
	}
	if err := b.profile.stop(); err != nil {
		return err
	}
	_, r.peak = memory()
	r.host, r.database, r.cpuMeasured = u.since(start.usage)
	r.rate = float64(rows) / end.Sub(start.at).Seconds()
	r.counts, err = b.verify(ctx, after, rows)
	return err
}
