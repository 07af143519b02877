package object

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Fields are an object's fields in the order of their definition. The JSON
// form is a map from name to field that keeps this order.
type Fields []Field

// MarshalJSON writes the fields as a JSON object in their order.
func (f Fields) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i := range f {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(f[i].Name)
		if err != nil {
			return nil, err
		}
		field, err := json.Marshal(f[i])
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", f[i].Name, err)
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(field)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// UnmarshalJSON reads a JSON object and keeps the order of its keys. A key
// that comes twice is an error.
func (f *Fields) UnmarshalJSON(data []byte) error {
	*f = nil
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		return nil
	}
	keys, values, err := orderedObject(data)
	if err != nil {
		return err
	}
	out := make(Fields, 0, len(keys))
	for i, key := range keys {
		var field Field
		if err := json.Unmarshal(values[i], &field); err != nil {
			return fmt.Errorf("field %q: %w", key, err)
		}
		field.Name = key
		out = append(out, field)
	}
	*f = out
	return nil
}

// orderedObject splits a JSON object into its keys, in their order, and the
// values that belong to them.
func orderedObject(data []byte) (keys []string, values []json.RawMessage, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	open, err := dec.Token()
	if err != nil {
		return nil, nil, err
	}
	if open != json.Delim('{') {
		return nil, nil, fmt.Errorf("expected a JSON object, got %s", kindOf(data))
	}
	seen := map[string]bool{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return nil, nil, err
		}
		key := token.(string) // the decoder lets nothing else stand here
		if seen[key] {
			return nil, nil, fmt.Errorf("key %q comes twice", key)
		}
		seen[key] = true
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, nil, err
		}
		keys, values = append(keys, key), append(values, value)
	}
	return keys, values, nil
}

// kindOf names the type of a JSON value.
func kindOf(data []byte) string {
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return "nothing"
	}
	switch data[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}

// Unique tells within which bounds a value may stand only once. Its JSON form
// is false, true, "organization" or "global". Null values never collide.
type Unique string

// The values of [Unique].
const (
	// NotUnique is the zero value, false in JSON.
	NotUnique Unique = ""
	// UniqueDefault is true in JSON: unique within an organization for a field,
	// global for a declared index.
	UniqueDefault Unique = "true"
	// UniqueOrganization is unique within an organization; records without one
	// count as one organization.
	UniqueOrganization Unique = "organization"
	// UniqueGlobal is unique over all organizations.
	UniqueGlobal Unique = "global"
)

// MarshalJSON writes false, true, "organization" or "global".
func (u Unique) MarshalJSON() ([]byte, error) {
	switch u {
	case NotUnique:
		return []byte("false"), nil
	case UniqueDefault:
		return []byte("true"), nil
	default:
		return json.Marshal(string(u))
	}
}

// UnmarshalJSON reads what MarshalJSON writes; anything else is an error.
func (u *Unique) UnmarshalJSON(data []byte) error {
	switch string(bytes.TrimSpace(data)) {
	case "false", "null":
		*u = NotUnique
	case "true":
		*u = UniqueDefault
	case `"organization"`:
		*u = UniqueOrganization
	case `"global"`:
		*u = UniqueGlobal
	default:
		return fmt.Errorf(`unique must be true, false, "organization" or "global", got %s`, data)
	}
	return nil
}
