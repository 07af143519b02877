package data_test

import (
	"testing"

	"github.com/objecthost/objecthost/services/data"
)

func TestDecodeYAML(t *testing.T) {
	t.Parallel()
	const text = `# two objects
name: account
label: Account
fields:
  zeta: {type: text, required: true}
  alpha:
    type: number
    min: 9007199254740993
    max: 1e18
  kind:
    type: select
    options:
      - {label: "A \"quoted\" one", value: a}
  on: {type: boolean, defaultValue: true}
---
name: note
fields:
  body:
    type: textarea
    description: |
      two
      lines
`
	schemas := must(data.DecodeYAML("objects.yaml", []byte(text)))(t)
	equal(t, "decoded", jsonOf(t, schemas), `[{"name":"account","label":"Account","fields":{"zeta":{"type":"text","required":true},`+
		`"alpha":{"type":"number","min":9007199254740993,"max":1e18},"kind":{"type":"select","options":[{"label":"A \"quoted\" one","value":"a"}]},`+
		`"on":{"type":"boolean","defaultValue":true}}},{"name":"note","fields":{"body":{"type":"textarea","description":"two\nlines\n"}}}]`)
}

func TestDecodeYAMLNamesTheLine(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ in, want string }{
		"unknown keys": {"name: a\nfields:\n  f:\n    type: text\n    lenght: 3\ncolour: red\n",
			"o.yaml:5: fields.f.lenght: is not a known key\no.yaml:6: colour: is not a known key"},
		"missing key": {"name: a\nfields:\n  f:\n    label: F\n", "o.yaml:3: fields.f.type: is required"},
		"option":      {"name: a\nfields:\n  f:\n    type: select\n    options:\n    - value: x\n    - value: x\n", `o.yaml:7: fields.f.options[1].value: "x" comes twice`},
		"alias":       {"name: &n a\nfields:\n  f: {type: text}\n", "o.yaml:1: name: anchor is not allowed here"},
		"second document": {"name: a\nfields:\n  f: {type: text}\n---\nname: b\nfields:\n  f: {type: formula}\n",
			`o.yaml:7: fields.f.type: fields of type "formula" are not supported`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := data.DecodeYAML("o.yaml", []byte(tc.in))
			if err == nil || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

func FuzzDecodeYAML(f *testing.F) {
	f.Add("name: a\nfields:\n  f: {type: text}\n")
	f.Add("a: [1, 2\n")
	f.Add("? {a: b}\n: c")
	f.Fuzz(func(_ *testing.T, in string) {
		_, _ = data.DecodeYAML("f", []byte(in)) // must not panic
	})
}
