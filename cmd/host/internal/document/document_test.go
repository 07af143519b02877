package document_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/cmd/host/internal/document"
)

func TestJSONKeepsOrderAndDigits(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, yaml, want string }{
		{"empty", "", `{}`},
		{"only a comment", "# nothing\n", `{}`},
		{"order of keys", "b: 1\na: 2\n", `{"b":1,"a":2}`},
		{"digits", "n: 12345678901234567890.1234567890123456789\ni: 123456789012345678901234567890\n",
			`{"n":12345678901234567890.1234567890123456789,"i":123456789012345678901234567890}`},
		{"other notations", "h: 0x1F\nu: 1_000\np: +7\n", `{"h":31,"u":1000,"p":7}`},
		{"text stays text", "a: '1'\nb: \"true\"\nc: yes\nd: <&>\n", `{"a":"1","b":"true","c":"yes","d":"<&>"}`},
		{"booleans and null", "a: true\nb: ~\nc:\n", `{"a":true,"b":null,"c":null}`},
		{"lists", "a:\n  - 1\n  - x: 2\n    y: [3, {z: 4}]\n", `{"a":[1,{"x":2,"y":[3,{"z":4}]}]}`},
		{"literal block", "a: |\n  one\n  two\n", `{"a":"one\ntwo\n"}`},
		{"anchors", "a: &x {k: 1}\nb: *x\n", `{"a":{"k":1},"b":{"k":1}}`},
		{"keys that look like values", "1: a\ntrue: b\n", `{"1":"a","true":"b"}`},
		{"a document marker", "---\na: 1\n", `{"a":1}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			doc, err := document.Parse("f.yaml", []byte(tc.yaml))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(doc.JSON()); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestFaultsNameTheirLine(t *testing.T) {
	t.Parallel()
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'g'; c++ {
		prev := string(c - 1)
		bomb += string(c) + ": &" + string(c) + " [" + strings.TrimSuffix(strings.Repeat("*"+prev+",", 10), ",") + "]\n"
	}
	for _, tc := range []struct {
		name, yaml string
		line       int
		part       string
	}{
		{"syntax", "a: 1\nb: [1, 2\nc: 3\n", 3, "',' or ']' must be specified"},
		{"tab", "a:\n\tb: 1\n", 2, ""},
		{"twice", "a: 1\nb: 2\na: 3\n", 3, `"a"`},
		{"two documents", "a: 1\n---\nb: 2\n", 3, "one YAML document"},
		{"merge key", "a: &x {k: 1}\nb:\n  <<: *x\n", 3, "merge keys"},
		{"tag", "a: 1\nb: !!binary aGk=\n", 2, "tags such as !!binary"},
		{"unknown alias", "a: 1\nb: *nope\n", 2, "*nope"},
		{"infinity", "a: .inf\n", 1, ".inf"},
		{"alias bomb", bomb, 5, "more than 100000 values"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := document.Parse("f.yaml", []byte(tc.yaml))
			var fault *document.Error
			if !errors.As(err, &fault) {
				t.Fatalf("got %v, want a *document.Error", err)
			}
			if fault.Line != tc.line || !strings.Contains(fault.Message, tc.part) || strings.Contains(fault.Error(), "\n") {
				t.Errorf("got %q, want line %d and %q", fault.Error(), tc.line, tc.part)
			}
		})
	}
}

func TestLine(t *testing.T) {
	t.Parallel()
	doc, err := document.Parse("f.yaml", []byte("# comment\na: 1\nplugins:\n  x:\n    list:\n      - 1\n      - k: 2\n        l: 3\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		path string
		want int
	}{
		{"a", 2}, {"plugins", 3}, {"plugins x", 4}, {"plugins x list", 5}, {"plugins x list 0", 6},
		{"plugins x list 1", 7}, {"plugins x list 1 l", 8}, {"plugins x nope deeper", 4}, {"", 2},
	} {
		if got := doc.Line(strings.Fields(tc.path)...); got != tc.want {
			t.Errorf("line of %q is %d, want %d", tc.path, got, tc.want)
		}
	}
	if got := doc.Errorf([]string{"plugins", "x"}, "bad %d", 7).Error(); got != "f.yaml:4: bad 7" {
		t.Errorf("got %q", got)
	}
	if got := strings.Join(doc.Keys("plugins", "x"), ","); got != "list" {
		t.Errorf("keys are %q", got)
	}
}
