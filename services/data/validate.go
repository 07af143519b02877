package data

import (
	"slices"
	"strings"
	"time"

	"github.com/objecthost/objecthost/core/object"
)

// Dropped reports values that were not written because callers may not write
// them.
type Dropped struct {
	Object string   `json:"object"`
	Fields []string `json:"fields"`
	Reason string   `json:"reason"`
}

// draft is a validated write: the values of its columns in record form, and
// the plaintexts that are to be sealed.
type draft struct {
	values  Record
	secrets map[string]secretWrite
	dropped []string
}

// report is what the caller is told about values that were dropped.
func (d *draft) report(object string) []Dropped {
	if len(d.dropped) == 0 {
		return nil
	}
	return []Dropped{{Object: object, Fields: d.dropped, Reason: "readonly"}}
}

// validator checks one record. privileged writers may set readonly fields, and
// those of everywhere the organization.
type validator struct {
	table      *table
	now        time.Time
	privileged bool
	everywhere bool
	keyring    bool
	failed     []FieldError
}

// checkNames refuses fields that the object does not have.
func (v *validator) checkNames(values Record) error {
	var unknown []string
	for name := range values {
		if _, ok := v.table.byName[name]; !ok {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return errUnknownField(v.table.name(), unknown[0])
}

// readonly reports whether the writer's value is dropped. Numbers that the engine
// counts and the trash's marks are nobody's to write.
func (v *validator) readonly(c *column, create bool) bool {
	switch {
	case c.Name == "id":
		return !create
	case c.Type == object.Autonumber, c.Name == "deleted_at", c.Name == "deleted_by":
		return true
	case c.Name == "organization_id":
		return !v.everywhere
	case c.Readonly, c.Internal, v.table.byName[c.Name].restricted:
		return !v.privileged
	default:
		return false
	}
}

// create checks a new record; all its columns get a value, null for none.
func (v *validator) create(values Record) (*draft, error) {
	if err := v.checkNames(values); err != nil {
		return nil, err
	}
	d := &draft{values: make(Record, len(v.table.columns))}
	for i := range v.table.columns {
		c := &v.table.columns[i]
		value, given := values[c.Name]
		if given && v.readonly(c, true) {
			d.dropped = append(d.dropped, c.Name)
			value = nil
		}
		if value == nil {
			value = fieldDefault(c.Field)
		}
		d.values[c.Name] = nil
		v.field(d, c, value, true)
	}
	if len(v.failed) > 0 {
		return nil, Invalid(v.table.name(), v.failed...)
	}
	return d, nil
}

// update checks the values that a write changes.
func (v *validator) update(values Record) (*draft, error) {
	if err := v.checkNames(values); err != nil {
		return nil, err
	}
	d := &draft{values: Record{}}
	for i := range v.table.columns {
		c := &v.table.columns[i]
		value, given := values[c.Name]
		switch {
		case !given:
		case v.readonly(c, false):
			d.dropped = append(d.dropped, c.Name)
		default:
			v.field(d, c, value, false)
		}
	}
	if len(v.failed) > 0 {
		return nil, Invalid(v.table.name(), v.failed...)
	}
	return d, nil
}

// field checks one value and puts it into the draft.
func (v *validator) field(d *draft, c *column, value any, create bool) {
	if c.kind == kindSealed {
		v.secret(d, c, value, create)
		return
	}
	var failed *FieldError
	if c.Name == "id" && value != nil {
		value, failed = recordID(c, value)
	} else if value != nil {
		value, failed = normalize(c, value, v.now)
	}
	if failed != nil {
		v.failed = append(v.failed, *failed)
		return
	}
	if c.Required && empty(value) && c.Type != object.Autonumber {
		v.failed = append(v.failed, *missing(c, create))
		return
	}
	d.values[c.Name] = value
}

// missing is the failure of a required field.
func missing(c *column, create bool) *FieldError {
	if create {
		return fail(c, "required", "is required")
	}
	return fail(c, "required", "is required and cannot be cleared")
}

// empty reports whether a value does not satisfy required: a text of spaces says
// nothing either.
func empty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case string:
		return strings.TrimSpace(value) == ""
	case []any:
		return len(value) == 0
	default:
		return false
	}
}

// secret checks the value of a sealed field. The mask and references keep
// what is stored; whether a reference is the record's own is seen under the
// row's lock.
func (v *validator) secret(d *draft, c *column, value any, create bool) {
	text, isText := value.(string)
	var failed *FieldError
	switch {
	case value == nil || isText && text == "":
		if c.Required {
			failed = missing(c, create)
		} else if !create {
			d.values[c.Name] = nil
		}
	case !isText:
		failed = fail(c, "invalid_type", "must be text")
	case text == Mask && create && c.Required:
		failed = missing(c, create)
	case text == Mask:
	case !storable(text):
		failed = fail(c, "invalid_format", "must be valid UTF-8 text without NUL characters")
	case isRef(text) && create:
		failed = fail(c, "invalid_value", "cannot take over a stored secret")
	case isRef(text):
		d.setSecret(c.Name, secretWrite{keep: text})
	default:
		if failed = checkLength(c, text); failed == nil && !v.keyring {
			failed = fail(c, "invalid_value", "cannot be stored: this host has no key for secrets")
		}
		d.setSecret(c.Name, secretWrite{plaintext: text})
	}
	if failed != nil {
		v.failed = append(v.failed, *failed)
	}
}

// setSecret keeps a plaintext apart from the values, so that nothing that
// prints or stores values can meet it.
func (d *draft) setSecret(field string, w secretWrite) {
	if d.secrets == nil {
		d.secrets = map[string]secretWrite{}
	}
	d.secrets[field] = w
}

// recordID checks an id that a creator chose.
func recordID(c *column, value any) (any, *FieldError) {
	id, ok := value.(string)
	if !ok || !validID(id) {
		return nil, fail(c, "invalid_format", "must be 1 to 128 letters, digits or any of _-.:")
	}
	return id, nil
}

// validID bounds ids to what needs no escaping in a path or a key.
func validID(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	for _, r := range id {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-', r == '.', r == ':':
		default:
			return false
		}
	}
	return true
}
