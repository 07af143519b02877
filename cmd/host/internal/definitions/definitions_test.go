package definitions_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/cmd/host/internal/definitions"
)

// folder writes files, given as name and text in turn.
func folder(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		if err := os.WriteFile(filepath.Join(dir, files[i]), []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestObjects(t *testing.T) {
	t.Parallel()
	dir := folder(t,
		"b.yml", "name: beta\nlabel: Beta\nfields:\n  zeta: {type: text}\n  alpha: {type: number, min: 0.10}\n",
		"a.json", `{"name":"alpha","fields":{"x":{"type":"text"}}}`,
		"notes.txt", "not: [a definition",
	)
	if err := os.Mkdir(filepath.Join(dir, "sub.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	got, err := definitions.Objects(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Name != "alpha" || got[1].Name != "beta" {
		t.Fatalf("got %+v", got)
	}
	if f := got[1].Fields; f[0].Name != "zeta" || f[1].Name != "alpha" || f[1].Min != "0.10" {
		t.Errorf("fields are %+v", f)
	}
	if none, err := definitions.Objects(""); err != nil || len(none) != 0 {
		t.Errorf("no folder: %v %v", none, err)
	}
}

func TestObjectFaults(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		files []string
		want  string // DIR stands for the folder
	}{
		{"unknown key", []string{"a.yaml", "name: a\nfields:\n  x:\n    type: text\n    lenght: 5\n"}, "DIR/a.yaml:5: fields.x.lenght: is not a known key"},
		{"twice", []string{"a.yaml", "name: a\nfields: {x: {type: text}}\n", "b.yaml", "# b\nname: a\nfields: {x: {type: text}}\n"}, "DIR/b.yaml:2: the object a is defined in DIR/a.yaml already"},
		{"broken", []string{"a.yaml", "name: [\n"}, "DIR/a.yaml:1: sequence end token ']' not found"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t, tc.files...)
			_, err := definitions.Objects(dir)
			if err == nil {
				t.Fatal("accepted")
			}
			got := strings.ReplaceAll(err.Error(), dir, "DIR")
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// The samples of the repository are what the documents say, and the demo plays
// with the same object.
func TestExamples(t *testing.T) {
	t.Parallel()
	const examples = "../../../../examples"
	objects, err := definitions.Objects(examples + "/objects")
	if err != nil {
		t.Fatal(err)
	}
	if len(objects) != 1 || objects[0].Name != "account" || len(objects[0].Fields) != 5 {
		t.Errorf("objects are %+v", objects)
	}
	sample, err := os.ReadFile(examples + "/objects/account.yaml")
	if err != nil {
		t.Fatal(err)
	}
	embedded, err := os.ReadFile("../demo/account.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if string(sample) != string(embedded) {
		t.Error("the demo's account.yaml differs from the example's")
	}
}
