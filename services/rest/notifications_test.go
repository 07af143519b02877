package rest

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/data"
)

// inboxOf calls a handler as a user.
func (h *host) inboxOf(user, method, path, body string) map[string]any {
	h.t.Helper()
	w := call(h.t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(identity.With(r.Context(), identity.Principal{UserID: user}))
		var err error
		switch r.URL.Path {
		case notificationBase:
			err = h.server.serveNotifications(w, r)
		case notificationBase + "/read":
			err = h.server.serveRead(w, r)
		default:
			err = h.server.serveReadAll(w, r)
		}
		if err != nil {
			fail(w, r, wrapped, err)
		}
	}), method, path, body)
	if w.Code != 200 {
		h.t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	return parse(h.t, w.Body.String()).(map[string]any)["data"].(map[string]any)
}

func TestNotifications(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		at := time.Now().Add(-time.Hour)
		tell := func(user, title string) string {
			at = at.Add(time.Second)
			ctx := identity.With(context.Background(), identity.Principal{System: true})
			r, err := h.engine.Create(ctx, NotificationObject, data.Record{"recipient_id": user, "title": title, "created_at": event.FormatTime(at), "data": map[string]any{"n": 1}})
			if err != nil {
				t.Fatal(err)
			}
			return r.ID
		}
		first, second, other := tell("ann", "first"), tell("ann", "second"), tell("bob", "third")
		list := h.inboxOf("ann", "GET", notificationBase, "")
		h.same(list, `{"notifications":[
			{"id":"`+second+`","type":"info","title":"second","body":"","read":false,"data":{"n":1},"createdAt":"*"},
			{"id":"`+first+`","type":"info","title":"first","body":"","read":false,"data":{"n":1},"createdAt":"*"}],"unreadCount":2}`)
		page := h.inboxOf("ann", "GET", notificationBase+"?limit=1", "")
		next := h.inboxOf("ann", "GET", notificationBase+"?limit=1&cursor="+page["cursor"].(string), "")
		h.same([]any{next["notifications"].([]any)[0].(map[string]any)["title"], next["cursor"]}, `["first",null]`)
		// Somebody else's does not become read.
		h.same(h.inboxOf("ann", "POST", notificationBase+"/read", `{"ids":["`+first+`","`+other+`"]}`), `{"success":true,"readCount":1}`)
		h.same(h.inboxOf("ann", "GET", notificationBase+"?read=true", "")["notifications"].([]any)[0].(map[string]any)["title"], `"first"`)
		h.same(h.inboxOf("ann", "GET", notificationBase+"?read=false&type=info", "")["notifications"].([]any)[0].(map[string]any)["title"], `"second"`)
		h.same(h.inboxOf("bob", "GET", notificationBase, "")["unreadCount"], `1`)
		h.same(h.inboxOf("ann", "POST", notificationBase+"/read/all", ""), `{"success":true,"readCount":1}`)
		h.same(h.inboxOf("ann", "GET", notificationBase, "")["unreadCount"], `0`)
		// A key without a user has no inbox, and no permission opens others'.
		h.same(h.get(200, h.do("GET", notificationBase, "")), `{"success":true,"data":{"notifications":[],"unreadCount":0}}`)
		h.get(405, h.do("GET", "/api/v1/data/sys_notification", ""))
		h.get(201, h.do("POST", "/api/v1/data/sys_notification", `{"recipient_id":"bob","title":"by a caller"}`))
		h.get(400, h.do("GET", notificationBase+"?limit=0", ""))
		h.get(400, h.do("GET", notificationBase+"?raed=true", ""))
		h.get(400, h.do("POST", notificationBase+"/read", `{"ids":[1]}`))
	})
}

func TestLocales(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		h.same(h.get(200, h.do("GET", "/api/v1/i18n/locales", "")), `{"success":true,"data":{"locales":[{"code":"en","label":"English","isDefault":true}]}}`)
		labels := h.get(200, h.do("GET", "/api/v1/i18n/labels/account/en", ""))["data"].(map[string]any)
		h.same(labels["labels"].(map[string]any)["industry"], `{"label":"Industry","options":{"technology":"Technology","finance":"Finance","retail":"Retail"}}`)
		texts := h.get(200, h.do("GET", "/api/v1/i18n/translations/en", ""))["data"].(map[string]any)["translations"].(map[string]any)
		account := texts["objects"].(map[string]any)["account"].(map[string]any)
		h.same([]any{account["label"], account["pluralLabel"], account["_views"]}, `["Account","Accounts",{"all":{"label":"All"}}]`)
		h.same(texts["apps"].(map[string]any)["objecthost"].(map[string]any)["navigation"].(map[string]any)["crm-contacts"], `{"label":"People"}`)
		h.same(h.get(404, h.do("GET", "/api/v1/i18n/translations/xx", "")), `{"success":false,"error":{"code":"RESOURCE_NOT_FOUND","message":"Locale xx not found"}}`)
		h.get(404, h.do("GET", "/api/v1/i18n/labels/nothing/en", ""))
		h.get(404, h.as(makeKey(t, h.auth, "object:contact:get"), "GET", "/api/v1/i18n/labels/account/en", ""))
	})
}
