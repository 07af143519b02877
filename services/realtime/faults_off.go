//go:build !faults

package realtime

import (
	"context"

	"github.com/objecthost/objecthost/core/event"
)

// apply runs the handler in the transaction in which the position moves.
func (w *worker) apply(ctx context.Context, events []*event.Event) error {
	return handle(ctx, w.c.handler, events)
}
