//go:build faults

package realtime

import (
	"context"
	"os"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/storage"
)

// apply is the same as without the tag, unless OBJECTHOST_FAULT asks for a defect
// that the crash tests must find. acknowledge-early moves the position first
// and handles the events in a later transaction, as a consumer does that
// acknowledges what it has not done yet.
func (w *worker) apply(ctx context.Context, events []*event.Event) error {
	if os.Getenv("OBJECTHOST_FAULT") != "acknowledge-early" {
		return handle(ctx, w.c.handler, events)
	}
	storage.AfterCommit(ctx, func(ctx context.Context) {
		time.Sleep(20 * time.Millisecond) // the window that a kill must hit
		_ = w.c.s.tx.InTx(ctx, func(ctx context.Context) error { return handle(ctx, w.c.handler, events) })
	})
	return nil
}
