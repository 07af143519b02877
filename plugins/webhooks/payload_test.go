package webhooks

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/objecthost/objecthost/core/event"
)

func sampleEvent() *event.Event {
	return &event.Event{
		ID: "0198c5f0-0000-7000-8000-000000000001", Sequence: 42, Type: event.RecordUpdated,
		Object: "account", RecordID: "FPUdM7oxrVEPoS5l",
		Changes:   json.RawMessage(`{"annual_revenue":9007199254740993,"action":"forged"}`),
		After:     json.RawMessage(`{"id":"FPUdM7oxrVEPoS5l","name":"<A&B>","annual_revenue":9007199254740993}`),
		UserID:    "u1",
		Timestamp: time.Date(2026, 11, 30, 17, 2, 24, 759e6, time.UTC),
	}
}

func TestDedupKey(t *testing.T) {
	t.Parallel()
	e := sampleEvent()
	if got, want := dedupKey("g3w2Ro2o6ukmj3CV", e, kinds[e.Type]),
		"g3w2Ro2o6ukmj3CV:account:FPUdM7oxrVEPoS5l:updated:2026-11-30T17:02:24.759Z:0198c5f0-0000-7000-8000-000000000001"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	bulk := &event.Event{ID: "e1", Type: event.RecordsDeleted, Object: "account", Matched: 3}
	if got, want := dedupKey("w", bulk, kinds[bulk.Type]), "w:account:data.records.deleted:e1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestFitDedupKey(t *testing.T) {
	t.Parallel()
	exact := strings.Repeat("k", 191)
	if got := fitDedupKey(exact); got != exact {
		t.Errorf("191 bytes were changed to %q", got)
	}
	// The hash of 192 times k, by sha256sum.
	const sum = "88263808d391188fbd5bf7140f3266afa34f3dc1d8e8160895f6b49fa59edacd"
	if got, want := fitDedupKey(exact+"k"), strings.Repeat("k", 126)+":"+sum; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	long := strings.Repeat("k", 125) + "客" + strings.Repeat("k", 100)
	cut := fitDedupKey(long)
	if !utf8.ValidString(cut) || cut[:126] != strings.Repeat("k", 125)+":" || len(cut) != 190 {
		t.Errorf("got %q", cut)
	}
	if fitDedupKey(exact+"a") == fitDedupKey(exact+"b") {
		t.Error("different keys collide")
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	b := newBodies(sampleEvent(), "updated")
	whole, err := b.body(newProjection(nil))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"id":"0198c5f0-0000-7000-8000-000000000001","sequence":42,"type":"data.record.updated",` +
		`"changes":{"annual_revenue":9007199254740993,"action":"forged"},` +
		`"after":{"id":"FPUdM7oxrVEPoS5l","name":"<A&B>","annual_revenue":9007199254740993},"userId":"u1",` +
		`"object":"account","recordId":"FPUdM7oxrVEPoS5l","action":"updated","timestamp":"2026-11-30T17:02:24.759Z"}`
	if string(whole) != want {
		t.Errorf("got  %s\nwant %s", whole, want)
	}
	part, err := b.body(newProjection([]string{"name", "id", "name"}))
	if err != nil {
		t.Fatal(err)
	}
	const wantPart = `{"id":"0198c5f0-0000-7000-8000-000000000001","sequence":42,"type":"data.record.updated",` +
		`"changes":{},"after":{"id":"FPUdM7oxrVEPoS5l","name":"<A&B>"},"userId":"u1",` +
		`"object":"account","recordId":"FPUdM7oxrVEPoS5l","action":"updated","timestamp":"2026-11-30T17:02:24.759Z"}`
	if string(part) != wantPart {
		t.Errorf("got  %s\nwant %s", part, wantPart)
	}
	shared, err := b.body(newProjection([]string{"id", "name"}))
	if err != nil || &shared[0] != &part[0] {
		t.Errorf("equal projections do not share their bytes (%v)", err)
	}
}
