package rest

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
)

func TestMetaTypes(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		rest := `"supportsOverlay":false,"allowOrgOverride":false,"supportsVersioning":false`
		h.same(h.get(200, h.do("GET", "/api/v1/meta", "")), `{"types":["object","view","app"],"entries":[
			{"type":"object","label":"Object","domain":"data","schemaId":"object","allowRuntimeCreate":true,`+rest+`},
			{"type":"view","label":"View","domain":"ui","schemaId":"view","allowRuntimeCreate":false,`+rest+`},
			{"type":"app","label":"App","domain":"ui","schemaId":"app","allowRuntimeCreate":false,`+rest+`}]}`)
	})
}

func TestMetaItems(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		list := func(key string) []string {
			answer := h.get(200, h.as(key, "GET", "/api/v1/meta/object", ""))
			if answer["type"] != "object" {
				t.Errorf("type %v", answer["type"])
			}
			var names []string
			for _, item := range answer["items"].([]any) {
				names = append(names, item.(map[string]any)["name"].(string))
			}
			return names
		}
		all := list(h.key)
		for _, name := range []string{"account", "contact", "ledger", "note"} {
			found := false
			for _, n := range all {
				found = found || n == name
			}
			if !found {
				t.Errorf("%s is not among %v", name, all)
			}
		}
		if got := encode(list(makeKey(t, h.auth, "object:contact:list", "object:note:get", "object:ledger:create"))); got != `["contact","note"]` {
			t.Errorf("a key of two objects sees %s", got)
		}
		h.same(h.get(404, h.as(makeKey(t, h.auth, "object:contact:list"), "GET", "/api/v1/meta/object/account", "")),
			`{"error":"Metadata item object/account not found","code":"RESOURCE_NOT_FOUND"}`)
	})
}

func TestMetaItem(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		w := h.do("GET", "/api/v1/meta/object/account", "")
		answer := h.get(200, w)
		item := answer["item"].(map[string]any)
		fields := item["fields"].(map[string]any)
		at := func(field, key string) any { return fields[field].(map[string]any)[key] }
		h.same([]any{answer["type"], answer["name"], item["name"], item["label"], item["nameField"]}, `["object","account","account","Account","name"]`)
		h.same([]any{at("name", "type"), at("name", "required"), at("industry", "type"), at("annual_revenue", "type"), at("active", "type"), at("active", "defaultValue")},
			`["text",true,"select","number","boolean",true]`)
		h.same(at("industry", "options"), `[{"label":"Technology","value":"technology"},{"label":"Finance","value":"finance"},{"label":"Retail","value":"retail"}]`)
		sortable := answer["sortability"].(map[string]any)["fields"].(map[string]any)
		for _, field := range []string{"id", "name", "code", "created_at", "updated_at", "active"} {
			h.same(sortable[field], `{"sortable":true}`)
		}
		if got := w.Header().Get("Cache-Control"); got != "private, no-cache" {
			t.Errorf("Cache-Control %q", got)
		}
	})
}

func TestMetaConditional(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		const path = "/api/v1/meta/object/account"
		first := h.do("GET", path, "")
		tag, modified := first.Header().Get("ETag"), first.Header().Get("Last-Modified")
		since, err := http.ParseTime(modified)
		if err != nil || len(tag) < 4 || tag[0] != '"' {
			t.Fatalf("ETag %q, Last-Modified %q", tag, modified)
		}
		earlier := since.Add(-time.Second).Format(http.TimeFormat)
		for name, test := range map[string]struct {
			header []string
			status int
		}{
			"same":              {[]string{"If-None-Match", tag}, 304},
			"weak":              {[]string{"If-None-Match", "W/" + tag}, 304},
			"in a list":         {[]string{"If-None-Match", `"a", ` + tag}, 304},
			"any":               {[]string{"If-None-Match", "*"}, 304},
			"other":             {[]string{"If-None-Match", `"a"`}, 200},
			"not modified":      {[]string{"If-Modified-Since", modified}, 304},
			"modified":          {[]string{"If-Modified-Since", earlier}, 200},
			"tag beats date":    {[]string{"If-None-Match", `"a"`, "If-Modified-Since", modified}, 200},
			"date that is none": {[]string{"If-Modified-Since", "yesterday"}, 200},
		} {
			w := h.do("GET", path, "", test.header...)
			if w.Code != test.status || w.Header().Get("ETag") != tag {
				t.Errorf("%s: %d, ETag %q, want %d, %q", name, w.Code, w.Header().Get("ETag"), test.status, tag)
			}
			if w.Code == 304 && w.Body.Len() > 0 {
				t.Errorf("%s: 304 with a body", name)
			}
		}
		schema, err := object.Decode([]byte(account))
		if err != nil {
			t.Fatal(err)
		}
		schema.Label = "Customer"
		if err := h.engine.Define(identity.With(context.Background(), identity.System()), schema); err != nil {
			t.Fatal(err)
		}
		if w := h.do("GET", path, "", "If-None-Match", tag); w.Code != 200 || w.Header().Get("ETag") == tag {
			t.Errorf("after a change: %d with ETag %q", w.Code, w.Header().Get("ETag"))
		}
	})
}
