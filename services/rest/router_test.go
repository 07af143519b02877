package rest

import (
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/identity"
)

func TestRouterPaths(t *testing.T) {
	t.Parallel()
	p := setupPlain(t, Config{},
		testRoute("GET", "/a/{x}", echo("x"), anonymous),
		testRoute("GET", "/a/fixed", echo("x"), anonymous),
		testRoute("POST", "/a/{name}/run", echo("name"), anonymous),
		testRoute("POST", "/a/run/{name}", echo("name"), anonymous),
		testRoute("GET", "/files/{path...}", echo("path"), anonymous),
		testRoute("GET", "/exact/{$}", echo(), anonymous),
		testRoute("GET", "/tree/", echo(), anonymous),
	)
	notFound := `{"success":false,"error":{"code":"ENDPOINT_NOT_FOUND","message":"Not found"}}`
	for _, test := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/a/1", 200, `{"x":"1"}`},
		{"GET", "/a/fixed", 200, `{"x":""}`},
		{"GET", "/a/b%2Fc%20d", 200, `{"x":"b/c d"}`},
		{"GET", "/a/b%20d", 200, `{"x":"b d"}`},
		{"GET", "/a/%252F", 200, `{"x":"%2F"}`},
		{"POST", "/a/f/run", 200, `{"name":"f"}`},
		{"POST", "/a/run/f", 200, `{"name":"f"}`},
		{"POST", "/a/run/run", 200, `{"name":"run"}`},
		{"GET", "/files/x/y.css", 200, `{"path":"x/y.css"}`},
		{"GET", "/exact/", 200, `{}`},
		{"GET", "/exact/more", 404, notFound},
		{"GET", "/tree/a/b", 200, `{}`},
		{"GET", "/a/", 404, notFound},
		{"GET", "/a/1/", 404, notFound},
		{"GET", "/api/v1/zzz", 404, notFound},
		{"BREW", "/nowhere", 404, notFound},
	} {
		t.Run(test.method+" "+test.path, func(t *testing.T) {
			want(t, call(t, p.handler, test.method, test.path, ""), test.status, test.body)
		})
	}
}

func TestRouterMethods(t *testing.T) {
	t.Parallel()
	p := setupPlain(t, Config{},
		testRoute("GET", "/a/{x}", echo("x"), anonymous),
		testRoute("DELETE", "/a/{y}", echo("y"), anonymous),
		testRoute("PATCH", "/a/{y}", echo("y"), anonymous),
	)
	for _, method := range []string{"PUT", "POST", "BREW"} {
		w := call(t, p.handler, method, "/a/1", "")
		want(t, w, 405, `{"success":false,"error":{"code":"METHOD_NOT_ALLOWED",
			"message":"`+method+` is not supported for /a/1. Allowed: DELETE, GET, HEAD, PATCH.",
			"details":{"method":"`+method+`","path":"/a/1","allowed":["DELETE","GET","HEAD","PATCH"]}}}`)
		if got := w.Header().Get("Allow"); got != "DELETE, GET, HEAD, PATCH" {
			t.Errorf("Allow = %q", got)
		}
	}
	w := call(t, p.handler, "OPTIONS", "/a/1", "")
	want(t, w, 204, "")
	if got := w.Header().Get("Allow"); got != "DELETE, GET, HEAD, OPTIONS, PATCH" {
		t.Errorf("Allow = %q", got)
	}
	want(t, call(t, p.handler, "OPTIONS", "/b", ""), 404,
		`{"success":false,"error":{"code":"ENDPOINT_NOT_FOUND","message":"Not found"}}`)
}

func TestRouterConflicts(t *testing.T) {
	t.Parallel()
	route := func(plugin, method, pattern string) OwnedRoute {
		r := testRoute(method, pattern, echo())
		r.Plugin = plugin
		return r
	}
	p := setupPlain(t, Config{})
	_, err := p.newRouter([]OwnedRoute{
		route("com.example.a", "GET", "/x/{id}"), route("com.example.b", "POST", "/x/{id}"), route("com.example.b", "GET", "/x/{name}"),
	})
	var conflict *RouteConflictError
	if !errors.As(err, &conflict) {
		t.Fatalf("newRouter = %v, want *RouteConflictError", err)
	}
	const text = `rest: route GET /x/{name} of plugin "com.example.b" conflicts with /x/{id} of plugin "com.example.a"`
	if err.Error() != text {
		t.Errorf("newRouter = %q, want %q", err, text)
	}
	// A HEAD of its own is no conflict with the one that GET brings along.
	_, err = p.newRouter([]OwnedRoute{route("a", "GET", "/x"), route("b", "HEAD", "/x")})
	if err != nil {
		t.Errorf("GET and HEAD = %v", err)
	}
}

func TestRouterRefusesPatterns(t *testing.T) {
	t.Parallel()
	p := setupPlain(t, Config{})
	for _, test := range []struct {
		route OwnedRoute
		want  string
	}{
		{testRoute("get", "/x", echo()), `has a method that is not served`},
		{testRoute("TRACE", "/x", echo()), `has a method that is not served`},
		{testRoute("GET", "x", echo()), `has a pattern that does not begin with a slash`},
		{testRoute("GET", "/x", nil), `has no handler`},
		{testRoute("GET", "/x/{a}-{b}", echo()), `has the segment "{a}-{b}", which is no parameter`},
		{testRoute("GET", "/x/{a...}/y", echo()), `has the segment "{a...}", which is no parameter`},
		{testRoute("GET", "/x/*", echo()), `has the segment "*", which is no parameter`},
		{testRoute("GET", "/x/{a:[0-9]+}", echo()), `has the segment "{a:[0-9]+}", which is no parameter`},
		{testRoute("GET", "/x/{a}/{a}", echo()), `has the parameter {a} twice`},
		{testRoute("GET", "/x", echo(), anonymous, needs("a.b")), `is anonymous and asks for a permission`},
	} {
		if test.want == "has no handler" {
			test.route.Handler = nil
		}
		_, err := p.newRouter([]OwnedRoute{test.route})
		var refused *RouteError
		if !errors.As(err, &refused) || refused.Reason != test.want || refused.Plugin != "com.example.test" {
			t.Errorf("%s %s = %v, want %q", test.route.Method, test.route.Pattern, err, test.want)
		}
	}
}

func needs(permission string) func(*OwnedRoute) {
	return func(r *OwnedRoute) { r.Permission = permission }
}

func TestGate(t *testing.T) {
	t.Parallel()
	who := func(w http.ResponseWriter, r *http.Request) {
		_ = writeJSON(w, 200, map[string]any{"somebody": identity.From(r.Context()).Authenticated()})
	}
	p := setupPlain(t, Config{},
		testRoute("GET", "/open", who, anonymous),
		testRoute("GET", "/closed", who),
		testRoute("GET", "/guarded", who, needs("webhooks.redeliver")),
		testRoute("GET", "/flat", who, flatFamily, needs("webhooks.redeliver")),
	)
	holder, other := makeKey(t, p.auth, "webhooks.redeliver"), makeKey(t, p.auth, "webhooks.rotate")
	const (
		yes, no  = `{"somebody":true}`, `{"somebody":false}`
		unauth   = `{"success":false,"error":{"code":"UNAUTHENTICATED","message":"Authentication is required to access this endpoint."}}`
		denied   = `{"success":false,"error":{"code":"PERMISSION_DENIED","message":"You need the permission 'webhooks.redeliver'."}}`
		flatAuth = `{"error":"UNAUTHENTICATED","code":"UNAUTHENTICATED","message":"Authentication is required to access this endpoint."}`
		flatDeny = `{"error":"You need the permission 'webhooks.redeliver'.","code":"PERMISSION_DENIED"}`
	)
	for _, test := range []struct {
		path, key string
		status    int
		body      string
	}{
		{"/open", "", 200, no}, {"/open", "wrong", 200, no}, {"/open", holder, 200, yes},
		{"/closed", "", 401, unauth}, {"/closed", "wrong", 401, unauth}, {"/closed", other, 200, yes},
		{"/guarded", "", 401, unauth}, {"/guarded", other, 403, denied}, {"/guarded", holder, 200, yes},
		{"/flat", "", 401, flatAuth}, {"/flat", other, 403, flatDeny}, {"/flat", holder, 200, yes},
	} {
		var header []string
		if test.key != "" {
			header = []string{"Authorization", "Bearer " + test.key}
		}
		w := call(t, p.handler, "GET", test.path, "", header...)
		want(t, w, test.status, test.body)
		if got := w.Header().Get("WWW-Authenticate"); (got == "Bearer") != (test.status == 401) {
			t.Errorf("%d with WWW-Authenticate %q", test.status, got)
		}
	}
}

// brokenAuth is an authenticator whose store cannot be asked.
type brokenAuth struct {
	Authenticator
	calls int
}

func (b *brokenAuth) Authenticate(*http.Request) (identity.Principal, error) {
	b.calls++
	return identity.Principal{}, errors.New("dial tcp db.internal:5432: refused")
}

func TestGateWithoutStore(t *testing.T) {
	t.Parallel()
	p := setupPlain(t, Config{}, testRoute("GET", "/closed", echo()), testRoute("GET", "/open", echo(), anonymous))
	p.Server.auth = &brokenAuth{}
	want(t, call(t, p.handler, "GET", "/open", ""), 200, `{}`)
	want(t, call(t, p.handler, "GET", "/api/v1/health", ""), 200, `{"success":true,"data":{"status":"ok"}}`)
	if calls := p.Server.auth.(*brokenAuth).calls; calls != 1 {
		t.Errorf("the store was asked %d times, want once: health asks nobody", calls)
	}
	want(t, call(t, p.handler, "GET", "/closed", ""), 500,
		`{"success":false,"error":{"code":"INTERNAL_ERROR","message":"Internal server error"}}`)
	lines := p.log.lines(t)
	if got := lines[2]["error"]; got != "dial tcp db.internal:5432: refused" {
		t.Errorf("logged %v", got)
	}
}

func TestSetRoutes(t *testing.T) {
	t.Parallel()
	p := setupPlain(t, Config{}, testRoute("GET", "/x/{id}", echo("id"), anonymous))
	late := testRoute("GET", "/late/{id}", echo("id"), anonymous).Route
	const missing = `{"success":false,"error":{"code":"ENDPOINT_NOT_FOUND","message":"Not found"}}`
	want(t, call(t, p.handler, "GET", "/late/1", ""), 404, missing)
	if err := p.Server.SetRoutes("com.example.late", []core.Route{late}); err != nil {
		t.Fatal(err)
	}
	want(t, call(t, p.handler, "GET", "/late/1", ""), 200, `{"id":"1"}`)
	// A conflict changes nothing, with the boot's routes and with other plugins'.
	for _, taken := range []core.Route{testRoute("GET", "/x/{name}", echo()).Route, testRoute("GET", "/late/{name}", echo()).Route} {
		var conflict *RouteConflictError
		if err := p.Server.SetRoutes("com.example.other", []core.Route{taken}); !errors.As(err, &conflict) {
			t.Errorf("SetRoutes %s = %v, want *RouteConflictError", taken.Pattern, err)
		}
	}
	want(t, call(t, p.handler, "GET", "/late/1", ""), 200, `{"id":"1"}`)
	want(t, call(t, p.handler, "GET", "/x/1", ""), 200, `{"id":"1"}`)
	if !slices.ContainsFunc(p.Server.Routes(), func(r OwnedRoute) bool { return r.Pattern == "/late/{id}" && r.Plugin == "com.example.late" }) {
		t.Error("the list of routes lacks the late one")
	}
	late.Pattern = "/later/{id}"
	if err := p.Server.SetRoutes("com.example.late", []core.Route{late}); err != nil {
		t.Fatal(err)
	}
	want(t, call(t, p.handler, "GET", "/late/1", ""), 404, missing)
	want(t, call(t, p.handler, "GET", "/later/1", ""), 200, `{"id":"1"}`)
	if err := p.Server.SetRoutes("com.example.late", nil); err != nil {
		t.Fatal(err)
	}
	want(t, call(t, p.handler, "GET", "/later/1", ""), 404, missing)
}
