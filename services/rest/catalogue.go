package rest

import (
	"slices"

	"github.com/objecthost/objecthost/core"
)

// catalogue answers questions about the plugins of the host.
type catalogue []core.Manifest

func (s *Server) catalogue() catalogue { return s.manifests() }

// owner is the id of the plugin that contributes an object, "" for none.
func (c catalogue) owner(object string) string {
	for _, m := range c {
		for i := range m.Contributes.Objects {
			if m.Contributes.Objects[i].Name == object {
				return m.ID
			}
		}
	}
	return ""
}

// find returns the manifest with the id.
func (c catalogue) find(id string) (core.Manifest, bool) {
	i := slices.IndexFunc(c, func(m core.Manifest) bool { return m.ID == id })
	if i < 0 {
		return core.Manifest{}, false
	}
	return c[i], true
}

// navigation lists the entries of all plugins in start order.
func (c catalogue) navigation() []core.NavigationItem {
	var items []core.NavigationItem
	for _, m := range c {
		items = append(items, m.Contributes.Navigation...)
	}
	return items
}
