package object

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
)

var machineName = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// MaxNameLength bounds the names of objects and fields: what both databases
// take as an identifier.
const MaxNameLength = 60

// systemNames are the columns that the data service adds to objects. A
// definition may describe them anew only for an external table.
var systemNames = []string{
	"id", "created_at", "updated_at", "created_by", "updated_by", "organization_id",
	"owner_id", "owning_business_unit_id", "deleted_at", "deleted_by",
}

// SystemField reports whether name belongs to a column that the data service
// adds and maintains.
func SystemField(name string) bool { return slices.Contains(systemNames, name) }

// types lists the types that a record's row can hold.
var types = []FieldType{
	Text, Textarea, Email, URL, Phone, Password, Secret, Markdown, HTML, Richtext, Code, Color,
	Number, Currency, Percent, Rating, Slider, Progress, Date, Datetime, Time, Boolean, Toggle,
	Select, Radio, Multiselect, Checkboxes, Tags, Lookup, MasterDetail, User, JSON, Address,
	Location, Autonumber,
}

// foreignTypes are types of the wire protocol that need machinery beyond a
// row: files, computed values, nested tables.
var foreignTypes = []FieldType{
	"tree", "image", "file", "avatar", "video", "audio", "formula", "summary", "composite",
	"repeater", "record", "signature", "qrcode", "vector",
}

// Supported reports whether records can hold fields of type t.
func Supported(t FieldType) bool { return slices.Contains(types, t) }

// Check looks over a definition and reports everything that is wrong with it
// in one *[InvalidError], nil for nothing. Whether referenced objects exist is
// for the data service to see.
func (s *Schema) Check() error {
	c := checker{schema: s, decoder: decoder{}}
	c.header()
	c.fields()
	c.indexes()
	if len(c.problems) == 0 {
		return nil
	}
	return &InvalidError{Object: s.Name, Problems: c.problems}
}

type checker struct {
	decoder
	schema *Schema
}

// name checks a machine name.
func (c *checker) name(path, name string) {
	switch {
	case name == "":
		c.add(path, "is required")
	case !machineName.MatchString(name):
		c.add(path, fmt.Sprintf("%q must match ^[a-z_][a-z0-9_]*$", name))
	case len(name) > MaxNameLength:
		c.add(path, fmt.Sprintf("%q is longer than %d characters", name, MaxNameLength))
	}
}

// oneOf checks an optional word.
func (c *checker) oneOf(path, value string, allowed ...string) {
	if value != "" && !slices.Contains(allowed, value) {
		c.add(path, fmt.Sprintf("%q is not one of: %s", value, strings.Join(allowed, ", ")))
	}
}

// header checks everything but fields and indexes.
func (c *checker) header() {
	s := c.schema
	c.name("name", s.Name)
	c.oneOf("managedBy", s.ManagedBy, "platform", "config", "system-data", "engine-owned", "append-only", "better-auth")
	c.oneOf("sharingModel", s.SharingModel, "private", "public_read", "public_read_write", "controlled_by_parent")
	c.oneOf("datasource", s.Datasource, "default")
	for i, method := range s.Enable.APIMethods {
		c.oneOf(fmt.Sprintf("enable.apiMethods[%d]", i), method, primitives...)
	}
	if s.ScopedBy != nil && !s.External {
		c.add("scopedBy", "is for external tables; the others have organization_id")
	}
	if s.Trash && s.External {
		c.add("trash", "an external table keeps no trash")
	}
	if s.NameField != "" {
		c.known("nameField", s.NameField)
	}
	for i, name := range s.HighlightFields {
		c.known(fmt.Sprintf("highlightFields[%d]", i), name)
	}
	for i, name := range s.SearchableFields {
		c.known(fmt.Sprintf("searchableFields[%d]", i), name)
		if f, ok := s.Field(name); ok && !f.Type.IsText() {
			c.add(fmt.Sprintf("searchableFields[%d]", i), fmt.Sprintf("%q is no text field", name))
		}
	}
	for key, view := range s.ListViews {
		for i, column := range view.Columns {
			c.known(fmt.Sprintf("listViews.%s.columns[%d]", key, i), column)
		}
	}
}

// known checks that a name is a field, or one that every object gets.
func (c *checker) known(path, name string) {
	if _, ok := c.schema.Field(name); !ok && !SystemField(name) {
		c.add(path, fmt.Sprintf("%q is not a field of the object", name))
	}
}

// fields checks the fields and what they are called.
func (c *checker) fields() {
	if len(c.schema.Fields) == 0 {
		c.add("fields", "must hold at least one field")
	}
	seen := map[string]bool{}
	for i := range c.schema.Fields {
		f := &c.schema.Fields[i]
		path := "fields." + f.Name
		if f.Name == "" {
			path = fmt.Sprintf("fields[%d]", i)
		}
		c.name(path, f.Name)
		if seen[f.Name] {
			c.add(path, "is defined twice")
		}
		seen[f.Name] = true
		if SystemField(f.Name) && !c.schema.External && !f.System {
			c.add(path, "is a system column that every object has")
		}
		c.field(f, path)
	}
}

// field checks one field. A wrong type ends it: nothing else can be judged then.
func (c *checker) field(f *Field, path string) {
	switch {
	case f.Type == "":
		c.add(path+".type", "is required")
		return
	case slices.Contains(foreignTypes, f.Type):
		c.add(path+".type", fmt.Sprintf("fields of type %q are not supported", f.Type))
		return
	case !Supported(f.Type):
		c.add(path+".type", fmt.Sprintf("%q is not a field type", f.Type))
		return
	}
	c.bounds(f, path)
	c.options(f, path)
	c.reference(f, path)
	c.format(f, path)
	if f.Unique != NotUnique && (f.IsSealed() || f.IsMulti() || f.Type.IsJSON()) {
		c.add(path+".unique", fmt.Sprintf("fields of type %q cannot be unique", f.Type))
	}
	switch f.Unique {
	case NotUnique, UniqueDefault, UniqueOrganization, UniqueGlobal:
	default:
		c.add(path+".unique", fmt.Sprintf("%q is not true, false, organization or global", string(f.Unique)))
	}
	if f.Index && (f.IsSealed() || f.IsMulti() || f.Type.IsJSON()) {
		c.add(path+".index", fmt.Sprintf("fields of type %q cannot be indexed", f.Type))
	}
	if len(f.DefaultValue) > 0 && !json.Valid(f.DefaultValue) {
		c.add(path+".defaultValue", "is not valid JSON")
	}
	if len(f.DefaultValue) > 0 && (f.IsSealed() || f.Type == Autonumber) {
		c.add(path+".defaultValue", fmt.Sprintf("fields of type %q take no default", f.Type))
	}
	if f.ExternalID && f.Unique == NotUnique {
		c.add(path+".externalId", "needs unique")
	}
}

// bounds checks lengths, numbers of digits and limits, and that the type has
// them at all: a bound that does nothing is a mistake of the author.
func (c *checker) bounds(f *Field, path string) {
	for _, n := range []struct {
		key   string
		value *int
		ok    bool
	}{
		{"maxLength", f.MaxLength, f.Type.IsText() || f.IsSealed()},
		{"minLength", f.MinLength, f.Type.IsText() || f.IsSealed()},
		{"scale", f.Scale, f.Type.IsNumber()},
		{"precision", f.Precision, f.Type.IsNumber()},
	} {
		if n.value == nil {
			continue
		}
		if *n.value < 0 {
			c.add(path+"."+n.key, "must not be negative")
		}
		if !n.ok {
			c.add(path+"."+n.key, fmt.Sprintf("does not apply to type %q", f.Type))
		}
	}
	if f.MinLength != nil && f.MaxLength != nil && *f.MinLength > *f.MaxLength {
		c.add(path+".minLength", "is greater than maxLength")
	}
	low, lowOK := c.number(path+".min", f.Min, f)
	high, highOK := c.number(path+".max", f.Max, f)
	if lowOK && highOK && low.Cmp(high) > 0 {
		c.add(path+".min", "is greater than max")
	}
}

// number reads a limit. Exponents are bounded before big.Rat sees them: it would
// write 1e999999999 out.
func (c *checker) number(path string, n json.Number, f *Field) (*big.Rat, bool) {
	if n == "" {
		return nil, false
	}
	if !f.Type.IsNumber() {
		c.add(path, fmt.Sprintf("does not apply to type %q", f.Type))
	}
	if len(n) > 80 || strings.ContainsAny(n.String(), "/_xXpP") {
		c.add(path, fmt.Sprintf("%q is not a decimal number", n.String()))
		return nil, false
	}
	if _, exp, found := strings.Cut(strings.ToLower(n.String()), "e"); found && len(exp) > 3 {
		c.add(path, fmt.Sprintf("%q is out of range", n.String()))
		return nil, false
	}
	r, ok := new(big.Rat).SetString(n.String())
	if !ok {
		c.add(path, fmt.Sprintf("%q is not a decimal number", n.String()))
	}
	return r, ok
}

// options checks choices. Commas are refused in values because lists may be
// written with commas in between.
func (c *checker) options(f *Field, path string) {
	switch {
	case f.Type.HasOptions() && f.Type != Tags && len(f.Options) == 0:
		c.add(path+".options", fmt.Sprintf("type %q needs options", f.Type))
	case !f.Type.HasOptions() && len(f.Options) > 0:
		c.add(path+".options", fmt.Sprintf("does not apply to type %q", f.Type))
	}
	seen := map[string]bool{}
	for i, o := range f.Options {
		at := fmt.Sprintf("%s.options[%d].value", path, i)
		switch {
		case o.Value == "":
			c.add(at, "is required")
		case strings.ContainsAny(o.Value, ",\x00") || strings.TrimSpace(o.Value) != o.Value:
			c.add(at, fmt.Sprintf("%q holds a comma or outer space", o.Value))
		case seen[o.Value]:
			c.add(at, fmt.Sprintf("%q comes twice", o.Value))
		}
		seen[o.Value] = true
	}
}

// reference checks what a lookup points at and what a delete of it does.
func (c *checker) reference(f *Field, path string) {
	isLookup := f.Type == Lookup || f.Type == MasterDetail
	switch {
	case isLookup && f.Reference == "":
		c.add(path+".reference", fmt.Sprintf("type %q needs a reference", f.Type))
	case !f.IsReference() && f.Reference != "":
		c.add(path+".reference", fmt.Sprintf("does not apply to type %q", f.Type))
	case f.Reference != "" && !machineName.MatchString(f.Reference):
		c.add(path+".reference", fmt.Sprintf("%q is not an object's name", f.Reference))
	}
	c.oneOf(path+".deleteBehavior", f.DeleteBehavior, SetNull, Cascade, Restrict)
	switch {
	case f.DeleteBehavior == "":
	case !f.IsReference():
		c.add(path+".deleteBehavior", fmt.Sprintf("does not apply to type %q", f.Type))
	case f.Required && f.DeleteBehavior == SetNull:
		c.add(path+".deleteBehavior", "a required field cannot be set to null")
	case f.Multiple && f.DeleteBehavior == Cascade:
		c.add(path+".deleteBehavior", "a field with many values cannot cascade")
	}
	if f.Multiple && !f.IsReference() && !f.Type.HasOptions() {
		c.add(path+".multiple", fmt.Sprintf("does not apply to type %q", f.Type))
	}
}

var autonumberFormat = regexp.MustCompile(`^[^{}]*\{0{1,18}\}[^{}]*$`)

// format checks the two types that have one.
func (c *checker) format(f *Field, path string) {
	switch {
	case f.Format == "":
	case f.Type == Datetime:
		c.oneOf(path+".format", f.Format, FormatEpochMillis)
	case f.Type == Autonumber:
		if !autonumberFormat.MatchString(f.Format) {
			c.add(path+".format", fmt.Sprintf("%q must hold one {0…}", f.Format))
		}
	default:
		c.add(path+".format", fmt.Sprintf("does not apply to type %q", f.Type))
	}
}

// indexes checks the declared indexes.
func (c *checker) indexes() {
	for i, index := range c.schema.Indexes {
		path := fmt.Sprintf("indexes[%d]", i)
		if index.Name != "" {
			c.name(path+".name", index.Name)
		}
		if len(index.Fields) == 0 {
			c.add(path+".fields", "must name at least one field")
		}
		for j, name := range index.Fields {
			at := fmt.Sprintf("%s.fields[%d]", path, j)
			c.known(at, name)
			if f, ok := c.schema.Field(name); ok && (f.IsSealed() || f.IsMulti() || f.Type.IsJSON()) {
				c.add(at, fmt.Sprintf("a field of type %q cannot be indexed", f.Type))
			}
		}
		switch index.Unique {
		case NotUnique, UniqueDefault, UniqueOrganization, UniqueGlobal:
		default:
			c.add(path+".unique", fmt.Sprintf("%q is not true, false, organization or global", string(index.Unique)))
		}
	}
}
