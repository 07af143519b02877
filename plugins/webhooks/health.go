package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/plugins/webhooks/sqlstore"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
)

// health carries what the outbox learns about receivers over to the webhooks:
// it switches off those whose target the outbox has put on hold (410, or five
// days without a success), and keeps failing_since and last_success_at.
type health struct {
	store   *sqlstore.Store
	targets targets
	engine  *data.Engine
	log     *slog.Logger

	mu sync.Mutex
	// watched are the webhooks, with their organization, that were active
	// since the last look or are failing.
	watched map[string]string
}

// watch has the webhooks of some deliveries looked at by the next refresh.
func (h *health) watch(reqs []messaging.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watched == nil {
		h.watched = map[string]string{}
	}
	for i := range reqs {
		h.watched[reqs[i].RefID] = reqs[i].OrganizationID
	}
}

// handle reacts to the outbox's events in the transaction of ctx.
func (h *health) handle(ctx context.Context, events []*event.Event) error {
	for _, e := range events {
		var told struct {
			Source    string `json:"source"`
			TargetKey string `json:"targetKey"`
			Reason    string `json:"reason"`
		}
		if e.Type != event.DeliveryFinished && e.Type != messaging.EventTargetHeld {
			continue
		}
		if err := json.Unmarshal(e.After, &told); err != nil {
			return fmt.Errorf("read event %s: %w", e.ID, err)
		}
		if told.Source != messaging.SourceWebhook {
			continue
		}
		if e.Type == messaging.EventTargetHeld {
			if err := h.switchOff(ctx, told.TargetKey, e.OrganizationID, told.Reason); err != nil {
				return err
			}
			continue
		}
		h.watch([]messaging.Request{{RefID: told.TargetKey, OrganizationID: e.OrganizationID}})
	}
	return nil
}

// switchOff makes a webhook inactive after its target was put on hold. One that
// was switched off, or off and on again, meanwhile is left alone.
func (h *health) switchOff(ctx context.Context, id, organization, reason string) error {
	row, err := h.store.Get(ctx, id)
	if err != nil || row == nil || !row.Active {
		return err
	}
	t, err := h.targets.Target(ctx, messaging.SourceWebhook, id, organization)
	if err != nil || t == nil || t.State != messaging.TargetHeld {
		return err
	}
	if err := h.store.SetHealth(ctx, id, millis(t.FailingSince), millis(t.LastSuccessAt)); err != nil {
		return err
	}
	ctx = identity.With(ctx, identity.System())
	change := data.Record{fieldActive: false, fieldDisabledReason: reason}
	if _, err := h.engine.Update(ctx, ObjectName, id, change, data.Match{}); err != nil {
		return fmt.Errorf("switch off webhook %s: %w", id, err)
	}
	h.log.WarnContext(ctx, "webhook switched off", "webhook_id", id, "webhook", row.Name, "reason", reason)
	return nil
}

// refresh writes the health of the watched webhooks where it has changed. A
// failing webhook stays watched, because it may recover without a new event.
func (h *health) refresh(ctx context.Context) error {
	h.mu.Lock()
	watched := h.watched
	h.watched = nil
	h.mu.Unlock()
	var again []messaging.Request
	var failed error
	for _, id := range slices.Sorted(maps.Keys(watched)) {
		failing := failed != nil // not looked at: the database is away
		if failed == nil {
			failing, failed = h.refreshOne(ctx, id, watched[id])
		}
		if failing || failed != nil {
			again = append(again, messaging.Request{RefID: id, OrganizationID: watched[id]})
		}
	}
	h.watch(again)
	return failed
}

func (h *health) refreshOne(ctx context.Context, id, organization string) (failing bool, err error) {
	row, err := h.store.Get(ctx, id)
	if err != nil || row == nil {
		return false, err
	}
	t, err := h.targets.Target(ctx, messaging.SourceWebhook, id, organization)
	if err != nil || t == nil {
		return false, err
	}
	since, success := millis(t.FailingSince), millis(t.LastSuccessAt)
	if since != row.FailingSince || success != row.LastSuccessAt {
		err = h.store.SetHealth(ctx, id, since, success)
	}
	return since != 0 && row.Active, err
}

// run refreshes at intervals until ctx ends.
func (h *health) run(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := h.refresh(ctx); err != nil && ctx.Err() == nil {
				h.log.WarnContext(ctx, "webhook health not written", "error", err)
			}
		}
	}
}

// millis is a time as epoch milliseconds, 0 for the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
