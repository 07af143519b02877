package rest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
)

// view is a list that an object's definition names, as an item of metadata of
// its own: <object>.<key>.
type view struct {
	Name       string          `json:"name"`
	Object     string          `json:"object"`
	ViewKind   string          `json:"viewKind"`
	Label      string          `json:"label"`
	Config     object.ListView `json:"config"`
	Package    string          `json:"_packageId,omitempty"`
	Provenance string          `json:"_provenance"`
}

func viewsOf(objects []wireObject) []view {
	var views []view
	for i := range objects {
		o := &objects[i]
		for _, key := range slices.Sorted(maps.Keys(o.ListViews)) {
			config := o.ListViews[key]
			config.Name = cmp.Or(config.Name, key)
			config.Type = cmp.Or(config.Type, "grid")
			if config.Data == nil {
				config.Data, _ = json.Marshal(map[string]string{"provider": "object", "object": o.Name}) // texts always marshal
			}
			views = append(views, view{
				Name: o.Name + "." + key, Object: o.Name, ViewKind: "list", Label: cmp.Or(config.Label, key), Config: config,
				Package: o.Package, Provenance: o.Provenance,
			})
		}
	}
	return views
}

// uiView is the list or the form that the host makes of a definition that
// names none.
type uiView struct {
	Object string  `json:"object"`
	List   *uiList `json:"list,omitempty"`
	Form   *uiForm `json:"form,omitempty"`
}

type uiList struct {
	Type             string     `json:"type"`
	Label            string     `json:"label"`
	Columns          []uiColumn `json:"columns"`
	Sort             []uiSort   `json:"sort,omitempty"`
	SearchableFields []string   `json:"searchableFields,omitempty"`
}

type uiColumn struct {
	Field    string `json:"field"`
	Label    string `json:"label"`
	Sortable bool   `json:"sortable"`
}

type uiSort struct {
	Field string `json:"field"`
	Order string `json:"order"`
}

type uiForm struct {
	Type     string      `json:"type"`
	Sections []uiSection `json:"sections"`
}

type uiSection struct {
	Label  string    `json:"label"`
	Fields []uiInput `json:"fields"`
}

type uiInput struct {
	Field    string `json:"field"`
	Label    string `json:"label"`
	Required bool   `json:"required,omitempty"`
	Readonly bool   `json:"readonly,omitempty"`
}

// serveUIView makes the list or the form of an object.
func (s *Server) serveUIView(w http.ResponseWriter, r *http.Request) error {
	name, kind := r.PathValue("object"), r.PathValue("kind")
	missing := resourceNotFound(fmt.Sprintf("View %s/%s not found", name, kind))
	if kind != "list" && kind != "form" {
		return missing
	}
	d, err := s.describe(r.Context(), name)
	if data.IsCode(err, data.CodeObjectNotFound) {
		return missing
	}
	if err != nil {
		return err
	}
	answer := uiView{Object: name}
	if kind == "list" {
		answer.List = listOf(d)
	} else {
		answer.Form = formOf(&d.Schema)
	}
	return writeJSON(w, http.StatusOK, answer)
}

// maxColumns is how many columns a list has that the definition does not choose.
const maxColumns = 6

// listOf shows the fields that the definition highlights, else the first ones
// that say something in a table, newest records first.
func listOf(d data.Description) *uiList {
	s := &d.Schema
	list := &uiList{Type: "grid", Label: cmp.Or(s.PluralLabel, s.Label, s.Name), SearchableFields: s.SearchableFields}
	names := s.HighlightFields
	if len(names) == 0 {
		names = columnsOf(s)
	}
	for _, name := range names {
		if f, ok := s.Field(name); ok {
			list.Columns = append(list.Columns, uiColumn{Field: name, Label: f.DisplayLabel(), Sortable: d.Sortable[name]})
		}
	}
	if d.Sortable["created_at"] {
		list.Sort = []uiSort{{Field: "created_at", Order: "desc"}}
	}
	return list
}

func columnsOf(s *object.Schema) []string {
	var names []string
	if s.NameField != "" {
		names = append(names, s.NameField)
	}
	for i := range s.Fields {
		f := &s.Fields[i]
		if len(names) < maxColumns && !f.System && !f.Hidden && !f.IsSealed() && !f.Type.IsJSON() && !slices.Contains(names, f.Name) {
			names = append(names, f.Name)
		}
	}
	if _, ok := s.Field("created_at"); ok && len(names) < maxColumns {
		names = append(names, "created_at")
	}
	if len(names) == 0 {
		names = []string{"id"}
	}
	return names
}

// formOf asks for every field that a user may fill in.
func formOf(s *object.Schema) *uiForm {
	section := uiSection{Label: cmp.Or(s.Label, s.Name), Fields: []uiInput{}}
	for i := range s.Fields {
		f := &s.Fields[i]
		if !f.System && !f.Hidden {
			section.Fields = append(section.Fields, uiInput{Field: f.Name, Label: f.DisplayLabel(), Required: f.Required, Readonly: f.Readonly})
		}
	}
	return &uiForm{Type: "simple", Sections: []uiSection{section}}
}
