package auth

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/core/identity"
)

// call serves a request by the plugin's own routes, as the given caller.
func call(ctx context.Context, t *testing.T, b *bundle, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	mux := http.NewServeMux()
	for _, route := range NewPlugin(b.Service, nil).Manifest().Contributes.Routes {
		mux.Handle(route.Method+" "+route.Pattern, route.Handler)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	mux.ServeHTTP(w, r)
	return w
}

func check(t *testing.T, w *httptest.ResponseRecorder, status int, body string) {
	t.Helper()
	if got := strings.TrimSpace(w.Body.String()); w.Code != status || got != body {
		t.Errorf("answer %d %s\nwant   %d %s", w.Code, got, status, body)
	}
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type = %q", got)
	}
}

func TestRoutesCreateListRevoke(t *testing.T) {
	t.Parallel()
	b := setup(t)
	system := identity.With(t.Context(), identity.System())
	w := call(system, t, b, "POST", "/api/v1/keys",
		`{"name":"crm & co","scopes":["data:read"],"expires_at":"2026-03-02T12:00:00+02:00"}`)
	keys, err := b.ListKeys(system)
	if err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	k := keys[0]
	_, secret, _ := strings.Cut(w.Body.String(), `"key":"`)
	secret, _, _ = strings.Cut(secret, `"`)
	if hashSecret(secret) != k.Hash {
		t.Errorf("answered key %q is not the stored one", secret)
	}
	check(t, w, 201, `{"success":true,"data":{"id":"`+k.ID+`","key":"`+secret+`","name":"crm & co","prefix":"`+secret[:12]+`"}}`)
	if got := w.Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control = %q", got)
	}

	view := `{"id":"` + k.ID + `","name":"crm & co","prefix":"` + k.Prefix + `","user_id":null,"organization_id":null,` +
		`"scopes":["data:read"],"created_at":"2026-03-01T12:00:00.000Z","expires_at":"2026-03-02T10:00:00.000Z",` +
		`"last_used_at":null,"revoked_at":`
	check(t, call(system, t, b, "GET", "/api/v1/keys", ""), 200, `{"success":true,"data":{"keys":[`+view+`null}]}}`)
	check(t, call(system, t, b, "DELETE", "/api/v1/keys/"+k.ID, ""), 200,
		`{"success":true,"data":`+view+`"2026-03-01T12:00:00.000Z"}}`)
}

func TestRoutesRefuse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	system := identity.With(t.Context(), identity.System())
	maker, reader := b.make(t, "keys.manage", "data:read"), b.make(t, "data:read")
	refusal := func(code, message string) string {
		return `{"error":{"code":"` + code + `","message":"` + message + `"},"success":false}`
	}
	badBody := refusal("INVALID_REQUEST", "Request body must be a JSON object with name, expires_at and scopes.")
	for name, test := range map[string]struct {
		ctx                context.Context
		method, path, body string
		status             int
		want               string
	}{
		"anonymous": {t.Context(), "POST", "/api/v1/keys", `{}`, 401,
			refusal("UNAUTHENTICATED", "Authentication is required to access this endpoint.")},
		"not permitted": {as(t, reader), "GET", "/api/v1/keys", ``, 403,
			refusal("PERMISSION_DENIED", "You do not have permission to manage API keys.")},
		"reaches further": {as(t, maker), "POST", "/api/v1/keys", `{"scopes":["admin"]}`, 403,
			refusal("PERMISSION_DENIED", `a key cannot have the scope \"admin\", which its maker lacks`)},
		"not JSON":       {system, "POST", "/api/v1/keys", `{bad`, 400, badBody},
		"an array":       {system, "POST", "/api/v1/keys", `[]`, 400, badBody},
		"something more": {system, "POST", "/api/v1/keys", `{} {}`, 400, badBody},
		"unknown key":    {system, "POST", "/api/v1/keys", `{"scope":["data:read"]}`, 400, badBody},
		"no date": {system, "POST", "/api/v1/keys", `{"expires_at":"tomorrow"}`, 400,
			refusal("VALIDATION_FAILED", "expires_at must be an ISO 8601 date and time")},
		"no scope": {system, "POST", "/api/v1/keys", `{"scopes":["*"]}`, 400,
			refusal("VALIDATION_FAILED", `scope \"*\" is not admin, data:read, data:write, object:<name>:<op> or a system permission`)},
		"unknown id": {system, "DELETE", "/api/v1/keys/nope", ``, 404,
			refusal("RESOURCE_NOT_FOUND", "API key not found")},
	} {
		t.Run(name, func(t *testing.T) {
			check(t, call(test.ctx, t, b, test.method, test.path, test.body), test.status, test.want)
		})
	}
	keys, err := b.ListKeys(system)
	if err != nil || len(keys) != 2 {
		t.Errorf("%d keys after refusals, want the 2 of before, %v", len(keys), err)
	}
}

func TestRoutesWithholdFailures(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.make(t, "admin")
	b.store.fail = errors.New("dial tcp db.internal:5432")
	check(t, call(as(t, key), t, b, "GET", "/api/v1/keys", ""), 500,
		`{"error":{"code":"INTERNAL_ERROR","message":"Internal server error"},"success":false}`)
}

func TestRoutesBodyLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(identity.With(t.Context(), identity.System()), "POST", "/api/v1/keys",
		strings.NewReader(`{"name":"`+strings.Repeat("a", 100)+`"}`))
	r.Body = http.MaxBytesReader(w, r.Body, 50)
	b.serveCreate(w, r)
	check(t, w, 413, `{"error":{"code":"PAYLOAD_TOO_LARGE","message":"Request body is too large."},"success":false}`)
}
