// Package pluginconfig checks the configuration of plugins against their JSON
// Schemas and shows faults at the line of the file where they stand.
package pluginconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/objecthost/objecthost/cmd/host/internal/document"
	"github.com/objecthost/objecthost/core"
)

var _ core.ConfigValidator = (*Validator)(nil)

// Validator implements [core.ConfigValidator]. The zero value works and knows
// no lines.
type Validator struct {
	// File holds the configurations under plugins.<ID>; nil when they come
	// from elsewhere.
	File *document.Document
}

// Faults are all that is wrong with one configuration. Its text is one line.
type Faults []error

func (f Faults) Error() string {
	texts := make([]string, len(f))
	for i, err := range f {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the single faults.
func (f Faults) Unwrap() []error { return f }

// ValidateConfig implements [core.ConfigValidator]. It returns [Faults] for a
// configuration that the schema refuses, in the order of the file, and another
// error for a schema that is none. References out of the schema are refused.
func (v *Validator) ValidateConfig(plugin string, schema, config json.RawMessage) error {
	compiled, err := compile(schema)
	if err != nil {
		return fmt.Errorf("the schema of the plugin is not valid: %w", err)
	}
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(config))
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	err = compiled.Validate(instance)
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return err
	}
	w := walker{plugin: plugin, file: v.File}
	w.walk(invalid)
	slices.SortStableFunc(w.found, func(a, b fault) int { return a.line - b.line })
	faults := make(Faults, len(w.found))
	for i, f := range w.found {
		faults[i] = f.err
	}
	return faults
}

func compile(schema json.RawMessage) (*jsonschema.Schema, error) {
	const name = "config.schema.json"
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // nothing is loaded from files or the network
	if err := c.AddResource(name, doc); err != nil {
		return nil, err
	}
	return c.Compile(name)
}

type fault struct {
	line int
	err  error
}

// walker collects the leaves of an error tree.
type walker struct {
	plugin string
	file   *document.Document
	found  []fault
}

func (w *walker) walk(e *jsonschema.ValidationError) {
	if extra, ok := e.ErrorKind.(*kind.AdditionalProperties); ok {
		for _, name := range extra.Properties {
			w.add(append(slices.Clone(e.InstanceLocation), name), "is not known")
		}
		return
	}
	switch e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf: // which branch was meant is not known
		w.add(e.InstanceLocation, text(e))
		return
	}
	if len(e.Causes) == 0 {
		w.add(e.InstanceLocation, text(e))
		return
	}
	for _, cause := range e.Causes {
		w.walk(cause)
	}
}

func (w *walker) add(path []string, text string) {
	at := append([]string{"plugins", w.plugin}, path...)
	where := strings.Join(at, ".")
	if w.file == nil {
		w.found = append(w.found, fault{err: fmt.Errorf("%s: %s", where, text)})
		return
	}
	w.found = append(w.found, fault{line: w.file.Line(at...), err: w.file.Errorf(at, "%s: %s", where, text)})
}

func text(e *jsonschema.ValidationError) string {
	return strings.ReplaceAll(e.ErrorKind.LocalizedString(message.NewPrinter(language.English)), "\n", " ")
}
