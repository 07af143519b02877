package webhooks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/plugins/webhooks/sqlstore"
	"github.com/objecthost/objecthost/services/messaging"
)

// outbox is what matching needs of the messaging service.
type outbox interface {
	EnqueueBatch(ctx context.Context, reqs []messaging.Request) ([]messaging.Enqueued, error)
	SealHeaders(headers map[string]string) (string, error)
}

// unsendableURL stands in the parked deliveries of a webhook whose own URL no
// request could carry. The name is reserved and resolves nowhere (RFC 2606).
const unsendableURL = "https://webhook.invalid/"

// enqueuer turns events into deliveries. It is the handler of the durable
// consumer: the deliveries that it stores and the consumer's position commit
// together.
type enqueuer struct {
	subs   *subscriptions
	outbox outbox
	vault  vault
	// lookup finds the schema of an object.
	lookup func(name string) (*object.Schema, bool)
	// enqueued, when set, is told what was stored.
	enqueued func([]messaging.Request)
	log      *slog.Logger
}

// handle matches a batch of events in the transaction of ctx and stores all
// deliveries with one call.
func (q *enqueuer) handle(ctx context.Context, events []*event.Event) error {
	if err := q.subs.refresh(ctx); err != nil {
		return err
	}
	var reqs []messaging.Request
	for _, e := range events {
		var err error
		if reqs, err = q.match(ctx, reqs, e); err != nil {
			return err
		}
	}
	if err := q.enqueue(ctx, reqs); err != nil || q.enqueued == nil {
		return err
	}
	q.enqueued(reqs)
	return nil
}

// match appends the deliveries of one event.
func (q *enqueuer) match(ctx context.Context, reqs []messaging.Request, e *event.Event) ([]messaging.Request, error) {
	k, known := kinds[e.Type]
	if known && e.Object != ObjectName && !k.bulk && e.RecordID == "" {
		q.log.WarnContext(ctx, "event without a record id dropped", "event_id", e.ID, "event_type", e.Type, "object", e.Object)
		return reqs, nil
	}
	var (
		shared *bodies
		failed error
	)
	q.each(e, func(s *subscription, k kind) {
		if failed != nil {
			return
		}
		if shared == nil {
			shared = newBodies(e, k.action)
		}
		req, err := q.deliver(ctx, s, e, k, shared)
		if err != nil {
			failed = err
			return
		}
		reqs = append(reqs, req)
	})
	return reqs, failed
}

// each calls yield with the subscriptions that an event matches. Events of
// webhooks themselves match none, nor do those of records without an id.
func (q *enqueuer) each(e *event.Event, yield func(*subscription, kind)) {
	k, known := kinds[e.Type]
	if !known || e.Object == ObjectName || !k.bulk && e.RecordID == "" {
		return
	}
	q.subs.find(e.OrganizationID, e.Object, k.trigger, q.isSystem(e.Object), func(s *subscription) { yield(s, k) })
}

// deliver makes the request of one event to one webhook.
func (q *enqueuer) deliver(ctx context.Context, s *subscription, e *event.Event, k kind, shared *bodies) (messaging.Request, error) {
	sealed, parked, err := q.open(ctx, s)
	if err != nil {
		return messaging.Request{}, err
	}
	if parked != "" {
		// A secret that was replaced a moment ago is gone, not unreadable.
		fresh, err := q.subs.newest(ctx, s.id)
		if err != nil {
			return messaging.Request{}, err
		}
		if fresh != nil && fresh != s {
			s = fresh
			if sealed, parked, err = q.open(ctx, s); err != nil {
				return messaging.Request{}, err
			}
		}
	}
	if parked != "" {
		q.report(ctx, s, parked)
	}
	req, err := s.request(e, k, shared)
	req.Sealed, req.Parked = sealed, parked
	return req, err
}

// isSystem reports whether webhooks without an object leave it out.
func (q *enqueuer) isSystem(name string) bool {
	if schema, known := q.lookup(name); known {
		return !schema.IsApp()
	}
	return strings.HasPrefix(name, "sys_")
}

// request is the delivery of one event, without what is secret about it.
func (s *subscription) request(e *event.Event, k kind, shared *bodies) (messaging.Request, error) {
	body, err := shared.body(s.projection)
	if err != nil {
		return messaging.Request{}, err
	}
	req := s.endpoint()
	req.DedupKey = dedupKey(s.id, e, k)
	req.Label = e.Type
	req.Payload = body
	req.OrderSeq = e.Sequence
	req.EventID = e.ID
	switch s.rules.ordering {
	case orderingWebhook:
		req.OrderingKey = s.id
	case orderingNone:
	default:
		req.OrderingKey = s.id + ":" + e.RecordID
	}
	return req, nil
}

// endpoint is a request to the subscription's receiver, without a body.
func (s *subscription) endpoint() messaging.Request {
	return messaging.Request{
		Source: messaging.SourceWebhook, RefID: s.id, URL: s.url, Method: s.method,
		Timeout:        time.Duration(s.rules.timeoutMS) * time.Millisecond,
		BlockOnRetry:   s.rules.blockOnRetry,
		ExpireAfter:    time.Duration(s.rules.expireAfterMS) * time.Millisecond,
		OrganizationID: s.organization,
	}
}

// open returns the subscription's headers as the outbox takes them, or the
// reason why its deliveries must be parked: something that belongs to the
// request cannot be read, and a delivery without it must never leave.
func (q *enqueuer) open(ctx context.Context, s *subscription) (sealed, parked string, err error) {
	s.secrets.mu.Lock()
	defer s.secrets.mu.Unlock()
	if s.secrets.opened {
		return s.secrets.sealed, "", nil
	}
	reason := s.broken
	if reason == "" {
		sealed, err := q.seal(ctx, s)
		var unreadable *unreadableError
		switch {
		case err == nil:
			s.secrets.opened, s.secrets.sealed = true, sealed
			return sealed, "", nil
		case !errors.As(err, &unreadable):
			return "", "", err
		}
		reason = unreadable.Error()
	}
	return "", reason, nil
}

// report says once that a webhook's deliveries are parked.
func (q *enqueuer) report(ctx context.Context, s *subscription, reason string) {
	s.secrets.mu.Lock()
	told := s.secrets.reported
	s.secrets.reported = true
	s.secrets.mu.Unlock()
	if !told {
		q.log.ErrorContext(ctx, "webhook parked: its deliveries are stored dead and not sent",
			"webhook_id", s.id, "webhook", s.name, "reason", reason)
	}
}

// seal reads all secrets of a subscription, so that an unreadable one is known
// before anything is stored, and seals the headers for the outbox. The signing
// secret and the credentials are the target's.
func (q *enqueuer) seal(ctx context.Context, s *subscription) (string, error) {
	row := &sqlstore.Webhook{ID: s.id, Secret: s.secretRef, Headers: s.headersRef, Auth: s.authRef}
	if _, _, err := openSigning(ctx, q.vault, row, s.rules.authType); err != nil {
		return "", err
	}
	headers, err := openHeaders(ctx, q.vault, row)
	if err != nil {
		return "", err
	}
	sealed, err := q.outbox.SealHeaders(headers)
	if err != nil {
		return "", fmt.Errorf("seal headers of webhook %s: %w", s.id, err)
	}
	return sealed, nil
}

// enqueue stores the deliveries. One that the outbox refuses for good, because
// its body is too large for instance, must not hold up the log for ever: the
// batch is stored one by one and the refused delivery is parked with the
// reason and without its record.
func (q *enqueuer) enqueue(ctx context.Context, reqs []messaging.Request) error {
	_, err := q.outbox.EnqueueBatch(ctx, reqs)
	var refused *messaging.RequestError
	if err == nil || !errors.As(err, &refused) {
		return err
	}
	if len(reqs) > 1 {
		half := len(reqs) / 2
		if err := q.enqueue(ctx, reqs[:half]); err != nil {
			return err
		}
		return q.enqueue(ctx, reqs[half:])
	}
	req := reqs[0]
	if req.Parked != "" {
		return err // even the parked delivery is refused: nothing else is left
	}
	q.log.ErrorContext(ctx, "delivery refused by the outbox", "webhook_id", req.RefID, "event_id", req.EventID, "error", err)
	req.Parked, req.Sealed, req.Payload = "cannot be sent: "+refused.Error(), "", []byte("{}")
	return q.enqueue(ctx, []messaging.Request{req})
}
