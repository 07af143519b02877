package object

import "slices"

// IsText reports whether values are free text.
func (t FieldType) IsText() bool {
	switch t {
	case Text, Textarea, Email, URL, Phone, Markdown, HTML, Richtext, Code, Color:
		return true
	default:
		return false
	}
}

// IsNumber reports whether values are decimal numbers.
func (t FieldType) IsNumber() bool {
	switch t {
	case Number, Currency, Percent, Rating, Slider, Progress:
		return true
	default:
		return false
	}
}

// IsJSON reports whether values are arbitrary JSON.
func (t FieldType) IsJSON() bool { return t == JSON || t == Address || t == Location }

// IsBoolean reports whether values are true or false.
func (t FieldType) IsBoolean() bool { return t == Boolean || t == Toggle }

// HasOptions reports whether values are chosen from the field's options.
func (t FieldType) HasOptions() bool {
	switch t {
	case Select, Radio, Multiselect, Checkboxes, Tags:
		return true
	default:
		return false
	}
}

// IsSealed reports whether the value is sealed at rest and never read back:
// secret and password fields.
func (f *Field) IsSealed() bool { return f.Type == Secret || f.Type == Password }

// IsMulti reports whether the field holds a list of values.
func (f *Field) IsMulti() bool {
	return f.Multiple || f.Type == Multiselect || f.Type == Checkboxes || f.Type == Tags
}

// IsReference reports whether values are ids of other records.
func (f *Field) IsReference() bool {
	return f.Type == Lookup || f.Type == MasterDetail || f.Type == User
}

// Target is the object that a reference points at, "" for other fields. User
// fields point at sys_user when they name nothing else.
func (f *Field) Target() string {
	switch {
	case !f.IsReference():
		return ""
	case f.Reference == "" && f.Type == User:
		return "sys_user"
	default:
		return f.Reference
	}
}

// OnDelete is what happens to the record when its target is deleted, with the
// default of [Field] DeleteBehavior filled in.
func (f *Field) OnDelete() string {
	switch {
	case f.DeleteBehavior != "":
		return f.DeleteBehavior
	case f.Type == MasterDetail && !f.Multiple:
		return Cascade
	case f.Required:
		return Restrict
	default:
		return SetNull
	}
}

// DisplayLabel is the label, or the name when there is none.
func (f *Field) DisplayLabel() string {
	if f.Label != "" {
		return f.Label
	}
	return f.Name
}

// IsApp reports whether the object belongs to an application and not to the
// host itself.
func (s *Schema) IsApp() bool {
	return !s.IsSystem && !s.External && (len(s.Name) < 4 || s.Name[:4] != "sys_")
}

// The operations of the API: six primitives that enable.apiMethods lists, and
// those that derive from them.
const (
	MethodGet       = "get"
	MethodList      = "list"
	MethodCreate    = "create"
	MethodUpdate    = "update"
	MethodDelete    = "delete"
	MethodBulk      = "bulk"
	MethodUpsert    = "upsert"
	MethodImport    = "import"
	MethodExport    = "export"
	MethodAggregate = "aggregate"
	MethodSearch    = "search"
	MethodHistory   = "history"
)

var primitives = []string{MethodGet, MethodList, MethodCreate, MethodUpdate, MethodDelete, MethodBulk}

// APIMethods lists the open primitives in their fixed order; none for an
// object that is closed to the API.
func (s *Schema) APIMethods() []string {
	if s.Enable.APIEnabled != nil && !*s.Enable.APIEnabled {
		return []string{}
	}
	if s.Enable.APIMethods == nil {
		return slices.Clone(primitives)
	}
	open := []string{}
	for _, method := range primitives {
		if slices.Contains(s.Enable.APIMethods, method) {
			open = append(open, method)
		}
	}
	return open
}

// Allows reports whether the API may do method on the object. Besides the
// primitives it knows upsert (create and update), import (create or update),
// export, aggregate and search (list), and history (get, where history is
// tracked). An unknown method is never allowed.
func (s *Schema) Allows(method string) bool {
	open := s.APIMethods()
	has := func(m string) bool { return slices.Contains(open, m) }
	switch method {
	case MethodUpsert:
		return has(MethodCreate) && has(MethodUpdate)
	case MethodImport:
		return has(MethodCreate) || has(MethodUpdate)
	case MethodExport, MethodAggregate, MethodSearch:
		return has(MethodList)
	case MethodHistory:
		return has(MethodGet) && s.Enable.TrackHistory
	default:
		return has(method)
	}
}
