package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"sort"
	"strings"

	"github.com/knadh/koanf/v2"

	"github.com/objecthost/objecthost/cmd/host/internal/document"
)

// Input is where settings are looked for.
type Input struct {
	// File is the configuration file; "" means DefaultFile when it exists.
	File string
	// Environ holds the environment as os.Environ returns it. An empty
	// variable counts as absent.
	Environ []string
	// Flags holds the flags that were given, by the names of the settings.
	Flags map[string][]string
	// OtherVars lists variables that start with HOST_ and are no settings.
	OtherVars []string
}

// layer is what one source says, with the place of each setting for errors.
type layer struct {
	values map[string][]string
	source func(name string) string
}

// Read implements koanf.Provider.
func (l layer) Read() (map[string]any, error) {
	out := make(map[string]any, len(l.values))
	for name, v := range l.values {
		out[name] = v
	}
	return out, nil
}

// ReadBytes implements koanf.Provider.
func (l layer) ReadBytes() ([]byte, error) {
	return nil, errors.New("settings: a layer is no bytes")
}

// Load reads all sources. Every value is checked where it stands, also one that
// a weightier source replaces. Errors are of type *[Error] or
// *[document.Error].
func Load(in Input) (Settings, error) {
	all := map[string]Setting{}
	for _, s := range All() {
		all[s.Name] = s
	}
	var out Settings
	file, err := readFile(in.File, &out, all)
	if err != nil {
		return Settings{}, err
	}
	env, err := readEnv(in, all)
	if err != nil {
		return Settings{}, err
	}
	k := koanf.New("\x00") // names hold dots and dashes; nothing is nested
	layers := []layer{defaults(all), file, env, {
		values: in.Flags,
		source: func(name string) string { return "--" + name },
	}}
	for _, l := range layers {
		if err := l.check(all); err != nil {
			return Settings{}, err
		}
		if err := k.Load(l, nil); err != nil {
			return Settings{}, err
		}
	}
	for name, s := range all {
		if v := k.Strings(name); k.Exists(name) {
			if err := s.set(&out, v); err != nil {
				return Settings{}, &Error{Source: name, Message: err.Error()}
			}
		}
	}
	if _, sqlite := out.SQLiteFile(); out.KeyFile == "" && !sqlite {
		out.KeyFile = defaultKeyFile
	}
	return out, nil
}

// check tries every value of the layer, in the order of the names.
func (l layer) check(all map[string]Setting) error {
	names := make([]string, 0, len(l.values))
	for name := range l.values {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		var scratch Settings
		if err := all[name].set(&scratch, l.values[name]); err != nil {
			return &Error{Source: l.source(name), Message: err.Error()}
		}
	}
	return nil
}

func defaults(all map[string]Setting) layer {
	l := layer{values: map[string][]string{}, source: func(name string) string { return "default of " + name }}
	for name, s := range all {
		if s.Default != "" {
			l.values[name] = []string{s.Default}
		}
	}
	return l
}

func readEnv(in Input, all map[string]Setting) (layer, error) {
	byVar := map[string]Setting{}
	for _, s := range all {
		byVar[s.Env()] = s
	}
	other := map[string]bool{}
	for _, name := range in.OtherVars {
		other[name] = true
	}
	l := layer{values: map[string][]string{}, source: func(name string) string { return all[name].Env() }}
	for _, pair := range in.Environ {
		name, value, _ := strings.Cut(pair, "=")
		if value == "" || !strings.HasPrefix(name, "HOST_") || other[name] || strings.HasPrefix(name, "HOST_TEST_") {
			continue
		}
		s, ok := byVar[name]
		if !ok {
			return l, &Error{Source: name, Message: "no such setting" + hint(name, keys(byVar))}
		}
		l.values[s.Name] = []string{value}
		if s.Kind == List {
			l.values[s.Name] = strings.Split(value, ",")
		}
	}
	return l, nil
}

func readFile(name string, out *Settings, all map[string]Setting) (layer, error) {
	l := layer{values: map[string][]string{}}
	given := name != ""
	if !given {
		name = DefaultFile
	}
	doc, err := document.Read(name)
	var fault *document.Error
	switch {
	case !given && errors.Is(err, fs.ErrNotExist):
		return l, nil
	case errors.As(err, &fault):
		return l, err
	case err != nil:
		return l, &Error{Source: name, Message: unwrapPath(err).Error()}
	}
	if len(doc.JSON()) > 0 && doc.JSON()[0] != '{' {
		return l, doc.Errorf(nil, "the file must hold a mapping of settings")
	}
	l.source = func(key string) string { return fmt.Sprintf("%s:%d: %s", doc.Name, doc.Line(key), key) }
	for _, key := range doc.Keys() {
		if key == "plugins" {
			if err := readPlugins(doc, out); err != nil {
				return l, err
			}
			continue
		}
		s, ok := all[key]
		if !ok {
			return l, doc.Errorf([]string{key}, "no such setting: %s%s", key, hint(key, append(keys(all), "plugins")))
		}
		values, err := fileValues(s, doc.JSON(key))
		if err != nil {
			return l, &Error{Source: l.source(key), Message: err.Error()}
		}
		l.values[key] = values
	}
	return l, nil
}

func readPlugins(doc *document.Document, out *Settings) error {
	ids := doc.Keys("plugins")
	if ids == nil {
		return doc.Errorf([]string{"plugins"}, "plugins must be a mapping from plugin IDs to their configuration")
	}
	out.File = doc
	out.Plugins = make(map[string]json.RawMessage, len(ids))
	for _, id := range ids {
		out.Plugins[id] = doc.JSON("plugins", id)
	}
	return nil
}

// fileValues brings a value of the file into the form of the other sources.
func fileValues(s Setting, raw json.RawMessage) ([]string, error) {
	switch s.Kind {
	case Switch:
		var b bool
		if json.Unmarshal(raw, &b) != nil {
			return nil, fmt.Errorf("must be true or false, not %s", raw)
		}
		return []string{fmt.Sprint(b)}, nil
	case List:
		var list []string
		if json.Unmarshal(raw, &list) != nil {
			return nil, fmt.Errorf("must be a list of texts, not %s", raw)
		}
		return list, nil
	}
	var text string
	var count json.Number
	switch {
	case string(raw) == "null":
	case json.Unmarshal(raw, &text) == nil:
		return []string{text}, nil
	case json.Unmarshal(raw, &count) == nil:
		return []string{count.String()}, nil
	}
	return nil, fmt.Errorf("must be a text or a number, not %s", raw)
}

// hint names the known name that is nearest to a wrong one, when one is near.
func hint(wrong string, known []string) string {
	best, bestName := len(wrong)/3+1, ""
	sort.Strings(known)
	for _, name := range known {
		if d := distance(wrong, name); d < best {
			best, bestName = d, name
		}
	}
	if bestName == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", bestName)
}

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

func keys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	return out
}

// unwrapPath drops the path and operation from an error of the os package.
func unwrapPath(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
