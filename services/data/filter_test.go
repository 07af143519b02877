package data_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
)

// thing has a field of every kind that filters tell apart.
func thing() object.Schema {
	return object.Schema{Name: "thing", Fields: object.Fields{
		{Name: "name", Type: object.Text, Index: true}, {Name: "other", Type: object.Text},
		{Name: "size", Type: object.Number, Index: true}, {Name: "weight", Type: object.Currency},
		{Name: "on", Type: object.Boolean}, {Name: "at", Type: object.Datetime}, {Name: "day", Type: object.Date}, {Name: "clock", Type: object.Time},
		{Name: "tags", Type: object.Tags}, {Name: "blob", Type: object.JSON}, {Name: "pin", Type: object.Secret}, {Name: "inner", Type: object.Text, Internal: true},
	}}
}

// names finds the names of the things that a filter selects.
func names(t testing.TB, b *bundle, filter string) string {
	t.Helper()
	schema := must(b.Object("thing"))(t)
	f, err := data.ParseFilter(schema, json.RawMessage(filter))
	if err != nil {
		return err.(*data.Error).Code
	}
	page := must(b.Find(b.as, "thing", data.Query{Where: f, OrderBy: []data.Sort{{Field: "name"}}}))(t)
	out := []string{}
	for _, record := range page.Records {
		out = append(out, fmt.Sprint(record["name"]))
	}
	return strings.Join(out, " ")
}

func TestFilterMeanings(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{thing()}, func(t *testing.T, b *bundle) {
		must(b.CreateMany(b.as, "thing", []data.Record{
			{"name": "john_doe", "other": "john_doe", "size": 1, "on": true, "at": "2026-01-01T00:00:00Z", "day": "2026-01-01", "clock": "09:30", "tags": "a,b"},
			{"name": "johnXdoe", "other": "b", "size": "9007199254740993", "on": false, "at": "2026-01-01T00:00:00.120Z", "day": "2026-01-02", "clock": "09:30:00.5", "tags": []string{"b,c", `x"a`}},
			{"name": "100%", "size": "123456789012345678901234567890.5", "weight": "123456789012345678901234567890.5"},
			{"name": "Ünal", "other": "ünal", "size": "-0.5", "weight": 3, "tags": []string{}},
			{"name": `back\slash`, "size": "9007199254740992", "weight": "9007199254740993"},
		}))(t)
		for _, tc := range []struct{ filter, want string }{
			{`null`, `100% back\slash johnXdoe john_doe Ünal`},
			{`{}`, `100% back\slash johnXdoe john_doe Ünal`},
			{`[]`, `100% back\slash johnXdoe john_doe Ünal`},
			{`{"name":"john_doe"}`, `john_doe`},
			{`{"other":null}`, `100% back\slash`},
			{`{"other":{"$ne":null}}`, `johnXdoe john_doe Ünal`},
			{`{"other":{"$ne":"b"}}`, `100% back\slash john_doe Ünal`},
			{`{"other":{"$nin":["b"]}}`, `100% back\slash john_doe Ünal`},
			{`{"$not":{"other":"b"}}`, `100% back\slash john_doe Ünal`},
			{`{"$not":{"other":{"$gt":"c"}}}`, `100% back\slash johnXdoe`},
			{`{"other":{"$notContains":"b"}}`, `100% back\slash john_doe Ünal`},
			{`{"$not":{"$or":[{"other":null},{"name":{"$contains":"doe"}}]}}`, `Ünal`},
			{`{"other":{"$in":[]}}`, ``},
			{`{"other":{"$nin":[]}}`, `100% back\slash johnXdoe john_doe Ünal`},
			{`{"$and":[]}`, `100% back\slash johnXdoe john_doe Ünal`},
			{`{"$or":[]}`, ``},
			{`{"$not":{}}`, ``},
			{`{"other":{"$in":[null]}}`, `INVALID_FILTER`},
			{`{"other":{"$nin":["a",null]}}`, `INVALID_FILTER`},
			{`{"other":{"$in":"a"}}`, `INVALID_FILTER`},
			{`{"size":{"$between":[1]}}`, `INVALID_FILTER`},
			{`{"size":{}}`, `INVALID_FILTER`},
			{`{"name":{"$contains":"_"}}`, `john_doe`},
			{`{"name":{"$contains":"%"}}`, `100%`},
			{`{"name":{"$contains":"\\"}}`, `back\slash`},
			{`{"name":{"$contains":"ünal"}}`, ``},
			{`{"name":{"$icontains":"ünal"}}`, ``},
			{`{"name":{"$icontains":"ÜNAL"}}`, `Ünal`},
			{`{"name":{"$icontains":"JOHN"}}`, `johnXdoe john_doe`},
			{`{"name":{"$contains":"JOHN"}}`, ``},
			{`{"name":{"$startsWith":"john_"}}`, `john_doe`},
			{`{"name":{"$endsWith":"doe"}}`, `johnXdoe john_doe`},
			{`{"name":{"$endsWith":"a very long suffix that nothing has"}}`, ``},
			{`{"name":{"$like":"john_doe"}}`, `johnXdoe john_doe`},
			{`{"name":{"$like":"john\\_doe"}}`, `john_doe`},
			{`{"name":{"$like":"john"}}`, ``},
			{`{"name":{"$like":"%\\%"}}`, `100%`},
			{`{"name":{"$like":"JOHN%"}}`, ``},
			{`{"name":{"$ilike":"JOHN%"}}`, `johnXdoe john_doe`},
			{`{"name":{"$like":"_nal"}}`, `Ünal`},
			{`{"name":{"$like":"back*"}}`, ``},
			{`{"name":{"$like":"?nal"}}`, ``},
			{`{"name":{"$like":"[j]ohn%"}}`, ``},
			{`{"name":{"$like":"x\\"}}`, `INVALID_FILTER`},
			{`{"size":9007199254740993}`, `johnXdoe`},
			{`{"size":"9007199254740993.0"}`, `johnXdoe`},
			{`{"size":{"$gt":9007199254740992}}`, `100% johnXdoe`},
			{`{"size":{"$between":[-1,1]}}`, `john_doe Ünal`},
			{`{"$not":{"size":{"$between":[-1,1]}}}`, `100% back\slash johnXdoe`},
			{`{"size":{"$eq":{"$field":"weight"}}}`, `100%`},
			{`{"size":{"$ne":{"$field":"weight"}}}`, `back\slash johnXdoe john_doe Ünal`},
			{`{"weight":{"$gt":{"$field":"size"}}}`, `back\slash Ünal`},
			{`{"size":{"$field":"name"}}`, `INVALID_FILTER`},
			{`{"on":false}`, `johnXdoe`},
			{`{"on":"false"}`, `johnXdoe`},
			{`{"on":{"$ne":true}}`, `100% back\slash johnXdoe Ünal`},
			{`{"on":{"$gt":true}}`, `INVALID_FILTER`},
			{`{"at":"2026-01-01T00:00:00Z"}`, `john_doe`},
			{`{"at":{"$gt":"2026-01-01T07:00:00 07:00"}}`, `johnXdoe`},
			{`{"at":{"$gte":1767225600120}}`, `johnXdoe`},
			{`{"day":{"$lte":"2026-01-01"}}`, `john_doe`},
			{`{"clock":{"$gt":"09:30:00"}}`, `johnXdoe`},
			{`{"tags":{"$contains":"a"}}`, `john_doe`},
			{`{"tags":"b,c"}`, `johnXdoe`},
			{`{"tags":{"$notContains":"a"}}`, `100% back\slash johnXdoe Ünal`},
			{`{"tags":["a","b"]}`, `john_doe`},
			{`{"tags":[]}`, `Ünal`},
			{`{"tags":{"$in":["zz","b"]}}`, `john_doe`},
			{`{"blob":{"$null":true}}`, `100% back\slash johnXdoe john_doe Ünal`},
			{`{"blob":1}`, `INVALID_FILTER`},
			{`{"pin":{"$null":true}}`, `INVALID_FILTER`},
			{`{"inner":"x"}`, `INVALID_FIELD`},
			{`{"nope":1}`, `INVALID_FIELD`},
			{`{"size":{"$foo":1}}`, `INVALID_FILTER`},
			{`{"$foo":[]}`, `INVALID_FILTER`},
			{`{"size":"x"}`, `INVALID_FILTER`},
			{`{"name":"a\u0000b"}`, `INVALID_FILTER`},
			{`{"name":"\ud800"}`, `INVALID_FILTER`},
			{`{bad`, `INVALID_FILTER`},
			{`3`, `INVALID_FILTER`},
			{`["name","=","100%"]`, `100%`},
			{`["AND",["name","contains","doe"],["size",">",1]]`, `johnXdoe`},
			{`["or",["name","eq","100%"],{"name":"Ünal"}]`, `100% Ünal`},
			{`[["name","CONTAINS","doe"],["size","<=",1]]`, `john_doe`},
			{`["other","is_null"]`, `100% back\slash`},
			{`["other","isNotNull",null]`, `johnXdoe john_doe Ünal`},
			{`["size","between",[1,2]]`, `john_doe`},
			{`["size","~~",1]`, `INVALID_FILTER`},
			{`["size","="]`, `INVALID_FILTER`},
			{`["and",1]`, `INVALID_FILTER`},
		} {
			if got := names(t, b, tc.filter); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.filter, got, tc.want)
			}
		}
	})
}

func TestFilterLimits(t *testing.T) {
	t.Parallel()
	schema := thing()
	deep := strings.Repeat(`{"$not":`, 40) + `{"name":"a"}` + strings.Repeat(`}`, 40)
	wide := `{"name":{"$in":[` + strings.TrimSuffix(strings.Repeat(`"a",`, 10_001), ",") + `]}}`
	long := `{"name":"` + strings.Repeat("a", 257<<10) + `"}`
	for filter, want := range map[string]string{
		deep: "FILTER_TOO_DEEP on thing: The filter is nested deeper than 32 levels.",
		strings.Repeat("[", 100) + strings.Repeat("]", 100): "FILTER_TOO_DEEP on thing: The filter is nested deeper than 32 levels.",
		wide: "TOO_MANY_VALUES on thing: The filter holds more than 10000 values.",
		long: "FILTER_TOO_LARGE on thing: The filter is longer than 262144 bytes.",
	} {
		_, err := data.ParseFilter(&schema, json.RawMessage(filter))
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for _, tc := range []struct{ filter, want string }{
		{`{"name":{"$like":"` + strings.Repeat("a", 2001) + `"}}`, `The pattern on field "name" is longer than 2000 characters or ends in a lone \.`},
		{`["annual","~~",3]`, `Malformed $filter: unrecognised operator "~~" in ["annual", ...]. A filter array is a comparison [field, operator, value], a logical node ["and"|"or", ...conditions], or a list of those. Recognised operators: !=, <, <=, <>, =, ==, >, >=, after, before, between, contains, ends_with, endswith, eq, equals, greater_than, greater_than_or_equal, greaterorequal, greaterthan, greaterthanorequal, gt, gte, icontains, ilike, in, is_empty, is_not_empty, is_not_null, is_null, isempty, isnotempty, isnotnull, isnull, less_than, less_than_or_equal, lessorequal, lessthan, lessthanorequal, like, lt, lte, ne, neq, nin, not_contains, not_equals, not_in, notcontains, notequals, notin, starts_with, startswith.`},
		{`{"size":{"$foo":1}}`, `Unsupported filter operator "$foo" on field "size". Supported operators: $eq, $ne, $gt, $gte, $lt, $lte, $in, $nin, $between, $contains, $notContains, $startsWith, $endsWith, $icontains, $like, $ilike, $null, $exists.`},
	} {
		_, err := data.ParseFilter(&schema, json.RawMessage(tc.filter))
		if e := must2[*data.Error](t, err); e.Message != tc.want {
			t.Errorf("got  %s\nwant %s", e.Message, tc.want)
		}
	}
}

// Random filters over random records select the same on both databases as an
// evaluation in memory.
func TestFiltersAgreeWithMemory(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{thing()}, func(t *testing.T, b *bundle) {
		schema := must(b.Object("thing"))(t)
		rapid.Check(t, func(rt *rapid.T) {
			if _, err := b.DeleteWhere(b.system, "thing", data.Filter{}); err != nil {
				t.Fatal(err)
			}
			rows := rapid.SliceOfN(genThing(), 1, 12).Draw(rt, "rows")
			records := must(b.CreateMany(b.as, "thing", rows))(t).Records
			for range 8 {
				f := genFilter(3).Draw(rt, "filter")
				page, err := b.Find(b.as, "thing", data.Query{Where: f})
				if err != nil {
					rt.Fatalf("find: %v", err)
				}
				var got, want []string
				for _, record := range page.Records {
					got = append(got, record["id"].(string))
				}
				for _, record := range records {
					ok, err := data.Matches(schema, f, record)
					if err != nil {
						rt.Fatal(err)
					}
					if ok {
						want = append(want, record["id"].(string))
					}
				}
				slices.Sort(want)
				if !slices.Equal(got, want) {
					rt.Fatalf("found %v, want %v, of %s", got, want, jsonOf(t, records))
				}
			}
		})
	})
}

// The generators are made anew for each test: rapid fills parts of them while
// it draws.

func genText() *rapid.Generator[string] {
	return rapid.StringOf(rapid.RuneFrom([]rune(`aAbZ_%\*?[]^-"',ü€😀Ü. `)))
}

func genNumber() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"0", "-0", "1", "1.0", "-1", "0.1", "9007199254740993", "9007199254740992", "99999999999999999999999999999999999999", "-0.00000000000000000001", "10", "9"})
}

func genAt() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"2026-01-01T00:00:00Z", "2026-01-01T00:00:00.12Z", "1969-12-31T23:59:59.999Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z"})
}

func genDay() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"2026-01-01", "0001-01-01", "9999-12-31", "2026-01-02"})
}

func genClock() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"00:00:00", "09:30:00.500", "09:30:00", "23:59:59.999"})
}

func genList() *rapid.Generator[[]any] {
	return rapid.SliceOfN(rapid.SampledFrom([]any{"a", "b", ",", `"`, `\`, "a,b", "ü"}), 0, 3)
}

func maybe[T any](g *rapid.Generator[T]) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		if rapid.IntRange(0, 3).Draw(t, "null") == 0 {
			return nil
		}
		return g.Draw(t, "value")
	})
}

func genThing() *rapid.Generator[data.Record] {
	return rapid.Custom(func(t *rapid.T) data.Record {
		return data.Record{
			"name": maybe(genText()).Draw(t, "name"), "other": maybe(genText()).Draw(t, "other"),
			"size": maybe(genNumber()).Draw(t, "size"), "weight": maybe(genNumber()).Draw(t, "weight"),
			"on": maybe(rapid.Bool()).Draw(t, "on"), "at": maybe(genAt()).Draw(t, "at"),
			"day": maybe(genDay()).Draw(t, "day"), "clock": maybe(genClock()).Draw(t, "clock"), "tags": maybe(genList()).Draw(t, "tags"),
		}
	})
}

func genFilter(depth int) *rapid.Generator[data.Filter] {
	return rapid.Custom(func(t *rapid.T) data.Filter {
		if depth > 0 {
			switch rapid.IntRange(0, 4).Draw(t, "shape") {
			case 0:
				return data.Not(genFilter(depth-1).Draw(t, "not"))
			case 1:
				return data.And(rapid.SliceOfN(genFilter(depth-1), 0, 3).Draw(t, "and")...)
			case 2:
				return data.Or(rapid.SliceOfN(genFilter(depth-1), 0, 3).Draw(t, "or")...)
			}
		}
		return genComparison(t)
	})
}

func genComparison(t *rapid.T) data.Filter {
	kinds := []struct {
		fields []string
		value  *rapid.Generator[any]
		text   bool
		order  bool
	}{
		{[]string{"name", "other"}, rapid.Map(genText(), func(s string) any { return s }), true, true},
		{[]string{"size", "weight"}, rapid.Map(genNumber(), func(s string) any { return s }), false, true},
		{[]string{"on"}, rapid.Map(rapid.Bool(), func(v bool) any { return v }), false, false},
		{[]string{"at"}, rapid.Map(genAt(), func(s string) any { return s }), false, true},
		{[]string{"day"}, rapid.Map(genDay(), func(s string) any { return s }), false, true},
		{[]string{"clock"}, rapid.Map(genClock(), func(s string) any { return s }), false, true},
	}
	if rapid.IntRange(0, 6).Draw(t, "list") == 0 {
		op := rapid.SampledFrom([]string{"$contains", "$notContains", "$in", "$nin", "$eq", "$ne", "$null"}).Draw(t, "op")
		switch op {
		case "$null":
			return data.Where("tags", op, rapid.Bool().Draw(t, "flag"))
		case "$contains", "$notContains":
			return data.Where("tags", op, rapid.SampledFrom([]any{"a", ",", `"`, `\`, "ü", "zz"}).Draw(t, "value"))
		default:
			return data.Where("tags", op, genList().Draw(t, "values"))
		}
	}
	kind := rapid.SampledFrom(kinds).Draw(t, "kind")
	field := rapid.SampledFrom(kind.fields).Draw(t, "field")
	ops := []string{"$eq", "$ne", "$in", "$nin", "$null", "$exists"}
	if kind.order {
		ops = append(ops, "$gt", "$gte", "$lt", "$lte", "$between")
	}
	if kind.text {
		ops = append(ops, "$contains", "$notContains", "$startsWith", "$endsWith", "$icontains", "$like", "$ilike")
	}
	op := rapid.SampledFrom(ops).Draw(t, "op")
	value := kind.value.Draw(t, "value")
	switch op {
	case "$in", "$nin":
		return data.Where(field, op, rapid.SliceOfN(kind.value, 0, 3).Draw(t, "values"))
	case "$between":
		return data.Where(field, op, []any{value, kind.value.Draw(t, "max")})
	case "$null", "$exists":
		return data.Where(field, op, rapid.Bool().Draw(t, "flag"))
	case "$like", "$ilike":
		text := strings.TrimRight(value.(string), `\`)
		return data.Where(field, op, text)
	case "$eq", "$ne", "$gt", "$gte", "$lt", "$lte":
		if len(kind.fields) > 1 && rapid.IntRange(0, 3).Draw(t, "other field") == 0 {
			return data.Where(field, op, data.FieldRef(kind.fields[1]))
		}
		if (op == "$eq" || op == "$ne") && rapid.IntRange(0, 5).Draw(t, "with null") == 0 {
			return data.Where(field, op, nil)
		}
	}
	return data.Where(field, op, value)
}

func FuzzParseFilter(f *testing.F) {
	for _, seed := range []string{`{"name":{"$like":"a%\\_"}}`, `["and",["size",">",1],{"$or":[{"on":true}]}]`, `{"$not":[["tags","in",["a"]]]}`, `{"size":{"$field":"weight"}}`, `[[]]`, `{"a":{"$field":1}}`} {
		f.Add(seed)
	}
	schema := thing()
	f.Fuzz(func(t *testing.T, in string) {
		filter, err := data.ParseFilter(&schema, json.RawMessage(in))
		if err != nil {
			if e, ok := err.(*data.Error); !ok || e.Code != data.CodeInvalidFilter && e.Code != data.CodeInvalidField {
				t.Fatalf("%q: %v", in, err)
			}
			return
		}
		if _, err := data.Matches(&schema, filter, data.Record{"name": "a", "size": json.Number("1"), "tags": []any{"a"}}); err != nil {
			t.Fatalf("%q parses but does not evaluate: %v", in, err)
		}
	})
}
