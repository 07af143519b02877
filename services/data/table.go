package data

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/objecthost/objecthost/core/object"
)

// storage kinds: how a field's values lie in their column.
type kind string

const (
	kindText    kind = "text"
	kindDecimal kind = "decimal"
	kindBool    kind = "bool"
	kindInstant kind = "instant" // epoch milliseconds
	kindDate    kind = "date"    // 2006-01-02
	kindClock   kind = "time"    // 15:04:05[.000]
	kindList    kind = "list"    // JSON array of strings
	kindJSON    kind = "json"
	kindSealed  kind = "sealed" // secret:sec_…
)

// column is a field and where its values lie.
type column struct {
	*object.Field
	kind  kind
	table string
	// integer marks a number that an external table keeps in an integer column.
	integer bool
	// restricted marks a field that the caller may not see.
	restricted bool
	// maxBytes bounds a text that stands in an index, 0 for none.
	maxBytes int
}

// table is a definition made ready for use. It never changes after it was
// built.
type table struct {
	schema  object.Schema // with the system columns
	columns []column      // in the order of the schema
	byName  map[string]*column
	all     []*column
	names   []string // quoted, for SELECT lists
	// references are the declared references that are checked on write.
	references []*column
	sealed     []*column
	// uniques maps the names of unique indexes to their fields.
	uniques map[string][]string
	trash   bool
	org     bool // has organization_id
	// search are the fields that a search without searchFields looks at.
	search []string
}

// kindOf tells how values of a field are kept.
func kindOf(f *object.Field) kind {
	switch {
	case f.IsSealed():
		return kindSealed
	case f.IsMulti():
		return kindList
	case f.Type.IsJSON():
		return kindJSON
	case f.Type.IsNumber(), f.Type == object.Autonumber && f.Format == "":
		return kindDecimal
	case f.Type.IsBoolean():
		return kindBool
	case f.Type == object.Datetime:
		return kindInstant
	case f.Type == object.Date:
		return kindDate
	case f.Type == object.Time:
		return kindClock
	default:
		return kindText
	}
}

// systemFields are the columns of every object, in the order of records.
func systemFields(s *object.Schema) []object.Field {
	user := func(name, label, description string) object.Field {
		return object.Field{Name: name, Type: object.Lookup, Reference: "sys_user", Label: label, Readonly: true, System: true, Description: description}
	}
	fields := []object.Field{
		{Name: "id", Type: object.Text, Label: "Record ID", Hidden: true, System: true, Description: "Chosen by the host unless the creator gives one."},
		{Name: "created_at", Type: object.Datetime, Label: "Created At", Readonly: true, System: true, Description: "When the record was created."},
		{Name: "updated_at", Type: object.Datetime, Label: "Last Modified At", Readonly: true, System: true, Description: "When the record was last changed; grows with every change and serves as its version."},
		{Name: "organization_id", Type: object.Lookup, Reference: "sys_organization", Label: "Organization", Hidden: true, Readonly: true, System: true, Description: "The organization that the record belongs to; null where organizations are not in use."},
		user("created_by", "Created By", "Who created the record."),
		user("updated_by", "Last Modified By", "Who last changed the record."),
	}
	if s.IsApp() {
		owner := user("owner_id", "Owner", "Who owns the record: its creator, until it is reassigned.")
		owner.Readonly = false
		fields = append(fields, owner, object.Field{
			Name: "owning_business_unit_id", Type: object.Lookup, Reference: "sys_business_unit", Label: "Owning Business Unit",
			Hidden: true, Readonly: true, System: true, Description: "The business unit that the record belongs to.",
		})
	}
	if s.Trash {
		deleted := user("deleted_by", "Deleted By", "Who put the record into the trash.")
		deleted.Hidden = true
		fields = append(fields, object.Field{
			Name: "deleted_at", Type: object.Datetime, Label: "Deleted At", Hidden: true, Readonly: true, System: true,
			Description: "When the record was put into the trash; null while it is live.",
		}, deleted)
	}
	return fields
}

// newTable makes a definition ready. present, for external tables, tells which
// system columns the table has; nil means all.
func newTable(s object.Schema, present func(name string) bool) *table {
	t := &table{schema: s, trash: s.Trash, byName: map[string]*column{}, uniques: map[string][]string{}}
	var fields object.Fields
	for _, f := range systemFields(&s) {
		if _, declared := s.Field(f.Name); declared {
			continue
		}
		if present == nil || present(f.Name) {
			fields = append(fields, f)
		}
	}
	t.schema.Fields = append(fields, s.Fields...)
	t.columns = make([]column, len(t.schema.Fields))
	for i := range t.schema.Fields {
		f := &t.schema.Fields[i]
		c := &t.columns[i]
		*c = column{Field: f, kind: kindOf(f), table: s.Name}
		t.byName[f.Name] = c
		t.all = append(t.all, c)
		t.names = append(t.names, quote(f.Name))
		if f.IsReference() && (!f.System || f.Name == "owner_id") {
			t.references = append(t.references, c)
		}
		if c.kind == kindSealed {
			t.sealed = append(t.sealed, c)
		}
	}
	t.org = t.byName["organization_id"] != nil
	for _, index := range t.indexes() {
		if index.unique {
			t.uniques[index.name] = index.fields
		}
	}
	if !s.External {
		t.boundKeys()
	}
	t.search = searchable(&t.schema)
	return t
}

// searchable picks the fields of a search that names none: the declared ones,
// else those marked, else the name field, else every text field.
func searchable(s *object.Schema) []string {
	if len(s.SearchableFields) > 0 {
		return s.SearchableFields
	}
	var marked, text []string
	for i := range s.Fields {
		f := &s.Fields[i]
		if f.System || f.Internal || !f.Type.IsText() {
			continue
		}
		text = append(text, f.Name)
		if f.Searchable != nil && *f.Searchable {
			marked = append(marked, f.Name)
		}
	}
	if len(marked) > 0 {
		return marked
	}
	if f, ok := s.Field(s.NameField); ok && f.Type.IsText() {
		return []string{s.NameField}
	}
	return text
}

// name is the object's name, which is also the table's.
func (t *table) name() string { return t.schema.Name }

// visible returns the field when callers may see it. Internal fields are not
// there for them.
func (t *table) visible(name string) (*column, bool) {
	c, ok := t.byName[name]
	if !ok || c.Internal || c.restricted {
		return nil, false
	}
	return c, true
}

// restrict returns the table as a caller sees it who lacks the permissions of
// the fields that hidden tells of.
func (t *table) restrict(hidden func(permission string) bool) *table {
	seen := t
	for i := range t.columns {
		c := &t.columns[i]
		if c.Permission == "" || !hidden(c.Permission) {
			continue
		}
		if seen == t {
			seen = new(table)
			*seen = *t
			seen.byName = maps.Clone(t.byName)
		}
		closed := *c
		closed.restricted = true
		seen.byName[c.Name] = &closed
		seen.search = slices.DeleteFunc(slices.Clone(seen.search), func(name string) bool { return name == c.Name })
	}
	return seen
}

// fieldDefault is the value of a field that a new record leaves out, nil for
// none.
func fieldDefault(f *object.Field) any {
	if len(f.DefaultValue) > 0 {
		value, err := DecodeJSON(f.DefaultValue)
		if err != nil {
			return nil
		}
		return value
	}
	var chosen []any
	for _, o := range f.Options {
		if o.Default {
			chosen = append(chosen, o.Value)
		}
	}
	switch {
	case len(chosen) == 0:
		return nil
	case f.IsMulti():
		return chosen
	default:
		return chosen[0]
	}
}

// quote quotes an identifier for both dialects.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// optionValues lists the values of a field's options in their order.
func optionValues(f *object.Field) []string {
	values := make([]string, len(f.Options))
	for i, o := range f.Options {
		values[i] = o.Value
	}
	return values
}

// Description is an object as clients see it.
type Description struct {
	// Schema has the system columns and lacks internal fields.
	Schema object.Schema
	// Sortable tells for every field whether a query can sort by it.
	Sortable map[string]bool
	// ETag changes when the description does.
	ETag string
}

// describe leaves internal fields out: clients never see that they exist.
func (t *table) describe() Description {
	d := Description{Schema: t.schema, Sortable: map[string]bool{}}
	d.Schema.Fields = slices.DeleteFunc(slices.Clone(t.schema.Fields), func(f object.Field) bool { return f.Internal })
	for i := range d.Schema.Fields {
		name := d.Schema.Fields[i].Name
		d.Sortable[name] = t.byName[name].sortable()
	}
	text, err := json.Marshal(d.Schema)
	if err == nil {
		d.ETag = digest(text)[:16]
	}
	return d
}

// sortable reports whether the values have an order and may be shown in it.
func (c *column) sortable() bool {
	return !c.Internal && !c.restricted && c.kind != kindSealed && c.kind != kindList && c.kind != kindJSON && (c.Sortable == nil || *c.Sortable)
}

// filterable reports whether a filter may look at the values.
func (c *column) filterable() bool { return !c.Internal && !c.restricted && c.kind != kindSealed }
