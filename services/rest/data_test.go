package rest

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/auth"
	"github.com/objecthost/objecthost/services/auth/sqlstore"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// account is the object that the checks of the official client use.
const account = `{
	"name": "account", "label": "Account", "pluralLabel": "Accounts", "nameField": "name",
	"listViews": {"all": {"label": "All", "columns": ["name", "industry"]}},
	"fields": {
		"name": {"type": "text", "label": "Name", "required": true, "maxLength": 120, "searchable": true},
		"code": {"type": "text", "label": "Code", "unique": true, "maxLength": 20},
		"industry": {"type": "select", "label": "Industry", "options": [
			{"label": "Technology", "value": "technology"}, {"label": "Finance", "value": "finance"}, {"label": "Retail", "value": "retail"}]},
		"annual_revenue": {"type": "number", "label": "Annual Revenue", "min": 0},
		"active": {"type": "boolean", "label": "Active", "defaultValue": true}
	}
}`

// More objects: one with a trash, one that is closed to writes, and two that
// point at each other.
var otherObjects = []string{
	`{"name": "note", "label": "Note", "trash": true, "fields": {"title": {"type": "text", "label": "Title"}}}`,
	`{"name": "ledger", "label": "Ledger", "enable": {"apiMethods": ["get", "list"]}, "fields": {"title": {"type": "text", "label": "Title"}}}`,
	`{"name": "contact", "label": "Contact", "fields": {
		"name": {"type": "text", "label": "Name"},
		"account": {"type": "lookup", "label": "Account", "reference": "account", "deleteBehavior": "restrict"}}}`,
}

// manifests are the plugins that the host is told of.
var manifests = []core.Manifest{
	{ID: "com.example.crm", Version: "2.1.0", Contributes: core.Contributions{
		Objects:    []object.Schema{{Name: "account"}, {Name: "contact"}},
		Navigation: []core.NavigationItem{{ID: "crm-contacts", Label: "People", ObjectName: "contact", Icon: "user"}, {ID: "gone", Label: "Gone", ObjectName: "gone"}},
	}},
	{ID: "com.example.books", Contributes: core.Contributions{Objects: []object.Schema{{Name: "ledger"}}}},
}

// events keeps the engine's events.
type events struct {
	mu   sync.Mutex
	list []*event.Event
}

func (e *events) Append(_ context.Context, list ...*event.Event) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, list...)
	return nil
}

// host is a server over a real engine and real API keys.
type host struct {
	t      testing.TB
	server *Server
	engine *data.Engine
	auth   *auth.Service
	key    string // an admin's
	log    *logBuffer
}

// eachHost runs a test on both dialects.
func eachHost(t *testing.T, test func(t *testing.T, h *host)) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) { test(t, setupHost(t, db)) })
}

func setupHost(t testing.TB, db *storage.DB) *host {
	t.Helper()
	store := sqlstore.New(db)
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	service, err := auth.New(store, auth.Config{})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := data.New(t.Context(), db, data.Config{Events: &events{}, Authorizer: service})
	if err != nil {
		t.Fatal(err)
	}
	var schemas []object.Schema
	for _, text := range append([]string{account}, otherObjects...) {
		schema, err := object.Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		schemas = append(schemas, schema)
	}
	schemas = append(schemas, data.ImportJobSchema(), notificationSchema())
	if err := engine.Define(t.Context(), schemas...); err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, engine: engine, auth: service, log: &logBuffer{}}
	h.server, err = New(Config{Version: "1.2.3", Environment: "development", Logger: slog.New(slog.NewJSONHandler(h.log, nil))}, Parts{
		Auth: service, Data: engine, Services: func() []string { return []string{"auth", "data", "metadata", "realtime"} },
		Manifests: func() []core.Manifest { return manifests },
	})
	if err != nil {
		t.Fatal(err)
	}
	h.key = makeKey(t, service, auth.ScopeAdmin)
	return h
}

// do sends a request as the administrator.
func (h *host) do(method, path, body string, header ...string) *httptest.ResponseRecorder {
	h.t.Helper()
	return call(h.t, h.server.Handler(), method, path, body, append([]string{"X-API-Key", h.key}, header...)...)
}

// as sends a request with another key, "" for none.
func (h *host) as(key, method, path, body string) *httptest.ResponseRecorder {
	h.t.Helper()
	if key == "" {
		return call(h.t, h.server.Handler(), method, path, body)
	}
	return call(h.t, h.server.Handler(), method, path, body, "Authorization", "Bearer "+key)
}

// get decodes a successful answer.
func (h *host) get(status int, w *httptest.ResponseRecorder) map[string]any {
	h.t.Helper()
	if w.Code != status {
		h.t.Fatalf("status %d, want %d: %s", w.Code, status, w.Body)
	}
	m, ok := parse(h.t, w.Body.String()).(map[string]any)
	if !ok {
		h.t.Fatalf("answer is no object: %s", w.Body)
	}
	return m
}

// create creates an account and returns its id.
func (h *host) create(body string) string {
	h.t.Helper()
	return h.get(201, h.do("POST", "/api/v1/data/account", body))["id"].(string)
}

func (h *host) seed() (acme string, many []string) {
	h.t.Helper()
	acme = h.create(`{"name":"Acme","industry":"technology","annual_revenue":1500.5,"code":"A"}`)
	answer := h.get(201, h.do("POST", "/api/v1/data/account/createMany", `[
		{"name":"M1","industry":"finance","annual_revenue":10,"active":false,"code":"1"},
		{"name":"M2","industry":"retail","annual_revenue":20,"code":"2"},
		{"name":"M3","annual_revenue":30,"code":"3"}]`))
	for _, r := range answer["records"].([]any) {
		many = append(many, r.(map[string]any)["id"].(string))
	}
	return acme, many
}

// names returns the names of an answer's records, in order.
func names(answer map[string]any) string {
	var list []string
	for _, r := range answer["records"].([]any) {
		list = append(list, r.(map[string]any)["name"].(string))
	}
	return strings.Join(list, ",")
}

// same compares with expected JSON; times and ids that differ from run to run
// are written as "*" there.
func (h *host) same(got any, want string) {
	h.t.Helper()
	expected := parse(h.t, want)
	ignore := cmp.FilterValues(func(a, b any) bool { return a == "*" || b == "*" }, cmp.Comparer(func(any, any) bool { return true }))
	if diff := cmp.Diff(expected, got, ignore); diff != "" {
		h.t.Errorf("(-want +got):\n%s", diff)
	}
}

func keysOf(m any) []string { return slices.Sorted(maps.Keys(m.(map[string]any))) }

func encode(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// asAdmin is a caller's context for calls of the engine.
func asAdmin(t *testing.T) context.Context {
	return identity.With(t.Context(), identity.Principal{System: true})
}

// request makes a GET that the caller's context can end.
func request(t *testing.T, ctx context.Context, url, key string) *http.Response { //nolint:revive // the test leads
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-API-Key", key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// eventually asks again and again, for what no signal tells.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline, tick := time.After(30*time.Second), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}
