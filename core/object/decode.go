package object

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// Problem is one thing that is wrong with a definition.
type Problem struct {
	// Path leads to the place: fields.industry.options[2].value.
	Path string
	// Message is a sentence without the path.
	Message string
}

// String is the problem with its path in front.
func (p Problem) String() string {
	if p.Path == "" {
		return p.Message
	}
	return p.Path + ": " + p.Message
}

// InvalidError lists everything that is wrong with a definition.
type InvalidError struct {
	// Object is the definition's name as far as it is known.
	Object   string
	Problems []Problem
}

// Error lists all problems in one line.
func (e *InvalidError) Error() string {
	parts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		parts[i] = p.String()
	}
	return fmt.Sprintf("object %q is invalid: %s", e.Object, strings.Join(parts, "; "))
}

// unsupported are keys of the wire protocol that this host refuses, with what
// to do instead.
var unsupported = map[string]string{
	"systemFields": "the system columns are fixed",
	"ownership":    "every app object has owner_id",
	"tenancy":      "organization_id scopes every object",
	"lifecycle":    "use trash to keep deleted records",
}

// Decode reads a definition from JSON and checks it with [Schema.Check]. Keys
// that are not part of a definition are refused with their path. The error is
// an *[InvalidError] unless the text is not JSON at all.
func Decode(data []byte) (Schema, error) {
	dec := json.NewDecoder(strings.NewReader(string(data)))
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return Schema{}, fmt.Errorf("decode object: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Schema{}, errors.New("decode object: there is text after the JSON value")
	}
	d := decoder{}
	d.object(raw, reflect.TypeFor[Schema](), "")
	var in struct {
		Schema
		DisplayNameField string `json:"displayNameField"`
	}
	if len(d.problems) == 0 {
		if err := json.Unmarshal(raw, &in); err != nil {
			d.add("", typeMessage(err))
		}
	}
	if len(d.problems) > 0 {
		return Schema{}, &InvalidError{Object: nameIn(raw), Problems: d.problems}
	}
	s := in.Schema
	if s.NameField == "" {
		s.NameField = in.DisplayNameField
	}
	if err := s.Check(); err != nil {
		return Schema{}, err
	}
	return s, nil
}

// typeMessage puts a type error of encoding/json into words of JSON.
func typeMessage(err error) string {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Sprintf("%s cannot be a %s", wrong.Field, wrong.Value)
	}
	return err.Error()
}

// nameIn finds the name in a definition that does not decode.
func nameIn(raw []byte) string {
	var in struct{ Name any }
	_ = json.Unmarshal(raw, &in)
	name, _ := in.Name.(string)
	return name
}

// decoder looks for keys that no type knows.
type decoder struct{ problems []Problem }

// add notes a problem.
func (d *decoder) add(path, message string) {
	d.problems = append(d.problems, Problem{Path: path, Message: message})
}

// object checks the keys of a JSON object against the JSON names of t, and
// those of the values below.
func (d *decoder) object(raw json.RawMessage, t reflect.Type, path string) {
	keys, values, err := orderedObject(raw)
	if err != nil {
		d.add(path, err.Error())
		return
	}
	known := jsonNames(t)
	for i, key := range keys {
		at := join(path, key)
		below, ok := known[key]
		switch {
		case ok:
			d.value(values[i], below, at)
		case path == "" && key == "displayNameField":
		case path == "" && unsupported[key] != "":
			d.add(at, "is not supported: "+unsupported[key])
		default:
			d.add(at, "is not a known key")
		}
	}
}

// value goes down into whatever holds keys of its own.
func (d *decoder) value(raw json.RawMessage, t reflect.Type, path string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if string(raw) == "null" {
		return
	}
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
	case t == reflect.TypeFor[Fields]():
		d.mapOf(raw, reflect.TypeFor[Field](), path)
	case t.Kind() == reflect.Map:
		d.mapOf(raw, t.Elem(), path)
	case t.Kind() == reflect.Struct:
		d.object(raw, t, path)
	case t.Kind() == reflect.Slice:
		var items []json.RawMessage
		if err := json.Unmarshal(raw, &items); err != nil {
			d.add(path, "must be an array, got "+kindOf(raw))
			return
		}
		for i, item := range items {
			d.value(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		}
	}
}

// mapOf checks the values of a map whose keys are free.
func (d *decoder) mapOf(raw json.RawMessage, elem reflect.Type, path string) {
	keys, values, err := orderedObject(raw)
	if err != nil {
		d.add(path, err.Error())
		return
	}
	for i, key := range keys {
		d.value(values[i], elem, join(path, key))
	}
}

// jsonNames lists the keys that a struct takes.
func jsonNames(t reflect.Type) map[string]reflect.Type {
	names := make(map[string]reflect.Type, t.NumField())
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" {
			names[name] = t.Field(i).Type
		}
	}
	return names
}

// join appends a key to a path.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
