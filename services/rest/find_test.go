package rest

import (
	"net/url"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		_, m := h.seed()
		list := "/api/v1/data/account?"
		h.same(h.get(200, h.do("GET", list+"top=2&skip=0&sort=-name&select=id%2Cname&industry=finance&name=M1", "")),
			`{"object":"account","records":[{"id":"`+m[0]+`","name":"M1"}],"total":1,"hasMore":false}`)

		filter := url.QueryEscape(`["and",["name","contains",""],["annual_revenue",">=",20]]`)
		page := list + "top=2&sort=-annual_revenue&select=name%2Cannual_revenue&filter=" + filter
		h.same(h.get(200, h.do("GET", page+"&skip=0", "")),
			`{"object":"account","records":[{"name":"Acme","annual_revenue":1500.5},{"name":"M3","annual_revenue":30}],"total":3,"hasMore":true}`)
		h.same(h.get(200, h.do("GET", page+"&skip=2", "")),
			`{"object":"account","records":[{"name":"M2","annual_revenue":20}],"total":3,"hasMore":false}`)
		zero := h.get(200, h.do("GET", list+"top=0", ""))
		if len(zero["records"].([]any)) != 0 {
			t.Errorf("top=0 = %v", zero)
		}
		for query, want := range map[string]string{
			"sort=name":                                     "Acme,M1,M2,M3",
			"sort=-name":                                    "M3,M2,M1,Acme",
			"sort=name desc&limit=1":                        "M3",
			"orderBy=industry,-name":                        "M3,M1,M2,Acme",
			"$orderby=name&$top=2&$skip=1":                  "M1,M2",
			`sort=[{"field":"name","order":"desc"}]`:        "M3,M2,M1,Acme",
			"active=false":                                  "M1",
			"active=true&sort=name":                         "Acme,M2,M3",
			"annual_revenue=10":                             "M1",
			`where={"annual_revenue":{"$gt":10}}&sort=name`: "Acme,M2,M3",
			`$filter={"industry":{"$null":true}}`:           "M3",
			`filters=["name","=","M2"]`:                     "M2",
		} {
			pairs := strings.Split(query, "&")
			for i, pair := range pairs {
				name, value, _ := strings.Cut(pair, "=")
				pairs[i] = url.QueryEscape(name) + "=" + url.QueryEscape(value)
			}
			if got := names(h.get(200, h.do("GET", list+strings.Join(pairs, "&"), ""))); got != want {
				t.Errorf("%s = %s, want %s", query, got, want)
			}
		}
		// The client ends the path with a lone question mark.
		if got := len(h.get(200, h.do("GET", list, ""))["records"].([]any)); got != 4 {
			t.Errorf("%d records", got)
		}
	})
}

func TestQueryOperators(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		h.seed()
		for where, want := range map[string]string{
			`{"annual_revenue":{"$gt":10,"$lte":30}}`:                 "M2,M3",
			`{"industry":{"$in":["finance","retail"]}}`:               "M1,M2",
			`{"active":{"$ne":true}}`:                                 "M1",
			`{"industry":{"$null":true}}`:                             "M3",
			`{"name":{"$startsWith":"M"}}`:                            "M1,M2,M3",
			`{"annual_revenue":{"$between":[10,20]}}`:                 "M1,M2",
			`{"$or":[{"industry":"retail"},{"annual_revenue":10}]}`:   "M1,M2",
			`{"$not":{"name":{"$startsWith":"M"}}}`:                   "Acme",
			`{"name":{"$icontains":"ACME"}}`:                          "Acme",
			`{"industry":{"$nin":["finance","technology"]}}`:          "M2,M3",
			`{"industry":null}`:                                       "M3",
			`{"industry":{"$in":[]}}`:                                 "",
			`{"$and":[]}`:                                             "Acme,M1,M2,M3",
			`["or",["name","=","M1"],["annual_revenue",">",1000]]`:    "Acme,M1",
			`{"name":{"$like":"M_"},"industry":{"$exists":true}}`:     "M1,M2",
			`[["name","starts_with","M"],["industry","is_not_null"]]`: "M1,M2",
		} {
			w := h.do("POST", "/api/v1/data/account/query", `{"where":`+where+`,"fields":["name"],"orderBy":[{"field":"name","order":"asc"}]}`)
			if got := names(h.get(200, w)); got != want {
				t.Errorf("%s = %s, want %s", where, got, want)
			}
		}
	})
}

func TestQueryPaging(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		h.seed()
		h.same(h.get(200, h.do("POST", "/api/v1/data/account/query", `{"fields":["annual_revenue"],
			"orderBy":[{"field":"annual_revenue","order":"desc"}],"limit":2,"offset":1,"object":"account"}`)),
			`{"object":"account","records":[{"annual_revenue":30},{"annual_revenue":20}],"total":4,"hasMore":true}`)
		counted := h.get(200, h.do("POST", "/api/v1/data/account/query", `{"limit":1,"count":false}`))
		if _, has := counted["total"]; has || counted["hasMore"] != true {
			t.Errorf("count:false = %v", counted)
		}
	})
}

func TestQuerySearchAndGroups(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		h.seed()
		h.same(h.get(200, h.do("POST", "/api/v1/data/account/query", `{"search":"acme","limit":5,"fields":["name"]}`)),
			`{"object":"account","records":[{"name":"Acme"}],"total":1,"hasMore":false}`)
		groups := `{"object":"account","records":[{"active":false,"n":1,"total":10},{"active":true,"n":3,"total":1550.5}],"total":2,"hasMore":false}`
		h.same(h.get(200, h.do("POST", "/api/v1/data/account/query", `{"groupBy":["active"],"orderBy":[{"field":"active","order":"asc"}],
			"aggregations":[{"function":"count","alias":"n"},{"function":"sum","field":"annual_revenue","alias":"total"}]}`)), groups)
		h.same(h.get(200, h.do("GET", "/api/v1/data/account?groupBy=active&sort=active&aggregations="+
			url.QueryEscape(`[{"function":"count","alias":"n"},{"function":"sum","field":"annual_revenue","alias":"total"}]`), "")), groups)
	})
}

func TestQueryRefusals(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		h.seed()
		const query = "/api/v1/data/account/query"
		h.same(h.get(400, h.do("POST", query, `{"where":{"nope":1}}`)),
			`{"error":"Query parameter 'where' filters on 'nope', which is not a field on object 'account'. A filter on a field that does not exist can only match zero records, so the query was refused instead of answered with an empty list.","code":"INVALID_FIELD","field":"nope","object":"account"}`)
		h.same(h.get(400, h.do("POST", query, `{"where":{"annual_revenue":{"$foo":1}}}`)),
			`{"error":"Unsupported filter operator \"$foo\" on field \"annual_revenue\". Supported operators: $eq, $ne, $gt, $gte, $lt, $lte, $in, $nin, $between, $contains, $notContains, $startsWith, $endsWith, $icontains, $like, $ilike, $null, $exists.","code":"INVALID_FILTER","object":"account"}`)
		h.same(h.get(400, h.do("GET", "/api/v1/data/account?filter=%7Bbad", "")),
			`{"error":"Query parameter 'filter' must be valid JSON. It was not applied, and an unapplied filter would have returned the unfiltered result set.","code":"INVALID_FILTER","object":"account"}`)
		h.same(h.get(400, h.do("GET", "/api/v1/data/account?select=nope", "")),
			`{"error":"Unknown field 'nope' on object 'account'. 'select' chooses which fields to return; dropping an unknown one silently answered a NARROWER projection with a WIDER one — a projection naming no known field fell all the way back to every field.","code":"INVALID_FIELD","field":"nope","object":"account"}`)
		h.same(h.get(400, h.do("GET", "/api/v1/data/account?sort=nope", "")),
			`{"error":"Query parameter 'sort' sorts by 'nope', which is not a field on object 'account'. It was not applied, and an unapplied sort returns the rows in an arbitrary order — which 'top'/'limit' then slices into an arbitrary page.","code":"INVALID_SORT","object":"account"}`)
		h.same(h.get(400, h.do("GET", "/api/v1/data/account?pageSize=3", "")),
			`{"error":"Unknown field 'pageSize' on object 'account'. Query parameters that are not reserved are read as field filters, so an unknown name can only match zero records. Did you mean the 'top' query parameter (OData spelling '$top')?","code":"INVALID_FIELD","field":"pageSize","object":"account"}`)
		for target, code := range map[string]string{
			"?filter=" + url.QueryEscape(`["annual_revenue","~~",3]`): "INVALID_FILTER",
			"?filter=[]&where={}": "INVALID_FILTER",
			"?top=1&limit=2":      "INVALID_REQUEST",
			"?skip=-1":            "INVALID_REQUEST",
			"?top=x":              "INVALID_REQUEST",
			"?%24apply=x":         "UNSUPPORTED_QUERY_PARAM",
			"?expand=name":        "INVALID_FIELD",
			"?name=%00":           "INVALID_REQUEST",
			"?name=%ff":           "INVALID_REQUEST",
			"?%00=1":              "INVALID_REQUEST",
			"?name=%zz":           "INVALID_REQUEST",
			"?a;b":                "INVALID_REQUEST",
			"/x?top=1":            "UNSUPPORTED_QUERY_PARAM",
			"/x?select=nope":      "INVALID_FIELD",
			"/x?name=1":           "UNSUPPORTED_QUERY_PARAM",
		} {
			if got := h.get(400, h.do("GET", "/api/v1/data/account"+target, ""))["code"]; got != code {
				t.Errorf("%s: %v, want %s", target, got, code)
			}
		}
		for body, code := range map[string]string{
			``:                      "INVALID_REQUEST",
			`{bad`:                  "INVALID_REQUEST",
			`[]`:                    "INVALID_REQUEST",
			`{"limit":1,"limit":2}`: "INVALID_REQUEST",
			`{"object":"contact"}`:  "INVALID_REQUEST",
			`{"top":1}`:             "VALIDATION_FAILED",
			`{"limit":-1}`:          "VALIDATION_FAILED",
			`{"limit":1.5}`:         "VALIDATION_FAILED",
			`{"orderBy":"name"}`:    "VALIDATION_FAILED",
			`{"orderBy":[{"field":"name","direction":"asc"}]}`: "VALIDATION_FAILED",
			`{"where":{"name":{}}}`:                            "INVALID_FILTER",
			`{"where":{"name":{"$in":"x"}}}`:                   "INVALID_FILTER",
			`{"fields":["nope"]}`:                              "INVALID_FIELD",
			`{"orderBy":[{"field":"nope"}]}`:                   "INVALID_SORT",
		} {
			if got := h.get(400, h.do("POST", query, body))["code"]; got != code {
				t.Errorf("%s: %v, want %s", body, got, code)
			}
		}
	})
}
