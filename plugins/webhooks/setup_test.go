package webhooks

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/messaging/messagingtest"
	messagingsql "github.com/objecthost/objecthost/services/messaging/sqlstore"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/services/realtime/sqllog"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/seal"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// wide bounds waits for something that must happen; a test that needs it all
// has failed.
const wide = 60 * time.Second

// lines is a log that tests read while others write.
type lines struct {
	mu   sync.Mutex
	text []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// node is one host's worth of real services on a database.
type node struct {
	db       *storage.DB
	keyring  *seal.Keyring
	events   *realtime.Service
	outbox   *messaging.Service
	engine   *data.Engine
	plugin   *Plugin
	log      *lines
	consumer realtime.Handler
	// moved is poked when the consumer's position has moved, tried after every
	// saved attempt.
	moved, tried chan struct{}
}

// nodeConfig says how a node differs from the usual one.
type nodeConfig struct {
	keyring *seal.Keyring
	cfg     Config
	// wrap, when set, stands between the log and the plugin's handler.
	wrap func(realtime.Handler) realtime.Handler
	// still leaves the consumer and the dispatcher unstarted.
	still      bool
	authorizer identity.Authorizer
	now        func() time.Time
	// moved is shared by nodes on one database: either may handle an event.
	moved chan struct{}
}

// keyOf makes a keyring for a test.
func keyOf(t testing.TB) *seal.Keyring {
	t.Helper()
	k, err := seal.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newNode starts a node on db.
func newNode(t testing.TB, db *storage.DB, c nodeConfig) *node {
	t.Helper()
	ctx := t.Context()
	n := &node{
		db: db, keyring: c.keyring, log: &lines{},
		moved: c.moved, tried: make(chan struct{}, 1),
	}
	if n.moved == nil {
		n.moved = make(chan struct{}, 1)
	}
	if n.keyring == nil {
		n.keyring = keyOf(t)
	}
	logger := slog.New(slog.NewJSONHandler(io.MultiWriter(n.log), nil))
	fatal(t, db.Migrate(ctx, sqllog.Migrations(), messagingsql.Migrations()))
	var err error
	n.events, err = realtime.New(db, sqllog.New(db, logger), realtime.Config{Logger: logger, PollInterval: 100 * time.Millisecond, Clock: c.now})
	fatal(t, err)
	allow, err := messaging.ParseEgressAllow([]string{"127.0.0.0/8"})
	fatal(t, err)
	n.outbox, err = messaging.New(messaging.Config{
		Store: messagingsql.New(db), Tx: db, Events: n.events, Sealer: n.keyring, Logger: logger,
		Sender:    messaging.SenderConfig{Egress: messaging.EgressConfig{Allow: allow}},
		OnAttempt: func(messaging.Delivery, messaging.Attempt) { poke(n.tried) },
	})
	fatal(t, err)
	n.engine, err = data.New(ctx, db, data.Config{
		Events: n.events, Keyring: n.keyring, Log: logger, Authorizer: c.authorizer, Now: c.now,
	})
	fatal(t, err)
	n.plugin, err = NewPlugin(db, c.cfg)
	fatal(t, err)
	n.plugin.log = logger
	n.plugin.assemble(n.engine, n.events, n.outbox, c.authorizer)
	handler := n.plugin.consumer()
	if c.wrap != nil {
		handler = c.wrap(handler)
	}
	n.consumer = func(ctx context.Context, events []*event.Event) error {
		storage.AfterCommit(ctx, func(context.Context) { poke(n.moved) })
		return handler(ctx, events)
	}
	fatal(t, n.events.Consume(realtime.ConsumerConfig{Name: ConsumerName, MinBackoff: time.Millisecond}, n.consumer))
	fatal(t, n.engine.Define(ctx, Schema(), accountSchema(), noteSchema()))
	fatal(t, n.events.Prepare(ctx))
	fatal(t, n.plugin.Start(ctx))
	t.Cleanup(func() { n.stop(t) })
	if !c.still {
		n.run(t)
	}
	return n
}

// run starts the consumer and the dispatcher.
func (n *node) run(t testing.TB) {
	t.Helper()
	fatal(t, n.events.Start(t.Context()))
	fatal(t, n.outbox.Start(t.Context()))
}

func (n *node) stop(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), wide)
	defer cancel()
	for _, stop := range []func(context.Context) error{n.events.Stop, n.plugin.Stop, n.outbox.Stop} {
		if err := stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
}

func accountSchema() object.Schema {
	return object.Schema{Name: "account", Fields: object.Fields{
		{Name: "name", Type: object.Text, Required: true},
		{Name: "annual_revenue", Type: object.Number},
		{Name: "token", Type: object.Secret},
	}}
}

func noteSchema() object.Schema {
	return object.Schema{Name: "note", Trash: true, Fields: object.Fields{{Name: "name", Type: object.Text}}}
}

// system is a context in the host's own name.
func system(t testing.TB) context.Context { return identity.With(t.Context(), identity.System()) }

// hook creates a webhook in the host's name and returns its id.
func (n *node) hook(t testing.TB, values data.Record) string {
	t.Helper()
	for column, value := range map[string]any{"name": "hook", "object_name": "account", "triggers": []any{"create", "update", "delete"}} {
		if _, given := values[column]; !given {
			values[column] = value
		}
	}
	r, err := n.engine.Create(system(t), ObjectName, values)
	fatal(t, err)
	return r.ID
}

func (n *node) create(t testing.TB, object string, values data.Record) string {
	t.Helper()
	r, err := n.engine.Create(system(t), object, values)
	fatal(t, err)
	return r.ID
}

func (n *node) update(t testing.TB, object, id string, values data.Record) data.Record {
	t.Helper()
	r, err := n.engine.Update(system(t), object, id, values, data.Match{})
	fatal(t, err)
	return r.Record
}

// deliveryRow is a stored delivery as tests look at it.
type deliveryRow struct {
	ID, RefID, Status, Dedup, Error, Payload string
	Attempts                                 int
	EventID                                  string
}

// deliveries lists all deliveries in the order of their ids.
func (n *node) deliveries(t testing.TB) []deliveryRow {
	t.Helper()
	rows, err := n.db.Read(t.Context()).QueryContext(t.Context(),
		`SELECT id, COALESCE(ref_id, ''), status, dedup_key, COALESCE(error, ''), payload_json, attempts, COALESCE(event_id, '') FROM sys_http_delivery ORDER BY id`)
	fatal(t, err)
	defer func() { fatal(t, rows.Close()) }()
	var out []deliveryRow
	for rows.Next() {
		var d deliveryRow
		fatal(t, rows.Scan(&d.ID, &d.RefID, &d.Status, &d.Dedup, &d.Error, &d.Payload, &d.Attempts, &d.EventID))
		out = append(out, d)
	}
	fatal(t, rows.Err())
	return out
}

// await waits until done reports true, looking again after every signal.
func await(t testing.TB, signal <-chan struct{}, what string, done func(ctx context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wide)
	defer cancel()
	for !done(ctx) {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		case <-signal:
		}
	}
}

func poke(signal chan struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// drain waits until the consumer has handled all events that are committed.
func (n *node) drain(t testing.TB) {
	t.Helper()
	await(t, n.moved, "the consumer", func(ctx context.Context) bool {
		status, err := n.events.Consumers(ctx)
		fatal(t, err)
		return len(status) == 1 && status[0].LagEvents == 0
	})
}

// settled waits until a delivery has a status.
func (n *node) settled(t testing.TB, id string, want messaging.Status) messaging.Delivery {
	t.Helper()
	var d messaging.Delivery
	await(t, n.tried, "delivery "+id, func(ctx context.Context) bool {
		var err error
		d, err = n.outbox.Get(ctx, id)
		fatal(t, err)
		return d.Status == want
	})
	return d
}

// each runs a test on a node per dialect with a receiver.
func each(t *testing.T, fn func(t *testing.T, n *node, r *messagingtest.Receiver)) {
	t.Helper()
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		r := messagingtest.New(t)
		fn(t, newNode(t, db, nodeConfig{}), r)
	})
}

// body is a received body as JSON.
func body(t testing.TB, r messagingtest.Request) map[string]any {
	t.Helper()
	var out map[string]any
	fatal(t, json.Unmarshal(r.Body, &out))
	return out
}

// asUser is a context in the name of a user.
func asUser(t testing.TB) context.Context {
	return identity.With(t.Context(), identity.Principal{UserID: "u1"})
}

// waitFor waits until a receiver has got n requests.
func waitFor(t testing.TB, r *messagingtest.Receiver, n int) ([]messagingtest.Request, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wide)
	defer cancel()
	return r.WaitFor(ctx, n)
}
