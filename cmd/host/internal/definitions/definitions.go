// Package definitions reads objects from a folder of YAML files, one definition
// to a file.
package definitions

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/objecthost/objecthost/cmd/host/internal/document"
	"github.com/objecthost/objecthost/core/object"
)

// Objects reads the object definitions of a folder, in the order of the files'
// names. The first fault ends it: a *[document.Error] at its line. An empty
// folder name means none.
func Objects(dir string) ([]object.Schema, error) {
	docs, err := read(dir)
	if err != nil {
		return nil, err
	}
	schemas := make([]object.Schema, 0, len(docs))
	files := map[string]string{}
	for _, doc := range docs {
		schema, err := object.Decode(doc.JSON())
		if err != nil {
			return nil, locate(doc, err)
		}
		if other, ok := files[schema.Name]; ok {
			return nil, doc.Errorf([]string{"name"}, "the object %s is defined in %s already", schema.Name, other)
		}
		files[schema.Name] = doc.Name
		schemas = append(schemas, schema)
	}
	return schemas, nil
}

// locate puts a fault of a definition to its line.
func locate(doc *document.Document, err error) error {
	var invalid *object.InvalidError
	if !errors.As(err, &invalid) || len(invalid.Problems) == 0 {
		return doc.Errorf(nil, "%s", err)
	}
	// All of them stand in one line of text, led by the first one's line.
	texts := make([]string, len(invalid.Problems))
	for i, p := range invalid.Problems {
		texts[i] = p.String()
	}
	return doc.Errorf(steps(invalid.Problems[0].Path), "%s", strings.Join(texts, "; "))
}

// steps splits a path such as fields.name.options[0].value.
func steps(path string) []string {
	path = strings.NewReplacer("[", ".", "]", "").Replace(path)
	return slices.DeleteFunc(strings.Split(path, "."), func(s string) bool { return s == "" })
}

// read parses the files of a folder that end in .yaml, .yml or .json.
func read(dir string) ([]*document.Document, error) {
	if dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read definitions: %w", err)
	}
	var docs []*document.Document
	for _, e := range entries {
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) || e.Type()&fs.ModeDir != 0 {
			continue
		}
		doc, err := document.Read(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		docs = append(docs, doc)
	}
	return docs, nil
}
