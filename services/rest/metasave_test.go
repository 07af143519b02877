package rest

import (
	"testing"

	"github.com/objecthost/objecthost/services/data"
)

const ticket = `{"label":"Ticket","sharingModel":"public_read_write","fields":{"title":{"type":"text","required":true}}}`

func TestMetaSave(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		const path = "/api/v1/meta/object/ticket"
		h.same(h.get(201, h.do("PUT", path, ticket)), `{"success":true,"version":"1","seq":1,"state":"active"}`)
		id := h.get(201, h.do("POST", "/api/v1/data/ticket", `{"title":"first"}`))["id"].(string)
		// What was read is sent back with one more field.
		item := h.get(200, h.do("GET", path, ""))["item"].(map[string]any)
		h.same([]any{item["_provenance"], item["_version"], item["_packageId"]}, `["org","1",null]`)
		item["fields"].(map[string]any)["size"] = map[string]any{"type": "number", "defaultValue": 3}
		h.same(h.get(200, h.do("PUT", path, encode(item), "If-Match", "1")), `{"success":true,"version":"2","seq":2,"state":"active"}`)
		h.same(h.get(201, h.do("POST", "/api/v1/data/ticket", `{"title":"second"}`))["record"].(map[string]any)["size"], `3`)
		h.same(h.get(200, h.do("GET", "/api/v1/data/ticket/"+id, ""))["record"].(map[string]any)["size"], `null`)
		h.same(h.get(409, h.do("PUT", path, ticket, "If-Match", `"1"`)),
			`{"error":"The definition of 'ticket' was changed meanwhile (current version 2, expected 1)","code":"CONCURRENT_UPDATE","object":"ticket","currentVersion":"2"}`)
		h.get(200, h.do("PUT", path+"?force=true", ticket))
	})
}

func TestMetaSaveRefuses(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		for _, test := range []struct {
			path, body string
			status     int
			want       string
		}{
			{"object/ticket", `{"label":"Ticket","fields":{"title":{"type":"text"}}}`, 422,
				`{"error":"Object 'ticket' is invalid: sharingModel: is required: private, public_read, public_read_write or controlled_by_parent","code":"INVALID_DEFINITION","object":"ticket",
				"issues":[{"path":"sharingModel","message":"is required: private, public_read, public_read_write or controlled_by_parent"}]}`},
			{"object/ticket", `{"colour":1,"sharingModel":"private","fields":{"title":{"type":"text"}}}`, 422,
				`{"error":"Object 'ticket' is invalid: colour: is not a known key","code":"INVALID_DEFINITION","object":"ticket","issues":[{"path":"colour","message":"is not a known key"}]}`},
			{"object/ticket", `{"name":"other"}`, 400, `{"error":"The definition's name must be 'ticket', as in the path.","code":"INVALID_REQUEST"}`},
			{"object/account", `{"sharingModel":"private","fields":{"title":{"type":"text"}}}`, 409,
				`{"error":"Object 'account' is defined by the host's files or by a plugin; change it there","code":"RESOURCE_CONFLICT","object":"account"}`},
			{"object/ticket?mode=draft", ticket, 501, `{"error":"Definitions have no drafts on this host; leave 'mode' out to publish.","code":"NOT_IMPLEMENTED"}`},
			{"view/x", `{}`, 501, `{"error":"Metadata of type view cannot be saved: it is made from definitions of objects.","code":"NOT_IMPLEMENTED"}`},
			{"page/x", `{}`, 404, `{"error":"Metadata type page not found","code":"RESOURCE_NOT_FOUND"}`},
			{"object/ticket?foo=1", ticket, 400, `{"error":"Query parameter 'foo' is not supported here.","code":"UNSUPPORTED_QUERY_PARAM"}`},
		} {
			t.Log(test.path)
			h.same(h.get(test.status, h.do("PUT", "/api/v1/meta/"+test.path, test.body)), test.want)
		}
		writer := makeKey(t, h.auth, "data:read", "data:write")
		h.same(h.get(403, h.as(writer, "PUT", "/api/v1/meta/object/ticket", ticket)),
			`{"error":"You need the permission 'metadata.manage'.","code":"PERMISSION_DENIED"}`)
		h.get(201, h.as(makeKey(t, h.auth, data.PermissionManageMetadata), "PUT", "/api/v1/meta/object/ticket", ticket))
	})
}
