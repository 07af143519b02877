package rest

import (
	"regexp"
	"strings"
	"testing"
)

var isoTime = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)

func TestCreateAndGet(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		w := h.do("POST", "/api/v1/data/account", `{"name":"Acme <&>","industry":"technology","annual_revenue":1500.50,"code":"A"}`)
		answer := h.get(201, w)
		h.same(answer, `{"object":"account","id":"*","record":{"id":"*","created_at":"*","updated_at":"*","created_by":null,
			"updated_by":null,"organization_id":null,"owner_id":null,"owning_business_unit_id":null,
			"name":"Acme <&>","code":"A","industry":"technology","annual_revenue":1500.5,"active":true}}`)
		if !strings.Contains(w.Body.String(), `"name":"Acme <&>"`) {
			t.Errorf("escaped: %s", w.Body)
		}
		record := answer["record"].(map[string]any)
		id := answer["id"].(string)
		if !regexp.MustCompile(`^[A-Za-z0-9_-]{16}$`).MatchString(id) || record["id"] != id {
			t.Errorf("id %q, record's %v", id, record["id"])
		}
		for _, field := range []string{"created_at", "updated_at"} {
			if at, _ := record[field].(string); !isoTime.MatchString(at) {
				t.Errorf("%s = %v", field, record[field])
			}
		}
		h.same(h.get(200, h.do("GET", "/api/v1/data/account/"+id, "")), encode(map[string]any{"object": "account", "id": id, "record": record}))
		h.same(h.get(200, h.do("GET", "/api/v1/data/account/"+id+"?select=name,active", "")),
			`{"object":"account","id":"`+id+`","record":{"name":"Acme <&>","active":true}}`)
	})
}

func TestNumbersKeepDigits(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		for _, digits := range []string{"9007199254740993", "12345678901234567890123456789012345678", "0.1", "0"} {
			w := h.do("POST", "/api/v1/data/account", `{"name":"n","annual_revenue":`+digits+`}`)
			h.get(201, w)
			if !strings.Contains(w.Body.String(), `"annual_revenue":`+digits+`,`) {
				t.Errorf("%s came back in %s", digits, w.Body)
			}
		}
	})
}

func TestGivenIDs(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		h.get(201, h.do("POST", "/api/v1/data/account", `{"id":"a:b.c","name":"given"}`))
		for _, path := range []string{"a:b.c", "a%3Ab%2Ec"} {
			h.same(h.get(200, h.do("GET", "/api/v1/data/account/"+path+"?select=name", "")),
				`{"object":"account","id":"a:b.c","record":{"name":"given"}}`)
		}
		h.get(404, h.do("GET", "/api/v1/data/account/a%2Fb", ""))
		// The names of the bulk routes are ids to a GET.
		h.get(201, h.do("POST", "/api/v1/data/account", `{"id":"query","name":"odd"}`))
		h.same(h.get(200, h.do("GET", "/api/v1/data/account/query?select=name", "")),
			`{"object":"account","id":"query","record":{"name":"odd"}}`)
	})
}

func TestUpdate(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		id := h.create(`{"name":"Acme","annual_revenue":1}`)
		path := "/api/v1/data/account/" + id
		answer := h.get(200, h.do("PATCH", path, `{"annual_revenue":99,"active":false}`))
		h.same(answer, `{"object":"account","id":"`+id+`","record":{"id":"`+id+`","created_at":"*","updated_at":"*",
			"created_by":null,"updated_by":null,"organization_id":null,"owner_id":null,"owning_business_unit_id":null,
			"name":"Acme","code":null,"industry":null,"annual_revenue":99,"active":false}}`)
		version := answer["record"].(map[string]any)["updated_at"].(string)
		for _, form := range []string{"%s", `"%s"`, "*"} {
			match := strings.ReplaceAll(form, "%s", version)
			answer = h.get(200, h.do("PATCH", path, `{"annual_revenue":100}`, "If-Match", match))
			version = answer["record"].(map[string]any)["updated_at"].(string)
		}
		w := h.do("PATCH", path, `{"annual_revenue":98}`, "If-Match", "2020-01-01T00:00:00.000Z")
		h.same(h.get(409, w), `{"error":"Record account/`+id+` was modified by another user (current version `+version+
			`, expected 2020-01-01T00:00:00.000Z)","code":"CONCURRENT_UPDATE","object":"account","currentVersion":"`+version+
			`","currentRecord":`+encode(answer["record"])+`}`)
	})
}

func TestDroppedFields(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		id := h.create(`{"name":"Acme"}`)
		w := h.do("PATCH", "/api/v1/data/account/"+id, `{"created_at":"2000-01-01T00:00:00Z","annual_revenue":101}`)
		h.same(h.get(200, w)["droppedFields"], `[{"object":"account","fields":["created_at"],"reason":"readonly"}]`)
		if got := w.Header().Get("X-ObjectStack-Dropped-Fields"); got != "created_at;reason=readonly" {
			t.Errorf("header %q", got)
		}
		w = h.do("POST", "/api/v1/data/account", `{"name":"x","created_at":"2000-01-01T00:00:00Z","updated_by":"me"}`)
		h.get(201, w)
		if got := w.Header().Get("X-ObjectStack-Dropped-Fields"); got != "created_at;reason=readonly, updated_by;reason=readonly" {
			t.Errorf("header %q", got)
		}
		w = h.do("POST", "/api/v1/data/account/createMany", `[{"name":"x","created_at":"2000-01-01T00:00:00Z"},{"name":"y","created_at":"2000-01-01T00:00:00Z"}]`)
		h.get(201, w)
		if got := w.Header().Get("X-ObjectStack-Dropped-Fields"); got != "created_at;reason=readonly" {
			t.Errorf("header %q", got)
		}
	})
}

func TestDelete(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		id := h.create(`{"name":"Acme"}`)
		path := "/api/v1/data/account/" + id
		if got := h.get(409, h.do("DELETE", path, "", "If-Match", "2020-01-01T00:00:00.000Z"))["code"]; got != "CONCURRENT_UPDATE" {
			t.Errorf("stale delete: %v", got)
		}
		h.same(h.get(200, h.do("DELETE", path, "")), `{"object":"account","id":"`+id+`","success":true}`)
		for _, method := range []string{"DELETE", "GET"} {
			h.same(h.get(404, h.do(method, path, "")),
				`{"error":"Record `+id+` not found in account","code":"RECORD_NOT_FOUND","object":"account"}`)
		}
	})
}

func TestUndelete(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		id := h.get(201, h.do("POST", "/api/v1/data/note", `{"title":"t"}`))["id"].(string)
		path := "/api/v1/data/note/" + id
		h.get(404, h.do("POST", path+"/undelete", ""))
		h.get(200, h.do("DELETE", path, ""))
		h.get(404, h.do("GET", path, ""))
		answer := h.get(200, h.do("POST", path+"/undelete", ""))
		record := answer["record"].(map[string]any)
		if answer["object"] != "note" || answer["id"] != id || record["title"] != "t" {
			t.Errorf("undelete = %v", answer)
		}
		h.get(200, h.do("GET", path, ""))
		account := h.create(`{"name":"no trash"}`)
		if got := h.get(400, h.do("POST", "/api/v1/data/account/"+account+"/undelete", ""))["code"]; got != "INVALID_REQUEST" {
			t.Errorf("undelete without trash: %v", got)
		}
	})
}

func TestClone(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		id := h.create(`{"name":"Acme","industry":"technology","annual_revenue":101,"active":false,"code":"A"}`)
		answer := h.get(201, h.do("POST", "/api/v1/data/account/"+id+"/clone", `{"overrides":{"name":"Copy"}}`))
		record := answer["record"].(map[string]any)
		h.same([]any{answer["object"], answer["sourceId"], record["name"], record["industry"], record["annual_revenue"], record["active"], record["code"]},
			`["account","`+id+`","Copy","technology",101,false,null]`)
		if answer["id"] == id || record["id"] != answer["id"] {
			t.Errorf("clone's id %v", answer["id"])
		}
		h.same(h.get(400, h.do("POST", "/api/v1/data/account/"+id+"/clone", `{"override":{}}`)),
			`{"error":"'override' is not known; known are overrides.","code":"INVALID_REQUEST"}`)
	})
}

func TestExpand(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		account := h.create(`{"name":"Acme"}`)
		id := h.get(201, h.do("POST", "/api/v1/data/contact", `{"name":"Zoë","account":"`+account+`"}`))["id"].(string)
		answer := h.get(200, h.do("GET", "/api/v1/data/contact/"+id+"?expand=account&select=name,account", ""))
		record := answer["record"].(map[string]any)
		if got := record["account"].(map[string]any)["name"]; got != "Acme" || record["name"] != "Zoë" {
			t.Errorf("record %v", record)
		}
		h.same(h.get(200, h.do("GET", "/api/v1/data/contact/"+id+"?select=account", ""))["record"], `{"account":"`+account+`"}`)
		reader := makeKey(t, h.auth, "object:contact:get", "object:account:get")
		h.get(200, h.as(reader, "GET", "/api/v1/data/contact/"+id, ""))
		h.same(h.get(403, h.as(reader, "GET", "/api/v1/data/contact/"+id+"?expand=account", "")),
			`{"error":"You are not permitted to list records of 'contact'.","code":"PERMISSION_DENIED","object":"contact"}`)
		h.get(404, h.do("GET", "/api/v1/data/contact/nope?expand=account", ""))
	})
}
