package automation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
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
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// node is one host's worth of real services on a database.
type node struct {
	*Service
	events *realtime.Service
	engine *data.Engine
	outbox *messaging.Service
	mux    http.Handler
	log    *lines
	// settled is poked when the consumer's position has moved.
	settled chan struct{}
}

// nodeConfig says how a node differs from the usual one.
type nodeConfig struct {
	cfg     Config
	keyring *seal.Keyring
	// still leaves the consumer, the dispatcher of the outbox and the runner
	// unstarted.
	still      bool
	authorizer identity.Authorizer
}

// keyed allows everything to callers with the key "key", and reading notes to
// those with the key "reader".
type keyed struct{}

func (keyed) Can(ctx context.Context, op identity.Operation, object string) error {
	who := identity.From(ctx)
	reads := op == identity.OperationRead || op == identity.OperationList
	switch {
	case who.System, who.KeyID == "key", who.KeyID == "reader" && object == "note" && reads:
		return nil
	case !who.Authenticated():
		return identity.ErrUnauthenticated
	}
	return &identity.DeniedError{Permission: string(op), Object: object}
}

func (keyed) Has(ctx context.Context, permission string) error {
	if who := identity.From(ctx); who.System || who.KeyID == "key" {
		return nil
	}
	return &identity.DeniedError{Permission: permission}
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func keyOf(t testing.TB) *seal.Keyring {
	t.Helper()
	k, err := seal.Generate()
	fatal(t, err)
	return k
}

// each runs a test with one node on either dialect.
func each(t *testing.T, c nodeConfig, test func(t *testing.T, n *node)) {
	t.Helper()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) { test(t, newNode(t, db, c)) })
}

func newNode(t testing.TB, db *storage.DB, c nodeConfig) *node {
	t.Helper()
	ctx := t.Context()
	n := &node{log: &lines{}, settled: make(chan struct{}, 1)}
	logger := slog.New(slog.NewJSONHandler(n.log, nil))
	if c.keyring == nil {
		c.keyring = keyOf(t)
	}
	if c.authorizer == nil {
		c.authorizer = keyed{}
	}
	fatal(t, db.Migrate(ctx, sqllog.Migrations(), messagingsql.Migrations(), Migrations()))
	var err error
	n.events, err = realtime.New(db, sqllog.New(db, logger), realtime.Config{Logger: logger, PollInterval: 100 * time.Millisecond})
	fatal(t, err)
	allow, err := messaging.ParseEgressAllow([]string{"127.0.0.0/8"})
	fatal(t, err)
	n.outbox, err = messaging.New(messaging.Config{
		Store: messagingsql.New(db), Tx: db, Events: n.events, Sealer: c.keyring, Logger: logger,
		Sender: messaging.SenderConfig{Egress: messaging.EgressConfig{Allow: allow}},
	})
	fatal(t, err)
	n.engine, err = data.New(ctx, db, data.Config{Events: n.events, Keyring: c.keyring, Log: logger, Authorizer: c.authorizer})
	fatal(t, err)
	c.cfg.Sealer, c.cfg.Logger = c.keyring, logger
	if c.cfg.PollInterval == 0 {
		c.cfg.PollInterval = 50 * time.Millisecond
	}
	n.Service, err = New(db, n.engine, n.outbox, c.cfg)
	fatal(t, err)
	fatal(t, n.events.Consume(realtime.ConsumerConfig{Name: ConsumerName, MinBackoff: time.Millisecond}, func(ctx context.Context, events []*event.Event) error {
		storage.AfterCommit(ctx, func(context.Context) { poke(n.settled) })
		return n.handle(ctx, events)
	}))
	schemas := append([]object.Schema{accountSchema(), noteSchema()}, Objects()...)
	schemas = append(schemas, messaging.Objects()...)
	fatal(t, n.engine.Define(ctx, schemas...))
	fatal(t, n.events.Prepare(ctx))
	n.serve(c.authorizer)
	t.Cleanup(func() { n.halt(t) })
	if !c.still {
		n.run(t)
	}
	return n
}

// run starts the consumer, the outbox and the execution of runs.
func (n *node) run(t testing.TB) {
	t.Helper()
	fatal(t, n.events.Start(t.Context()))
	fatal(t, n.outbox.Start(t.Context()))
	fatal(t, n.Start(t.Context()))
}

// serve mounts the routes the way the HTTP server does, for a caller that the
// test names in headers.
func (n *node) serve(authorizer identity.Authorizer) {
	p := &Plugin{service: n.Service, authorizer: authorizer, log: slog.New(slog.NewJSONHandler(n.log, nil))}
	all := (routes{p}).list()
	n.mux = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, route := range all {
			if route.Method != r.Method || !match(route.Pattern, r) {
				continue
			}
			who := identity.Principal{UserID: r.Header.Get("X-User"), KeyID: r.Header.Get("X-Key"), OrganizationID: r.Header.Get("X-Organization")}
			route.Handler.ServeHTTP(w, r.WithContext(identity.With(r.Context(), who)))
			return
		}
		http.NotFound(w, r)
	})
}

// match compares segment by segment; the list of routes has the more special
// ones first.
func match(pattern string, r *http.Request) bool {
	want, got := strings.Split(pattern, "/"), strings.Split(r.URL.Path, "/")
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		if name, ok := strings.CutPrefix(want[i], "{"); ok {
			r.SetPathValue(strings.TrimSuffix(name, "}"), got[i])
		} else if want[i] != got[i] {
			return false
		}
	}
	return true
}

func (n *node) halt(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), wide)
	defer cancel()
	for _, stop := range []func(context.Context) error{n.events.Stop, n.Stop, n.outbox.Stop} {
		if err := stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func accountSchema() object.Schema {
	return object.Schema{Name: "account", Fields: object.Fields{
		{Name: "name", Type: object.Text, Required: true},
		{Name: "industry", Type: object.Select, Options: []object.Option{{Label: "Technology", Value: "technology"}, {Label: "Retail", Value: "retail"}}},
		{Name: "annual_revenue", Type: object.Number},
		{Name: "code", Type: object.Text},
		{Name: "token", Type: object.Secret},
	}}
}

func noteSchema() object.Schema {
	return object.Schema{Name: "note", Fields: object.Fields{{Name: "text", Type: object.Text}, {Name: "number", Type: object.Number}}}
}

// user is a context of a person, system one of the host itself.
func user(t testing.TB) context.Context {
	return identity.With(t.Context(), identity.Principal{UserID: "ada", KeyID: "key"})
}

func system(t testing.TB) context.Context { return identity.With(t.Context(), identity.System()) }

// call makes a request as ada and returns the status and the answer.
func (n *node) call(t testing.TB, method, path string, body any) (int, map[string]any) {
	t.Helper()
	var source []byte
	switch b := body.(type) {
	case nil:
	case string:
		source = []byte(b)
	default:
		var err error
		source, err = encodeJSON(b)
		fatal(t, err)
	}
	req := httptest.NewRequest(method, base+path, bytes.NewReader(source))
	req.Header.Set("X-User", "ada")
	req.Header.Set("X-Key", "key")
	return n.send(t, req)
}

func (n *node) send(t testing.TB, req *http.Request) (int, map[string]any) {
	t.Helper()
	w := httptest.NewRecorder()
	n.mux.ServeHTTP(w, req)
	var answer map[string]any
	if err := decodeJSON(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%s %s: answer %q: %v", req.Method, req.URL, w.Body, err)
	}
	return w.Code, answer
}

// ok is the data of a call that must succeed.
func (n *node) ok(t testing.TB, method, path string, body any) map[string]any {
	t.Helper()
	status, answer := n.call(t, method, path, body)
	if status != http.StatusOK || answer["success"] != true {
		t.Fatalf("%s %s: %d %v", method, path, status, answer)
	}
	out, _ := answer["data"].(map[string]any)
	return out
}

// refused is the error of a call that must not succeed.
func (n *node) refused(t testing.TB, method, path string, body any, status int, code string) map[string]any {
	t.Helper()
	got, answer := n.call(t, method, path, body)
	e, _ := answer["error"].(map[string]any)
	if got != status || answer["success"] != false || e["code"] != code {
		t.Fatalf("%s %s: %d %v, want %d %s", method, path, got, answer, status, code)
	}
	return e
}

// put registers a flow of type autolaunched that runs as system, unless
// definition says otherwise.
func (n *node) put(t testing.TB, name, definition string) {
	t.Helper()
	_, err := n.Put(t.Context(), flowSource(t, name, definition))
	fatal(t, err)
}

func flowSource(t testing.TB, name, definition string) []byte {
	t.Helper()
	full := map[string]any{"name": name, "label": name, "type": "autolaunched", "status": "active", "runAs": "system", "edges": []any{}}
	if err := decodeJSON([]byte(definition), &full); err != nil {
		t.Fatalf("definition of %s: %v", name, err)
	}
	source, err := encodeJSON(full)
	fatal(t, err)
	return source
}

// chain is a definition whose nodes follow one another, from a start node on.
func chain(start string, nodes ...string) string {
	all := append([]string{`{"id":"start","type":"start"` + start + `}`}, nodes...)
	ids := make([]string, len(all))
	for i, n := range all {
		var one struct{ ID string }
		_ = json.Unmarshal([]byte(n), &one)
		ids[i] = one.ID
	}
	var edges []string
	for i := 1; i < len(ids); i++ {
		edges = append(edges, fmt.Sprintf(`{"id":"e%d","source":%q,"target":%q}`, i, ids[i-1], ids[i]))
	}
	return `"nodes":[` + strings.Join(all, ",") + `],"edges":[` + strings.Join(edges, ",") + `]`
}

// await returns when a condition holds; it is asked when something has moved.
func (n *node) await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wide)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-n.settled:
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("%s did not come; log:\n%s", what, n.log)
		}
	}
}

// log of a flow's runs, the newest first.
func (n *node) logOf(t testing.TB, flow string) []*RunLog {
	t.Helper()
	list, err := n.Runs(system(t), flow, RunQuery{Limit: 200})
	fatal(t, err)
	return list.Runs
}

// ended awaits that count runs of a flow have ended and none is open.
func (n *node) ended(t testing.TB, flow string, count int) []*RunLog {
	t.Helper()
	var runs []*RunLog
	n.await(t, fmt.Sprintf("the end of %d runs of %s", count, flow), func() bool {
		runs = n.logOf(t, flow)
		done := 0
		for _, r := range runs {
			if r.CompletedAt != "" {
				done++
			}
		}
		return done == count && done == len(runs)
	})
	return runs
}

// receiver takes calls and answers with a status and a body.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	calls []taken
	// answer decides; nil answers 200 {"ok":true}.
	answer func(r *http.Request, body []byte) (int, string)
}

type taken struct {
	header http.Header
	body   string
	path   string
}

func newReceiver(t testing.TB) *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		r.calls = append(r.calls, taken{req.Header.Clone(), string(body), req.URL.Path})
		answer := r.answer
		r.mu.Unlock()
		status, text := http.StatusOK, `{"ok":true}`
		if answer != nil {
			status, text = answer(req, body)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) got() []taken {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]taken(nil), r.calls...)
}

// equal compares in JSON.
func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	a, err := encodeJSON(got)
	fatal(t, err)
	b, ok := want.(string)
	if !ok {
		text, err := encodeJSON(want)
		fatal(t, err)
		b = string(text)
	}
	var x, y any
	fatal(t, decodeJSON(a, &x))
	if err := decodeJSON([]byte(b), &y); err != nil {
		t.Fatalf("%s: want is no JSON: %v", what, err)
	}
	x1, _ := encodeJSON(x)
	y1, _ := encodeJSON(y)
	if !bytes.Equal(x1, y1) {
		t.Errorf("%s:\n got %s\nwant %s", what, x1, y1)
	}
}
