package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/objecthost/objecthost/services/messaging"
)

const (
	// healthy is the number of webhooks whose receiver answers.
	healthy = 20
	// isolationPause lies between two of their deliveries.
	isolationPause = 5 * time.Millisecond
	// isolationWarmUp is the number of deliveries before the ones that count:
	// connections are open then.
	isolationWarmUp = 5 * healthy
	// hangingKey is the webhook whose receiver does not.
	hangingKey = "hanging"
	// hangingTimeout outlasts a run.
	hangingTimeout = 5 * time.Minute
	// hangingGrace is what a stop gives requests that will not be answered.
	hangingGrace = 200 * time.Millisecond
)

// isolation measures what a webhook that hangs costs healthy ones.
func isolation(ctx context.Context, b *box) (f Figures, err error) {
	if err := b.putTargets(ctx, healthy); err != nil {
		return f, err
	}
	var alone, beside, ratios []float64
	f = Figures{Scenario: Isolation, Runs: b.cfg.Runs}
	for i := range b.cfg.Runs {
		without, with, c, err := b.isolationOnce(ctx)
		if err != nil {
			return f, err
		}
		b.progress("run %d: p95 of healthy webhooks %.2f ms, beside a hanging one %.2f ms", i+1, millis(without), millis(with))
		alone, beside = append(alone, millis(without)), append(beside, millis(with))
		ratios = append(ratios, float64(with)/float64(without))
		f.Rows, f.Unique, f.AttemptRows = f.Rows+c.rows, f.Unique+c.unique, f.AttemptRows+c.attempts
		f.BodyBytes = int(c.bytes) / c.unique
	}
	f.P95Alone, f.P95Beside, f.IsolationRatio = round(median(alone), 2), round(median(beside), 2), round(median(ratios), 3)
	return f, nil
}

func (b *box) isolationOnce(ctx context.Context) (without, with time.Duration, c counts, err error) {
	samples := b.cfg.IsolationSamples
	after, err := b.boundary(ctx)
	if err != nil {
		return 0, 0, c, err
	}
	if err := b.receiver.reset(); err != nil {
		return 0, 0, c, err
	}
	rows := isolationWarmUp + 2*samples
	m := newMeter(rows)
	service, err := b.lone(m)
	if err != nil {
		return 0, 0, c, err
	}
	defer func() { err = errors.Join(err, b.endHanging(ctx, service)) }()
	if err := service.Start(ctx); err != nil {
		return 0, 0, c, err
	}
	if _, err := b.healthyP95(ctx, service, isolationWarmUp); err != nil {
		return 0, 0, c, err
	}
	if err := b.profile.start(); err != nil {
		return 0, 0, c, err
	}
	if without, err = b.healthyP95(ctx, service, samples); err != nil {
		return 0, 0, c, err
	}
	if err := b.hang(ctx, service); err != nil {
		return 0, 0, c, err
	}
	if with, err = b.healthyP95(ctx, service, samples); err != nil {
		return 0, 0, c, err
	}
	if _, err := m.wait(ctx); err != nil {
		return 0, 0, c, err
	}
	if err := b.profile.stop(); err != nil {
		return 0, 0, c, err
	}
	c, err = b.verify(ctx, after, rows)
	return without, with, c, err
}

// healthyP95 stores deliveries to the healthy webhooks one after the other and
// returns the 95th percentile of their way to the receiver.
func (b *box) healthyP95(ctx context.Context, service *messaging.Service, samples int) (time.Duration, error) {
	due := make(map[string]time.Time, samples)
	err := paced(ctx, isolationPause, samples, func(i int) error {
		made, err := service.Enqueue(ctx, b.request(i, healthy))
		due[made.ID] = time.Now()
		return err
	})
	if err != nil {
		return 0, err
	}
	// The last ones may be under way.
	for {
		waits, err := b.waits(due)
		if err != nil || len(waits) == samples {
			return percentile(waits, 95), err
		}
		if err := paced(ctx, isolationPause, 1, func(int) error { return nil }); err != nil {
			return 0, fmt.Errorf("%d of %d deliveries arrived: %w", len(waits), samples, err)
		}
	}
}

// hang stores the rows of the webhook that hangs and returns when the first
// of them does.
func (b *box) hang(ctx context.Context, service *messaging.Service) error {
	err := service.PutTarget(ctx, messaging.Target{Source: source, Key: hangingKey, State: messaging.TargetActive, Secret: b.receiver.secret})
	if err != nil {
		return err
	}
	reqs := make([]messaging.Request, b.cfg.Hanging)
	for i := range reqs {
		reqs[i] = messaging.Request{
			Source: source, RefID: hangingKey, Label: label, URL: b.receiver.Hang + "/" + strconv.Itoa(i),
			Payload: makeBody(i), Timeout: hangingTimeout,
		}
	}
	if _, err := service.EnqueueBatch(ctx, reqs); err != nil {
		return err
	}
	return b.receiver.awaitHanging()
}

// endHanging stops the outbox without waiting for answers and removes the rows
// that have none.
func (b *box) endHanging(ctx context.Context, service *messaging.Service) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanLimit)
	defer cancel()
	grace, end := context.WithTimeout(ctx, hangingGrace)
	defer end()
	if err := service.Stop(grace); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	_, err := b.db.Write(ctx).ExecContext(ctx, b.db.sql("DELETE FROM sys_http_delivery WHERE source = ? AND target_key = ?"), source, hangingKey)
	return err
}
