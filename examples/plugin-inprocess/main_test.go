package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/examples/plugin-inprocess/desk"
	"github.com/objecthost/objecthost/storage/storagetest"
)

func TestRun(t *testing.T) {
	storagetest.EachDialectDSN(t, func(t *testing.T, name string) {
		var out strings.Builder
		if err := run(t.Context(), name, &out); err != nil {
			t.Fatalf("%v after\n%s", err, out.String())
		}
		want := `create a ticket: 201 open
close it without a resolution: 400 VALIDATION_FAILED
close it with one: 200 closed
history: open
history: closed
summary: 200 {"data":{"closed":1,"open":0},"success":true}
OK plugin-inprocess: an object, a hook, an event handler and a route
`
		if out.String() != want {
			t.Errorf("printed\n%s, want\n%s", out.String(), want)
		}
	})
}

// The hook holds on every way into the table, and for what is stored already.
func TestClosing(t *testing.T) {
	h, err := openHost(t.Context(), storagetest.SQLite(t), desk.New())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close(t.Context()) })
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{http.MethodPost, "/api/v1/data/desk_ticket", `{"title":"a","state":"closed"}`, 400},
		{http.MethodPost, "/api/v1/data/desk_ticket", `{"title":"a","state":"closed","resolution":"b"}`, 201},
		{http.MethodPost, "/api/v1/data/desk_ticket/createMany", `[{"title":"a"},{"title":"a","state":"closed"}]`, 400},
		{http.MethodPost, "/api/v1/data/desk_ticket", `{"title":"a","resolution":"b"}`, 201},
		{http.MethodGet, "/api/v1/desk/summary", "", 200},
	} {
		got, err := h.call(t.Context(), c.method, c.path, c.body)
		if err != nil {
			t.Fatal(err)
		}
		if got.Status != c.status {
			t.Errorf("%s %s %s: %d %s, want %d", c.method, c.path, c.body, got.Status, got.Body, c.status)
		}
		if c.status == 400 && !strings.Contains(string(got.Body), `"field":"resolution"`) {
			t.Errorf("%s: %s names no field", c.body, got.Body)
		}
		id := field(got.Body, "id")
		if c.status == 201 && strings.Contains(c.body, "resolution") {
			cleared, err := h.call(t.Context(), http.MethodPatch, "/api/v1/data/desk_ticket/"+id, `{"state":"closed","resolution":null}`)
			if err != nil || cleared.Status != 400 {
				t.Errorf("closed without its resolution: %d %s %v", cleared.Status, cleared.Body, err)
			}
			closed, err := h.call(t.Context(), http.MethodPatch, "/api/v1/data/desk_ticket/"+id, `{"state":"closed"}`)
			if err != nil || closed.Status != 200 {
				t.Errorf("closed with the stored resolution: %d %s %v", closed.Status, closed.Body, err)
			}
		}
	}
	h.key = "osk_wrong"
	if got, err := h.call(t.Context(), http.MethodGet, "/api/v1/desk/summary", ""); err != nil || got.Status != 401 {
		t.Errorf("a stranger gets %d %s %v", got.Status, got.Body, err)
	}
}
