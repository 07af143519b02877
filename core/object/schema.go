// Package object describes objects: what the data service turns into tables
// and what clients read as metadata.
//
// A [Schema] comes from Go code, which [Schema.Check] looks over, or from JSON
// through [Decode], which also refuses keys that it does not know.
package object

import (
	"encoding/json"
)

// Schema is the definition of an object. Its JSON form is the wire form of
// object metadata; unknown keys are refused by [Decode].
type Schema struct {
	// Name is the object's immutable machine name, ^[a-z_][a-z0-9_]*$.
	Name        string `json:"name"`
	Label       string `json:"label,omitempty"`
	PluralLabel string `json:"pluralLabel,omitempty"`
	Description string `json:"description,omitempty"`
	Icon        string `json:"icon,omitempty"`
	// Fields in the order of their definition. In JSON it is a map.
	Fields  Fields  `json:"fields"`
	Indexes []Index `json:"indexes,omitempty"`
	// NameField is the field whose value names a record. JSON also spells it
	// displayNameField.
	NameField        string              `json:"nameField,omitempty"`
	TitleFormat      string              `json:"titleFormat,omitempty"`
	HighlightFields  []string            `json:"highlightFields,omitempty"`
	SearchableFields []string            `json:"searchableFields,omitempty"`
	ListViews        map[string]ListView `json:"listViews,omitempty"`
	Enable           Enable              `json:"enable,omitzero"`
	IsSystem         bool                `json:"isSystem,omitempty"`
	ManagedBy        string              `json:"managedBy,omitempty"`
	SharingModel     string              `json:"sharingModel,omitempty"`
	UserActions      *UserActions        `json:"userActions,omitempty"`
	// Permission is a system permission without which callers see and write no
	// record at all, on top of the permission for the operation. System callers
	// need none.
	Permission string `json:"permission,omitempty"`
	// ScopedBy tells which records callers of an organization see in an external
	// table without organization_id. Nil keeps such a table to the default
	// organization. Only code sets it.
	ScopedBy *ScopedBy `json:"-"`
	// Datasource is empty or "default": there is one database.
	Datasource string `json:"datasource,omitempty"`
	// Trash keeps deleted records until they are undeleted or purged.
	Trash bool `json:"trash,omitempty"`
	// External marks a table that its owner migrates: the data service serves
	// it and verifies its columns, but never changes it.
	External bool `json:"external,omitempty"`
}

// ScopedBy ties the records of a table to organizations. The zero value is for
// the table of organizations itself, whose callers see their own one.
type ScopedBy struct {
	// Object has an organization_id, and its Field holds the ids of the records
	// that the organization's callers see.
	Object, Field string
}

// Enable switches parts of the API on and off for an object.
type Enable struct {
	// APIEnabled closes the object to the API when false; nil means true.
	APIEnabled *bool `json:"apiEnabled,omitempty"`
	// APIMethods lists the open operations out of get, list, create, update,
	// delete and bulk; nil means all six, an empty list none.
	APIMethods   []string `json:"apiMethods,omitzero"`
	Searchable   *bool    `json:"searchable,omitempty"`
	TrackHistory bool     `json:"trackHistory,omitempty"`
	Files        bool     `json:"files,omitempty"`
	Feeds        bool     `json:"feeds,omitempty"`
	Activities   bool     `json:"activities,omitempty"`
	Clone        *bool    `json:"clone,omitempty"`
}

// UserActions tells a user interface which buttons to offer.
type UserActions struct {
	Create    *bool `json:"create,omitempty"`
	Edit      *bool `json:"edit,omitempty"`
	Delete    *bool `json:"delete,omitempty"`
	Import    *bool `json:"import,omitempty"`
	ExportCSV *bool `json:"exportCsv,omitempty"`
}

// Index is a declared index.
type Index struct {
	Name   string   `json:"name,omitempty"`
	Fields []string `json:"fields"`
	// Unique makes the listed columns unique.
	Unique Unique `json:"unique,omitzero"`
}

// ListView is a saved list for user interfaces.
type ListView struct {
	Type       string          `json:"type,omitempty"`
	Name       string          `json:"name,omitempty"`
	Label      string          `json:"label,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`
	Columns    []string        `json:"columns,omitempty"`
	Filter     json.RawMessage `json:"filter,omitempty"`
	Sort       json.RawMessage `json:"sort,omitempty"`
	Pagination json.RawMessage `json:"pagination,omitempty"`
}

// Field is one field of an object.
type Field struct {
	// Name is the field's key in the definition's map, ^[a-z_][a-z0-9_]*$.
	Name  string    `json:"-"`
	Type  FieldType `json:"type"`
	Label string    `json:"label,omitempty"`
	// Description is shown as help.
	Description  string          `json:"description,omitempty"`
	Required     bool            `json:"required,omitempty"`
	Unique       Unique          `json:"unique,omitzero"`
	DefaultValue json.RawMessage `json:"defaultValue,omitempty"`
	MaxLength    *int            `json:"maxLength,omitempty"`
	MinLength    *int            `json:"minLength,omitempty"`
	Min          json.Number     `json:"min,omitempty"`
	Max          json.Number     `json:"max,omitempty"`
	Scale        *int            `json:"scale,omitempty"`
	Precision    *int            `json:"precision,omitempty"`
	Options      []Option        `json:"options,omitempty"`
	Multiple     bool            `json:"multiple,omitempty"`
	// Format shapes the values of two types. A datetime with FormatEpochMillis
	// is a number of milliseconds in the API instead of ISO text. An
	// autonumber's format holds one {0…} for the number: INV-{0000}; without a
	// format the field is a plain number.
	Format string `json:"format,omitempty"`
	// ExternalID marks the key by which an upsert finds a record.
	ExternalID bool `json:"externalId,omitempty"`
	// Reference is the object that a lookup points at.
	Reference string `json:"reference,omitempty"`
	// DeleteBehavior tells what happens to this record when the record that it
	// references is deleted: set_null, cascade or restrict. Left empty, it is
	// cascade for master_detail, restrict for a required lookup and set_null
	// for any other.
	DeleteBehavior string `json:"deleteBehavior,omitempty"`
	// Readonly values are dropped from callers' writes and reported.
	Readonly bool `json:"readonly,omitempty"`
	Hidden   bool `json:"hidden,omitempty"`
	// Permission is a system permission without which a caller does not see
	// the field's values: they are left out, and no filter or sort may look at
	// them. System callers see them.
	Permission string `json:"permission,omitempty"`
	// Internal fields never leave through the data API or an event.
	Internal   bool   `json:"internal,omitempty"`
	Searchable *bool  `json:"searchable,omitempty"`
	Sortable   *bool  `json:"sortable,omitempty"`
	Index      bool   `json:"index,omitempty"`
	Group      string `json:"group,omitempty"`
	Widget     string `json:"widget,omitempty"`
	// System marks fields that the host adds to every object.
	System bool `json:"system,omitempty"`
}

// Option is a choice of a select field.
type Option struct {
	Label   string `json:"label"`
	Value   string `json:"value"`
	Color   string `json:"color,omitempty"`
	Default bool   `json:"default,omitempty"`
	// Means is an SQL condition that holds for the rows of an External table
	// with this value, and for no others. Filters on the value ask for it
	// instead, so that an index that is restricted by the condition serves them.
	Means string `json:"-"`
}

// FieldType names a field type of the wire protocol.
type FieldType string

// The field types.
const (
	Text         FieldType = "text"
	Textarea     FieldType = "textarea"
	Email        FieldType = "email"
	URL          FieldType = "url"
	Phone        FieldType = "phone"
	Password     FieldType = "password"
	Secret       FieldType = "secret"
	Markdown     FieldType = "markdown"
	HTML         FieldType = "html"
	Richtext     FieldType = "richtext"
	Code         FieldType = "code"
	Color        FieldType = "color"
	Number       FieldType = "number"
	Currency     FieldType = "currency"
	Percent      FieldType = "percent"
	Rating       FieldType = "rating"
	Slider       FieldType = "slider"
	Progress     FieldType = "progress"
	Date         FieldType = "date"
	Datetime     FieldType = "datetime"
	Time         FieldType = "time"
	Boolean      FieldType = "boolean"
	Toggle       FieldType = "toggle"
	Select       FieldType = "select"
	Radio        FieldType = "radio"
	Multiselect  FieldType = "multiselect"
	Checkboxes   FieldType = "checkboxes"
	Tags         FieldType = "tags"
	Lookup       FieldType = "lookup"
	MasterDetail FieldType = "master_detail"
	User         FieldType = "user"
	JSON         FieldType = "json"
	Address      FieldType = "address"
	Location     FieldType = "location"
	Autonumber   FieldType = "autonumber"
)

// FormatEpochMillis is the [Field] Format of a datetime that the API shows as
// a number of milliseconds since 1970.
const FormatEpochMillis = "epoch_ms"

// The values of [Field] DeleteBehavior.
const (
	SetNull  = "set_null"
	Cascade  = "cascade"
	Restrict = "restrict"
)

// Field returns the field called name.
func (s *Schema) Field(name string) (*Field, bool) {
	for i := range s.Fields {
		if s.Fields[i].Name == name {
			return &s.Fields[i], true
		}
	}
	return nil, false
}
