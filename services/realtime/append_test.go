package realtime_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime"
)

func TestAppendRefusesBadEvents(t *testing.T) {
	t.Parallel()
	m := newMemory(t, realtime.Config{})
	good := func() *event.Event { return &event.Event{Type: "t", Object: "o", RecordID: "r"} }
	tests := []struct {
		field  string
		reason realtime.Reason
		change func(e *event.Event)
	}{
		{"type", realtime.ReasonMissing, func(e *event.Event) { e.Type = "" }},
		{"recordId", realtime.ReasonNUL, func(e *event.Event) { e.RecordID = "a\x00" }},
		{"userId", realtime.ReasonUTF8, func(e *event.Event) { e.UserID = "\xff" }},
		{"after", realtime.ReasonNUL, func(e *event.Event) { e.After = json.RawMessage("{\"a\":\"\x00\"}") }},
		{"after", realtime.ReasonUTF8, func(e *event.Event) { e.After = json.RawMessage("{\"a\":\"\xff\"}") }},
		{"changes", realtime.ReasonJSON, func(e *event.Event) { e.Changes = json.RawMessage(`{},"object":"x"`) }},
		{"before", realtime.ReasonJSON, func(e *event.Event) { e.Before = json.RawMessage(`[1]`) }},
		{"matched", realtime.ReasonRange, func(e *event.Event) { e.Matched = -1 }},
		{"timestamp", realtime.ReasonRange, func(e *event.Event) { e.Timestamp = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }},
	}
	for _, tc := range tests {
		bad := good()
		tc.change(bad)
		var invalid *realtime.InvalidEventError
		err := m.Append(t.Context(), good(), bad)
		if !errors.As(err, &invalid) || *invalid != (realtime.InvalidEventError{Index: 1, Field: tc.field, Reason: tc.reason}) {
			t.Errorf("%s %s: %v", tc.field, tc.reason, err)
		}
	}
	e := good()
	e.After = json.RawMessage(`{"a":"\u0000"}`)
	if err := m.Append(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	equal(t, "sequence: nothing before was appended", int64(1), e.Sequence)
}

func TestAppendFillsWhatIsEmpty(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 2, 0, 0, 123_999_999, time.FixedZone("", 3600))
	m := newMemory(t, realtime.Config{Clock: func() time.Time { return now }})
	empty := &event.Event{Type: "t"}
	full := &event.Event{ID: "mine", Type: "t", Timestamp: now.Add(time.Hour)}
	if err := m.Append(t.Context(), empty, full); err != nil {
		t.Fatal(err)
	}
	if id, err := uuid.Parse(empty.ID); err != nil || id.Version() != 7 {
		t.Errorf("id %q", empty.ID)
	}
	equal(t, "time", time.Date(2026, 5, 1, 1, 0, 0, 123_000_000, time.UTC), empty.Timestamp)
	equal(t, "given", &event.Event{ID: "mine", Sequence: 2, Type: "t", Timestamp: time.Date(2026, 5, 1, 2, 0, 0, 123_000_000, time.UTC)}, full)
}
