package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// idleSettle is the time that a host gets to come to rest: what it has just done
// is looked after for two poll intervals.
const idleSettle = 12 * time.Second

// idle watches a whole host that has nothing to do.
func idle(ctx context.Context, b *box) (f Figures, err error) {
	queries, err := b.countQueries(ctx)
	if err != nil {
		return f, err
	}
	h, err := b.startHost(ctx)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, h.stop(ctx)) }()
	if err := b.addWebhook(ctx, h); err != nil {
		return f, err
	}
	// One delivery, so that everything has been in use.
	r, err := b.singleRecords(ctx, h, "", 1)
	f.Rows, f.Unique, f.AttemptRows = r.rows, r.unique, r.attempts
	if err != nil {
		return f, err
	}
	if err := paced(ctx, min(idleSettle, b.cfg.IdleFor), 1, func(int) error { return nil }); err != nil {
		return f, err
	}
	before, err := b.db.usage(ctx)
	if err != nil {
		return f, err
	}
	asked, start := queries(), time.Now()
	if err := paced(ctx, b.cfg.IdleFor, 1, func(int) error { return nil }); err != nil {
		return f, err
	}
	elapsed := time.Since(start).Seconds()
	if n := queries(); n >= 0 {
		rate := round(float64(n-asked)/elapsed, 2)
		f.IdleQueriesPerSecond = &rate
	}
	after, err := b.db.usage(ctx)
	if err != nil {
		return f, err
	}
	spent, inDatabase, measured := after.since(before)
	f.IdleCPUPercent = round(spent.Seconds()/elapsed*100, 3)
	b.progress("host %.3f %% of a core, database %.3f %% (read: %t), for %.0f s", f.IdleCPUPercent, inDatabase.Seconds()/elapsed*100, measured, elapsed)
	if now, _ := memory(); now > 0 {
		f.RSS = round(float64(now)/1e6, 1)
	}
	if f.IdleCPUPercent <= 0 {
		return f, fmt.Errorf("the processor time of this process cannot be read")
	}
	return f, nil
}
