// Package document reads YAML files and remembers on which line each value
// stands, so that whatever is wrong with one can be shown where it was written.
package document

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Document is one YAML document. It is immutable.
type Document struct {
	// Name is the file's name, as it stands in errors.
	Name string
	root *value
}

// Error is a fault in a document. Its text is one line.
type Error struct {
	Name string
	// Line counts from 1; 0 means the document as a whole.
	Line    int
	Message string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.Name, e.Message)
	}
	return fmt.Sprintf("%s:%d: %s", e.Name, e.Line, e.Message)
}

// value is a node of the document with everything resolved: text is the JSON of
// a scalar, entries and items are those of a mapping and a sequence.
type value struct {
	line    int
	kind    byte // 's' scalar, 'm' mapping, 'l' list
	text    string
	entries []entry
	items   []*value
}

type entry struct {
	key   string
	line  int
	value *value
}

// Read reads and parses a file. A file that cannot be read is the raw error of
// the os package.
func Read(file string) (*Document, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return Parse(file, data)
}

// Parse parses data, which must hold at most one document. The errors are of
// type *[Error]. An empty document is an empty mapping.
func Parse(name string, data []byte) (*Document, error) {
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, syntaxError(name, err)
	}
	var bodies []ast.Node
	for _, d := range file.Docs {
		if d.Body != nil {
			bodies = append(bodies, d.Body)
		}
	}
	switch len(bodies) {
	case 0:
		return &Document{Name: name, root: &value{kind: 'm'}}, nil
	case 1:
	default:
		return nil, &Error{Name: name, Line: lineOf(bodies[1]), Message: "only one YAML document may stand in a file"}
	}
	r := resolver{name: name, anchors: map[string]*value{}}
	root, err := r.resolve(bodies[0], 0)
	if err != nil {
		return nil, err
	}
	return &Document{Name: name, root: root}, nil
}

func syntaxError(name string, err error) error {
	var y yaml.Error
	if errors.As(err, &y) {
		message, _, _ := strings.Cut(y.GetMessage(), "\n")
		if tk := y.GetToken(); tk != nil && tk.Position != nil {
			return &Error{Name: name, Line: tk.Position.Line, Message: message}
		}
		return &Error{Name: name, Message: message}
	}
	message, _, _ := strings.Cut(err.Error(), "\n")
	return &Error{Name: name, Message: message}
}

// Errorf returns a fault at the value that path leads to, or, where the path
// ends early, at the nearest value above it.
func (d *Document) Errorf(path []string, format string, args ...any) error {
	return &Error{Name: d.Name, Line: d.Line(path...), Message: fmt.Sprintf(format, args...)}
}

// Line returns the line of the key or item that path leads to, or of the
// nearest one above it. Items are addressed by their index.
func (d *Document) Line(path ...string) int {
	v, line := d.root, d.root.line
	for _, step := range path {
		next, at := v.child(step)
		if next == nil {
			break
		}
		v, line = next, at
	}
	return line
}

// Keys returns the keys of the mapping that path leads to, in their order; nil
// when there is no mapping.
func (d *Document) Keys(path ...string) []string {
	v := d.find(path)
	if v == nil || v.kind != 'm' {
		return nil
	}
	keys := make([]string, 0, len(v.entries))
	for _, e := range v.entries {
		keys = append(keys, e.key)
	}
	return keys
}

// JSON returns the value that path leads to as JSON: keys in their order,
// numbers with their digits. It is nil when nothing stands there.
func (d *Document) JSON(path ...string) json.RawMessage {
	v := d.find(path)
	if v == nil {
		return nil
	}
	return v.appendJSON(nil)
}

func (d *Document) find(path []string) *value {
	v := d.root
	for _, step := range path {
		if v, _ = v.child(step); v == nil {
			return nil
		}
	}
	return v
}

func (v *value) child(step string) (*value, int) {
	switch v.kind {
	case 'm':
		for _, e := range v.entries {
			if e.key == step {
				return e.value, e.line
			}
		}
	case 'l':
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(v.items) {
			return v.items[i], v.items[i].line
		}
	}
	return nil, 0
}

func (v *value) appendJSON(dst []byte) []byte {
	switch v.kind {
	case 'm':
		dst = append(dst, '{')
		for i, e := range v.entries {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, quote(e.key)...)
			dst = append(dst, ':')
			dst = e.value.appendJSON(dst)
		}
		return append(dst, '}')
	case 'l':
		dst = append(dst, '[')
		for i, item := range v.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = item.appendJSON(dst)
		}
		return append(dst, ']')
	}
	return append(dst, v.text...)
}
