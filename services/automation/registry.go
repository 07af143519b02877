package automation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// registry holds the node types.
type registry struct {
	mu    sync.RWMutex
	types map[string]*NodeType
	order []string
}

var typeName = regexp.MustCompile(`^[a-z][a-z0-9_.-]{0,63}$`)

// RegisterNode adds a node type. Plugins call it in their Init; flows that use
// the type may be registered before and after. Errors are ErrDuplicateNode and
// those of a description that makes no sense.
func (s *Service) RegisterNode(t NodeType) error { return s.ReplaceNodes(nil, []NodeType{t}) }

// ReplaceNodes takes node types out of the registry and adds others in one
// step, for plugins that come, change and go while the host runs: no run finds
// a type missing that is in both lists. The built-in types stay; names of which
// there is no type are no error. A run under way goes on with the types that it
// began with. On an error, as of [Service.RegisterNode], nothing has changed.
func (s *Service) ReplaceNodes(remove []string, add []NodeType) error {
	prepared := make([]*NodeType, len(add))
	for i, t := range add {
		t.source = "plugin"
		t.container = nil
		if t.Run == nil {
			return fmt.Errorf("automation: node type %q has no Run", t.Type)
		}
		if t.Effect < EffectNone || t.Effect > EffectExternal {
			return fmt.Errorf("automation: node type %q has no such effect", t.Type)
		}
		var err error
		if prepared[i], err = t.prepare(); err != nil {
			return err
		}
	}
	if err := s.nodes.replace(remove, prepared); err != nil {
		return err
	}
	s.flows.forget()
	return nil
}

// prepare is the type with its defaults and its compiled schema.
func (t NodeType) prepare() (*NodeType, error) {
	if !typeName.MatchString(t.Type) {
		return nil, fmt.Errorf("automation: %q is not a name of a node type", t.Type)
	}
	t.Version = cmp.Or(t.Version, "1.0.0")
	t.Name = cmp.Or(t.Name, t.Type)
	t.Category = cmp.Or(t.Category, "custom")
	schema, err := compileSchema(t.ConfigSchema)
	if err != nil {
		return nil, fmt.Errorf("automation: config schema of node type %q: %w", t.Type, err)
	}
	t.schema = schema
	return &t, nil
}

func (r *registry) add(t NodeType) error {
	prepared, err := t.prepare()
	if err != nil {
		return err
	}
	return r.replace(nil, []*NodeType{prepared})
}

func (r *registry) replace(remove []string, add []*NodeType) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	types, order := maps.Clone(r.types), slices.Clone(r.order)
	if types == nil {
		types = map[string]*NodeType{}
	}
	for _, name := range remove {
		if t := types[name]; t != nil && t.source == "plugin" {
			delete(types, name)
			order = slices.DeleteFunc(order, func(o string) bool { return o == name })
		}
	}
	for _, t := range add {
		if types[t.Type] != nil {
			return fmt.Errorf("%w: %s", ErrDuplicateNode, t.Type)
		}
		types[t.Type] = t
		order = append(order, t.Type)
	}
	r.types, r.order = types, order
	return nil
}

func (r *registry) get(name string) *NodeType {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.types[name]
}

// describe lists the types that authors choose from, in the order of their
// registration. Start and end are part of every flow.
func (r *registry) describe() []descriptor {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := []descriptor{}
	for _, name := range r.order {
		if name != "start" && name != "end" {
			out = append(out, r.types[name].describe())
		}
	}
	return out
}

// configSchema checks the config of nodes of one type.
type configSchema struct {
	compiled *jsonschema.Schema
	declared []string
}

// compileSchema closes the schema to unknown keys unless it says itself what
// becomes of them. References out of the schema are refused.
func compileSchema(source json.RawMessage) (*configSchema, error) {
	if source == nil {
		source = json.RawMessage(`{"type":"object"}`)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(source))
	if err != nil {
		return nil, err
	}
	root, ok := doc.(map[string]any)
	if !ok {
		return nil, errors.New("must be an object")
	}
	if _, says := root["additionalProperties"]; !says {
		root["additionalProperties"] = false
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if err := c.AddResource("config.json", doc); err != nil {
		return nil, err
	}
	compiled, err := c.Compile("config.json")
	if err != nil {
		return nil, err
	}
	properties, _ := root["properties"].(map[string]any)
	return &configSchema{compiled, slices.Sorted(maps.Keys(properties))}, nil
}

// check returns what is wrong with a config. With templates true, the config is
// as authored: a text with tokens is taken for any value.
func (s *configSchema) check(config map[string]any, path string, templates bool) []Problem {
	if config == nil {
		config = map[string]any{}
	}
	err := s.compiled.Validate(config)
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return nil
	}
	w := schemaWalker{schema: s, config: config, path: path, templates: templates}
	w.walk(invalid)
	return w.problems
}

type schemaWalker struct {
	schema    *configSchema
	config    any
	path      string
	templates bool
	problems  []Problem
}

var english = message.NewPrinter(language.English)

func (w *schemaWalker) walk(e *jsonschema.ValidationError) {
	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		for _, name := range slices.Sorted(slices.Values(k.Properties)) {
			w.problems = append(w.problems, Problem{
				w.at(append(slices.Clone(e.InstanceLocation), name)), codeUnknownField,
				fmt.Sprintf("unknown config key `%s`. Declared here: %s.", name, strings.Join(w.schema.declared, ", ")),
			})
		}
		return
	case *kind.Required:
		for _, name := range k.Missing {
			w.problems = append(w.problems, Problem{w.at(append(slices.Clone(e.InstanceLocation), name)), codeRequired, "is required"})
		}
		return
	}
	if len(e.Causes) > 0 && !branching(e) {
		for _, cause := range e.Causes {
			w.walk(cause)
		}
		return
	}
	if text, ok := w.value(e.InstanceLocation).(string); ok && w.templates && hasTokens(text) {
		return
	}
	w.problems = append(w.problems, Problem{w.at(e.InstanceLocation), codeInvalidValue, e.ErrorKind.LocalizedString(english)})
}

func branching(e *jsonschema.ValidationError) bool {
	switch e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf:
		return true
	}
	return false
}

// value is the part of the config at a location.
func (w *schemaWalker) value(location []string) any {
	value := w.config
	for _, part := range location {
		switch v := value.(type) {
		case map[string]any:
			value = v[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(v) {
				return nil
			}
			value = v[i]
		default:
			return nil
		}
	}
	return value
}

func (w *schemaWalker) at(location []string) string {
	path := w.path
	for _, part := range location {
		if _, err := strconv.Atoi(part); err == nil {
			path += "[" + part + "]"
			continue
		}
		path = join(path, part)
	}
	return path
}
