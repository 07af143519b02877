package rest

import (
	"cmp"
	"slices"
	"strings"
)

// app is the host's navigation in the form that web consoles read.
type app struct {
	Name       string    `json:"name"`
	Label      string    `json:"label"`
	Active     bool      `json:"active"`
	IsDefault  bool      `json:"isDefault"`
	Navigation []navItem `json:"navigation"`
}

// navItem leads to the list of an object's records.
type navItem struct {
	ID         string `json:"id"`
	Type       string `json:"type"`
	ObjectName string `json:"objectName"`
	Label      string `json:"label"`
	Icon       string `json:"icon,omitempty"`
}

// app puts the objects of applications first and then what plugins contribute,
// as far as the caller may know of the objects behind it. An object that a plugin
// has an entry for stands where the plugin put it.
func (s *Server) app(objects []wireObject) app {
	a := app{Name: apiName, Label: "Objecthost", Active: true, IsDefault: true, Navigation: []navItem{}}
	contributed := s.catalogue().navigation()
	known := map[string]bool{}
	for _, item := range contributed {
		known[item.ObjectName] = true
	}
	seen := map[string]bool{}
	for i := range objects {
		o := &objects[i].Schema
		seen[o.Name] = true
		if o.IsApp() && !known[o.Name] {
			a.Navigation = append(a.Navigation, navItem{
				ID: "object-" + strings.ReplaceAll(o.Name, "_", "-"), Type: typeObject, ObjectName: o.Name,
				Label: cmp.Or(o.PluralLabel, o.Label, o.Name), Icon: o.Icon,
			})
		}
	}
	slices.SortStableFunc(a.Navigation, func(x, y navItem) int { return cmp.Compare(x.Label, y.Label) })
	for _, item := range contributed {
		if seen[item.ObjectName] {
			a.Navigation = append(a.Navigation, navItem{
				ID: item.ID, Type: typeObject, ObjectName: item.ObjectName, Label: item.Label, Icon: item.Icon,
			})
		}
	}
	return a
}
