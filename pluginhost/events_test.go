package pluginhost_test

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/pluginhost"
	"github.com/objecthost/objecthost/pluginhost/hosttest"
	"github.com/objecthost/objecthost/services/data"
)

// notes counts what the fixture's event handler wrote about a record.
func notes(t testing.TB, h *hosttest.Host, id string) int {
	t.Helper()
	page, err := h.Engine.Find(h.Context(), "fix_note", data.Query{Where: data.Eq("text", id)})
	if err != nil {
		t.Fatal(err)
	}
	return len(page.Records)
}

func noted(t testing.TB, h *hosttest.Host) string {
	t.Helper()
	e := &event.Event{Type: event.RecordCreated, Object: "fix_account", RecordID: "r" + strconv.Itoa(len(h.Log())), After: json.RawMessage(`{"name":"noted"}`)}
	if err := h.Events.Append(h.Context(), e); err != nil {
		t.Fatal(err)
	}
	return e.RecordID
}

// TestCase_PLG_16_EventsAcrossDisable: while a plugin is off nothing is handled, afterwards
// all of it, and once.
func TestCase_PLG_16_EventsAcrossDisable(t *testing.T) {
	h := start(t, "", nil)
	wantState(t, h, pluginhost.StateReady)
	for range 3 {
		if err := h.Manager.Restart(t.Context(), "fixture"); err != nil {
			t.Fatal(err)
		}
	}
	before := noted(t, h)
	eventually(t, "the note", func() bool { return notes(t, h, before) == 1 })
	if err := h.Manager.Disable(t.Context(), "fixture"); err != nil {
		t.Fatal(err)
	}
	during := noted(t, h)
	made, err := h.Engine.Create(h.Context(), "fix_account", data.Record{"name": "refused"})
	if err != nil || made.Record["checked"] != nil {
		t.Errorf("a write while the plugin is disabled = %v, %v", made.Record, err)
	}
	if status, _ := h.Do(t, "GET", helloPath, nil); status != 503 {
		t.Errorf("a route while disabled = %d", status)
	}
	if n := notes(t, h, during); n != 0 {
		t.Errorf("%d notes while disabled", n)
	}
	if err := h.Manager.Enable(t.Context(), "fixture"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the note of meanwhile", func() bool { return notes(t, h, during) == 1 })
	after := noted(t, h)
	eventually(t, "the note of afterwards", func() bool { return notes(t, h, after) == 1 })
	for _, id := range []string{before, during, after} {
		if n := notes(t, h, id); n != 1 {
			t.Errorf("%s was handled %d times", id, n)
		}
	}
}

// TestEventsSurviveACrash: what was not answered comes again.
func TestEventsSurviveACrash(t *testing.T) {
	h := start(t, "", nil)
	s := wantState(t, h, pluginhost.StateReady)
	kill(t, s.PID)
	id := noted(t, h)
	eventually(t, "the note", func() bool { return notes(t, h, id) == 1 })
}

func TestFailClosedHoldsWhileThePluginIsDown(t *testing.T) {
	h := start(t, "exit", nil)
	wantState(t, h, pluginhost.StateFailed)
	if _, err := h.Engine.Create(h.Context(), "fix_account", data.Record{"name": "x"}); !data.IsCode(err, "PLUGIN_UNAVAILABLE") {
		t.Errorf("fail closed = %v", err)
	}
	if _, err := h.Engine.Create(h.Context(), "fix_open", data.Record{"name": "x"}); err != nil {
		t.Errorf("fail open = %v", err)
	}
}
