package rest

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/auth"
)

// OwnedRoute is a route and the plugin that contributes it.
type OwnedRoute struct {
	core.Route
	Plugin string
	// family is flat for the server's own data and metadata routes.
	family family
	// unasked routes do not want to know who calls: they answer also when the
	// database cannot be asked.
	unasked bool
}

// methods are the ones that routes may have.
var methods = []string{
	http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodOptions,
	http.MethodPatch, http.MethodPost, http.MethodPut,
}

// newRouter builds the router of all routes. Conflicts and bad patterns are
// refused with an error that names the plugins.
func (s *Server) newRouter(routes []OwnedRoute) (*chi.Mux, error) {
	mux := chi.NewRouter()
	taken := map[string]OwnedRoute{}
	claim := func(route OwnedRoute) error {
		shape := route.Method + " " + parameter.ReplaceAllString(route.Pattern, "{}")
		if other, ok := taken[shape]; ok {
			return &RouteConflictError{
				Method: route.Method, Pattern: route.Pattern, Plugin: route.Plugin,
				OtherPattern: other.Pattern, Other: other.Plugin,
			}
		}
		taken[shape] = route
		return nil
	}
	for _, route := range routes {
		pattern, rest, err := chiPattern(route)
		if err != nil {
			return nil, err
		}
		if err := claim(route); err != nil {
			return nil, err
		}
		mux.Method(route.Method, pattern, s.gate(route, rest))
	}
	// HEAD is GET without the body, which net/http leaves out, unless a plugin
	// has a HEAD of its own.
	for _, route := range routes {
		if route.Method != http.MethodGet {
			continue
		}
		route.Method = http.MethodHead
		if claim(route) == nil {
			pattern, rest, _ := chiPattern(route)
			mux.Method(route.Method, pattern, s.gate(route, rest))
		}
	}
	mux.NotFound(func(w http.ResponseWriter, r *http.Request) { s.noRoute(mux, w, r) })
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) { s.noRoute(mux, w, r) })
	return mux, nil
}

var (
	parameter     = regexp.MustCompile(`\{[^{}]*\}`)
	parameterName = regexp.MustCompile(`^\{[A-Za-z_][A-Za-z0-9_]*\}$`)
)

// chiPattern translates a pattern of http.ServeMux into chi's spelling. A final
// {rest...} becomes a wildcard, whose name is returned; a final slash, which
// stands for everything below it, becomes one without a name; {$} is dropped,
// because chi's patterns end where they end.
func chiPattern(route OwnedRoute) (pattern, rest string, err error) {
	bad := func(reason string) (string, string, error) {
		return "", "", &RouteError{Method: route.Method, Pattern: route.Pattern, Plugin: route.Plugin, Reason: reason}
	}
	switch {
	case !slices.Contains(methods, route.Method):
		return bad("has a method that is not served")
	case route.Handler == nil:
		return bad("has no handler")
	case route.Anonymous && route.Permission != "":
		return bad("is anonymous and asks for a permission")
	case !strings.HasPrefix(route.Pattern, "/"):
		return bad("has a pattern that does not begin with a slash")
	}
	segments := strings.Split(route.Pattern[1:], "/")
	seen := map[string]bool{}
	for i, segment := range segments {
		last := i == len(segments)-1
		switch {
		case last && segment == "{$}":
			segments[i] = ""
		case last && segment == "":
			segments[i] = "*"
		case last && strings.HasPrefix(segment, "{") && strings.HasSuffix(segment, "...}"):
			rest = segment[1 : len(segment)-len("...}")]
			segments[i] = "*"
		case !strings.ContainsAny(segment, "{}*"):
		case !parameterName.MatchString(segment):
			return bad(fmt.Sprintf("has the segment %q, which is no parameter", segment))
		case seen[segment]:
			return bad(fmt.Sprintf("has the parameter %s twice", segment))
		}
		seen[segment] = true
	}
	return "/" + strings.Join(segments, "/"), rest, nil
}

// gate lets a request through to a route's handler: it tells the log the route,
// finds out who calls, and asks for the route's permission.
func (s *Server) gate(route OwnedRoute, rest string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r.Context())
		x.route, x.plugin = route.Pattern, route.Plugin
		unescape(r, rest)
		if route.unasked {
			route.Handler.ServeHTTP(w, r)
			return
		}
		principal, err := s.auth.Authenticate(r)
		switch {
		case route.Anonymous:
			// Wrong credentials, or a database that cannot be asked about them,
			// must not close what is open to everybody.
			if err != nil {
				principal = identity.Principal{}
			}
		case err != nil:
			fail(w, r, route.family, err)
			return
		case !principal.Authenticated():
			fail(w, r, route.family, identity.ErrUnauthenticated)
			return
		}
		x.principal = principal
		r = r.WithContext(auth.WithClient(identity.With(r.Context(), principal), auth.ClientAt(r)))
		if route.Permission != "" {
			if err := s.auth.Has(r.Context(), route.Permission); err != nil {
				fail(w, r, route.family, err)
				return
			}
		}
		route.Handler.ServeHTTP(w, r)
		s.audit(w, r, route)
	})
}

// audit writes into the audit log what a caller did by a plugin's route that
// needs a permission, when it was done. The auth service writes its own acts
// along with them.
func (s *Server) audit(w http.ResponseWriter, r *http.Request, route OwnedRoute) {
	auditor, ok := s.auth.(identity.Auditor)
	rec, recorded := w.(*recorder)
	if !ok || !recorded || rec.status/100 != 2 || route.Permission == "" || route.Plugin == auth.PluginID ||
		r.Method == http.MethodGet || r.Method == http.MethodHead {
		return
	}
	var target string
	for _, name := range parameter.FindAllString(route.Pattern, -1) {
		target = path.Join(target, r.PathValue(strings.Trim(name, "{.}")))
	}
	// The act is done, whether or not the client is still there.
	ctx := context.WithoutCancel(r.Context())
	if err := auditor.Audit(ctx, route.Permission, r.Method+" "+route.Pattern, target, nil); err != nil {
		s.cfg.Logger.ErrorContext(ctx, "act not written into the audit log", "route", route.Pattern, "error", err)
	}
}

// unescape sets the path values as http.ServeMux would. chi matches the escaped
// path when a segment holds an escaped slash, and then leaves all values
// escaped.
func unescape(r *http.Request, rest string) {
	values := chi.RouteContext(r.Context()).URLParams
	for i, key := range values.Keys {
		value := values.Values[i]
		if key == "*" {
			key = rest
		}
		if r.URL.RawPath != "" {
			if plain, err := url.PathUnescape(value); err == nil {
				value = plain
			}
		}
		if key != "" {
			r.SetPathValue(key, value)
		}
	}
}

// noRoute answers requests that no route takes: 404, 405 with the methods that
// the path has, or those methods as the answer to OPTIONS.
func (s *Server) noRoute(mux *chi.Mux, w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	if r.URL.RawPath == "" {
		path = r.URL.Path
	}
	allowed := []string{}
	for _, method := range methods {
		if mux.Match(chi.NewRouteContext(), method, path) {
			allowed = append(allowed, method)
		}
	}
	switch {
	case len(allowed) == 0:
		fail(w, r, wrapped, &requestError{status: http.StatusNotFound, code: codeEndpointNotFound, message: "Not found"})
	case r.Method == http.MethodOptions:
		allowed = append(allowed, http.MethodOptions)
		slices.Sort(allowed)
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		w.WriteHeader(http.StatusNoContent)
	default:
		list := strings.Join(allowed, ", ")
		w.Header().Set("Allow", list)
		fail(w, r, wrapped, &requestError{
			status: http.StatusMethodNotAllowed, code: codeMethodNotAllowed,
			message: fmt.Sprintf("%s is not supported for %s. Allowed: %s.", r.Method, r.URL.Path, list),
			extra:   map[string]any{"method": r.Method, "path": r.URL.Path, "allowed": allowed},
		})
	}
}
