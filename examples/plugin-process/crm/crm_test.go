package crm_test

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/examples/plugin-process/crm"
	"github.com/objecthost/objecthost/pluginsdk"
	"github.com/objecthost/objecthost/pluginsdk/plugintest"
)

func TestPlugin(t *testing.T) {
	h := plugintest.Start(t, crm.New(), plugintest.Config{Config: json.RawMessage(`{"notify":"https://example.com/new"}`)})
	changes, err := h.BeforeWrite(pluginsdk.Write{Object: crm.Account, Operation: "create", Values: pluginsdk.Record{"email": "Ada@Example.com"}})
	if err != nil || changes["email"] != "ada@example.com" {
		t.Errorf("check = %v, %v", changes, err)
	}
	if _, err := h.BeforeWrite(pluginsdk.Write{Object: crm.Account, Operation: "create", Values: pluginsdk.Record{"email": "ada"}}); !pluginsdk.IsCode(err, pluginsdk.CodeRefused) {
		t.Errorf("a bad address = %v", err)
	}
	e := &event.Event{ID: "1", Object: crm.Account, After: json.RawMessage(`{"name":"Ada"}`)}
	if err := h.HandleEvents("notify", e, e); err != nil {
		t.Fatal(err)
	}
	if d := h.Host.Deliveries(); len(d) != 1 || d[0].URL != "https://example.com/new" || string(d[0].Payload) != `{"name":"Ada"}` {
		t.Errorf("deliveries = %+v", d)
	}
	h.Host.Put(crm.Account, pluginsdk.Record{"name": "Ada"})
	w := h.Do(identity.Principal{UserID: "u"}, httptest.NewRequest("GET", "/accounts/count", nil))
	if w.Body.String() != `{"success":true,"data":1}` {
		t.Errorf("count = %s", w.Body)
	}
	for email, want := range map[any]string{"Ada@Example.com": "business", "eve@gmail.com": "private", nil: "unknown"} {
		r, err := h.RunNode(pluginsdk.NodeStep{Type: "crm.segment", Config: pluginsdk.Record{"email": email}})
		if err != nil || r.Output["segment"] != want || r.Label != want {
			t.Errorf("segment of %v = %v, %v, want %s", email, r, err, want)
		}
	}
	if _, err := h.RunNode(pluginsdk.NodeStep{Type: "crm.segment", Config: pluginsdk.Record{"email": "ada"}}); !pluginsdk.IsCode(err, "NO_ADDRESS") {
		t.Errorf("segment of no address = %v", err)
	}
	if answer, err := h.Call("crm.score", "score", json.RawMessage(`{"name":"Ada"}`)); string(answer) != `{"score":3}` || err != nil {
		t.Errorf("score = %s, %v", answer, err)
	}
}
