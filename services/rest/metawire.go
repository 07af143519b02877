package rest

import (
	"bytes"
	"encoding/json"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
)

// Where a definition comes from, in the words of the protocol.
const (
	fromPackage = "package" // a plugin, or the host's own files
	fromOrg     = "org"     // saved through the API
)

// wireObject is a definition as clients read it: the defaults that a
// definition may leave out are spelled out, because clients take an absent key
// for "not supported", and members that begin with an underscore tell where
// it comes from.
type wireObject struct {
	object.Schema
	IsSystem   bool       `json:"isSystem"`
	Datasource string     `json:"datasource"`
	Fields     wireFields `json:"fields"`
	Enable     wireEnable `json:"enable"`
	// Package is the id of the plugin that contributes it, none for a saved one.
	Package     string          `json:"_packageId,omitempty"`
	Provenance  string          `json:"_provenance"`
	Version     string          `json:"_version,omitempty"`
	Diagnostics wireDiagnostics `json:"_diagnostics"`
}

type wireDiagnostics struct {
	Valid bool `json:"valid"`
}

type wireEnable struct {
	object.Enable
	APIEnabled   bool `json:"apiEnabled"`
	Searchable   bool `json:"searchable"`
	TrackHistory bool `json:"trackHistory"`
	Files        bool `json:"files"`
	Feeds        bool `json:"feeds"`
	Activities   bool `json:"activities"`
	Clone        bool `json:"clone"`
}

type wireField struct {
	object.Field
	Label      string        `json:"label"`
	Required   bool          `json:"required"`
	Searchable bool          `json:"searchable"`
	Multiple   bool          `json:"multiple"`
	Unique     object.Unique `json:"unique"`
	Hidden     bool          `json:"hidden"`
	Readonly   bool          `json:"readonly"`
	Sortable   bool          `json:"sortable"`
	ExternalID bool          `json:"externalId"`
}

// wireFields keep the order of the definition.
type wireFields []wireField

// MarshalJSON writes a JSON object whose keys are in the order of the fields.
func (f wireFields) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	b.WriteByte('{')
	for i := range f {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := enc.Encode(f[i].Name); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := enc.Encode(f[i]); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// onWire spells a description out.
func (s *Server) onWire(d data.Description) wireObject {
	schema := d.Schema
	w := wireObject{
		Schema: schema, IsSystem: schema.IsSystem, Datasource: "default",
		Fields: make(wireFields, len(schema.Fields)), Enable: enableOf(schema.Enable),
		Package: s.catalogue().owner(schema.Name), Provenance: fromPackage, Diagnostics: wireDiagnostics{Valid: true},
	}
	if version, saved := s.data.Stored(schema.Name); saved {
		w.Provenance, w.Version = fromOrg, versionText(version)
	}
	for i, f := range schema.Fields {
		w.Fields[i] = wireField{
			Field: f, Label: f.DisplayLabel(), Required: f.Required, Searchable: f.Searchable != nil && *f.Searchable,
			Multiple: f.IsMulti(), Unique: f.Unique, Hidden: f.Hidden, Readonly: f.Readonly,
			Sortable: d.Sortable[f.Name], ExternalID: f.ExternalID,
		}
	}
	return w
}

func enableOf(e object.Enable) wireEnable {
	unlessFalse := func(flag *bool) bool { return flag == nil || *flag }
	return wireEnable{
		Enable: e, APIEnabled: unlessFalse(e.APIEnabled), Searchable: unlessFalse(e.Searchable), TrackHistory: e.TrackHistory,
		Files: e.Files, Feeds: e.Feeds, Activities: e.Activities, Clone: unlessFalse(e.Clone),
	}
}
