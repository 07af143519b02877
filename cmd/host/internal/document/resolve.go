package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// maxValues bounds what aliases may unfold to, so that a small file cannot
// become a huge document.
const maxValues = 100_000

// maxDepth bounds the nesting.
const maxDepth = 100

// resolver turns the parser's tree into values, with anchors replaced by what
// they stand for.
type resolver struct {
	name    string
	anchors map[string]*value
	count   int
}

func (r *resolver) fail(n ast.Node, format string, args ...any) error {
	return &Error{Name: r.name, Line: lineOf(n), Message: fmt.Sprintf(format, args...)}
}

func (r *resolver) resolve(n ast.Node, depth int) (*value, error) {
	if r.count++; r.count > maxValues {
		return nil, r.fail(n, "more than %d values", maxValues)
	}
	if depth > maxDepth {
		return nil, r.fail(n, "nested deeper than %d levels", maxDepth)
	}
	line := lineOf(n)
	switch n := n.(type) {
	case *ast.MappingNode:
		return r.mapping(line, n.Values, depth)
	case *ast.MappingValueNode:
		return r.mapping(line, []*ast.MappingValueNode{n}, depth)
	case *ast.SequenceNode:
		v := &value{line: line, kind: 'l'}
		for _, item := range n.Values {
			child, err := r.resolve(item, depth+1)
			if err != nil {
				return nil, err
			}
			v.items = append(v.items, child)
		}
		return v, nil
	case *ast.AnchorNode:
		v, err := r.resolve(n.Value, depth)
		if err != nil {
			return nil, err
		}
		r.anchors[n.Name.GetToken().Value] = v
		return v, nil
	case *ast.AliasNode:
		return r.alias(n)
	case *ast.TagNode:
		return nil, r.fail(n, "tags such as %s are not supported", n.Start.Value)
	}
	text, err := r.scalar(n)
	if err != nil {
		return nil, err
	}
	return &value{line: line, kind: 's', text: text}, nil
}

func (r *resolver) alias(n *ast.AliasNode) (*value, error) {
	name := n.Value.GetToken().Value
	target, ok := r.anchors[name]
	if !ok {
		return nil, r.fail(n, "the alias *%s has no anchor above it", name)
	}
	if r.count += target.size(); r.count > maxValues {
		return nil, r.fail(n, "more than %d values", maxValues)
	}
	copied := *target
	copied.line = lineOf(n)
	return &copied, nil
}

func (r *resolver) mapping(line int, pairs []*ast.MappingValueNode, depth int) (*value, error) {
	v := &value{line: line, kind: 'm'}
	for _, pair := range pairs {
		if pair.Key.IsMergeKey() {
			return nil, r.fail(pair, "merge keys (<<) are not supported")
		}
		key, err := r.key(pair.Key)
		if err != nil {
			return nil, err
		}
		if existing, _ := v.child(key); existing != nil {
			return nil, r.fail(pair.Key, "the key %q stands here twice", key)
		}
		child, err := r.resolve(pair.Value, depth+1)
		if err != nil {
			return nil, err
		}
		v.entries = append(v.entries, entry{key: key, line: lineOf(pair.Key), value: child})
	}
	return v, nil
}

// key is a mapping's key as text. Keys like 1 and true are taken as written.
func (r *resolver) key(n ast.MapKeyNode) (string, error) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		return n.GetToken().Value, nil
	}
	return "", r.fail(n, "a key must be text")
}

// scalar is a scalar as JSON.
func (r *resolver) scalar(n ast.Node) (string, error) {
	switch n := n.(type) {
	case *ast.StringNode:
		// The parser takes numbers that fit no machine type for text.
		if text := plainNumber(n.Value); text != "" && n.GetToken().Type == token.StringType {
			return text, nil
		}
		return quote(n.Value), nil
	case *ast.LiteralNode:
		return quote(n.Value.Value), nil
	case *ast.BoolNode:
		return strconv.FormatBool(n.Value), nil
	case *ast.NullNode:
		return "null", nil
	case *ast.IntegerNode:
		if text := plainNumber(n.GetToken().Value); text != "" {
			return text, nil
		}
		return fmt.Sprint(n.Value), nil // 0x1F, 0o17, 1_000
	case *ast.FloatNode:
		if text := plainNumber(n.GetToken().Value); text != "" {
			return text, nil
		}
		return strconv.FormatFloat(n.Value, 'g', -1, 64), nil
	case *ast.InfinityNode, *ast.NanNode:
		return "", r.fail(n, "%s is not a number that can be stored", n.GetToken().Value)
	}
	return "", r.fail(n, "%s is not supported here", strings.ToLower(n.Type().String()))
}

// plainNumber returns text when JSON reads it as the same number, else "".
func plainNumber(text string) string {
	text = strings.TrimPrefix(text, "+")
	if text != "" && strings.Trim(text[:1], "-0123456789") == "" && json.Valid([]byte(text)) {
		return text
	}
	return ""
}

func (v *value) size() int {
	n := 1
	for _, e := range v.entries {
		n += e.value.size()
	}
	for _, item := range v.items {
		n += item.size()
	}
	return n
}

func lineOf(n ast.Node) int {
	if pair, ok := n.(*ast.MappingValueNode); ok {
		n = pair.Key // the pair's own token is its colon
	}
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 && !m.IsFlowStyle {
		n = m.Values[0].Key
	}
	if tk := n.GetToken(); tk != nil && tk.Position != nil {
		return tk.Position.Line
	}
	return 0
}

func quote(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	return strings.TrimSuffix(b.String(), "\n")
}
