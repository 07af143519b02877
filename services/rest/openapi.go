package rest

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/objecthost/objecthost/core/object"
)

// openAPIPath is where the description of the API is.
const openAPIPath = apiBase + "/openapi.json"

func (s *Server) openAPIRoutes() []OwnedRoute {
	return []OwnedRoute{own(http.MethodGet, openAPIPath, "Describe the API in OpenAPI 3.0", s.serveOpenAPI)}
}

// A part of an OpenAPI document.
type part = map[string]any

// serveOpenAPI describes what the caller can see: the routes of the host and
// its plugins, and the data routes once per object, with its fields. It is
// made anew for every request, because both change while the host runs.
func (s *Server) serveOpenAPI(w http.ResponseWriter, r *http.Request) error {
	objects, err := s.readable(r.Context(), "")
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, s.describeAPI(objects))
}

// allRoutes lists all routes, those of plugins that came later too.
func (s *Server) allRoutes() []OwnedRoute {
	s.routing.Lock()
	defer s.routing.Unlock()
	all := slices.Clone(s.routes)
	for _, owner := range slices.Sorted(maps.Keys(s.late)) {
		all = append(all, s.late[owner]...)
	}
	return all
}

func (s *Server) describeAPI(objects []wireObject) part {
	d := document{paths: map[string]part{}, ids: map[string]int{}}
	schemas := commonSchemas()
	for i := range objects {
		o := &objects[i]
		schemas[recordSchema(o.Name)], schemas[inputSchema(o.Name)] = schemasOf(o)
	}
	for _, route := range s.allRoutes() {
		if !strings.Contains(route.Pattern, "{object}") || !strings.HasPrefix(route.Pattern, dataBase) {
			d.add(route, nil)
			continue
		}
		for i := range objects {
			if o := &objects[i].Schema; allowed(o, route) {
				d.add(route, o)
			}
		}
	}
	return part{
		"openapi": "3.0.3",
		"info": part{
			"title": apiName, "version": s.cfg.Version,
			"description": "Records of objects, their metadata, and what the plugins of this host add. An error's `code` tells programs what is wrong.",
		},
		"servers": []part{{"url": "/"}},
		"paths":   d.paths,
		"components": part{
			"schemas": schemas, "parameters": listParameters, "responses": errorResponses,
			"securitySchemes": part{
				"session": part{"type": "http", "scheme": "bearer", "description": "The token of a session, or an API key."},
				"apiKey":  part{"type": "apiKey", "in": "header", "name": "X-API-Key"},
			},
		},
		"security": []part{{"session": []string{}}, {"apiKey": []string{}}},
	}
}

// allowed reports whether the object is open to what a data route does.
func allowed(o *object.Schema, route OwnedRoute) bool {
	rest := strings.TrimPrefix(route.Pattern, objectPath)
	needs := map[string][]string{
		"GET ": {object.MethodList}, "POST ": {object.MethodCreate}, "POST /query": {object.MethodList}, "POST /createMany": {object.MethodCreate},
		"POST /updateMany": {object.MethodBulk, object.MethodUpdate}, "POST /deleteMany": {object.MethodBulk, object.MethodDelete}, "POST /batch": {object.MethodBulk},
		"GET /{id}": {object.MethodGet}, "PATCH /{id}": {object.MethodUpdate}, "DELETE /{id}": {object.MethodDelete},
		"POST /{id}/undelete": {object.MethodUpdate}, "POST /{id}/clone": {object.MethodCreate}, "GET /export": {object.MethodExport},
		"POST /import": {object.MethodImport}, "POST /import/jobs": {object.MethodImport},
	}[route.Method+" "+rest]
	if rest == "/{id}/undelete" && !o.Trash {
		return false
	}
	return !slices.ContainsFunc(needs, func(m string) bool { return !o.Allows(m) })
}

// document collects operations by path.
type document struct {
	paths map[string]part
	ids   map[string]int
}

var wildcard = regexp.MustCompile(`\{([A-Za-z_][A-Za-z0-9_]*)\.\.\.\}`)

// add describes a route, for one object when o is not nil.
func (d *document) add(route OwnedRoute, o *object.Schema) {
	pattern := strings.TrimSuffix(wildcard.ReplaceAllString(route.Pattern, "{$1}"), "{$}")
	if strings.HasSuffix(pattern, "/") && pattern != "/" {
		pattern += "{path}" // what lies below
	}
	if o != nil {
		pattern = strings.Replace(pattern, "{object}", o.Name, 1)
	}
	op := part{
		"operationId": d.id(route, pattern), "tags": []string{tagOf(route, o)},
		"summary": cmp.Or(route.Summary, route.Method+" "+pattern), "responses": responsesOf(route, o),
	}
	if route.Anonymous {
		op["security"] = []part{}
	}
	if route.Permission != "" {
		op["description"] = fmt.Sprintf("Needs the permission `%s`.", route.Permission)
	}
	if params := parametersOf(route, pattern, o); len(params) > 0 {
		op["parameters"] = params
	}
	if body := bodyOf(route, o); body != nil {
		op["requestBody"] = body
	}
	if d.paths[pattern] == nil {
		d.paths[pattern] = part{}
	}
	d.paths[pattern][strings.ToLower(route.Method)] = op
}

var notWord = regexp.MustCompile(`[^A-Za-z0-9]+`)

// id makes the operation's unique name out of its method and path.
func (d *document) id(route OwnedRoute, pattern string) string {
	words := strings.Trim(notWord.ReplaceAllString(strings.TrimPrefix(pattern, apiBase), "_"), "_")
	id := strings.ToLower(route.Method) + "_" + words
	d.ids[id]++
	if n := d.ids[id]; n > 1 {
		id = fmt.Sprintf("%s_%d", id, n)
	}
	return id
}

// tagOf groups operations: by object, by the part of the API, or by plugin.
func tagOf(route OwnedRoute, o *object.Schema) string {
	if o != nil {
		return o.Name
	}
	if rest, ok := strings.CutPrefix(route.Pattern, apiBase+"/"); ok {
		first, _, _ := strings.Cut(rest, "/")
		return first
	}
	return cmp.Or(route.Plugin, "host")
}

// parametersOf lists the parameters in the path, and those of lists.
func parametersOf(route OwnedRoute, pattern string, o *object.Schema) []part {
	var out []part
	for _, name := range parameter.FindAllString(pattern, -1) {
		out = append(out, part{"name": strings.Trim(name, "{}"), "in": "path", "required": true, "schema": part{"type": "string"}})
	}
	if o == nil {
		return out
	}
	refs := func(names ...string) {
		for _, name := range names {
			out = append(out, ref("parameters", name))
		}
	}
	switch route.Method + " " + strings.TrimPrefix(route.Pattern, objectPath) {
	case "GET ":
		refs("filter", "select", "sort", "top", "skip", "cursor", "count", "expand", "search")
	case "GET /{id}":
		refs("select", "expand")
	case "GET /export":
		refs("format", "filter", "select", "sort", "top", "search")
	case "PATCH /{id}", "DELETE /{id}":
		refs("ifMatch")
	}
	return out
}

// bodyOf describes what a route takes.
func bodyOf(route OwnedRoute, o *object.Schema) part {
	if route.Method != http.MethodPost && route.Method != http.MethodPut && route.Method != http.MethodPatch {
		return nil
	}
	schema := part{"type": "object"}
	if o != nil {
		input := ref("schemas", inputSchema(o.Name))
		switch strings.TrimPrefix(route.Pattern, objectPath) {
		case "", "/{id}":
			schema = input
		case "/createMany":
			schema = part{"type": "array", "items": input}
		case "/query":
			schema = ref("schemas", "Query")
		case "/{id}/undelete":
			return nil
		case "/import":
			return part{"content": part{
				"application/json": part{"schema": part{"type": "object"}}, "text/csv": part{"schema": part{"type": "string"}},
				"application/x-ndjson": part{"schema": part{"type": "string"}},
			}}
		}
	}
	return part{"content": part{"application/json": part{"schema": schema}}}
}
