package data_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
)

// find answers a GET's query string as "names|total|hasMore", or the error's
// code and message.
func find(t testing.TB, b *bundle, query string) string {
	t.Helper()
	params := must(url.ParseQuery(query))(t)
	q, err := data.ParseQueryParams(must(b.Object("account"))(t), params)
	if err != nil {
		return err.(*data.Error).Code + ": " + err.(*data.Error).Message
	}
	return run(t, b, q)
}

func run(t testing.TB, b *bundle, q data.Query) string {
	t.Helper()
	page, err := b.Find(b.as, "account", q)
	if err != nil {
		return err.(*data.Error).Code + ": " + err.(*data.Error).Message
	}
	var names []string
	for _, record := range page.Records {
		names = append(names, fmt.Sprint(record["name"]))
	}
	total := "-"
	if page.Total != nil {
		total = fmt.Sprint(*page.Total)
	}
	return fmt.Sprintf("%s|%s|%t", strings.Join(names, " "), total, page.HasMore)
}

func seed(t testing.TB, b *bundle) {
	t.Helper()
	must(b.CreateMany(b.as, "account", []data.Record{
		{"name": "M1", "industry": "finance", "annual_revenue": 10, "active": false, "code": "a1"},
		{"name": "M2", "industry": "retail", "annual_revenue": 20},
		{"name": "M3", "annual_revenue": 30},
		{"name": "Acme Big", "industry": "technology", "annual_revenue": "1500.5"},
		{"name": "Zero"},
	}))(t)
}

func TestQueryParams(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account()}, func(t *testing.T, b *bundle) {
		seed(t, b)
		filter := func(text string) string { return "filter=" + url.QueryEscape(text) }
		for _, tc := range []struct{ query, want string }{
			{"sort=name", "Acme Big M1 M2 M3 Zero|5|false"},
			{"$orderby=name desc&top=2", "Zero M3|5|true"},
			{"sort=-name&$top=2&skip=4", "Acme Big|5|false"},
			{"sort=-name&top=2&skip=9", "|5|false"},
			{"top=0", "|0|false"},
			{"top=2&skip=0&sort=-name&select=id,name&industry=finance&name=M1", "M1|1|false"},
			{"sort=annual_revenue", "Zero M1 M2 M3 Acme Big|5|false"},
			{"sort=-annual_revenue", "Acme Big M3 M2 M1 Zero|5|false"},
			{"sort=industry,-name", "Zero M3 M1 M2 Acme Big|5|false"},
			{"sort=" + url.QueryEscape(`[{"field":"name","order":"desc"}]`) + "&top=1", "Zero|5|true"},
			{"active=false", "M1|1|false"},
			{"count=false&top=1&sort=name", "Acme Big|-|true"},
			{"search=acme big", "Acme Big|1|false"},
			{"search=b a", "Acme Big|1|false"},
			{filter(`["and",["name","contains","M"],["annual_revenue",">=",20]]`) + "&sort=name&industry=retail", "M2|1|false"},
			{filter(`{"annual_revenue":{"$gt":20}}`) + "&sort=name", "Acme Big M3|2|false"},
			{"expand=owner_id&sort=name", "Acme Big M1 M2 M3 Zero|5|false"},
			{"filter=" + url.QueryEscape("{bad"), "INVALID_FILTER: Query parameter 'filter' must be valid JSON. It was not applied, and an unapplied filter would have returned the unfiltered result set."},
			{"select=nope", "INVALID_FIELD: Unknown field 'nope' on object 'account'. 'select' chooses which fields to return; dropping an unknown one silently answered a NARROWER projection with a WIDER one — a projection naming no known field fell all the way back to every field."},
			{"sort=nope", "INVALID_SORT: Query parameter 'sort' sorts by 'nope', which is not a field on object 'account'. It was not applied, and an unapplied sort returns the rows in an arbitrary order — which 'top'/'limit' then slices into an arbitrary page."},
			{"pageSize=3", "INVALID_FIELD: Unknown field 'pageSize' on object 'account'. Query parameters that are not reserved are read as field filters, so an unknown name can only match zero records. Did you mean the 'top' query parameter (OData spelling '$top')?"},
			{"top=1&limit=2", "INVALID_REQUEST: Query parameters 'limit' and 'top' mean the same and were given different values."},
			{"top=2&limit=2&sort=name", "Acme Big M1|5|true"},
			{"filter={}&where={}", "INVALID_FILTER: Query parameter 'where' was given more than once. Combine the filters in one with [\"and\", ...]."},
			{"$apply=x", "UNSUPPORTED_QUERY_PARAM: Query parameter '$apply' is not supported."},
			{"skip=-1", "INVALID_REQUEST: Query parameter 'skip' must be a whole number of 0 or more."},
			{"top=x", "INVALID_REQUEST: Query parameter 'top' must be a whole number of 0 or more."},
			{"sort=name up", "INVALID_SORT: Query parameter 'sort' holds 'name up'; write 'field', '-field' or 'field desc'."},
			{"annual_revenue=x", `INVALID_FILTER: Invalid value for field "annual_revenue": a number is needed.`},
		} {
			if got := find(t, b, tc.query); got != tc.want {
				t.Errorf("%s:\n got %s\nwant %s", tc.query, got, tc.want)
			}
		}
	})
}

func TestQueryBody(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account()}, func(t *testing.T, b *bundle) {
		seed(t, b)
		schema := must(b.Object("account"))(t)
		for _, tc := range []struct{ body, want string }{
			{`{"where":{"name":{"$contains":"M"}},"fields":["name"],"orderBy":[{"field":"annual_revenue","order":"desc"}],"limit":2,"offset":1,"object":"account"}`, "M2 M1|3|false"},
			{`{"limit":1,"count":false,"orderBy":[{"field":"name"}]}`, "Acme Big|-|true"},
			{`{"search":"acme BIG","limit":5}`, "Acme Big|1|false"},
			{`{"search":"a1","searchFields":["code"]}`, "M1|1|false"},
			{`{"search":"a1","searchFields":["annual_revenue"]}`, "INVALID_FIELD: Field 'annual_revenue' of object 'account' cannot be searched"},
			{`{"orderBy":[{"field":"name","direction":"desc"}]}`, `VALIDATION_FAILED: orderBy[0].direction is not allowed: an entry is {field, order: "asc" or "desc"}`},
			{`{"orderBy":"name"}`, "VALIDATION_FAILED: orderBy must be an array of {field, order}"},
			{`{"object":"other"}`, "INVALID_REQUEST: The body's object must be 'account', as in the path."},
			{`{"top":1}`, "VALIDATION_FAILED: 'top' is not a key of a query. Known keys: where, fields, orderBy, limit, offset, cursor, expand, search, searchFields, groupBy, aggregations, having, count, trash, object."},
			{`{"limit":-1}`, "VALIDATION_FAILED: limit must be a whole number of 0 or more"},
			{`{"limit":1.5}`, "VALIDATION_FAILED: limit must be a whole number of 0 or more"},
			{`{"where":{"nope":1}}`, "INVALID_FIELD: Query parameter 'where' filters on 'nope', which is not a field on object 'account'. A filter on a field that does not exist can only match zero records, so the query was refused instead of answered with an empty list."},
			{`[1]`, "INVALID_REQUEST: A query is a JSON object."},
			{`{"having":{"n":1}}`, "INVALID_REQUEST: having needs groupBy or aggregations"},
			{`{"trash":true}`, "INVALID_REQUEST: Object 'account' keeps no trash"},
			{`{"limit":1,"limit":2}`, `INVALID_REQUEST: invalid JSON: key "limit" comes twice`},
		} {
			q, err := data.ParseQueryBody(schema, []byte(tc.body))
			got := ""
			if err != nil {
				got = err.(*data.Error).Code + ": " + err.(*data.Error).Message
			} else {
				got = run(t, b, q)
			}
			if got != tc.want {
				t.Errorf("%s:\n got %s\nwant %s", tc.body, got, tc.want)
			}
		}
	})
}

func TestAggregates(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account()}, func(t *testing.T, b *bundle) {
		seed(t, b)
		must(b.Create(b.as, "account", data.Record{"name": "Huge", "annual_revenue": "12345678901234567890123456789012345678", "industry": "retail"}))(t)
		schema := must(b.Object("account"))(t)
		for _, tc := range []struct{ body, want string }{
			{`{"where":{"name":{"$ne":"Huge"}},"groupBy":["active"],"aggregations":[{"function":"count","alias":"n"},{"function":"sum","field":"annual_revenue","alias":"total"}]}`,
				`[{"active":false,"n":1,"total":10},{"active":true,"n":4,"total":1550.5}]|2|false`},
			{`{"groupBy":["industry"],"aggregations":[{"function":"sum","field":"annual_revenue","alias":"s"},{"function":"avg","field":"annual_revenue","alias":"a"}]}`,
				`[{"a":30,"industry":null,"s":30},{"a":10,"industry":"finance","s":10},{"a":6172839450617283945061728394506172849,"industry":"retail","s":12345678901234567890123456789012345698},{"a":1500.5,"industry":"technology","s":1500.5}]|4|false`},
			{`{"groupBy":["industry"],"aggregations":[{"function":"count","alias":"n"}],"having":{"n":{"$gt":1}},"orderBy":[{"field":"industry","order":"desc"}],"limit":1}`,
				`[{"industry":"retail","n":2}]|2|true`},
			{`{"aggregations":[{"function":"min","field":"name","alias":"first"},{"function":"max","field":"annual_revenue","alias":"most"},{"function":"count_distinct","field":"industry","alias":"kinds"},{"function":"max","field":"created_at","alias":"at"}]}`,
				`[{"at":"2026-11-30T17:02:15.225Z","first":"Acme Big","kinds":3,"most":12345678901234567890123456789012345678}]|1|false`},
			{`{"where":{"name":"none"},"aggregations":[{"function":"sum","field":"annual_revenue","alias":"s"},{"function":"count","field":"code","alias":"n"}]}`, `[{"n":0,"s":null}]|1|false`},
			{`{"groupBy":["active"]}`, `[{"active":false},{"active":true}]|2|false`},
			{`{"aggregations":[{"function":"avg","field":"name","alias":"a"}]}`, "INVALID_REQUEST: The aggregation avg cannot be applied to field 'name' of type text"},
			{`{"aggregations":[{"function":"median","field":"name","alias":"a"}]}`, "INVALID_REQUEST: 'median' is not an aggregation: count, count_distinct, sum, avg, min, max"},
			{`{"aggregations":[{"function":"count"}]}`, "INVALID_REQUEST: An aggregation needs an alias of letters, digits and _, not ''"},
			{`{"groupBy":["nope"]}`, "INVALID_FIELD: Unknown field 'nope' on object 'account'"},
			{`{"groupBy":["active"],"orderBy":[{"field":"name"}]}`, "INVALID_SORT: 'name' is neither a group nor an alias of the query"},
		} {
			got := ""
			q, err := data.ParseQueryBody(schema, []byte(tc.body))
			var page *data.Page
			if err == nil {
				page, err = b.Find(b.as, "account", q)
			}
			if err != nil {
				got = err.(*data.Error).Code + ": " + err.(*data.Error).Message
			} else {
				got = fmt.Sprintf("%s|%d|%t", jsonOf(t, page.Records), *page.Total, page.HasMore)
			}
			if got != tc.want {
				t.Errorf("%s:\n got %s\nwant %s", tc.body, got, tc.want)
			}
		}
	})
}

func TestExpand(t *testing.T) {
	t.Parallel()
	each(t, family(), func(t *testing.T, b *bundle) {
		p := create(t, b, "parent", data.Record{"name": "p"})
		create(t, b, "friend", data.Record{"parent": p, "name": "f"})
		create(t, b, "fan", data.Record{"parent": []string{p}})
		one := must(b.Find(b.as, "friend", data.Query{Expand: []string{"parent"}, Fields: []string{"name"}}))(t).Records[0]
		equal(t, "expanded", one["parent"].(data.Record)["name"], any("p"))
		many := must(b.Find(b.as, "fan", data.Query{Expand: []string{"parent"}}))(t).Records[0]
		equal(t, "expanded list", many["parent"].([]any)[0].(data.Record)["name"], any("p"))
	})
}

func TestTotalIsCapped(t *testing.T) {
	t.Parallel()
	schema := object.Schema{Name: "dot", Fields: object.Fields{{Name: "n", Type: object.Number}}}
	each(t, []object.Schema{schema}, func(t *testing.T, b *bundle) {
		rows := make([]data.Record, data.MaxTotal)
		for i := range rows {
			rows[i] = data.Record{"n": i}
		}
		must(b.CreateMany(b.as, "dot", rows))(t)
		q := data.Query{Limit: ptr(1), OrderBy: []data.Sort{{Field: "n", Desc: true}}}
		page := must(b.Find(b.as, "dot", q))(t)
		equal(t, "10,000", []any{*page.Total, page.TotalCapped, page.Records[0]["n"]}, []any{10_000, false, json.Number("9999")})
		create(t, b, "dot", data.Record{"n": -1})
		page = must(b.Find(b.as, "dot", q))(t)
		equal(t, "10,001", []any{page.Total, page.TotalCapped, page.HasMore}, []any{(*int)(nil), true, true})
	})
}

func FuzzParseQueryParams(f *testing.F) {
	f.Add("sort=-name&top=2&filter=[]")
	f.Add("$orderby=name%20desc&select=id")
	schema := account()
	f.Fuzz(func(t *testing.T, in string) {
		params, err := url.ParseQuery(in)
		if err != nil {
			return
		}
		if _, err := data.ParseQueryParams(&schema, params); err != nil {
			if _, ok := err.(*data.Error); !ok {
				t.Fatalf("%q: %v", in, err)
			}
		}
	})
}

func FuzzParseQueryBody(f *testing.F) {
	f.Add(`{"where":{},"orderBy":[{"field":"name"}],"aggregations":[{"function":"count","alias":"n"}]}`)
	schema := account()
	f.Fuzz(func(t *testing.T, in string) {
		if _, err := data.ParseQueryBody(&schema, []byte(in)); err != nil {
			if _, ok := err.(*data.Error); !ok {
				t.Fatalf("%q: %v", in, err)
			}
		}
	})
}
