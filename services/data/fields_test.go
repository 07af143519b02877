package data_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/storage"
)

// fieldCase is what a field type has to stand: low and high are two values in
// their order (as given, and as read back), bad is refused with code.
type fieldCase struct {
	field     object.Field
	low, high any
	readLow   any
	readHigh  any
	bad       any
	code      string
	unordered bool
}

func fieldCases() []fieldCase {
	number := func(t object.FieldType) fieldCase {
		return fieldCase{field: object.Field{Type: t}, low: "-1.50", high: 10, readLow: json.Number("-1.5"), readHigh: json.Number("10"), bad: "1e38", code: "invalid_number"}
	}
	text := func(t object.FieldType, low, high, bad, code any) fieldCase {
		return fieldCase{field: object.Field{Type: t}, low: low, high: high, readLow: low, readHigh: high, bad: bad, code: code.(string)}
	}
	choices := []object.Option{{Label: "A", Value: "a"}, {Label: "B", Value: "b"}}
	choice := func(t object.FieldType) fieldCase {
		c := text(t, "A", "b", "c", "invalid_option")
		c.field.Options, c.readLow = choices, "a"
		return c
	}
	list := func(t object.FieldType) fieldCase {
		c := fieldCase{field: object.Field{Type: t, Options: choices}, low: "a, B,a", high: `["b"]`, readLow: []any{"a", "b"}, readHigh: []any{"b"}, bad: []any{"c"}, code: "invalid_option", unordered: true}
		return c
	}
	cases := []fieldCase{
		text(object.Text, "A", "a", 5, "invalid_type"), text(object.Textarea, "a\nb", "b", true, "invalid_type"), text(object.Markdown, "# a", "b", "a\x00", "invalid_format"),
		text(object.HTML, "<b>", "<c>", "\xff", "invalid_format"), text(object.Richtext, "a", "b", []any{}, "invalid_type"), text(object.Code, "", "x", map[string]any{"$eq": "a"}, "invalid_type"), text(object.Color, "#000000", "#ffffff", 1, "invalid_type"),
		text(object.Email, "a@b.org", "b@b.org", "a@b", "invalid_email"), text(object.URL, "http://a/?q=1", "https://b/", "/relative", "invalid_url"), text(object.Phone, "+1 (555) 010-999", "+49 30 123", "call me", "invalid_phone"),
		number(object.Number), number(object.Currency), number(object.Percent), number(object.Rating), number(object.Slider), number(object.Progress),
		{field: object.Field{Type: object.Date}, low: "2026-01-01T23:00:00-02:00", high: "2026-02-01", readLow: "2026-01-02", readHigh: "2026-02-01", bad: "2026-02-30", code: "invalid_date"},
		{field: object.Field{Type: object.Datetime}, low: "2026-01-01T07:00:00+07:00", high: 1767225600001, readLow: "2026-01-01T00:00:00.000Z", readHigh: "2026-01-01T00:00:00.001Z", bad: "yesterday", code: "invalid_date"},
		{field: object.Field{Type: object.Datetime, Format: object.FormatEpochMillis}, low: "2026-01-01", high: 1767225600001, readLow: json.Number("1767225600000"), readHigh: json.Number("1767225600001"), bad: true, code: "invalid_date"},
		{field: object.Field{Type: object.Time}, low: "09:30", high: "09:30:00.25", readLow: "09:30:00", readHigh: "09:30:00.250", bad: "25:00", code: "invalid_time"},
		{field: object.Field{Type: object.Boolean}, low: "false", high: true, readLow: false, readHigh: true, bad: "maybe", code: "invalid_boolean"},
		{field: object.Field{Type: object.Toggle}, low: 0, high: 1, readLow: false, readHigh: true, bad: 2, code: "invalid_boolean"},
		choice(object.Select), choice(object.Radio), list(object.Multiselect), list(object.Checkboxes), list(object.Tags),
		{field: object.Field{Type: object.Select, Options: choices, Multiple: true}, low: []string{"a"}, high: "b", readLow: []any{"a"}, readHigh: []any{"b"}, bad: 3, code: "invalid_type", unordered: true},
		{field: object.Field{Type: object.JSON}, low: map[string]any{"b": json.Number("1.50"), "a": "<&>"}, high: []any{nil, true}, readLow: map[string]any{"b": json.Number("1.50"), "a": "<&>"}, readHigh: []any{nil, true}, bad: map[string]any{"$gt": 1}, code: "invalid_value", unordered: true},
		{field: object.Field{Type: object.Address}, low: map[string]any{"city": "X"}, high: `{"city":"Y"}`, readLow: map[string]any{"city": "X"}, readHigh: map[string]any{"city": "Y"}, bad: `[1]`, code: "invalid_type", unordered: true},
		{field: object.Field{Type: object.Location}, low: map[string]any{"lat": json.Number("1")}, high: map[string]any{"lat": json.Number("2")}, readLow: map[string]any{"lat": json.Number("1")}, readHigh: map[string]any{"lat": json.Number("2")}, bad: "{", code: "invalid_json", unordered: true},
		{field: object.Field{Type: object.Lookup, Reference: "target"}, low: "one", high: "two", readLow: "one", readHigh: "two", bad: "none", code: "reference_not_found"},
		{field: object.Field{Type: object.MasterDetail, Reference: "target"}, low: "one", high: "two", readLow: "one", readHigh: "two", bad: 1, code: "invalid_type"},
		{field: object.Field{Type: object.User, Reference: "target"}, low: "one", high: "two", readLow: "one", readHigh: "two", bad: "none", code: "reference_not_found"},
	}
	for i := range cases {
		cases[i].field.Name = "value"
		cases[i].field.Index = !cases[i].unordered
	}
	return cases
}

// Every type: a round trip, a range, a sort with nulls first, uniqueness, the
// refusal of a bad value, and an index that serves the sort.
func TestFieldTypes(t *testing.T) {
	t.Parallel()
	cases := fieldCases()
	schemas := []object.Schema{{Name: "target", Fields: object.Fields{{Name: "n", Type: object.Text}}}}
	for i, c := range cases {
		f := c.field
		schemas = append(schemas, object.Schema{Name: fmt.Sprintf("type%d", i), Fields: object.Fields{f}})
		if !c.unordered {
			f.Unique = object.UniqueGlobal
		}
		schemas = append(schemas, object.Schema{Name: fmt.Sprintf("unique%d", i), Fields: object.Fields{f}})
	}
	each(t, schemas, func(t *testing.T, b *bundle) {
		create(t, b, "target", data.Record{"id": "one"})
		create(t, b, "target", data.Record{"id": "two"})
		for i, c := range cases {
			checkField(t, b, fmt.Sprintf("type%d", i), c)
			if !c.unordered {
				checkUnique(t, b, fmt.Sprintf("unique%d", i), c)
			}
		}
	})
}

func checkField(t *testing.T, b *bundle, name string, c fieldCase) {
	t.Helper()
	what := string(c.field.Type) + " "
	high := must(b.Create(b.as, name, data.Record{"value": c.high}))(t)
	empty := create(t, b, name, data.Record{"value": nil})
	low := must(b.Create(b.as, name, data.Record{"value": c.low}))(t)
	equal(t, what+"answer", low.Record["value"], c.readLow)
	equal(t, what+"low", must(b.Get(b.as, name, low.ID))(t)["value"], c.readLow)
	equal(t, what+"high", must(b.Get(b.as, name, high.ID))(t)["value"], c.readHigh)
	equal(t, what+"null", must(b.Get(b.as, name, empty))(t)["value"], nil)
	moved := must(b.Update(b.as, name, empty, data.Record{"value": c.high}, data.Match{}))(t)
	equal(t, what+"updated", moved.Record["value"], c.readHigh)
	cleared := must(b.Update(b.as, name, empty, data.Record{"value": nil}, data.Match{}))(t)
	equal(t, what+"cleared", cleared.Record["value"], nil)
	_, err := b.Create(b.as, name, data.Record{"value": c.bad})
	if e := must2[*data.Error](t, err); len(e.Fields) != 1 || e.Fields[0].Code != c.code {
		t.Errorf("%sbad value %v: %v, want %s", what, c.bad, err, c.code)
	}
	if c.unordered {
		if _, err := b.Find(b.as, name, data.Query{OrderBy: []data.Sort{{Field: "value"}}}); !data.IsCode(err, data.CodeInvalidSort) {
			t.Errorf("%ssort: %v", what, err)
		}
		return
	}
	ids := func(q data.Query) (out []string) {
		for _, record := range must(b.Find(b.as, name, q))(t).Records {
			out = append(out, record["id"].(string))
		}
		return out
	}
	equal(t, what+"ascending", ids(data.Query{OrderBy: []data.Sort{{Field: "value"}}}), []string{empty, low.ID, high.ID})
	equal(t, what+"descending", ids(data.Query{OrderBy: []data.Sort{{Field: "value", Desc: true}}}), []string{high.ID, low.ID, empty})
	equal(t, what+"equal", ids(data.Query{Where: data.Eq("value", c.readLow)}), []string{low.ID})
	if !c.field.Type.IsBoolean() {
		equal(t, what+"range", ids(data.Query{Where: data.Where("value", "$gt", c.readLow)}), []string{high.ID})
	}
	nulls := ""
	if b.db.Dialect() == storage.Postgres {
		nulls = " NULLS FIRST"
	}
	got := strings.ToLower(plan(t, b.db, "SELECT * FROM "+name+" ORDER BY value"+nulls+", id LIMIT 2"))
	if !strings.Contains(got, "ix_"+name+"_value") || strings.Contains(got, "sort") || strings.Contains(got, "temp b-tree") {
		t.Errorf("%splan:\n%s", what, got)
	}
}

func checkUnique(t *testing.T, b *bundle, name string, c fieldCase) {
	t.Helper()
	for range 2 {
		create(t, b, name, data.Record{"value": nil}) // null never collides
	}
	create(t, b, name, data.Record{"value": c.low})
	create(t, b, name, data.Record{"value": c.high})
	_, err := b.Create(b.as, name, data.Record{"value": c.readLow})
	if e := must2[*data.Error](t, err); e.Code != data.CodeUniqueViolation || e.Field != "value" {
		t.Errorf("%s twice: %v", c.field.Type, err)
	}
}

func TestValidationMessages(t *testing.T) {
	t.Parallel()
	schema := object.Schema{Name: "form", Fields: object.Fields{
		{Name: "word", Type: object.Text, Label: "Word", MinLength: ptr(2), MaxLength: ptr(3)},
		{Name: "n", Type: object.Number, Label: "N", Min: "1", Max: "2.5", Scale: ptr(1)},
		{Name: "p", Type: object.Number, Label: "P", Precision: ptr(3)},
		{Name: "picks", Type: object.Multiselect, Label: "Triggers", Options: []object.Option{{Value: "create"}, {Value: "update"}}},
		{Name: "need", Type: object.Text, Label: "Need", Required: true, DefaultValue: json.RawMessage(`"there"`)},
		{Name: "at", Type: object.Datetime, Label: "At", DefaultValue: json.RawMessage(`"NOW()"`)},
		{Name: "kind", Type: object.Select, Label: "Kind", Readonly: true, Options: []object.Option{{Value: "admin", Default: true}, {Value: "package"}}},
	}}
	each(t, []object.Schema{schema}, func(t *testing.T, b *bundle) {
		created := must(b.Create(b.as, "form", data.Record{"word": "日本語", "n": 2.5, "p": "123", "need": nil, "kind": "package"}))(t)
		equal(t, "defaults", []any{created.Record["need"], created.Record["at"], created.Record["kind"], created.Dropped[0].Fields[0]}, []any{"there", "2026-11-30T17:02:15.225Z", "admin", "kind"})
		equal(t, "a system writer", must(b.Create(b.system, "form", data.Record{"kind": "package"}))(t).Record["kind"], any("package"))
		_, err := b.Create(b.as, "form", data.Record{"word": "x", "n": "2.55", "p": "1234", "picks": []any{"undelete"}, "need": ""})
		refused(t, err, `{"error":"Word must be ≥ 2 characters (got 1); N must be ≤ 2.5; P must have at most 3 digits; Triggers: \"undelete\" is not one of: create, update; Need is required","code":"VALIDATION_FAILED","fields":[`+
			`{"field":"word","code":"min_length","message":"Word must be ≥ 2 characters (got 1)","label":"Word","constraint":{"minLength":2,"actual":1}},`+
			`{"field":"n","code":"max_value","message":"N must be ≤ 2.5","label":"N","constraint":{"max":2.5}},`+
			`{"field":"p","code":"invalid_number","message":"P must have at most 3 digits","label":"P","constraint":{"precision":3}},`+
			`{"field":"picks","code":"invalid_option","message":"Triggers: \"undelete\" is not one of: create, update","label":"Triggers","constraint":{"allowed":"create, update"},"value":"undelete","options":["create","update"]},`+
			`{"field":"need","code":"required","message":"Need is required","label":"Need"}],"object":"form"}`)
		_, err = b.Create(b.as, "form", data.Record{"n": 1.25})
		refused(t, err, `{"error":"N must have at most 1 decimals","code":"VALIDATION_FAILED","fields":[{"field":"n","code":"max_scale","message":"N must have at most 1 decimals","label":"N","constraint":{"scale":1}}],"object":"form"}`)
		for spelled, want := range map[string]string{`["create"]`: `["create"]`, `"[\"create\"]"`: `["create"]`, `"create, update"`: `["create","update"]`, `"CREATE"`: `["create"]`, `[]`: `[]`, `null`: `null`, `""`: `null`} {
			values := must(data.DecodeRecord([]byte(`{"picks":` + spelled + `}`)))(t)
			equal(t, spelled, jsonOf(t, must(b.Create(b.as, "form", values))(t).Record["picks"]), want)
		}
	})
}

// What stands in an index has a bound that both databases share, below what
// PostgreSQL takes at most.
func TestIndexedTextIsBounded(t *testing.T) {
	t.Parallel()
	schema := object.Schema{Name: "entry", Fields: object.Fields{
		{Name: "one", Type: object.Text, Unique: object.UniqueDefault}, {Name: "two", Type: object.Text}, {Name: "free", Type: object.Text},
	}, Indexes: []object.Index{{Fields: []string{"one", "two"}}}}
	each(t, []object.Schema{schema}, func(t *testing.T, b *bundle) {
		// Text that does not compress.
		long := func(n int) string {
			var text strings.Builder
			for i := 0; text.Len() < n; i++ {
				fmt.Fprintf(&text, "%x", sha256.Sum256([]byte{byte(i), byte(i >> 8)}))
			}
			return text.String()[:n]
		}
		create(t, b, "entry", data.Record{"one": long(1200), "two": long(1200), "free": long(100_000), "id": strings.Repeat("i", 128)})
		_, err := b.Create(b.as, "entry", data.Record{"one": long(1201)})
		refused(t, err, `{"error":"one must be ≤ 1200 bytes, because it is indexed (got 1201)","code":"VALIDATION_FAILED","fields":[{"field":"one","code":"max_length","message":"one must be ≤ 1200 bytes, because it is indexed (got 1201)","label":"one","constraint":{"maxBytes":1200,"actual":1201}}],"object":"entry"}`)
	})
}

func TestDecodeJSON(t *testing.T) {
	t.Parallel()
	for _, in := range []string{`"\ud800"`, `"\ud800x"`, `"\ud800\u0041"`, `"\udc00"`, `"\uD83D\uD83D"`, "\"a\xffb\"", `{"a":1,"a":2}`, `{"\ud800":1}`, `1 2`, ``, `{"a"`, `[1,]`, strings.Repeat("[", 70) + strings.Repeat("]", 70)} {
		if _, err := data.DecodeJSON([]byte(in)); !data.IsCode(err, data.CodeInvalidRequest) {
			t.Errorf("%q: %v", in, err)
		}
	}
	for in, want := range map[string]any{`"\ud83d\ude00"`: "😀", `"\\ud800"`: `\ud800`, `9007199254740993`: json.Number("9007199254740993"), `{"a":[null,true]}`: map[string]any{"a": []any{nil, true}}} {
		equal(t, in, must(data.DecodeJSON([]byte(in)))(t), want)
	}
}

func FuzzDecodeJSON(f *testing.F) {
	f.Add(`{"a":"\ud83d\ude00","b":[1e400]}`)
	f.Add(`"\ud800`)
	f.Fuzz(func(t *testing.T, in string) {
		value, err := data.DecodeJSON([]byte(in))
		if err != nil {
			return
		}
		if !json.Valid([]byte(in)) {
			t.Fatalf("%q was decoded although it is no JSON", in)
		}
		if text, err := json.Marshal(value); err != nil || strings.Contains(string(text), `\ufffd`) && !strings.Contains(in, "\ufffd") && !strings.Contains(strings.ToLower(in), `\ufffd`) {
			t.Fatalf("%q became %s (%v)", in, text, err)
		}
	})
}
