package messaging

import (
	"bytes"
	"encoding/json"
	"hash/fnv"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/messaging/driver"
)

// The sources of deliveries that the host itself knows. Other programs may use
// names of their own of at most 32 bytes.
const (
	SourceWebhook = "webhook"
	SourceFlow    = "flow"
)

// Request asks for one HTTP delivery.
type Request struct {
	// Source tells who enqueues (≤ 32 bytes), RefID for what: a webhook's or a
	// flow node's id.
	Source, RefID string
	// TargetKey names the target that limits, breaker and secrets belong to;
	// empty means RefID.
	TargetKey string
	// DedupKey (≤ 191 bytes) makes the request idempotent within its source
	// and organization; empty means the delivery's own id.
	DedupKey string
	// Label is sent as X-Objectstack-Event.
	Label string
	// URL is an absolute http or https URL, Method an HTTP method in any letter
	// case; empty means POST.
	URL, Method string
	// Headers are the author's. They are sealed at rest. Sealed is the same as
	// the result of [Service.SealHeaders], for callers that enqueue many rows
	// with one set; it wins over Headers.
	Headers map[string]string
	Sealed  string
	// Secret signs this delivery; nil means the target's current secret.
	Secret []byte
	// Timeout bounds one attempt from 1 s to 300 s; 0 means 15 s.
	Timeout time.Duration
	// Payload is the exact body.
	Payload []byte
	// OrderingKey orders first attempts, in OrderSeq; empty means no order.
	// OrderSeq 0 means the order of enqueueing on this node.
	OrderingKey string
	OrderSeq    int64
	// BlockOnRetry makes the row block its ordering key until it has ended.
	BlockOnRetry bool
	// ExpireAfter ends the delivery as failed when it is not done after this
	// time; 0 means never.
	ExpireAfter time.Duration
	// NotifyFinished asks for a delivery.finished event at any end. Terminal
	// failures append one in any case.
	NotifyFinished bool
	// Parked, when set, stores the row dead with this reason, without a
	// request: its secret or headers cannot be read.
	Parked string
	// EventID, RunID and StepID link the delivery to what caused it.
	EventID, RunID, StepID string
	OrganizationID         string
}

// Enqueued is what became of a [Request].
type Enqueued struct {
	// ID is the delivery's id: a new one, or that of the delivery which has
	// the dedup key already.
	ID string
	// New is false when the dedup key existed.
	New bool
}

// Delivery is a row of the outbox as its readers see it: without headers,
// secrets and claim token.
type Delivery struct {
	ID, Source, RefID, TargetKey, DedupKey, Label string
	URL, Method, Signature                        string
	Timeout                                       time.Duration
	Payload                                       []byte
	Status                                        Status
	Attempts, Round, CrashCount                   int
	NextRetryAt, LastAttemptAt                    time.Time
	ResponseCode                                  int
	ResponseBody, Error                           string
	ExpiresAt, FinishedAt, CreatedAt, UpdatedAt   time.Time
	EventID, RunID, StepID, OrganizationID        string
	// Parked tells that the delivery has never been sent, because its secret
	// or headers could not be read.
	Parked bool
}

func deliveryOf(r *driver.Row) Delivery {
	return Delivery{
		ID: r.ID, Source: r.Source, RefID: r.RefID, TargetKey: r.TargetKey,
		DedupKey: r.DedupKey, Label: r.Label, URL: r.URL, Method: r.Method,
		Signature: r.Signature, Timeout: time.Duration(r.TimeoutMillis) * time.Millisecond,
		Payload: r.Payload, Status: r.Status, Attempts: r.Attempts, Round: r.Round,
		CrashCount: r.CrashCount, NextRetryAt: timeOf(r.NextRetryAt),
		LastAttemptAt: timeOf(r.LastAttemptAt), ResponseCode: r.ResponseCode,
		ResponseBody: r.ResponseBody, Error: r.Error, ExpiresAt: timeOf(r.ExpiresAt),
		FinishedAt: timeOf(r.FinishedAt), CreatedAt: timeOf(r.CreatedAt),
		UpdatedAt: timeOf(r.UpdatedAt), EventID: r.EventID, RunID: r.RunID,
		StepID: r.StepID, OrganizationID: r.OrganizationID, Parked: r.Parked,
	}
}

func timeOf(millis int64) time.Time {
	if millis == 0 {
		return time.Time{}
	}
	return time.UnixMilli(millis).UTC()
}

// orderKey is the 64-bit FNV-1a hash of an ordering key within its target, 0
// for no key. Two keys with one hash only share an order that neither needs.
func orderKey(target int64, key string) int64 {
	if key == "" {
		return 0
	}
	h := fnv.New64a()
	var n [8]byte
	for i := range n {
		n[i] = byte(target >> (8 * i))
	}
	_, _ = h.Write(n[:])
	_, _ = h.Write([]byte(key))
	if k := int64(h.Sum64()); k != 0 { //nolint:gosec // the bits matter, not the sign
		return k
	}
	return 1
}

// finishedEvent is the delivery.finished event of a row that has ended.
func finishedEvent(r *driver.Row) (*event.Event, error) {
	after, err := marshalPlain(map[string]any{
		"id": r.ID, "source": r.Source, "refId": r.RefID, "targetKey": r.TargetKey,
		"status": r.Status, "attempts": r.Attempts, "responseCode": nullable(r.ResponseCode),
		"error": nullable(r.Error), "eventId": nullable(r.EventID),
		"runId": nullable(r.RunID), "stepId": nullable(r.StepID), "round": r.Round,
	})
	if err != nil {
		return nil, err
	}
	return &event.Event{
		Type: event.DeliveryFinished, Object: "sys_http_delivery", RecordID: r.ID,
		After: after, OrganizationID: r.OrganizationID,
	}, nil
}

// marshalPlain encodes JSON without escaping <, > and &.
func marshalPlain(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// nullable turns a zero value into a JSON null.
func nullable[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}
