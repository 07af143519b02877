package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/objecthost/objecthost/core/object"
)

// DecodeYAML reads object definitions, one per YAML document, with the keys of
// their JSON form; fields keep their order. file is the name that errors call
// the text: every fault is told as file:line: key: what is wrong, all faults
// of a document at once. Anchors, aliases and tags are refused.
func DecodeYAML(file string, text []byte) ([]object.Schema, error) {
	parsed, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var schemas []object.Schema
	var faults []error
	for _, doc := range parsed.Docs {
		if doc.Body == nil {
			continue
		}
		y := yamlDocument{file: file, lines: map[string]int{}}
		raw, err := y.convert(doc.Body, "")
		if err != nil {
			faults = append(faults, err)
			continue
		}
		schema, err := object.Decode(raw)
		if err != nil {
			faults = append(faults, y.explain(err)...)
			continue
		}
		schemas = append(schemas, schema)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return schemas, nil
}

// yamlDocument turns a document into JSON and remembers the line of every
// path.
type yamlDocument struct {
	file  string
	lines map[string]int
}

// at finds the line of a path, or of the nearest thing around it that was
// written down.
func (y *yamlDocument) at(path string) string {
	for p := path; ; {
		if line, ok := y.lines[p]; ok {
			return fmt.Sprintf("%s:%d", y.file, line)
		}
		i := strings.LastIndexAny(p, ".[")
		if i < 0 {
			return y.file
		}
		p = p[:i]
	}
}

// explain puts the place in the file before every problem of a definition.
func (y *yamlDocument) explain(err error) []error {
	var invalid *object.InvalidError
	if !errors.As(err, &invalid) {
		return []error{fmt.Errorf("%s: %w", y.at(""), err)}
	}
	faults := make([]error, len(invalid.Problems))
	for i, p := range invalid.Problems {
		faults[i] = fmt.Errorf("%s: %s", y.at(p.Path), p)
	}
	return faults
}

// refuse is a fault at a node.
func (y *yamlDocument) refuse(node ast.Node, path, message string) error {
	if path != "" {
		message = path + ": " + message
	}
	return fmt.Errorf("%s:%d: %s", y.file, node.GetToken().Position.Line, message)
}

// convert writes a node as JSON.
func (y *yamlDocument) convert(node ast.Node, path string) (json.RawMessage, error) {
	if _, known := y.lines[path]; !known {
		y.lines[path] = node.GetToken().Position.Line
	}
	switch node := node.(type) {
	case *ast.MappingNode:
		return y.mapping(node.Values, path)
	case *ast.MappingValueNode:
		return y.mapping([]*ast.MappingValueNode{node}, path)
	case *ast.SequenceNode:
		items := make([]json.RawMessage, len(node.Values))
		for i, item := range node.Values {
			var err error
			if items[i], err = y.convert(item, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return nil, err
			}
		}
		return json.Marshal(items)
	case *ast.StringNode:
		return encodeJSON(node.Value)
	case *ast.LiteralNode:
		return encodeJSON(node.Value.Value)
	case *ast.BoolNode:
		return json.Marshal(node.Value)
	case *ast.NullNode:
		return json.RawMessage("null"), nil
	case *ast.IntegerNode:
		return yamlNumber(node.GetToken().Value, node.Value)
	case *ast.FloatNode:
		return yamlNumber(node.GetToken().Value, node.Value)
	default:
		return nil, y.refuse(node, path, fmt.Sprintf("%s is not allowed here", strings.ToLower(node.Type().String())))
	}
}

// yamlNumber keeps the digits as written where JSON spells them so too.
func yamlNumber(text string, value any) (json.RawMessage, error) {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text), nil
	}
	return json.Marshal(value)
}

// mapping writes keys in their order, which json.Marshal of a map would not.
func (y *yamlDocument) mapping(values []*ast.MappingValueNode, path string) (json.RawMessage, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	seen := map[string]bool{}
	for i, pair := range values {
		var key string
		switch node := pair.Key.(type) {
		case *ast.StringNode:
			key = node.Value
		case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
			key = pair.Key.GetToken().Value
		default:
			return nil, y.refuse(pair.Key, path, "a key must be a plain word")
		}
		below := key
		if path != "" {
			below = path + "." + key
		}
		y.lines[below] = pair.Key.GetToken().Position.Line
		if seen[key] {
			return nil, y.refuse(pair.Key, below, "comes twice")
		}
		seen[key] = true
		value, err := y.convert(pair.Value, below)
		if err != nil {
			return nil, err
		}
		name, err := encodeJSON(key)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
