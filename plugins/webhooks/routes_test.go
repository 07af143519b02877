package webhooks

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/messaging/messagingtest"
)

// call serves one request in the name of p.
func (n *node) call(t testing.TB, p identity.Principal, path, body string) (status int, header http.Header, answer map[string]any) {
	t.Helper()
	mux := http.NewServeMux()
	routes := &routes{service: func() *Service { return n.plugin.service }, log: func() *slog.Logger { return n.plugin.log }}
	for _, route := range routes.list() {
		mux.Handle(route.Method+" "+route.Pattern, route.Handler)
	}
	req := httptest.NewRequestWithContext(identity.With(t.Context(), p), http.MethodPost, path, strings.NewReader(body))
	rec := httptest.NewRecorder()
	mux.ServeHTTP(rec, req)
	if got := rec.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("content type %q", got)
	}
	if !strings.HasPrefix(rec.Body.String(), `{"success":`) {
		t.Errorf("answer %s", rec.Body)
	}
	fatal(t, json.Unmarshal(rec.Body.Bytes(), &answer))
	return rec.Code, rec.Header(), answer
}

func code(answer map[string]any) any {
	failed, _ := answer["error"].(map[string]any)
	if answer["success"] != false || failed["message"] == "" {
		return answer
	}
	return failed["code"]
}

func TestRoutesAskForTheirPermissions(t *testing.T) {
	t.Parallel()
	got := map[string]string{}
	p, err := NewPlugin(nil, Config{})
	fatal(t, err)
	m := p.Manifest()
	for _, route := range m.Contributes.Routes {
		got[route.Method+" "+route.Pattern] = route.Permission
		if route.Anonymous || route.Summary == "" {
			t.Errorf("route %+v", route)
		}
	}
	want := map[string]string{
		"POST /api/v1/webhooks/redeliver":          "webhooks.redeliver",
		"POST /api/v1/webhooks/{id}/test":          "webhooks.manage",
		"POST /api/v1/webhooks/{id}/rotate-secret": "webhooks.rotate",
		"POST /api/v1/webhooks/{id}/replay":        "webhooks.redeliver",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if m.ID != "com.objectstack.plugin-webhook-outbox" || ServiceKey.Name() != "webhook.autoEnqueuer" {
		t.Errorf("%s %s", m.ID, ServiceKey)
	}
}

func TestRedeliverRoute(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		const path = "/api/v1/webhooks/redeliver"
		user := identity.Principal{UserID: "u1"}
		r.Handle("/old", messagingtest.Status(400, ""))
		hook := n.hook(t, data.Record{"url": r.URL + "/old", "headers_secret": `{"X-A":"1"}`})
		n.create(t, "account", data.Record{"name": "a"})
		d := n.one(t)
		n.settled(t, d.ID, messaging.StatusDead)

		for _, tc := range []struct {
			name, body string
			who        identity.Principal
			status     int
			code       string
		}{
			{"anonymous", `{"deliveryId":"x"}`, identity.Principal{}, 401, "UNAUTHENTICATED"},
			{"not JSON", `{bad`, user, 400, "INVALID_REQUEST"},
			{"no object", `[]`, user, 400, "INVALID_REQUEST"},
			{"no id", `{}`, user, 400, "MISSING_REQUIRED_FIELD"},
			{"no body", ``, user, 400, "MISSING_REQUIRED_FIELD"},
			{"id of another type", `{"deliveryId":5}`, user, 400, "MISSING_REQUIRED_FIELD"},
			{"useCurrent of another type", `{"deliveryId":"x","useCurrent":"yes"}`, user, 400, "INVALID_REQUEST"},
			{"unknown", `{"deliveryId":"nope"}`, user, 404, "RESOURCE_NOT_FOUND"},
			{"not an id", `{"deliveryId":"a\u0000b"}`, user, 404, "RESOURCE_NOT_FOUND"},
			{"another organization", `{"deliveryId":"` + d.ID + `"}`, identity.Principal{UserID: "u2", OrganizationID: "o2"}, 404, "RESOURCE_NOT_FOUND"},
		} {
			status, _, answer := n.call(t, tc.who, path, tc.body)
			if status != tc.status || code(answer) != tc.code {
				t.Errorf("%s: got %d %v, want %d %s", tc.name, status, answer, tc.status, tc.code)
			}
		}
		if _, _, answer := n.call(t, user, path, `{"deliveryId":"nope"}`); cmp.Diff(answer, map[string]any{
			"success": false, "error": map[string]any{"code": "RESOURCE_NOT_FOUND", "message": "Delivery row 'nope' not found"},
		}) != "" {
			t.Errorf("answer %v", answer)
		}

		n.update(t, ObjectName, hook, data.Record{"paused": true})
		status, _, answer := n.call(t, user, path, `{"deliveryId":"`+d.ID+`"}`)
		want := map[string]any{"success": true, "data": map[string]any{"id": d.ID, "status": "pending"}}
		if diff := cmp.Diff(want, answer); status != 200 || diff != "" {
			t.Errorf("status %d %s", status, diff)
		}
		if status, _, answer := n.call(t, user, path, `{"deliveryId":"`+d.ID+`"}`); status != 409 || code(answer) != "DELIVERY_NOT_ELIGIBLE" {
			t.Errorf("pending: %d %v", status, answer)
		}
		// The row keeps its URL; only useCurrent takes the webhook's new one.
		n.update(t, ObjectName, hook, data.Record{"paused": false, "url": r.URL + "/new", "headers_secret": `{"X-A":"2"}`, "method": "put"})
		n.settled(t, d.ID, messaging.StatusDead)
		if status, _, answer := n.call(t, user, path, `{"deliveryId":"`+d.ID+`","useCurrent":true}`); status != 200 {
			t.Errorf("useCurrent: %d %v", status, answer)
		}
		n.settled(t, d.ID, messaging.StatusSuccess)
		got := r.Requests()
		if len(got) != 3 || got[1].Path != "/old" || got[1].Header.Get("X-A") != "1" ||
			got[2].Path != "/new" || got[2].Header.Get("X-A") != "2" || got[2].Method != "PUT" || string(got[2].Body) != string(got[0].Body) {
			t.Errorf("requests %+v", got)
		}
		fatal(t, n.engine.Delete(system(t), ObjectName, hook, data.Match{}))
		status, _, answer = n.call(t, user, path, `{"deliveryId":"`+d.ID+`"}`)
		if status != 409 || code(answer) != "DELIVERY_NOT_ELIGIBLE" {
			t.Errorf("deleted webhook: %d %v", status, answer)
		}
	})
}

func TestRedeliverOfOtherSources(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		sent, err := n.outbox.Enqueue(t.Context(), messaging.Request{Source: messaging.SourceFlow, RefID: "node", URL: r.URL, Payload: []byte("{}")})
		fatal(t, err)
		n.settled(t, sent.ID, messaging.StatusSuccess)
		user := identity.Principal{UserID: "u1"}
		if status, _, answer := n.call(t, user, "/api/v1/webhooks/redeliver", `{"deliveryId":"`+sent.ID+`","useCurrent":true}`); status != 400 || code(answer) != "INVALID_REQUEST" {
			t.Errorf("useCurrent: %d %v", status, answer)
		}
		if status, _, answer := n.call(t, user, "/api/v1/webhooks/redeliver", `{"deliveryId":"`+sent.ID+`"}`); status != 200 {
			t.Errorf("%d %v", status, answer)
		}
		_, err = waitFor(t, r, 2)
		fatal(t, err)
	})
}

func TestTestRoute(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		user := identity.Principal{UserID: "u1"}
		r.Handle("/good", messagingtest.Status(200, "hello"))
		r.Handle("/bad", messagingtest.Status(503, "busy"))
		hook := n.hook(t, data.Record{"url": r.URL + "/good", "signing_secret": "s", "headers_secret": `{"X-A":"s3cret"}`})
		path := "/api/v1/webhooks/" + hook + "/test"
		status, _, answer := n.call(t, user, path, "")
		got, _ := answer["data"].(map[string]any)
		attempt, _ := got["attempt"].(map[string]any)
		req := r.Requests()[0]
		if status != 200 || got["status"] != "success" || got["error"] != nil || got["signature"] != signature("s", req.Body) ||
			attempt["responseCode"] != 200.0 || attempt["responseBody"] != "hello" || attempt["attempt"] != 1.0 {
			t.Errorf("%d %v", status, answer)
		}
		if text, _ := encode(answer); strings.Contains(string(text), "s3cret") {
			t.Errorf("the answer holds a header's value: %s", text)
		}
		in := body(t, req)
		if req.Header.Get("X-Objectstack-Event") != "webhook.test" || in["type"] != "webhook.test" || in["action"] != "test" ||
			in["object"] != "account" || in["recordId"] != "sample" || req.Header.Get("X-A") != "s3cret" {
			t.Errorf("%v %s", req.Header, req.Body)
		}
		n.update(t, ObjectName, hook, data.Record{"url": r.URL + "/bad"})
		status, _, answer = n.call(t, user, path, "")
		got, _ = answer["data"].(map[string]any)
		attempt, _ = got["attempt"].(map[string]any)
		if status != 200 || got["status"] != "failed" || attempt["responseCode"] != 503.0 || attempt["error"] != "HTTP 503" {
			t.Errorf("%d %v", status, answer)
		}
		n.update(t, ObjectName, hook, data.Record{"paused": true})
		if status, _, answer := n.call(t, user, path, ""); status != 409 || code(answer) != "WEBHOOK_HELD" {
			t.Errorf("paused: %d %v", status, answer)
		}
		if status, _, answer := n.call(t, user, "/api/v1/webhooks/nope/test", ""); status != 404 || code(answer) != "RESOURCE_NOT_FOUND" {
			t.Errorf("unknown: %d %v", status, answer)
		}
		if len(r.Requests()) != 2 {
			t.Errorf("%d requests", len(r.Requests()))
		}
	})
}

func TestRotateRoute(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		user := identity.Principal{UserID: "u1"}
		hook := n.hook(t, data.Record{"url": r.URL})
		path := "/api/v1/webhooks/" + hook + "/rotate-secret"
		for _, body := range []string{`{"overlapHours":-1}`, `{"overlapHours":169}`, `{"overlapHours":"1"}`, `{"overlapHours":0.5}`, `x`} {
			if status, _, answer := n.call(t, user, path, body); status != 400 || code(answer) != "INVALID_REQUEST" {
				t.Errorf("%s: %d %v", body, status, answer)
			}
		}
		status, header, answer := n.call(t, user, path, "")
		got, _ := answer["data"].(map[string]any)
		secret, _ := got["secret"].(string)
		if status != 200 || got["id"] != hook || got["overlapHours"] != 24.0 || secret == "" || header.Get("Cache-Control") != "no-store" {
			t.Errorf("%d %v %v", status, header, answer)
		}
		if target := n.target(t, hook); string(target.Secret) != secret || target.PreviousSecret != nil {
			t.Errorf("target %+v", target)
		}
		if status, _, answer := n.call(t, user, "/api/v1/webhooks/nope/rotate-secret", ""); status != 404 || code(answer) != "RESOURCE_NOT_FOUND" {
			t.Errorf("unknown: %d %v", status, answer)
		}
		if stored, err := n.engine.Get(system(t), ObjectName, hook); err != nil || stored["updated_by"] != "u1" {
			t.Errorf("updated_by %v, %v", stored["updated_by"], err)
		}
	})
}
