package pluginsdk

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/objecthost/objecthost/core"
)

// HostKey is the service under which a plugin finds the host's API.
var HostKey = core.NewKey[Host]("plugin.host")

// HostOf returns the API of the host that a plugin runs in, for use in Init and
// for as long as the plugin runs.
func HostOf(ctx context.Context, host core.Context) (Host, error) {
	return core.Lookup(ctx, host, HostKey)
}

// Host is the host as plugins see it. All methods are safe for concurrent use;
// all errors are *[Error] or those of the context.
type Host interface {
	Records() Records
	Events() Events
	Messaging() Messaging
	Services() Services
	KV() KV
}

// Record is a record's values by field name: string, bool, json.Number, nil,
// []any and map[string]any. Secrets show a mask.
type Record = map[string]any

// Records reads and writes the records of the objects that the operator
// granted.
type Records interface {
	// Find returns what a query selects. query is the JSON body of
	// POST /api/v1/data/{object}/query; nil selects everything.
	Find(ctx context.Context, object string, query json.RawMessage) (Page, error)
	Get(ctx context.Context, object, id string) (Record, error)
	Create(ctx context.Context, object string, values Record) (Record, error)
	// Update changes the given fields. ifMatch, unless empty, must be the
	// record's updated_at.
	Update(ctx context.Context, object, id string, values Record, ifMatch string) (Record, error)
	Delete(ctx context.Context, object, id, ifMatch string) error
	// Transaction does all steps or none and returns the record of each.
	Transaction(ctx context.Context, steps []Step) ([]Record, error)
}

// Page is a part of the records that a query selects.
type Page struct {
	Records []Record
	HasMore bool
	// Total is the number of all matches, -1 when it is not known.
	Total int64
}

// Step is one write of a transaction.
type Step struct {
	Object string
	// Action is create, update or delete.
	Action string
	ID     string
	// Values may hold {"$ref": n} in place of a value: the id of the record
	// that step n, an earlier one counted from 0, wrote.
	Values Record
}

// Events appends to the host's event log.
type Events interface {
	// Publish appends an event and returns its id.
	Publish(ctx context.Context, e NewEvent) (id string, err error)
}

// NewEvent is an event that a plugin publishes. Type and Object are required.
// The types under data. are the host's own.
type NewEvent struct {
	Type, Object, RecordID string
	// Payload is a JSON object; the event carries it as its after.
	Payload json.RawMessage
}

// Messaging sends HTTP requests to hosts that the operator granted. Every
// request goes through the host's guarded transport.
type Messaging interface {
	// Enqueue stores the request in the outbox, which sends it until it
	// succeeds or is given up.
	Enqueue(ctx context.Context, d Delivery) (Enqueued, error)
	// Send sends the request now and returns the answer, whatever its status.
	// It follows no redirects.
	Send(ctx context.Context, r Request) (Response, error)
}

// Delivery is a request for the outbox. URL is required.
type Delivery struct {
	URL, Method string
	Headers     map[string]string
	Payload     []byte
	// DedupKey makes Enqueue idempotent within the plugin.
	DedupKey string
	// Label is sent as the name of the event.
	Label string
	// Timeout bounds one attempt; 0 is the host's default.
	Timeout time.Duration
	// EventID links the delivery to the event that caused it.
	EventID string
}

// Enqueued is what became of a [Delivery].
type Enqueued struct {
	ID string
	// New is false when the dedup key was known.
	New bool
}

// Request is an HTTP request to be sent at once.
type Request struct {
	Method, URL string
	Header      http.Header
	Body        []byte
}

// Response is the answer to a [Request].
type Response struct {
	Status int
	Header http.Header
	// Body is cut at 8 MiB, which Truncated tells.
	Body      []byte
	Truncated bool
}

// Services calls named services of other plugins.
type Services interface {
	// Call calls a method with a JSON payload. While the other plugin does not
	// run, the error is an [Error] with [CodeUnavailable].
	Call(ctx context.Context, service, method string, payload json.RawMessage) (json.RawMessage, error)
}

// KV stores small values (≤ 1 MiB) by keys of 1 to 512 bytes. Each plugin has
// a space of its own.
type KV interface {
	// Get returns the value, and false when there is none.
	Get(ctx context.Context, key string) (value []byte, found bool, err error)
	Set(ctx context.Context, key string, value []byte) error
	// Delete removes a key; one that is not there is no error.
	Delete(ctx context.Context, key string) error
	// Keys lists up to limit (1 to 1000) keys with the prefix, in byte order,
	// after the given one.
	Keys(ctx context.Context, prefix, after string, limit int) ([]string, error)
}
