package object

import (
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"
)

func TestDecodeKeepsOrderAndDigits(t *testing.T) {
	t.Parallel()
	const text = `{"name":"account","displayNameField":"zeta","fields":{` +
		`"zeta":{"type":"text","unique":"global"},"alpha":{"type":"number","min":9007199254740993},"mid":{"type":"email","unique":true}},` +
		`"indexes":[{"fields":["alpha"],"unique":"organization"}],"enable":{"apiMethods":[]}}`
	s, err := Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"name":"account","fields":{` +
		`"zeta":{"type":"text","unique":"global"},"alpha":{"type":"number","min":9007199254740993},"mid":{"type":"email","unique":true}},` +
		`"indexes":[{"fields":["alpha"],"unique":"organization"}],"nameField":"zeta","enable":{"apiMethods":[]}}`
	if string(out) != want {
		t.Errorf("round trip:\n got %s\nwant %s", out, want)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ in, want string }{
		"unknown key": {`{"name":"a","fields":{"f":{"type":"text","lenght":3}},"colour":1}`,
			`object "a" is invalid: fields.f.lenght: is not a known key; colour: is not a known key`},
		"unknown key in a list": {`{"name":"a","fields":{"f":{"type":"select","options":[{"value":"x"},{"valeu":"y"}]}}}`,
			`object "a" is invalid: fields.f.options[1].valeu: is not a known key`},
		"unsupported key": {`{"name":"a","fields":{"f":{"type":"text"}},"ownership":"user"}`,
			`object "a" is invalid: ownership: is not supported: every app object has owner_id`},
		"field twice": {`{"name":"a","fields":{"f":{"type":"text"},"f":{"type":"text"}}}`,
			`object "a" is invalid: fields: key "f" comes twice`},
		"wrong unique": {`{"name":"a","fields":{"f":{"type":"text","unique":"tenant"}}}`,
			`object "a" is invalid: field "f": unique must be true, false, "organization" or "global", got "tenant"`},
		"everything at once": {`{"name":"A b","fields":{"F":{"type":"text"},"g":{"type":"formula"},"h":{"type":"lookup"},"i":{"type":"select"},"j":{"type":"txt"},"id":{"type":"text"}},"nameField":"none"}`,
			`object "A b" is invalid: name: "A b" must match ^[a-z_][a-z0-9_]*$; nameField: "none" is not a field of the object; ` +
				`fields.F: "F" must match ^[a-z_][a-z0-9_]*$; fields.g.type: fields of type "formula" are not supported; ` +
				`fields.h.reference: type "lookup" needs a reference; fields.i.options: type "select" needs options; ` +
				`fields.j.type: "txt" is not a field type; fields.id: is a system column that every object has`},
		"required set_null": {`{"name":"a","fields":{"f":{"type":"lookup","reference":"b","required":true,"deleteBehavior":"set_null"}}}`,
			`object "a" is invalid: fields.f.deleteBehavior: a required field cannot be set to null`},
		"bounds": {`{"name":"a","fields":{"f":{"type":"number","min":3,"max":2,"maxLength":4},"g":{"type":"text","minLength":5,"maxLength":4}}}`,
			`object "a" is invalid: fields.f.maxLength: does not apply to type "number"; fields.f.min: is greater than max; fields.g.minLength: is greater than maxLength`},
		"type of a value": {`{"name":"a","fields":{"f":{"type":"text","required":"yes"}}}`,
			`object "a" is invalid: field "f": required cannot be a string`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Decode([]byte(tc.in))
			var invalid *InvalidError
			if !errors.As(err, &invalid) {
				t.Fatalf("got %v, want an *InvalidError", err)
			}
			got := err.Error()
			if name == "type of a value" || name == "wrong unique" {
				// The frame around the message is encoding/json's.
				if !strings.Contains(got, strings.TrimPrefix(tc.want, `object "a" is invalid: field "f": `)) {
					t.Errorf("got %q, want it to hold %q", got, tc.want)
				}
				return
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestAllows(t *testing.T) {
	t.Parallel()
	no := false
	tests := map[string]struct {
		enable Enable
		want   string
	}{
		"all by default": {Enable{}, "get list create update delete bulk upsert import export aggregate search"},
		"closed":         {Enable{APIMethods: []string{}}, ""},
		"api off":        {Enable{APIEnabled: &no}, ""},
		"read only":      {Enable{APIMethods: []string{"list", "get"}, TrackHistory: true}, "get list export aggregate search history"},
		"create only":    {Enable{APIMethods: []string{"create"}}, "create import"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Schema{Enable: tc.enable}
			var got []string
			for _, m := range append(append([]string{}, primitives...), "upsert", "import", "export", "aggregate", "search", "history", "fly") {
				if s.Allows(m) {
					got = append(got, m)
				}
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("got %q, want %q", strings.Join(got, " "), tc.want)
			}
		})
	}
}

func TestOnDelete(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		field Field
		want  string
	}{
		{Field{Type: Lookup}, SetNull},
		{Field{Type: Lookup, Required: true}, Restrict},
		{Field{Type: MasterDetail, Required: true}, Cascade},
		{Field{Type: User, DeleteBehavior: Restrict}, Restrict},
	} {
		if got := tc.field.OnDelete(); got != tc.want {
			t.Errorf("%s required=%v: got %s, want %s", tc.field.Type, tc.field.Required, got, tc.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(`{"name":"a","fields":{"f":{"type":"text"}}}`)
	f.Add(`{"name":"a","fields":{"f":{"type":"number","min":1e999}}}`)
	f.Add(`{"fields":[]}`)
	f.Fuzz(func(t *testing.T, in string) {
		s, err := Decode([]byte(in))
		if err != nil {
			return
		}
		out, err := json.Marshal(s)
		if err != nil {
			t.Fatalf("a decoded schema does not marshal: %v", err)
		}
		if _, err := Decode(out); err != nil {
			t.Fatalf("%s does not decode again: %v", out, err)
		}
	})
}

// Core and everything below it import the standard library only.
func TestImportsStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range strings.Fields(string(out)) {
		if !strings.HasPrefix(path, "github.com/objecthost/objecthost/core") {
			t.Errorf("core/object imports %s", path)
		}
	}
}
