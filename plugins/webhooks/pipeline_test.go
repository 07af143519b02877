package webhooks

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging/messagingtest"
)

func TestDeliveriesForCreateUpdateDelete(t *testing.T) {
	each(t, func(t *testing.T, n *node, r *messagingtest.Receiver) {
		hook := n.hook(t, data.Record{
			"url": r.URL + "/in?key=a&key=b&empty=&q=a+b%20c&x=%2F", "signing_secret": "topsecret",
			"headers_secret": `{"X-Team":"crm"}`, "definition_json": `{"authentication":{"type":"bearer","credentials":{"token":"t0k"}}}`,
		})
		id := n.create(t, "account", data.Record{"name": "<A&B>", "annual_revenue": json.Number("9007199254740993"), "token": "s3cret"})
		updated := n.update(t, "account", id, data.Record{"annual_revenue": json.Number("6")})
		if err := n.engine.Delete(system(t), "account", id, data.Match{}); err != nil {
			t.Fatal(err)
		}
		got, err := waitFor(t, r, 3)
		fatal(t, err)
		for i, want := range []struct{ event, action string }{
			{"data.record.created", "created"}, {"data.record.updated", "updated"}, {"data.record.deleted", "deleted"},
		} {
			req := got[i]
			if req.Method != "POST" || req.RequestURI != "/in?key=a&key=b&empty=&q=a+b%20c&x=%2F" ||
				req.Header.Get("X-Objectstack-Event") != want.event || req.Header.Get("X-Objectstack-Attempt") != "1" ||
				req.Header.Get("X-Team") != "crm" || req.Header.Get("Authorization") != "Bearer t0k" {
				t.Errorf("request %d: %s %s %v", i, req.Method, req.RequestURI, req.Header)
			}
			mac := hmac.New(sha256.New, []byte("topsecret"))
			mac.Write(req.Body)
			if want := "sha256=" + hex.EncodeToString(mac.Sum(nil)); req.Header.Get("X-Objectstack-Signature") != want {
				t.Errorf("request %d: signature %s, want %s", i, req.Header.Get("X-Objectstack-Signature"), want)
			}
			in := body(t, req)
			if in["action"] != want.action || in["object"] != "account" || in["recordId"] != id || in["type"] != want.event {
				t.Errorf("request %d: body %s", i, req.Body)
			}
		}
		var after struct {
			After map[string]json.RawMessage `json:"after"`
		}
		fatal(t, json.Unmarshal(got[0].Body, &after))
		if string(after.After["annual_revenue"]) != "9007199254740993" || string(after.After["name"]) != `"<A&B>"` {
			t.Errorf("after %s", got[0].Body)
		}
		if _, leaked := after.After["token"]; leaked {
			t.Errorf("a secret field is in the body: %s", got[0].Body)
		}
		// EVT-11: the after-image is what the API reads.
		stored := body(t, got[1])["after"].(map[string]any)
		if stored["updated_at"] != updated["updated_at"] {
			t.Errorf("after %v, stored %v", stored["updated_at"], updated["updated_at"])
		}
		rows := n.deliveries(t)
		if len(rows) != 3 {
			t.Fatalf("%d rows", len(rows))
		}
		for _, row := range rows {
			if row.RefID != hook {
				t.Errorf("row %+v", row)
			}
		}
	})
}
