package automation

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/objecthost/objecthost/core/identity"
)

// fixture is a scope of known variables.
type fixture struct{ *scopeState }

func (f fixture) path(names []string) (any, bool) {
	return f.resolve(names, identity.Principal{UserID: "ada"})
}

func (f fixture) now() time.Time { return time.Date(2026, 2, 27, 23, 30, 0, 0, time.UTC) }

func (f fixture) lookup(name string) (any, bool) { return f.path([]string{name}) }

func newFixture(t testing.TB) fixture {
	t.Helper()
	f := fixture{&scopeState{}}
	fatal(t, decodeJSON([]byte(`{"vars":{"i":2,"name":"Ada","none":null,"big":12345678901234567890123456789.25,"yes":true,"price":0.1,
		"list":[{"id":"a"},{"id":"b"}],"made":{"id":"x1","tags":["p","q"]},"record":{"industry":"retail","id":"r1"},"day":"2026-02-27"},
		"outputs":{"my-node":{"id":"n1","body":{"deep":[1,2]}},"call":{"status":200}},"params":{"p":7}}`), f.scopeState))
	return f
}

func TestTemplates(t *testing.T) {
	f := newFixture(t)
	for _, c := range []struct{ source, want string }{
		{"{i}", `2`},
		{"{i + 1}", `3`},
		{"{i+1}", `3`},
		{"{ i * (3 - 1) / 8 }", `0.5`},
		{"{-i}", `-2`},
		{"{7 % i}", `1`},
		{"{price + 0.2}", `0.3`},
		{"{big}", `12345678901234567890123456789.25`},
		{"{big + 1}", `12345678901234567890123456790.25`},
		{"n={big}", `"n=12345678901234567890123456789.25"`},
		{"{yes}", `true`},
		{"{none}", `null`},
		{"{missing}", `null`},
		{"[{none}{missing}]", `"[]"`},
		{"{list}", `[{"id":"a"},{"id":"b"}]`},
		{"{list.1.id}", `"b"`},
		{"{list.2.id}", `null`},
		{"ids {list}", `"ids [{\"id\":\"a\"},{\"id\":\"b\"}]"`},
		{"{made.tags.0}-{made.id}", `"p-x1"`},
		{"{my-node.id}", `"n1"`},
		{"{my-node.body.deep.1}", `2`},
		{"{call.status}", `200`},
		{"{i-1}", `1`},
		{"{industry} {record.id} {$record.id}", `"retail r1 r1"`},
		{"{$User.Id} {$params.p} {vars.name}", `"ada 7 Ada"`},
		{"{NOW()}", `"2026-02-27T23:30:00.000Z"`},
		{"{TODAY()}", `"2026-02-27"`},
		{"{TODAY() + 7}", `"2026-03-06"`},
		{"{day - 27}", `"2026-01-31"`},
		{"{NOW() + 60000}", `"2026-02-27T23:31:00.000Z"`},
		{"{name + \"x\"}", `"{name + \"x\"}"`},
		{`{"a": {i}}`, `"{\"a\": 2}"`},
		{"{}", `"{}"`},
		{"{3} {hello world} {a..b} {.x}", `"{3} {hello world} {a..b} {.x}"`},
		{"{i", `"{i"`},
		{"}{i}{", `"}2{"`},
		{"plain", `"plain"`},
	} {
		got, err := interpolate(c.source, f, nil)
		if err != nil {
			t.Errorf("%s: %v", c.source, err)
			continue
		}
		equal(t, c.source, []any{got}, "["+c.want+"]")
	}
	for source, want := range map[string]string{
		"{i / 0}":    "template {i / 0}: division by zero",
		"{list + 1}": "template {list + 1}: + does not apply to a list and a number",
		"{none * 2}": "template {none * 2}: * does not apply to null and a number",
	} {
		if _, err := interpolate(source, f, nil); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", source, err, want)
		}
	}
	var missing []string
	_, err := interpolate(map[string]any{"a": "{none}", "b": []any{"x{missing}", "{i}"}}, f, func(token string) { missing = append(missing, token) })
	fatal(t, err)
	if len(missing) != 2 {
		t.Errorf("missing: %v", missing)
	}
}

func TestLegacyConditions(t *testing.T) {
	f := newFixture(t)
	f.Vars["tricky"] = "a == b"
	for source, want := range map[string]bool{
		"{i} == 2": true, "{i} > 10": false, "{i} < 10": true, "{name} == Ada": true, "{name} == 'Ada'": true, "{name} != \"Ada\"": false,
		"{yes}": true, "{none}": false, "{missing}": false, "{i}": true, "{name} === {name}": true, "{i} >= 2": true, "{i} <= 1": false,
		"{tricky} == {tricky}": true, "{tricky}": true,
	} {
		if got, err := legacyCondition(source, f); err != nil || got != want {
			t.Errorf("%s: %v %v", source, got, err)
		}
	}
}

func TestExpressions(t *testing.T) {
	f := newFixture(t)
	for source, want := range map[string]string{
		"i >= 2 && name == 'Ada'":           `true`,
		"i + 1":                             `3`,
		"price * 10.0":                      `1`,
		"made.tags.size()":                  `2`,
		"list.map(x, x.id)":                 `["a","b"]`,
		"{'a': i, 'b': [none]}":             `{"a":2,"b":[null]}`,
		"record.industry.upperAscii()":      `"RETAIL"`,
		"has(made.nothing)":                 `false`,
		"call.status == 200":                `true`,
		"none == null":                      `true`,
		"i > 1.5":                           `true`,
		"timestamp('2026-01-01T00:00:00Z')": `"2026-01-01T00:00:00.000Z"`,
	} {
		x, err := parseExpression(source)
		fatal(t, err)
		got, err := x.eval(t.Context(), f.lookup)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		equal(t, source, []any{got}, "["+want+"]")
	}
	for source, want := range map[string]string{
		"missing == 1":      "no such attribute",
		"made.nothing == 1": "no such key",
		"name > 1":          "no such overload",
		"1 / 0":             "division",
		"i":                 "must be true or false, not a number",
		strings.Repeat("[1,2,3,4,5,6,7,8,9,10].all(a, ", 7) + "true" + strings.Repeat(")", 7): "cost limit",
	} {
		x, err := parseExpression(source)
		fatal(t, err)
		if _, err := x.truth(t.Context(), f.lookup); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", source, err, want)
		}
	}
	for _, source := range []string{"", " ", "a =", "1 +", "'", strings.Repeat("(", 200), strings.Repeat("a", maxExpressionLength+1)} {
		if _, err := parseExpression(source); err == nil {
			t.Errorf("%q was taken", shorten(source, 20))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	x, err := parseExpression("[1,2,3].all(a, [1,2,3].all(b, [1,2,3].all(c, [1,2,3].all(d, [1,2,3].all(e, a+b+c+d+e > 0)))))")
	fatal(t, err)
	if _, err := x.eval(ctx, f.lookup); err == nil {
		t.Error("an expression outlived its context")
	}
}

func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{"{i + 1}", "{a.b.0}", "{{x}}", "{TODAY() + 7}", "{-(-(i))}", "{my-node.id}", "{9999999999999999999999 * big}", "}{", "{i % 0}"} {
		f.Add(seed)
	}
	scope := newFixture(f)
	f.Fuzz(func(t *testing.T, source string) {
		parsed := parseTemplate(source)
		if !parsed.tokens() && utf8.ValidString(source) {
			got, err := interpolateText(source, scope, nil)
			if err != nil || got != source {
				t.Fatalf("%q without tokens became %v, %v", source, got, err)
			}
			return
		}
		got, err := interpolateText(source, scope, nil)
		if err != nil {
			return
		}
		if number, ok := got.(json.Number); ok && !json.Valid([]byte(number)) {
			t.Fatalf("%q gave the number %q", source, number)
		}
		if _, err := plain(got); err != nil {
			t.Fatalf("%q gave %v: %v", source, got, err)
		}
		_, _ = legacyCondition(source, scope)
	})
}

func FuzzExpression(f *testing.F) {
	for _, seed := range []string{"i >= 2", "list.exists(x, x.id == 'a')", "made.tags[0] + name", "{'a': 1}.a", "has(a.b) ? 1 : 2", "b'a' == b'a'", "optional.none()"} {
		f.Add(seed)
	}
	scope := newFixture(f)
	f.Fuzz(func(t *testing.T, source string) {
		x, err := parseExpression(source)
		if err != nil {
			return
		}
		value, err := x.eval(t.Context(), scope.lookup)
		if err != nil {
			return
		}
		if _, err := encodeJSON(value); err != nil {
			t.Fatalf("%q gave %v, which is no JSON: %v", source, value, err)
		}
	})
}

func FuzzDefinition(f *testing.F) {
	f.Add([]byte(scoreFlow))
	f.Add(flowSource(f, "a", `{`+chain(`,"config":{"schedule":"* * * * *"}`, `{"id":"l","type":"loop","config":{"collection":"{x}","body":{"nodes":[],"edges":[]}}}`)+`}`))
	s := &Service{}
	for _, types := range [][]NodeType{logicTypes(), containerTypes(), s.dataTypes(), s.outboundTypes()} {
		for _, one := range types {
			fatal(f, s.nodes.add(one))
		}
	}
	f.Fuzz(func(t *testing.T, source []byte) {
		def, err := s.Parse(source)
		if err != nil {
			return
		}
		again, err := encodeJSON(def)
		fatal(t, err)
		same, err := s.Parse(again)
		if err != nil {
			t.Fatalf("normalised form is refused: %v\n%s", err, again)
		}
		if def.canonical() != same.canonical() {
			t.Fatalf("normalising twice differs:\n%s\n%s", def.canonical(), same.canonical())
		}
	})
}
