package automation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// FileError tells which flow of a folder cannot be used. It does not quote the
// file, which may hold secrets.
type FileError struct {
	File string
	Err  error
}

func (e *FileError) Error() string { return fmt.Sprintf("flow file %s: %v", e.File, e.Err) }

// Unwrap returns what is wrong.
func (e *FileError) Unwrap() error { return e.Err }

// LoadDir registers the flows of a folder: the files *.json, *.yaml and *.yml,
// each with one flow. A flow that was made or edited through the API is left
// alone; a flow whose file is gone stays. All files are read before the first
// is registered; the error joins a *FileError for each that cannot be used.
func (s *Service) LoadDir(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read flows: %w", err)
	}
	var sources [][]byte
	var wrong []error
	names := map[string]string{}
	for _, entry := range entries {
		if entry.IsDir() || !slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(entry.Name())) {
			continue
		}
		source, f, err := s.readFile(filepath.Join(dir, entry.Name()))
		if err == nil && names[f.def.Name] != "" {
			err = fmt.Errorf("the flow '%s' is in %s already", f.def.Name, names[f.def.Name])
		}
		if err != nil {
			wrong = append(wrong, &FileError{entry.Name(), err})
			continue
		}
		names[f.def.Name] = entry.Name()
		sources = append(sources, source)
	}
	if len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	for _, source := range sources {
		if _, err := s.put(ctx, source, sourceFile); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) readFile(path string) ([]byte, *flow, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	if filepath.Ext(path) != ".json" {
		if source, err = yamlToJSON(source); err != nil {
			return nil, nil, err
		}
	}
	f, err := s.parse(source)
	return source, f, err
}

// yamlToJSON converts one document. Numbers keep their digits.
func yamlToJSON(source []byte) ([]byte, error) {
	parsed, err := parser.ParseBytes(source, 0)
	if err != nil {
		return nil, yamlError(err)
	}
	var documents []ast.Node
	for _, doc := range parsed.Docs {
		if doc.Body != nil {
			documents = append(documents, doc.Body)
		}
	}
	if len(documents) != 1 {
		return nil, errors.New("must hold one flow")
	}
	value, err := yamlValue(documents[0])
	if err != nil {
		return nil, err
	}
	return encodeJSON(value)
}

func yamlError(err error) error {
	var fault yaml.Error
	if errors.As(err, &fault) && fault.GetToken() != nil && fault.GetToken().Position != nil {
		return fmt.Errorf("line %d: is not valid YAML", fault.GetToken().Position.Line)
	}
	return errors.New("is not valid YAML")
}

// yamlValue converts a node into JSON's types.
func yamlValue(node ast.Node) (any, error) {
	at := func(reason string) error {
		return fmt.Errorf("line %d: %s", node.GetToken().Position.Line, reason)
	}
	switch n := node.(type) {
	case *ast.MappingNode:
		out := make(map[string]any, len(n.Values))
		for _, pair := range n.Values {
			if err := yamlPair(out, pair); err != nil {
				return nil, err
			}
		}
		return out, nil
	case *ast.MappingValueNode:
		out := map[string]any{}
		return out, yamlPair(out, n)
	case *ast.SequenceNode:
		out := make([]any, len(n.Values))
		for i, item := range n.Values {
			var err error
			if out[i], err = yamlValue(item); err != nil {
				return nil, err
			}
		}
		return out, nil
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.BoolNode:
		return n.Value, nil
	case *ast.NullNode:
		return nil, nil
	case *ast.IntegerNode, *ast.FloatNode:
		text := strings.TrimSpace(node.GetToken().Value)
		var number any
		if decodeJSON([]byte(text), &number) != nil {
			return nil, at("write the number as JSON has it, or as a text in quotes")
		}
		return number, nil
	}
	return nil, at("anchors, aliases, tags and the like are not taken")
}

func yamlPair(out map[string]any, pair *ast.MappingValueNode) error {
	key := pair.Key.GetToken().Value
	if _, twice := out[key]; twice {
		return fmt.Errorf("line %d: the key %q stands twice", pair.Key.GetToken().Position.Line, key)
	}
	value, err := yamlValue(pair.Value)
	out[key] = value
	return err
}
