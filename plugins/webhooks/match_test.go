package webhooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/plugins/webhooks/sqlstore"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/storage/seal"
)

// tableStore is a subscription store whose version grows with every put.
type tableStore struct {
	rows    map[string]sqlstore.Webhook
	changes []string
	forgot  bool
	reads   int
}

func newTableStore(rows ...sqlstore.Webhook) *tableStore {
	s := &tableStore{rows: map[string]sqlstore.Webhook{}}
	for _, row := range rows {
		s.put(row)
	}
	return s
}

func (s *tableStore) put(row sqlstore.Webhook) {
	s.rows[row.ID] = row
	s.changes = append(s.changes, row.ID)
}

func (s *tableStore) drop(id string) {
	delete(s.rows, id)
	s.changes = append(s.changes, id)
}

func (s *tableStore) Version(context.Context) (int64, error) { return int64(len(s.changes)), nil }

func (s *tableStore) ChangedSince(_ context.Context, version int64) ([]string, bool, error) {
	return s.changes[version:], !s.forgot, nil
}

func (s *tableStore) All(context.Context) ([]sqlstore.Webhook, error) {
	var out []sqlstore.Webhook
	for _, row := range s.rows {
		if row.Active {
			out = append(out, row)
		}
	}
	s.reads += len(out)
	return out, nil
}

func (s *tableStore) Some(_ context.Context, ids []string) ([]sqlstore.Webhook, error) {
	var out []sqlstore.Webhook
	for id, row := range s.rows {
		if slices.Contains(ids, id) {
			out = append(out, row)
		}
	}
	s.reads += len(out)
	return out, nil
}

// listOutbox keeps what it is given and refuses payloads beyond a limit.
type listOutbox struct {
	reqs  []messaging.Request
	calls int
	limit int
}

func (o *listOutbox) EnqueueBatch(_ context.Context, reqs []messaging.Request) ([]messaging.Enqueued, error) {
	o.calls++
	for _, req := range reqs {
		if o.limit > 0 && len(req.Payload) > o.limit {
			return nil, fmt.Errorf("enqueue: %w", &messaging.RequestError{Field: "Payload", Reason: "is too large"})
		}
	}
	o.reqs = append(o.reqs, reqs...)
	return make([]messaging.Enqueued, len(reqs)), nil
}

func (o *listOutbox) SealHeaders(headers map[string]string) (string, error) {
	if len(headers) == 0 {
		return "", nil
	}
	return fmt.Sprintf("sealed%v", headers), nil
}

// mapVault opens the references it knows; a nil value is unreadable.
type mapVault map[string][]byte

var errDatabase = errors.New("connection lost")

func (v mapVault) Reveal(_ context.Context, ref string) ([]byte, error) {
	secret, ok := v[ref]
	switch {
	case !ok:
		return nil, errDatabase
	case secret == nil:
		return nil, seal.ErrUnreadable
	}
	return secret, nil
}

type matchBundle struct {
	store  *tableStore
	outbox *listOutbox
	vault  mapVault
	log    *bytes.Buffer
	q      *enqueuer
}

func setupMatch(rows ...sqlstore.Webhook) *matchBundle {
	b := &matchBundle{store: newTableStore(rows...), outbox: &listOutbox{}, vault: mapVault{}, log: &bytes.Buffer{}}
	b.q = &enqueuer{
		subs: newSubscriptions(b.store), outbox: b.outbox, vault: b.vault,
		lookup: func(name string) (*object.Schema, bool) {
			if name == "account" || name == "sys_user" {
				return &object.Schema{Name: name}, true
			}
			return nil, false
		},
		log: slog.New(slog.NewTextHandler(b.log, nil)),
	}
	return b
}

func (b *matchBundle) handle(t *testing.T, events ...*event.Event) []messaging.Request {
	t.Helper()
	b.outbox.reqs = nil
	if err := b.q.handle(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	return b.outbox.reqs
}

func hook(id, name, object, triggers string) sqlstore.Webhook {
	return sqlstore.Webhook{
		ID: id, Name: name, ObjectName: object, Triggers: triggers, URL: "https://recv.test/" + id,
		Method: "post", Active: true, Definition: "{}",
	}
}

func record(eventType, object, id string) *event.Event {
	return &event.Event{
		ID: "e-" + id, Sequence: 7, Type: eventType, Object: object, RecordID: id,
		Timestamp: time.Date(2026, 11, 30, 17, 0, 0, 0, time.UTC),
	}
}

func ids(reqs []messaging.Request) string {
	var out []string
	for _, req := range reqs {
		out = append(out, req.RefID)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestMatching(t *testing.T) {
	t.Parallel()
	org := hook("org", "org", "account", `["create"]`)
	org.OrganizationID = "o1"
	off := hook("off", "off", "account", `["create"]`)
	off.Active = false
	paused := hook("paused", "paused", "account", `["create"]`)
	paused.Paused = true
	b := setupMatch(
		hook("acc", "acc", "account", `["create","update"]`), hook("any", "any", "", `["create","bulk_delete"]`),
		hook("usr", "usr", "sys_user", `["create"]`), hook("none", "none", "account", ""), org, off, paused,
		hook("self", "self", "sys_webhook", `["create","update"]`),
	)
	withOrg := record(event.RecordCreated, "account", "r")
	withOrg.OrganizationID = "o1"
	foreign := record(event.RecordCreated, "account", "r")
	foreign.OrganizationID = "o2"
	for _, tc := range []struct {
		name string
		e    *event.Event
		want string
	}{
		{"create", record(event.RecordCreated, "account", "r"), "acc any paused"},
		{"update", record(event.RecordUpdated, "account", "r"), "acc"},
		{"delete", record(event.RecordDeleted, "account", "r"), ""},
		{"undelete", record(event.RecordUndeleted, "account", "r"), ""},
		{"other object", record(event.RecordCreated, "contact", "r"), "any"},
		{"system object", record(event.RecordCreated, "sys_user", "r"), "usr"},
		{"unknown system object", record(event.RecordCreated, "sys_other", "r"), ""},
		{"webhooks themselves", record(event.RecordCreated, "sys_webhook", "r"), ""},
		{"organization", withOrg, "org"},
		{"another organization", foreign, ""},
		{"bulk", &event.Event{ID: "e", Type: event.RecordsDeleted, Object: "account", Matched: 3}, "any"},
		{"no record id", record(event.RecordCreated, "account", ""), ""},
		{"other type", record("delivery.finished", "sys_http_delivery", "d"), ""},
	} {
		if got := ids(b.handle(t, tc.e)); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
	if got := strings.Count(b.log.String(), "event without a record id dropped"); got != 1 {
		t.Errorf("dropped event logged %d times:\n%s", got, b.log)
	}
}

func TestRequestOfAMatch(t *testing.T) {
	t.Parallel()
	row := hook("w1", "w", "account", `["update"]`)
	row.Method, row.Headers = "put", "secret:sec_h"
	row.Definition = `{"timeoutMs":2000,"blockOnRetry":true,"expireAfterMs":60000,"payloadFields":["name"]}`
	b := setupMatch(row)
	b.vault["secret:sec_h"] = []byte(`{"X-Team":"crm"}`)
	e := record(event.RecordUpdated, "account", "r1")
	e.After = []byte(`{"name":"n","code":"c"}`)
	want := []messaging.Request{{
		Source: "webhook", RefID: "w1", DedupKey: "w1:account:r1:updated:2026-11-30T17:00:00.000Z:e-r1",
		Label: "data.record.updated", URL: "https://recv.test/w1", Method: "PUT", Sealed: "sealedmap[X-Team:crm]",
		Timeout: 2 * time.Second, OrderingKey: "w1:r1", OrderSeq: 7, BlockOnRetry: true, ExpireAfter: time.Minute, EventID: "e-r1",
		Payload: []byte(`{"id":"e-r1","sequence":7,"type":"data.record.updated","after":{"name":"n"},` +
			`"object":"account","recordId":"r1","action":"updated","timestamp":"2026-11-30T17:00:00.000Z"}`),
	}}
	if diff := cmp.Diff(want, b.handle(t, e)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestOrderingKeys(t *testing.T) {
	t.Parallel()
	for definition, want := range map[string]string{
		`{}`: "w:r", `{"ordering":"record"}`: "w:r", `{"ordering":"webhook"}`: "w", `{"ordering":"none"}`: "",
	} {
		row := hook("w", "w", "account", `["create"]`)
		row.Definition = definition
		got := setupMatch(row).handle(t, record(event.RecordCreated, "account", "r"))
		if len(got) != 1 || got[0].OrderingKey != want {
			t.Errorf("%s: got %+v, want key %q", definition, got, want)
		}
	}
}

// One batch of events is one call of the outbox, and webhooks with the same
// projection share one encoded body.
func TestOneCallPerBatch(t *testing.T) {
	t.Parallel()
	b := setupMatch(hook("a", "a", "account", `["create"]`), hook("b", "b", "account", `["create"]`))
	got := b.handle(t, record(event.RecordCreated, "account", "r1"), record(event.RecordCreated, "account", "r2"))
	if b.outbox.calls != 1 || len(got) != 4 {
		t.Fatalf("%d calls, %d requests", b.outbox.calls, len(got))
	}
	if &got[0].Payload[0] != &got[1].Payload[0] {
		t.Error("the body was encoded twice")
	}
}

func TestSubscriptionsReadOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	b := setupMatch(hook("a", "a", "account", `["create"]`), hook("b", "b", "account", `["create"]`))
	e := record(event.RecordCreated, "account", "r")
	if got := ids(b.handle(t, e)); got != "a b" || b.store.reads != 2 {
		t.Fatalf("got %q after %d reads", got, b.store.reads)
	}
	b.handle(t, e)
	if b.store.reads != 2 {
		t.Errorf("read %d rows without a change", b.store.reads)
	}
	b.store.put(hook("c", "c", "account", `["create"]`))
	changed := hook("a", "a", "account", `["update"]`)
	b.store.put(changed)
	if got := ids(b.handle(t, e)); got != "b c" || b.store.reads != 4 {
		t.Errorf("got %q after %d reads", got, b.store.reads)
	}
	b.store.drop("b")
	changed.Active = false
	b.store.put(changed)
	if got := ids(b.handle(t, e, record(event.RecordUpdated, "account", "r"))); got != "c" {
		t.Errorf("got %q", got)
	}
	b.store.forgot = true
	b.store.put(hook("d", "d", "account", `["create"]`))
	if got := ids(b.handle(t, e)); got != "c d" {
		t.Errorf("after a full reload: %q", got)
	}
}

func TestParkedWhenUnreadable(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]struct {
		row  func(*sqlstore.Webhook)
		want string
	}{
		"secret":         {func(w *sqlstore.Webhook) { w.Secret = "secret:sec_x" }, "signing secret is set but cannot be read"},
		"headers":        {func(w *sqlstore.Webhook) { w.Headers = "secret:sec_x" }, "header map is set but cannot be read"},
		"broken headers": {func(w *sqlstore.Webhook) { w.Headers = "secret:sec_bad" }, "header map is set but cannot be read"},
		"credentials": {func(w *sqlstore.Webhook) {
			w.Auth, w.Definition = "secret:sec_x", `{"authentication":{"type":"bearer"}}`
		}, "authentication is set but cannot be read"},
		"no credentials":    {func(w *sqlstore.Webhook) { w.Definition = `{"authentication":{"type":"bearer"}}` }, "authentication is set but cannot be read"},
		"broken definition": {func(w *sqlstore.Webhook) { w.Definition = `{"timeoutMs` }, "the webhook's definition is unusable: Definition is not valid JSON"},
		"empty definition":  {func(w *sqlstore.Webhook) { w.Definition = `` }, "the webhook's definition is unusable: Definition is not valid JSON"},
		"clear secret":      {func(w *sqlstore.Webhook) { w.Definition = `{"secret":"s"}` }, "the webhook's definition holds a secret in clear; save the webhook again"},
		"broken URL":        {func(w *sqlstore.Webhook) { w.URL = `http:///x` }, "the webhook's URL is unusable: url: host is missing"},
	} {
		row := hook("w", "w", "account", `["create"]`)
		change.row(&row)
		b := setupMatch(row)
		b.vault["secret:sec_x"], b.vault["secret:sec_bad"] = nil, []byte(`{"X-A":"a\nb"}`)
		for range 2 {
			got := b.handle(t, record(event.RecordCreated, "account", "r"))
			if len(got) != 1 || got[0].Parked != change.want || got[0].Sealed != "" {
				t.Errorf("%s: got %+v, want parked for %q", name, got, change.want)
			}
		}
		if got := strings.Count(b.log.String(), "webhook parked"); got != 1 {
			t.Errorf("%s: logged %d times", name, got)
		}
		if name == "broken URL" {
			continue
		}
		if got := b.handle(t, record(event.RecordCreated, "account", "r")); got[0].URL != "https://recv.test/w" {
			t.Errorf("%s: URL %s", name, got[0].URL)
		}
	}
}

func TestCase_SEC_05_readable_again_without_a_write(t *testing.T) {
	t.Parallel()
	row := hook("w", "w", "account", `["create"]`)
	row.Secret, row.Headers = "secret:sec_s", "secret:sec_h"
	b := setupMatch(row)
	b.vault["secret:sec_s"], b.vault["secret:sec_h"] = nil, []byte(`{"X-A":"b"}`)
	e := record(event.RecordCreated, "account", "r")
	if got := b.handle(t, e); len(got) != 1 || got[0].Parked == "" {
		t.Fatalf("got %+v", got)
	}
	b.vault["secret:sec_s"] = []byte("s")
	if got := b.handle(t, e); len(got) != 1 || got[0].Parked != "" || got[0].Sealed != "sealedmap[X-A:b]" {
		t.Errorf("got %+v", got)
	}
}

// vaultFunc opens references by a function.
type vaultFunc func(ref string) ([]byte, error)

func (f vaultFunc) Reveal(_ context.Context, ref string) ([]byte, error) { return f(ref) }

// A webhook that is written between the read of its row and that of its secret
// is matched by its new definition instead of being parked.
func TestSecretReplacedWhileMatching(t *testing.T) {
	t.Parallel()
	row := hook("w", "w", "account", `["create"]`)
	row.Headers = "secret:sec_old"
	b := setupMatch(row)
	b.q.vault = vaultFunc(func(ref string) ([]byte, error) {
		if ref == "secret:sec_new" {
			return []byte(`{"X-A":"new"}`), nil
		}
		row.Headers, row.URL = "secret:sec_new", "https://recv.test/new"
		b.store.put(row)
		return nil, data.ErrNoSecret
	})
	got := b.handle(t, record(event.RecordCreated, "account", "r"))
	if len(got) != 1 || got[0].Parked != "" || got[0].Sealed != "sealedmap[X-A:new]" || got[0].URL != "https://recv.test/new" {
		t.Errorf("got %+v", got)
	}
	if strings.Contains(b.log.String(), "webhook parked") {
		t.Errorf("log %s", b.log)
	}
}

// A database that cannot be asked is not an unreadable secret: the batch is
// matched again.
func TestDatabaseErrorsDoNotPark(t *testing.T) {
	t.Parallel()
	row := hook("w", "w", "account", `["create"]`)
	row.Secret = "secret:sec_unknown"
	b := setupMatch(row)
	err := b.q.handle(t.Context(), []*event.Event{record(event.RecordCreated, "account", "r")})
	if !errors.Is(err, errDatabase) || len(b.outbox.reqs) > 0 {
		t.Errorf("got %v, %d requests", err, len(b.outbox.reqs))
	}
}

func TestRefusedDeliveryHoldsUpNobody(t *testing.T) {
	t.Parallel()
	b := setupMatch(hook("w", "w", "account", `["create"]`))
	b.outbox.limit = 400
	large := record(event.RecordCreated, "account", "large")
	large.After = []byte(`{"text":"` + strings.Repeat("x", 400) + `"}`)
	got := b.handle(t, record(event.RecordCreated, "account", "r1"), large, record(event.RecordCreated, "account", "r2"))
	if len(got) != 3 {
		t.Fatalf("got %d requests", len(got))
	}
	if got[0].Parked != "" || got[2].Parked != "" || got[1].EventID != "e-large" ||
		got[1].Parked != "cannot be sent: messaging: request field Payload: is too large" || string(got[1].Payload) != "{}" {
		t.Errorf("got %+v", got)
	}
}
