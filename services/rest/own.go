package rest

import (
	"net/http"
	"strings"

	"github.com/objecthost/objecthost/core"
)

// The paths of the server's own routes.
const (
	apiBase  = "/api/v1"
	dataBase = apiBase + "/data"
	metaBase = apiBase + "/meta"
	uiBase   = apiBase + "/ui"
)

// familyOf is the family of refusals that come before a route is found.
func familyOf(path string) family {
	for _, base := range []string{dataBase, metaBase, uiBase, batchPath} {
		if rest, ok := strings.CutPrefix(path, base); ok && (rest == "" || rest[0] == '/') {
			return flat
		}
	}
	return wrapped
}

// handler is a handler of the server's own routes: what it returns is answered
// in the route's family.
type handler func(w http.ResponseWriter, r *http.Request) error

// own makes a route of the server itself. It is of the wrapped family and for
// authenticated callers unless an option says otherwise.
func own(method, pattern, summary string, serve handler, options ...func(*OwnedRoute)) OwnedRoute {
	route := OwnedRoute{
		Plugin: PluginID,
		Route:  core.Route{Method: method, Pattern: pattern, Summary: summary},
	}
	for _, option := range options {
		option(&route)
	}
	answers := route.family
	route.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := serve(w, r); err != nil {
			fail(w, r, answers, err)
		}
	})
	return route
}

func anonymous(r *OwnedRoute)  { r.Anonymous = true }
func unasked(r *OwnedRoute)    { r.Anonymous, r.unasked = true, true }
func flatFamily(r *OwnedRoute) { r.family = flat }
