package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/messaging/messagingtest"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

func TestCase_EVT_01_changes_in_one_tick_are_all_delivered(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		frozen := time.Date(2026, 11, 30, 17, 0, 0, 0, time.UTC)
		n := newNode(t, db, nodeConfig{now: func() time.Time { return frozen }})
		r := messagingtest.New(t)
		n.hook(t, data.Record{"url": r.URL, "triggers": "update"})
		id := n.create(t, "account", data.Record{"name": "a"})
		for i := range 100 {
			n.update(t, "account", id, data.Record{"annual_revenue": json.Number(fmt.Sprint(i))})
		}
		got, err := waitFor(t, r, 100)
		fatal(t, err)
		for i, req := range got {
			after := body(t, req)["after"].(map[string]any)
			if after["annual_revenue"] != float64(i) {
				t.Fatalf("request %d has revenue %v: out of order", i, after["annual_revenue"])
			}
		}
		if rows := n.deliveries(t); len(rows) != 100 {
			t.Errorf("%d rows", len(rows))
		}
	})
}

// Two events that differ in nothing but their id and sequence, as two nodes
// with one clock write them, are two deliveries; one event read twice is one.
func TestCase_EVT_02_replays_collapse_and_changes_do_not(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		n.hook(t, data.Record{"url": r.URL})
		at := time.Date(2026, 11, 30, 17, 0, 0, 0, time.UTC)
		make := func(id string) *event.Event {
			return &event.Event{ID: id, Sequence: 1, Type: event.RecordUpdated, Object: "account", RecordID: "r1", Timestamp: at}
		}
		replay := func(events ...*event.Event) {
			t.Helper()
			fatal(t, n.db.InTx(t.Context(), func(ctx context.Context) error { return n.plugin.service.enqueuer.handle(ctx, events) }))
		}
		replay(make("e1"))
		first := n.deliveries(t)
		if len(first) != 1 {
			t.Fatalf("%d rows", len(first))
		}
		n.settled(t, first[0].ID, messaging.StatusSuccess)
		replay(make("e1"), make("e2"), make("e1"))
		rows := n.deliveries(t)
		if len(rows) != 2 || rows[1].EventID != "e2" {
			t.Errorf("rows %+v", rows)
		}
	})
}

func TestCase_EVT_03_rolled_back_writes_deliver_nothing(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		n.hook(t, data.Record{"url": r.URL})
		_, err := n.engine.CreateMany(system(t), "account", []data.Record{{"name": "a"}, {"name": "b"}, {"annual_revenue": json.Number("1")}})
		if !data.IsCode(err, data.CodeValidationFailed) {
			t.Fatalf("got %v", err)
		}
		failed := errors.New("no")
		err = n.db.InTx(system(t), func(ctx context.Context) error {
			if _, err := n.engine.Create(ctx, "account", data.Record{"name": "c"}); err != nil {
				return err
			}
			return failed
		})
		if !errors.Is(err, failed) {
			t.Fatalf("got %v", err)
		}
		n.create(t, "account", data.Record{"name": "kept"})
		got, err := waitFor(t, r, 1)
		fatal(t, err)
		n.drain(t)
		if rows := n.deliveries(t); len(rows) != 1 || !strings.Contains(string(got[0].Body), `"name":"kept"`) {
			t.Errorf("%d rows, body %s", len(rows), got[0].Body)
		}
	})
}

func TestCase_EVT_03_receivers_read_what_they_were_told(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		ctx := system(t)
		var missing atomic.Int64
		r.Handle("/in", func(e *messagingtest.Exchange) {
			var in struct {
				RecordID string         `json:"recordId"`
				After    map[string]any `json:"after"`
			}
			_ = json.Unmarshal(e.Request.Body, &in)
			got, err := n.engine.Get(ctx, "account", in.RecordID)
			if err != nil || got["name"] != in.After["name"] {
				missing.Add(1)
			}
			messagingtest.Status(200, "")(e)
		})
		n.hook(t, data.Record{"url": r.URL + "/in"})
		for i := range 50 {
			rows := make([]data.Record, 10)
			for j := range rows {
				rows[j] = data.Record{"name": fmt.Sprint(i, j)}
			}
			_, err := n.engine.CreateMany(ctx, "account", rows)
			fatal(t, err)
		}
		_, err := waitFor(t, r, 500)
		fatal(t, err)
		if n := missing.Load(); n != 0 {
			t.Errorf("%d of 500 reads missed the record", n)
		}
	})
}

// A host that dies between the commit of a record and the next match leaves the
// event in the log: the next host delivers it.
func TestCase_EVT_03_events_of_a_dead_host_are_delivered(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, dsn string) {
		key := keyOf(t)
		r := messagingtest.New(t)
		dead := newNode(t, storagetest.Open(t, dsn, storage.Config{}), nodeConfig{keyring: key, still: true})
		dead.hook(t, data.Record{"url": r.URL, "signing_secret": "s"})
		dead.create(t, "account", data.Record{"name": "a"})
		if rows := dead.deliveries(t); len(rows) != 0 {
			t.Fatalf("%d rows without a consumer", len(rows))
		}
		next := newNode(t, storagetest.Open(t, dsn, storage.Config{}), nodeConfig{keyring: key})
		if _, err := waitFor(t, r, 1); err != nil {
			t.Fatalf("%v\n%s", err, next.log)
		}
	})
}

// The consumer crashes at every point around its enqueueing, on two nodes at
// once: each event is one delivery.
func TestCase_EVT_04_matching_is_exactly_once_across_crashes(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, dsn string) {
		var calls atomic.Int64
		crashing := func(h realtime.Handler) realtime.Handler {
			return func(ctx context.Context, events []*event.Event) error {
				switch calls.Add(1) % 4 {
				case 1:
					panic("before the match")
				case 2:
					if err := h(ctx, events); err != nil {
						return err
					}
					return errors.New("after the match")
				case 3:
					_ = h(ctx, events)
					panic("after the match")
				}
				return h(ctx, events)
			}
		}
		db := storagetest.Open(t, dsn, storage.Config{})
		same := nodeConfig{keyring: keyOf(t), moved: make(chan struct{}, 1), wrap: crashing}
		n := newNode(t, db, same)
		newNode(t, db, same)
		n.hook(t, data.Record{"url": "http://127.0.0.1:9/", "paused": true, "triggers": "create"})
		var rows []data.Record
		for i := range 40 {
			rows = append(rows, data.Record{"name": fmt.Sprint(i)})
		}
		for range 5 {
			_, err := n.engine.CreateMany(system(t), "account", rows)
			fatal(t, err)
			n.drain(t)
		}
		seen := map[string]int{}
		for _, d := range n.deliveries(t) {
			seen[d.EventID]++
		}
		if len(seen) != 200 || calls.Load() < 8 {
			t.Errorf("%d events delivered after %d calls", len(seen), calls.Load())
		}
		for id, count := range seen {
			if count != 1 {
				t.Errorf("event %s has %d deliveries", id, count)
			}
		}
	})
}

// Fifty callers match the same event at once: one row, no error.
func TestCase_EVT_04_concurrent_matches_of_one_event(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		n := newNode(t, db, nodeConfig{still: true})
		n.hook(t, data.Record{"url": "http://127.0.0.1:9/"})
		e := event.Event{ID: "e1", Sequence: 1, Type: event.RecordCreated, Object: "account", RecordID: "r1", Timestamp: time.Now()}
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() {
				own := e
				err := n.db.InTx(t.Context(), func(ctx context.Context) error {
					return n.plugin.service.enqueuer.handle(ctx, []*event.Event{&own})
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if rows := n.deliveries(t); len(rows) != 1 {
			t.Errorf("%d rows", len(rows))
		}
	})
}

// A webhook that was created on one node is matched by an event that another
// node writes right afterwards, in every one of many rounds. Each round has an
// organization of its own, so that each record has one delivery.
func TestCase_EVT_webhook_written_on_another_node_is_never_missed(t *testing.T) {
	t.Parallel()
	dsn, same := storagetest.Postgres(t), nodeConfig{keyring: keyOf(t), moved: make(chan struct{}, 1)}
	nodes := []*node{
		newNode(t, storagetest.Open(t, dsn, storage.Config{}), same),
		newNode(t, storagetest.Open(t, dsn, storage.Config{}), same),
	}
	const writers, rounds = 10, 100
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		want  = map[string]bool{}
	)
	for w := range writers {
		group.Go(func() {
			for i := range rounds {
				org := identity.Principal{System: true, OrganizationID: fmt.Sprintf("o%d-%d", w, i)}
				ctx := identity.With(t.Context(), org)
				hook, err := nodes[i%2].engine.Create(ctx, ObjectName, data.Record{
					"name": "h", "url": "http://127.0.0.1:9/", "paused": true, "object_name": "account", "triggers": "create",
				})
				if err != nil {
					t.Error(err)
					return
				}
				record, err := nodes[1-i%2].engine.Create(ctx, "account", data.Record{"name": "r"})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				want[hook.ID+":account:"+record.ID+":created"] = true
				mu.Unlock()
			}
		})
	}
	group.Wait()
	nodes[0].drain(t)
	rows := nodes[0].deliveries(t)
	for _, d := range rows {
		part := strings.SplitN(d.Dedup, ":", 5)
		delete(want, strings.Join(part[:4], ":"))
	}
	if len(want) > 0 || len(rows) != writers*rounds {
		t.Errorf("%d of %d rounds missed, %d rows", len(want), writers*rounds, len(rows))
	}
}

// A receiver that writes back what it was told about goes round once per
// delivery and holds up nobody else.
func TestCase_EVT_07_loops_stay_bounded(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		ctx, rounds := system(t), atomic.Int64{}
		r.Handle("/loop", func(e *messagingtest.Exchange) {
			if i := rounds.Add(1); i < 30 {
				var in struct {
					RecordID string `json:"recordId"`
				}
				_ = json.Unmarshal(e.Request.Body, &in)
				change := data.Record{"annual_revenue": json.Number(fmt.Sprint(i))}
				if _, err := n.engine.Update(ctx, "account", in.RecordID, change, data.Match{}); err != nil {
					t.Error(err)
				}
			}
			messagingtest.Status(200, "")(e)
		})
		n.hook(t, data.Record{"name": "loop", "url": r.URL + "/loop", "triggers": "update"})
		other := n.hook(t, data.Record{"name": "other", "url": r.URL + "/other", "object_name": "note", "triggers": "create"})
		id := n.create(t, "account", data.Record{"name": "a"})
		n.update(t, "account", id, data.Record{"annual_revenue": json.Number("0")})
		n.create(t, "note", data.Record{"name": "n"})
		_, err := waitFor(t, r, 31)
		fatal(t, err)
		n.drain(t)
		counts := map[string]int{}
		for _, d := range n.deliveries(t) {
			counts[d.RefID]++
		}
		if len(counts) != 2 || counts[other] != 1 || rounds.Load() != 30 {
			t.Errorf("deliveries %v after %d rounds", counts, rounds.Load())
		}
	})
}

func TestCase_EVT_10_spellings_that_match(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		for i, triggers := range []any{[]any{"create"}, `["create"]`, "create, update", "CREATE"} {
			n.hook(t, data.Record{"name": fmt.Sprintf("h%d", i), "url": r.URL, "triggers": triggers})
		}
		n.hook(t, data.Record{"name": "none", "url": r.URL, "triggers": []any{}})
		n.hook(t, data.Record{"name": "wide", "url": r.URL, "triggers": "create", "object_name": nil})
		n.create(t, "account", data.Record{"name": "a"})
		n.create(t, "note", data.Record{"name": "n"})
		n.drain(t)
		if rows := n.deliveries(t); len(rows) != 6 {
			t.Errorf("%d rows, want 5 for the account and 1 for the note", len(rows))
		}
		if got := strings.Count(n.log.String(), "it has no triggers and will never fire"); got != 1 {
			t.Errorf("warned %d times", got)
		}
		for _, object := range []string{"Account", " account"} {
			_, err := n.engine.Create(system(t), ObjectName, data.Record{"name": "bad", "url": r.URL, "object_name": object, "triggers": "create"})
			if !data.IsCode(err, data.CodeValidationFailed) {
				t.Errorf("object %q: got %v", object, err)
			}
		}
	})
}

func TestUndeleteFiresWithTrash(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		n.hook(t, data.Record{"url": r.URL, "object_name": "note", "triggers": "undelete"})
		id := n.create(t, "note", data.Record{"name": "a"})
		fatal(t, n.engine.Delete(system(t), "note", id, data.Match{}))
		_, err := n.engine.Undelete(system(t), "note", id)
		fatal(t, err)
		got, err := waitFor(t, r, 1)
		fatal(t, err)
		if in := body(t, got[0]); in["action"] != "undeleted" || in["recordId"] != id {
			t.Errorf("body %s", got[0].Body)
		}
	})
}

func TestBulkTriggers(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		n.hook(t, data.Record{"url": r.URL, "triggers": "bulk_update"})
		n.create(t, "account", data.Record{"name": "a"})
		n.create(t, "account", data.Record{"name": "b"})
		_, err := n.engine.UpdateWhere(system(t), "account", data.Filter{}, data.Record{"annual_revenue": json.Number("1")})
		fatal(t, err)
		got, err := waitFor(t, r, 1)
		fatal(t, err)
		in := body(t, got[0])
		if in["action"] != "updated" || in["matched"] != 2.0 || in["type"] != "data.records.updated" {
			t.Errorf("body %s", got[0].Body)
		}
		n.drain(t)
		rows := n.deliveries(t)
		if len(rows) != 1 || !strings.HasSuffix(rows[0].Dedup, ":account:data.records.updated:"+rows[0].EventID) {
			t.Errorf("rows %+v", rows)
		}
	})
}

func TestCase_EVT_12_organizations_do_not_meet(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		in := func(org string) context.Context {
			return identity.With(t.Context(), identity.Principal{System: true, OrganizationID: org})
		}
		ids := map[string]string{}
		for _, org := range []string{"o1", "o2"} {
			made, err := n.engine.Create(in(org), ObjectName, data.Record{
				"name": "same", "url": r.URL + "/" + org, "object_name": "account", "triggers": "create", "signing_secret": org,
			})
			fatal(t, err)
			ids[org] = made.ID
			if _, err := n.engine.Create(in(org), ObjectName, data.Record{"name": "same", "url": r.URL}); !data.IsCode(err, data.CodeUniqueViolation) {
				t.Errorf("the same name twice in %s: %v", org, err)
			}
		}
		_, err := n.engine.Create(in("o1"), "account", data.Record{"name": "a"})
		fatal(t, err)
		n.create(t, "account", data.Record{"name": "of nobody"})
		got, err := waitFor(t, r, 1)
		fatal(t, err)
		n.drain(t)
		rows := n.deliveries(t)
		if len(rows) != 1 || rows[0].RefID != ids["o1"] || got[0].Path != "/o1" || body(t, got[0])["organizationId"] != "o1" {
			t.Errorf("rows %+v, body %s", rows, got[0].Body)
		}
	})
}

func TestEventsOfWebhooksNeverFanOut(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		id := n.hook(t, data.Record{"url": r.URL, "object_name": nil})
		n.update(t, ObjectName, id, data.Record{"label": "x"})
		n.drain(t)
		if rows := n.deliveries(t); len(rows) != 0 {
			t.Errorf("rows %+v", rows)
		}
	})
}
