package rest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/data"
)

// The kinds of metadata that the host serves.
const (
	typeObject = "object" // definitions of objects
	typeView   = "view"   // the lists that definitions name
	typeApp    = "app"    // the navigation
)

func (s *Server) metaRoutes() []OwnedRoute {
	const get, put = http.MethodGet, http.MethodPut
	return []OwnedRoute{
		own(get, metaBase, "List the kinds of metadata", s.serveMetaTypes, flatFamily),
		own(get, metaBase+"/{type}", "List the metadata of a kind", s.serveMetaItems, flatFamily),
		own(get, metaBase+"/{type}/{name}", "Read one definition", s.serveMetaItem, flatFamily),
		own(put, metaBase+"/{type}/{name}", "Define an object", s.serveMetaSave, flatFamily),
		own(get, uiBase+"/view/{object}/{kind}", "Read the list or the form of an object", s.serveUIView, flatFamily),
	}
}

// metaType tells what can be done with a kind of metadata.
type metaType struct {
	Type               string `json:"type"`
	Label              string `json:"label"`
	Domain             string `json:"domain"`
	SchemaID           string `json:"schemaId"`
	SupportsOverlay    bool   `json:"supportsOverlay"`
	AllowOrgOverride   bool   `json:"allowOrgOverride"`
	AllowRuntimeCreate bool   `json:"allowRuntimeCreate"`
	SupportsVersioning bool   `json:"supportsVersioning"`
}

type metaTypes struct {
	Types   []string   `json:"types"`
	Entries []metaType `json:"entries"`
}

// Objects can be defined at runtime; views and apps are made from definitions
// and from what plugins contribute. Older versions are not kept.
var metaTypesAnswer = metaTypes{
	Types: []string{typeObject, typeView, typeApp},
	Entries: []metaType{
		{Type: typeObject, Label: "Object", Domain: "data", SchemaID: typeObject, AllowRuntimeCreate: true},
		{Type: typeView, Label: "View", Domain: "ui", SchemaID: typeView},
		{Type: typeApp, Label: "App", Domain: "ui", SchemaID: typeApp},
	},
}

type metaItems struct {
	Type  string `json:"type"`
	Items []any  `json:"items"`
}

// metaItem is one definition. Sortability stands beside it because it is worked
// out from field types, not defined.
type metaItem struct {
	Type        string       `json:"type"`
	Name        string       `json:"name"`
	Sortability *sortability `json:"sortability,omitempty"`
	Item        any          `json:"item"`
}

type sortability struct {
	Fields map[string]fieldSortability `json:"fields"`
}

type fieldSortability struct {
	Sortable bool `json:"sortable"`
}

func (s *Server) serveMetaTypes(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, metaTypesAnswer)
}

// serveMetaItems lists what the caller may know of, with ?package= only what
// that plugin contributes.
func (s *Server) serveMetaItems(w http.ResponseWriter, r *http.Request) error {
	kind := r.PathValue("type")
	if !slices.Contains(metaTypesAnswer.Types, kind) {
		return resourceNotFound(fmt.Sprintf("Metadata type %s not found", kind))
	}
	pack, err := packageParam(r)
	if err != nil {
		return err
	}
	objects, err := s.readable(r.Context(), pack)
	if err != nil {
		return err
	}
	items := metaItems{Type: kind, Items: []any{}}
	switch kind {
	case typeObject:
		for _, o := range objects {
			items.Items = append(items.Items, o)
		}
	case typeView:
		for _, v := range viewsOf(objects) {
			items.Items = append(items.Items, v)
		}
	case typeApp:
		items.Items = append(items.Items, s.app(objects))
	}
	return writeJSON(w, http.StatusOK, items)
}

// packageParam reads the one parameter of a list of metadata.
func packageParam(r *http.Request) (string, error) {
	params, err := queryParams(r)
	if err != nil {
		return "", err
	}
	if err := onlyParams(params, "package", "packageId"); err != nil {
		return "", err
	}
	if pack := params.Get("package"); pack != "" {
		return pack, nil
	}
	return params.Get("packageId"), nil
}

// readable describes the objects whose records the caller may read or list;
// those of one plugin when pack is not empty.
func (s *Server) readable(ctx context.Context, pack string) ([]wireObject, error) {
	var objects []wireObject
	for _, schema := range s.data.Objects() {
		description, err := s.describe(ctx, schema.Name)
		if data.IsCode(err, data.CodeObjectNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if o := s.onWire(description); pack == "" || o.Package == pack {
			objects = append(objects, o)
		}
	}
	return objects, nil
}

func (s *Server) serveMetaItem(w http.ResponseWriter, r *http.Request) error {
	kind, name := r.PathValue("type"), r.PathValue("name")
	missing := resourceNotFound(fmt.Sprintf("Metadata item %s/%s not found", kind, name))
	switch kind {
	case typeObject:
		return s.serveObject(w, r, name, missing)
	case typeView, typeApp:
	default:
		return missing
	}
	objects, err := s.readable(r.Context(), "")
	if err != nil {
		return err
	}
	if app := s.app(objects); kind == typeApp && app.Name == name {
		return writeJSON(w, http.StatusOK, metaItem{Type: kind, Name: name, Item: app})
	}
	for _, v := range viewsOf(objects) {
		if kind == typeView && v.Name == name {
			return writeJSON(w, http.StatusOK, metaItem{Type: kind, Name: name, Item: v})
		}
	}
	return missing
}

// serveObject answers with the definition, or that the client's copy is good.
func (s *Server) serveObject(w http.ResponseWriter, r *http.Request, name string, missing error) error {
	description, err := s.describe(r.Context(), name)
	if data.IsCode(err, data.CodeObjectNotFound) {
		return missing
	}
	if err != nil {
		return err
	}
	item := s.onWire(description)
	version := description.ETag
	if item.Version != "" {
		version += "-" + item.Version
	}
	tag, since := `"`+version+`"`, s.meta.since(name, version)
	h := w.Header()
	h.Set("ETag", tag)
	h.Set("Last-Modified", since.Format(http.TimeFormat))
	h.Set("Cache-Control", "private, no-cache")
	if notModified(r, tag, since) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	sortable := sortability{map[string]fieldSortability{}}
	for field, can := range description.Sortable {
		sortable.Fields[field] = fieldSortability{can}
	}
	return writeJSON(w, http.StatusOK, metaItem{Type: typeObject, Name: name, Sortability: &sortable, Item: item})
}

func versionText(version int64) string { return strconv.FormatInt(version, 10) }

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
