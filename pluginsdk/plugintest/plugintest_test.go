package plugintest_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/pluginsdk"
	"github.com/objecthost/objecthost/pluginsdk/plugintest"
)

// sample uses every part of the host's API.
type sample struct {
	host    pluginsdk.Host
	stopped int
}

func (s *sample) Manifest() core.Manifest {
	return core.Manifest{ID: "com.example.sample", Version: "1.2.3", Contributes: core.Contributions{Routes: []core.Route{
		{Method: "GET", Pattern: "/hello/{name}", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte(r.PathValue("name") + " " + identity.From(r.Context()).UserID))
		})},
	}}}
}

func (s *sample) Init(ctx context.Context, host core.Context) (err error) {
	s.host, err = pluginsdk.HostOf(ctx, host)
	return err
}

func (s *sample) Stop(context.Context) error { s.stopped++; return nil }

func (s *sample) Contributions() pluginsdk.Contributions {
	return pluginsdk.Contributions{
		Before: []pluginsdk.BeforeHook{{Object: "crm_account", OnError: pluginsdk.FailClosed, Run: func(_ context.Context, w pluginsdk.Write) (pluginsdk.Record, error) {
			switch w.Values["name"] {
			case "":
				return nil, pluginsdk.Refuse("name", "a name is needed")
			case "panic":
				panic("boom")
			}
			return pluginsdk.Record{"checked": true}, nil
		}}},
		Events: []pluginsdk.EventHandler{{Name: "notify", Handle: func(ctx context.Context, events []*event.Event) error {
			for _, e := range events {
				if _, err := s.host.Messaging().Enqueue(ctx, pluginsdk.Delivery{URL: "https://example.com", DedupKey: e.ID}); err != nil {
					return err
				}
			}
			return nil
		}}},
		Nodes: []pluginsdk.FlowNode{{Type: "sample.double", Pure: true, Run: func(_ context.Context, s pluginsdk.NodeStep) (pluginsdk.NodeResult, error) {
			n, ok := s.Config["n"].(json.Number)
			if !ok {
				return pluginsdk.NodeResult{}, &pluginsdk.Error{Code: "NO_NUMBER", Message: "n is no number"}
			}
			return pluginsdk.NodeResult{Output: pluginsdk.Record{"text": n.String() + n.String()}}, nil
		}}},
		Services: []pluginsdk.Service{{Name: "sample.echo", Call: func(_ context.Context, _ string, p json.RawMessage) (json.RawMessage, error) { return p, nil }}},
	}
}

func TestHarnessRunsAPlugin(t *testing.T) {
	s := &sample{}
	t.Run("running", func(t *testing.T) {
		h := plugintest.Start(t, s, plugintest.Config{})
		changes, err := h.BeforeWrite(pluginsdk.Write{Object: "crm_account", Operation: "create", Values: pluginsdk.Record{"name": "Ada"}})
		if err != nil || changes["checked"] != true {
			t.Errorf("before hook = %v, %v", changes, err)
		}
		_, err = h.BeforeWrite(pluginsdk.Write{Object: "crm_account", Operation: "update", Values: pluginsdk.Record{"name": ""}})
		if !pluginsdk.IsCode(err, pluginsdk.CodeRefused) {
			t.Errorf("refusal = %v", err)
		}
		_, err = h.BeforeWrite(pluginsdk.Write{Object: "crm_account", Operation: "update", Values: pluginsdk.Record{"name": "panic"}})
		if !errors.Is(err, &pluginsdk.Error{Code: pluginsdk.CodeInternal}) || err.Error() != "INTERNAL_ERROR: panic: boom" {
			t.Errorf("panic = %v", err)
		}
		if changes, err := h.BeforeWrite(pluginsdk.Write{Object: "crm_account", Operation: "delete"}); changes != nil || err != nil {
			t.Errorf("an operation without a hook = %v, %v", changes, err)
		}
		if err := h.HandleEvents("notify", &event.Event{ID: "1"}, &event.Event{ID: "2"}, &event.Event{ID: "1"}); err != nil {
			t.Fatal(err)
		}
		if got := len(h.Host.Deliveries()); got != 2 {
			t.Errorf("%d deliveries, want 2 by dedup key", got)
		}
		if answer, err := h.Call("sample.echo", "any", json.RawMessage(`{"a":1.50}`)); string(answer) != `{"a":1.50}` || err != nil {
			t.Errorf("service = %s, %v", answer, err)
		}
		if r, err := h.RunNode(pluginsdk.NodeStep{Type: "sample.double", Config: pluginsdk.Record{"n": json.Number("7")}}); r.Output["text"] != "77" || err != nil {
			t.Errorf("node = %v, %v", r, err)
		}
		if _, err := h.RunNode(pluginsdk.NodeStep{Type: "sample.double"}); !pluginsdk.IsCode(err, "NO_NUMBER") {
			t.Errorf("a node that fails = %v", err)
		}
		if _, err := h.RunNode(pluginsdk.NodeStep{Type: "sample.other"}); !pluginsdk.IsCode(err, pluginsdk.CodeInvalid) {
			t.Errorf("an unknown node = %v", err)
		}
		w := h.Do(identity.Principal{UserID: "u1"}, httptest.NewRequest("GET", "/hello/Ada", nil))
		if w.Code != 200 || w.Body.String() != "Ada u1" {
			t.Errorf("route = %d %q", w.Code, w.Body)
		}
	})
	if s.stopped != 1 {
		t.Errorf("stopped %d times, want 1", s.stopped)
	}
}

func TestFakeHostRecords(t *testing.T) {
	h := &plugintest.Host{}
	r := h.Records()
	a, err := r.Create(t.Context(), "crm_account", pluginsdk.Record{"name": "a"})
	if err != nil || a["id"] == nil {
		t.Fatalf("create = %v, %v", a, err)
	}
	_, err = r.Transaction(t.Context(), []pluginsdk.Step{
		{Object: "crm_account", Action: "create", Values: pluginsdk.Record{"name": "b"}},
		{Object: "crm_account", Action: "update", ID: "missing"},
	})
	if !pluginsdk.IsCode(err, "RECORD_NOT_FOUND") {
		t.Errorf("transaction = %v", err)
	}
	page, err := r.Find(t.Context(), "crm_account", json.RawMessage(`{"where":{"name":"b"}}`))
	if err != nil || page.Total != 0 {
		t.Errorf("after a rolled back transaction: %v, %v", page, err)
	}
	done, err := r.Transaction(t.Context(), []pluginsdk.Step{
		{Object: "crm_account", Action: "create", Values: pluginsdk.Record{"name": "b"}},
		{Object: "crm_contact", Action: "create", Values: pluginsdk.Record{"account": map[string]any{"$ref": 0}}},
	})
	if err != nil || done[1]["account"] != done[0]["id"] {
		t.Errorf("transaction = %v, %v", done, err)
	}
}
