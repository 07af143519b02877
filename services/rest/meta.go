package rest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
)

// typeObject is the kind of metadata that the host serves: definitions of
// objects.
const typeObject = "object"

func (s *Server) metaRoutes() []OwnedRoute {
	return []OwnedRoute{
		own(http.MethodGet, metaBase, "List the kinds of metadata", s.serveMetaTypes, flatFamily),
		own(http.MethodGet, metaBase+"/{type}", "List the metadata of a kind", s.serveMetaItems, flatFamily),
		own(http.MethodGet, metaBase+"/{type}/{name}", "Read one definition", s.serveMetaItem, flatFamily),
	}
}

// metaType tells what can be done with a kind of metadata. Definitions come from
// the host's files and plugins, so that nothing can be created or overlaid here.
type metaType struct {
	Type               string `json:"type"`
	Label              string `json:"label"`
	Domain             string `json:"domain"`
	SchemaID           string `json:"schemaId"`
	SupportsOverlay    bool   `json:"supportsOverlay"`
	AllowRuntimeCreate bool   `json:"allowRuntimeCreate"`
	SupportsVersioning bool   `json:"supportsVersioning"`
}

type metaTypes struct {
	Types   []string   `json:"types"`
	Entries []metaType `json:"entries"`
}

type metaItems struct {
	Type  string          `json:"type"`
	Items []object.Schema `json:"items"`
}

// metaItem is one definition. Sortability stands beside it because it is worked
// out from field types, not defined.
type metaItem struct {
	Type        string        `json:"type"`
	Name        string        `json:"name"`
	Sortability sortability   `json:"sortability"`
	Item        object.Schema `json:"item"`
}

type sortability struct {
	Fields map[string]fieldSortability `json:"fields"`
}

type fieldSortability struct {
	Sortable bool `json:"sortable"`
}

func (s *Server) serveMetaTypes(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, metaTypes{
		Types:   []string{typeObject},
		Entries: []metaType{{Type: typeObject, Label: "Object", Domain: "data", SchemaID: typeObject}},
	})
}

func (s *Server) serveMetaItems(w http.ResponseWriter, r *http.Request) error {
	kind := r.PathValue("type")
	if kind != typeObject {
		return resourceNotFound(fmt.Sprintf("Metadata type %s not found", kind))
	}
	items := metaItems{Type: kind, Items: []object.Schema{}}
	for _, schema := range s.data.Objects() {
		description, err := s.describe(r.Context(), schema.Name)
		if data.IsCode(err, data.CodeObjectNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		items.Items = append(items.Items, description.Schema)
	}
	return writeJSON(w, http.StatusOK, items)
}

func (s *Server) serveMetaItem(w http.ResponseWriter, r *http.Request) error {
	kind, name := r.PathValue("type"), r.PathValue("name")
	missing := resourceNotFound(fmt.Sprintf("Metadata item %s/%s not found", kind, name))
	if kind != typeObject {
		return missing
	}
	description, err := s.describe(r.Context(), name)
	if data.IsCode(err, data.CodeObjectNotFound) {
		return missing
	}
	if err != nil {
		return err
	}
	tag, since := `"`+description.ETag+`"`, s.meta.since(name, description.ETag)
	h := w.Header()
	h.Set("ETag", tag)
	h.Set("Last-Modified", since.Format(http.TimeFormat))
	h.Set("Cache-Control", "private, no-cache")
	if notModified(r, tag, since) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	item := metaItem{Type: kind, Name: name, Item: description.Schema, Sortability: sortability{map[string]fieldSortability{}}}
	for field, sortable := range description.Sortable {
		item.Sortability.Fields[field] = fieldSortability{sortable}
	}
	return writeJSON(w, http.StatusOK, item)
}

func resourceNotFound(message string) *requestError {
	return &requestError{status: http.StatusNotFound, code: codeResourceNotFound, message: message}
}

// describe returns a definition to callers that may read or list the object's
// records. For the others it is not there: definitions tell much about what a
// host is used for.
func (s *Server) describe(ctx context.Context, name string) (data.Description, error) {
	err := s.data.May(ctx, identity.OperationRead, name)
	if err != nil {
		err = s.data.May(ctx, identity.OperationList, name)
	}
	if _, denied := deniedBy(err); denied {
		return data.Description{}, &data.Error{Code: data.CodeObjectNotFound, Object: name}
	}
	if err != nil {
		return data.Description{}, err
	}
	return s.data.Describe(name)
}

// notModified judges If-None-Match and, only without it, If-Modified-Since
// (RFC 9110, section 13.2.2).
func notModified(r *http.Request, tag string, since time.Time) bool {
	if list := r.Header.Values("If-None-Match"); len(list) > 0 {
		for candidate := range strings.SplitSeq(strings.Join(list, ","), ",") {
			candidate = strings.TrimPrefix(strings.TrimSpace(candidate), "W/")
			if candidate == "*" || candidate == tag {
				return true
			}
		}
		return false
	}
	at, err := http.ParseTime(r.Header.Get("If-Modified-Since"))
	return err == nil && !since.After(at)
}

// metaTags remembers since when each definition has been what it is. The times
// are this process's own: another node, or a restart, may tell a later one, which
// costs a client one transfer and never shows it an old definition.
type metaTags struct {
	mu    sync.Mutex
	known map[string]taggedSince
}

type taggedSince struct {
	tag   string
	since time.Time
}

func newMetaTags() *metaTags { return &metaTags{known: map[string]taggedSince{}} }

func (m *metaTags) since(name, tag string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, ok := m.known[name]; ok && known.tag == tag {
		return known.since
	}
	now := time.Now().UTC().Truncate(time.Second)
	m.known[name] = taggedSince{tag, now}
	return now
}
