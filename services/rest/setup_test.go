package rest

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/auth"
	"github.com/objecthost/objecthost/services/auth/memstore"
)

// logBuffer is a log that tests read while handlers write it.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// lines returns the access log's lines as maps.
func (l *logBuffer) lines(t *testing.T) []map[string]any {
	t.Helper()
	var lines []map[string]any
	for line := range strings.Lines(l.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		if m["msg"] == "request" {
			lines = append(lines, m)
		}
	}
	return lines
}

// plain is a server with a real auth service over memory and with the given
// routes only, for what has nothing to do with data.
type plain struct {
	*Server
	auth *auth.Service
	log  *logBuffer
}

func setupPlain(t *testing.T, cfg Config, routes ...OwnedRoute) *plain {
	t.Helper()
	service, err := auth.New(memstore.New(), auth.Config{})
	if err != nil {
		t.Fatal(err)
	}
	p := &plain{auth: service, log: &logBuffer{}}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewJSONHandler(p.log, nil))
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		t.Fatal(err)
	}
	p.Server = &Server{
		cfg: cfg, auth: service, names: func() []string { return nil }, meta: newMetaTags(), checks: &readiness{}, streams: newStreams(),
	}
	p.Server.routes = append(append(p.discoveryRoutes(), p.healthRoutes()...), routes...)
	mux, err := p.newRouter(p.Server.routes)
	if err != nil {
		t.Fatal(err)
	}
	p.router.Store(mux)
	p.handler = p.layers()
	return p
}

// key makes an API key with the given scopes.
func makeKey(t testing.TB, service *auth.Service, scopes ...string) string {
	t.Helper()
	key, err := service.CreateKey(identity.With(t.Context(), identity.System()), auth.KeyRequest{Scopes: scopes})
	if err != nil {
		t.Fatal(err)
	}
	return key.Secret
}

func testRoute(method, pattern string, serve http.HandlerFunc, options ...func(*OwnedRoute)) OwnedRoute {
	r := OwnedRoute{Plugin: "com.example.test", Route: core.Route{Method: method, Pattern: pattern, Handler: serve}}
	for _, option := range options {
		option(&r)
	}
	return r
}

// echo answers the named path values.
func echo(names ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		values := map[string]string{}
		for _, name := range names {
			values[name] = r.PathValue(name)
		}
		_ = writeJSON(w, http.StatusOK, values)
	}
}

// call is one request; header holds pairs of name and value.
func call(t testing.TB, h http.Handler, method, target, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, io.NopCloser(strings.NewReader(body)))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// want compares an answer's status and its body, as JSON.
func want(t *testing.T, w *httptest.ResponseRecorder, status int, body string) {
	t.Helper()
	if w.Code != status {
		t.Errorf("status %d, want %d: %s", w.Code, status, w.Body)
		return
	}
	if body == "" {
		if w.Body.Len() > 0 {
			t.Errorf("body %s, want none", w.Body)
		}
		return
	}
	if diff := cmp.Diff(parse(t, body), parse(t, w.Body.String())); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q", got)
	}
}

func parse(t testing.TB, text string) any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}
