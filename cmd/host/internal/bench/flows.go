package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/services/automation"
	"github.com/objecthost/objecthost/storage"
)

// flowRuns is the scenario of [Flows].
const flowRuns = "flows"

// Flows measures flows that records start: each of Rows records starts a run
// whose durable http node enqueues a delivery. A run that does not complete is
// an error.
func Flows(ctx context.Context, cfg Config) (*Report, error) {
	return measure(ctx, cfg, []string{flowRuns}, map[string]scenario{flowRuns: flows})
}

func flows(ctx context.Context, b *box) (f Figures, err error) {
	plugin := automation.NewPlugin(b.db.DB, automation.Config{Sealer: b.keys, Exclusive: b.db.Dialect() == storage.SQLite})
	h, err := b.startHost(ctx, plugin)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, h.stop(ctx)) }()
	service, err := core.Lookup(ctx, h.kernel.Host(), automation.ServiceKey)
	if err != nil {
		return f, err
	}
	definition, err := b.flow()
	if err != nil {
		return f, err
	}
	if _, err := service.Put(system(ctx), definition); err != nil {
		return f, fmt.Errorf("register the flow: %w", err)
	}
	done := 0
	runs, err := b.repeat(ctx, func(ctx context.Context) (run, error) {
		r, err := b.recordsOnce(ctx, h)
		if err != nil {
			return r, err
		}
		done += r.rows
		return r, b.awaitRuns(ctx, done)
	})
	if err != nil {
		return f, err
	}
	return summarize(flowRuns, runs), nil
}

// flow is the definition of a flow that tells the receiver of every new record.
func (b *box) flow() ([]byte, error) {
	return json.Marshal(map[string]any{
		"name": "bench", "label": "Bench", "type": "record_change", "status": "active", "runAs": "system",
		"nodes": []any{
			map[string]any{"id": "start", "type": "start", "label": "Start", "config": map[string]any{"objectName": recordObject, "triggerType": "record-after-create"}},
			map[string]any{"id": "tell", "type": "http", "label": "Tell", "config": map[string]any{
				"url": b.url(0), "durable": true, "signingSecret": string(b.receiver.secret),
				"body": map[string]any{"recordId": "{record.id}", "text": "{record.text}"},
			}},
			map[string]any{"id": "end", "type": "end", "label": "End"},
		},
		"edges": []any{
			map[string]any{"id": "e1", "source": "start", "target": "tell"},
			map[string]any{"id": "e2", "source": "tell", "target": "end"},
		},
	})
}

// awaitRuns waits until want runs have completed, and fails when another one
// ended otherwise. Runs are saved a moment after their deliveries.
func (b *box) awaitRuns(ctx context.Context, want int) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		completed, err := b.db.count(ctx, "SELECT count(*) FROM sys_automation_run WHERE status = 'completed'")
		if err != nil {
			return err
		}
		all, err := b.db.count(ctx, "SELECT count(*) FROM sys_automation_run")
		if err != nil {
			return err
		}
		if completed == want && all == want {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d runs completed, %d were begun: %w", completed, want, all, context.Cause(ctx))
		}
	}
}
