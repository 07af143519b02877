package rest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// TestLimitsHaveErrorsOfTheirOwn goes one beyond each limit.
func TestLimitsHaveErrorsOfTheirOwn(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		h.server.cfg.MaxPageSize = 3
		for i := range 4 {
			h.create(fmt.Sprintf(`{"name":"n%d"}`, i))
		}
		filter := func(text string) string { return "/api/v1/data/account?filter=" + url.QueryEscape(text) }
		many := strings.TrimSuffix(strings.Repeat(`"a",`, 10_001), ",")
		for path, want := range map[string]string{
			"/api/v1/data/account?top=4": `{"error":"A page holds at most 3 records, 4 were asked for.","code":"PAGE_TOO_LARGE","object":"account","max":3}`,
			"/api/v1/data/account":       `{"error":"More than 3 records match. Read them in pages, with 'top' and 'cursor', or export them.","code":"RESULT_TOO_LARGE","object":"account","max":3}`,
			filter(strings.Repeat(`["not",`, 40) + `["name","=","x"]` + strings.Repeat(`]`, 40)): `{"error":"The filter is nested deeper than 32 levels.","code":"FILTER_TOO_DEEP","object":"account","max":32}`,
			filter(`["name","in",[` + many + `]]`):                                               `{"error":"The filter holds more than 10000 values.","code":"TOO_MANY_VALUES","object":"account","max":10000}`,
			filter(`["name","=","` + strings.Repeat("x", 257<<10) + `"]`):                        `{"error":"The filter is longer than 262144 bytes.","code":"FILTER_TOO_LARGE","object":"account","max":262144}`,
		} {
			h.same(h.get(400, h.do("GET", path, "")), want)
		}
		h.same(h.get(200, h.do("GET", "/api/v1/data/account?name=n1&select=name", "")), `{"object":"account","records":[{"name":"n1"}],"total":1,"hasMore":false}`)
		h.get(400, h.do("POST", "/api/v1/data/account/query", `{"limit":4}`))
	})
}

// TestQueriesHaveATimeLimit holds the database's only answer back until the time
// is up.
func TestQueriesHaveATimeLimit(t *testing.T) {
	eachHost(t, func(t *testing.T, h *host) {
		h.create(`{"name":"x"}`)
		h.server.cfg.QueryTimeout = time.Nanosecond
		h.same(h.get(504, h.do("GET", "/api/v1/data/account?top=1", "")),
			`{"error":"The query was given up after 1ns. Filter or sort by a field that has an index.","code":"QUERY_TIMEOUT","object":"account"}`)
		h.same(h.get(504, h.do("POST", "/api/v1/data/account/query", `{}`)),
			`{"error":"The query was given up after 1ns. Filter or sort by a field that has an index.","code":"QUERY_TIMEOUT","object":"account"}`)
	})
}

// FuzzFind asks a real host for lists: whatever the query says, it is answered or
// refused, and never breaks the host.
func FuzzFind(f *testing.F) {
	for _, seed := range []string{
		"top=1&cursor=", "filter=%5B%22name%22,%22in%22,%5B1%5D%5D", "sort=-name,id&select=id", "groupBy=active&aggregations=%5B%7B%22function%22:%22count%22,%22alias%22:%22n%22%7D%5D",
		"search=a%20b&expand=owner_id", "name=%00", "$filter=%7B%22$or%22:%5B%5D%7D", "top=1&cursor=eyJvIjoiaWQiLCJ2IjpbIngiXX0", "where=%7B%22annual_revenue%22:%7B%22$between%22:%5B1,2%5D%7D%7D", "having=%7B%7D&count=false",
		"filter=%5B%22created_at%22,%22%3E%22,%22NOW()%22%5D", "trash=true", "skip=99999999999999999999",
	} {
		f.Add(seed, `{"where":{"name":{"$like":"%a\\"}},"orderBy":[{"field":"name"}]}`)
	}
	h := setupHost(f, storagetest.Open(f, storagetest.SQLite(f), storage.Config{}))
	if _, err := h.engine.CreateMany(identity.With(f.Context(), identity.Principal{System: true}), "account", []data.Record{{"name": "a"}, {"name": "b", "annual_revenue": 1}}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, query, body string) {
		if w := call(t, h.server.Handler(), "POST", "/api/v1/data/account/query", body, "X-API-Key", h.key); w.Code >= 500 {
			t.Errorf("%q: %d %s", body, w.Code, w.Body)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://host/api/v1/data/account", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.URL.RawQuery = query
		r.Header.Set("X-API-Key", h.key)
		w := httptest.NewRecorder()
		h.server.Handler().ServeHTTP(w, r)
		if w.Code >= 500 || w.Code == 400 && strings.Contains(w.Body.String(), "SQL") {
			t.Errorf("%q: %d %s", query, w.Code, w.Body)
		}
	})
}
