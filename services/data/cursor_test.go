package data_test

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"testing"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
)

// mixed has fields of every kind that sorts, with nulls and equal values.
func mixed() object.Schema {
	return object.Schema{Name: "mixed", Label: "Mixed", Fields: object.Fields{
		{Name: "name", Type: object.Text, Index: true}, {Name: "size", Type: object.Number, Index: true},
		{Name: "done", Type: object.Boolean}, {Name: "at", Type: object.Datetime, Index: true}, {Name: "day", Type: object.Date},
	}}
}

func seedMixed(t *testing.T, b *bundle, n int) {
	t.Helper()
	rows := make([]data.Record, n)
	for i := range rows {
		r := data.Record{"id": fmt.Sprintf("id%03d", (i*37)%n)}
		if i%3 > 0 {
			r["name"], r["at"] = fmt.Sprintf("n%d", i%5), fmt.Sprintf("2026-01-0%dT00:00:00.000Z", 1+i%4)
		}
		if i%4 > 0 {
			r["size"], r["done"] = i%6-3, i%2 == 0
		}
		if i%5 > 0 {
			r["day"] = fmt.Sprintf("2026-02-0%d", 1+i%3)
		}
		rows[i] = r
	}
	must(b.CreateMany(b.as, "mixed", rows))(t)
}

func ids(records []data.Record) []string {
	out := make([]string, len(records))
	for i, r := range records {
		out[i] = r["id"].(string)
	}
	return out
}

// TestCursorReadsWhatOnePageWould pages through every sort and compares with
// the whole list.
func TestCursorReadsWhatOnePageWould(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{mixed()}, func(t *testing.T, b *bundle) {
		seedMixed(t, b, 60)
		for _, where := range []data.Filter{data.Where("size", "$ne", 2), data.And(data.In("size", 1, -2, 1.0), data.Where("day", "$null", false))} {
			comparePages(t, b, where)
		}
	})
}

func comparePages(t *testing.T, b *bundle, where data.Filter) {
	t.Helper()
	for _, order := range [][]data.Sort{
		nil, {{Field: "id", Desc: true}}, {{Field: "name"}}, {{Field: "name", Desc: true}}, {{Field: "size"}}, {{Field: "size", Desc: true}},
		{{Field: "done"}}, {{Field: "at", Desc: true}}, {{Field: "day"}, {Field: "name", Desc: true}}, {{Field: "done", Desc: true}, {Field: "size"}, {Field: "at"}},
	} {
		all := must(b.Find(b.as, "mixed", data.Query{Where: where, OrderBy: order}))(t)
		for _, size := range []int{1, 7, 50, 60} {
			var got []string
			q := data.Query{Where: where, OrderBy: order, Limit: &size, Cursor: "*", Fields: []string{"id"}}
			for pages := 0; q.Cursor != ""; pages++ {
				if pages > 60 {
					t.Fatalf("sort %v, pages of %d: no end", order, size)
				}
				page := must(b.Find(b.as, "mixed", q))(t)
				if first := q.Cursor == "*"; (page.Total != nil) != first {
					t.Errorf("total %v on page %d", page.Total, pages)
				}
				if page.HasMore != (page.NextCursor != "") || page.HasMore && len(page.Records) != size {
					t.Errorf("page of %d: more %t, cursor %q", len(page.Records), page.HasMore, page.NextCursor)
				}
				for _, r := range page.Records {
					equal(t, "fields", len(r), 1)
				}
				got, q.Cursor = append(got, ids(page.Records)...), page.NextCursor
			}
			equal(t, fmt.Sprintf("sort %v, pages of %d", order, size), got, ids(all.Records))
			q.Cursor, q.Offset = "", 3
			skipped := must(b.Find(b.as, "mixed", q))(t)
			rest := all.Records[min(3, len(all.Records)):]
			equal(t, fmt.Sprintf("sort %v, %d after 3", order, size), ids(skipped.Records), ids(rest[:min(size, len(rest))]))
			equal(t, "total", *skipped.Total, len(all.Records))
		}
	}
}

// TestCursorStaysWhereItWas changes the list between two pages.
func TestCursorStaysWhereItWas(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{mixed()}, func(t *testing.T, b *bundle) {
		for _, name := range []string{"a", "b", "c", "d"} {
			create(t, b, "mixed", data.Record{"id": name, "name": name})
		}
		q := data.Query{OrderBy: []data.Sort{{Field: "name"}}, Limit: ptr(2), Cursor: "*"}
		page := must(b.Find(b.as, "mixed", q))(t)
		create(t, b, "mixed", data.Record{"id": "aa", "name": "aa"})
		if err := b.Delete(b.as, "mixed", "b", data.Match{}); err != nil {
			t.Fatal(err)
		}
		q.Cursor = page.NextCursor
		equal(t, "second page", ids(must(b.Find(b.as, "mixed", q))(t).Records), []string{"c", "d"})
	})
}

func TestCursorRefuses(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{mixed()}, func(t *testing.T, b *bundle) {
		seedMixed(t, b, 4)
		by := func(field string) []data.Sort { return []data.Sort{{Field: field}} }
		next := must(b.Find(b.as, "mixed", data.Query{OrderBy: by("size"), Limit: ptr(1), Cursor: "*"}))(t).NextCursor
		cursor := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
		for name, test := range map[string]struct {
			query data.Query
			want  string
		}{
			"another sort":    {data.Query{OrderBy: by("name"), Limit: ptr(1), Cursor: next}, `{"error":"The cursor belongs to another sort; begin anew with '*'.","code":"INVALID_CURSOR","object":"mixed"}`},
			"no base64":       {data.Query{Limit: ptr(1), Cursor: "!"}, `{"error":"The cursor is not one of this host's.","code":"INVALID_CURSOR","object":"mixed"}`},
			"no JSON":         {data.Query{Limit: ptr(1), Cursor: cursor("{")}, `{"error":"The cursor is not one of this host's.","code":"INVALID_CURSOR","object":"mixed"}`},
			"wrong value":     {data.Query{OrderBy: by("size"), Limit: ptr(1), Cursor: cursor(`{"o":"size,id","v":["x","y"]}`)}, `{"error":"The cursor is not one of this host's.","code":"INVALID_CURSOR","object":"mixed"}`},
			"no id":           {data.Query{OrderBy: by("size"), Limit: ptr(1), Cursor: cursor(`{"o":"size,id","v":[1,null]}`)}, `{"error":"The cursor is not one of this host's.","code":"INVALID_CURSOR","object":"mixed"}`},
			"NUL":             {data.Query{Limit: ptr(1), Cursor: cursor(`{"o":"id","v":["\u0000"]}`)}, `{"error":"The cursor is not one of this host's.","code":"INVALID_CURSOR","object":"mixed"}`},
			"without a limit": {data.Query{Cursor: "*"}, `{"error":"a cursor needs a limit above 0","code":"INVALID_REQUEST","object":"mixed"}`},
			"an offset":       {data.Query{Cursor: "*", Limit: ptr(1), Offset: 1}, `{"error":"a cursor and an offset exclude each other","code":"INVALID_REQUEST","object":"mixed"}`},
			"groups":          {data.Query{Cursor: "*", Limit: ptr(1), GroupBy: []string{"name"}}, `{"error":"groups have no cursor","code":"INVALID_REQUEST","object":"mixed"}`},
		} {
			t.Log(name)
			_, err := b.Find(b.as, "mixed", test.query)
			refused(t, err, test.want)
		}
	})
}

func TestCursorIsAParameter(t *testing.T) {
	t.Parallel()
	schema := mixed()
	for given, want := range map[string]string{"": "*", "*": "*", "abc": "abc"} {
		q := must(data.ParseQueryParams(&schema, url.Values{"cursor": {given}, "top": {"2"}}))(t)
		equal(t, "GET", q.Cursor, want)
		q = must(data.ParseQueryBody(&schema, []byte(`{"cursor":"`+given+`","limit":2}`)))(t)
		equal(t, "POST", q.Cursor, want)
	}
}
