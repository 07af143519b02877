package rest

import "testing"

func TestViewsAndApps(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		all := `{"name":"account.all","object":"account","viewKind":"list","label":"All","_packageId":"com.example.crm","_provenance":"package",
			"config":{"type":"grid","name":"all","label":"All","data":{"provider":"object","object":"account"},"columns":["name","industry"]}}`
		h.same(h.get(200, h.do("GET", "/api/v1/meta/view", "")), `{"type":"view","items":[`+all+`]}`)
		h.same(h.get(200, h.do("GET", "/api/v1/meta/view/account.all", "")), `{"type":"view","name":"account.all","item":`+all+`}`)
		app := func(navigation string) string {
			return `{"name":"objecthost","label":"Objecthost","active":true,"isDefault":true,"navigation":[` + navigation + `]}`
		}
		people := `{"id":"crm-contacts","type":"object","objectName":"contact","label":"People","icon":"user"}`
		full := app(`{"id":"object-account","type":"object","objectName":"account","label":"Accounts"},
			{"id":"object-ledger","type":"object","objectName":"ledger","label":"Ledger"},
			{"id":"object-note","type":"object","objectName":"note","label":"Note"},` + people)
		h.same(h.get(200, h.do("GET", "/api/v1/meta/app", "")), `{"type":"app","items":[`+full+`]}`)
		h.same(h.get(200, h.do("GET", "/api/v1/meta/app/objecthost", "")), `{"type":"app","name":"objecthost","item":`+full+`}`)
		// A caller who may not know of account sees neither its view nor its entry.
		reader := makeKey(t, h.auth, "object:contact:list")
		h.same(h.get(200, h.as(reader, "GET", "/api/v1/meta/app", "")), `{"type":"app","items":[`+app(people)+`]}`)
		h.same(h.get(200, h.as(reader, "GET", "/api/v1/meta/view", "")), `{"type":"view","items":[]}`)
		h.same(h.get(404, h.as(reader, "GET", "/api/v1/meta/view/account.all", "")), `{"error":"Metadata item view/account.all not found","code":"RESOURCE_NOT_FOUND"}`)
		h.same(h.get(404, h.do("GET", "/api/v1/meta/page", "")), `{"error":"Metadata type page not found","code":"RESOURCE_NOT_FOUND"}`)
		h.same(h.get(404, h.do("GET", "/api/v1/meta/app/other", "")), `{"error":"Metadata item app/other not found","code":"RESOURCE_NOT_FOUND"}`)
	})
}

func TestUIViews(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		h.same(h.get(200, h.do("GET", "/api/v1/ui/view/account/list", "")), `{"object":"account","list":{"type":"grid","label":"Accounts",
			"columns":[{"field":"name","label":"Name","sortable":true},{"field":"code","label":"Code","sortable":true},{"field":"industry","label":"Industry","sortable":true},
				{"field":"annual_revenue","label":"Annual Revenue","sortable":true},{"field":"active","label":"Active","sortable":true},{"field":"created_at","label":"Created At","sortable":true}],
			"sort":[{"field":"created_at","order":"desc"}]}}`)
		h.same(h.get(200, h.do("GET", "/api/v1/ui/view/contact/form", "")), `{"object":"contact","form":{"type":"simple","sections":[{"label":"Contact",
			"fields":[{"field":"name","label":"Name"},{"field":"account","label":"Account"}]}]}}`)
		for _, path := range []string{"nothing/list", "account/chart"} {
			h.same(h.get(404, h.do("GET", "/api/v1/ui/view/"+path, "")), `{"error":"View `+path+` not found","code":"RESOURCE_NOT_FOUND"}`)
		}
		h.get(404, h.as(makeKey(t, h.auth, "object:contact:list"), "GET", "/api/v1/ui/view/account/list", ""))
	})
}

func TestMetaOfOnePackage(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		h.get(201, h.do("PUT", "/api/v1/meta/object/ticket", ticket))
		for query, want := range map[string]string{
			"?package=com.example.crm": `["account","contact"]`, "?packageId=com.example.books": `["ledger"]`, "?package=nobody": `[]`,
			"": `["account","contact","ledger","note","sys_import_job","sys_notification","ticket"]`,
		} {
			got := []string{}
			for _, item := range h.get(200, h.do("GET", "/api/v1/meta/object"+query, ""))["items"].([]any) {
				got = append(got, item.(map[string]any)["name"].(string))
			}
			if encode(got) != want {
				t.Errorf("%s: %s, want %s", query, encode(got), want)
			}
		}
		h.same(h.get(400, h.do("GET", "/api/v1/meta/object?pkg=x", "")), `{"error":"Query parameter 'pkg' is not supported here.","code":"UNSUPPORTED_QUERY_PARAM"}`)
	})
}

// TestMetaSpellsDefaultsOut compares with what the original host answers.
func TestMetaSpellsDefaultsOut(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		item := h.get(200, h.do("GET", "/api/v1/meta/object/account", ""))["item"].(map[string]any)
		fields := item["fields"].(map[string]any)
		h.same(fields["name"], `{"label":"Name","type":"text","required":true,"searchable":true,"multiple":false,"unique":false,"maxLength":120,
			"hidden":false,"readonly":false,"sortable":true,"externalId":false}`)
		h.same(fields["annual_revenue"], `{"label":"Annual Revenue","type":"number","required":false,"searchable":false,"multiple":false,"unique":false,"min":0,
			"hidden":false,"readonly":false,"sortable":true,"externalId":false}`)
		h.same([]any{item["isSystem"], item["datasource"], item["_packageId"], item["_provenance"], item["_diagnostics"]},
			`[false,"default","com.example.crm","package",{"valid":true}]`)
		h.same(item["enable"], `{"trackHistory":false,"searchable":true,"apiEnabled":true,"files":false,"feeds":false,"activities":false,"clone":true}`)
	})
}
