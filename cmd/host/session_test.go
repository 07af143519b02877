package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/objecthost/objecthost/storage/storagetest"
)

// TestSessionsOverHTTP signs in as browsers and programs do, and compares what
// the protocol promises.
func TestSessionsOverHTTP(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, dsn string) {
		h := inhabit(t, dsn)
		h.ok(t, h.root, "POST", "/api/v1/auth/admin/create-user", `{"email":"Ann@Host.example","name":"Ann","password":"correct horse","role":"owner"}`)
		do := func(method, path, body string, header ...string) (*http.Response, map[string]any) {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), method, h.url+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			for i := 0; i < len(header); i += 2 {
				r.Header.Set(header[i], header[i+1])
			}
			w, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Body.Close()
			text, err := io.ReadAll(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			var out map[string]any
			if err := json.Unmarshal(text, &out); err != nil {
				t.Fatalf("%s %s: %s", method, path, text)
			}
			return w, out
		}
		refused := func(what string, w *http.Response, body map[string]any, status int, code string) {
			t.Helper()
			if w.StatusCode != status || body["code"] != code || body["message"] == "" {
				t.Errorf("%s: %d %v, want %d %s", what, w.StatusCode, body, status, code)
			}
		}
		const signIn = "/api/v1/auth/sign-in/email"
		good := `{"email":"ann@host.example","password":"correct horse","rememberMe":true}`
		w, body := do("POST", signIn, `{"email":"ann@host.example","password":"wrong"}`, "Origin", h.url)
		refused("a wrong password", w, body, 401, "INVALID_EMAIL_OR_PASSWORD")
		w, body = do("POST", signIn, good, "Origin", "https://evil.example")
		refused("another site's page", w, body, 403, "INVALID_ORIGIN")
		w, body = do("POST", signIn, `{"email":7}`)
		refused("no text", w, body, 400, "INVALID_REQUEST")
		w, body = do("POST", signIn, `{}`)
		refused("nothing", w, body, 400, "VALIDATION_ERROR")
		w, body = do("POST", "/api/v1/auth/sign-up/email", `{"email":"x@host.example","password":"correct horse","name":"X"}`)
		refused("registration", w, body, 403, "SELF_REGISTRATION_CLOSED")

		w, body = do("POST", signIn, good, "Origin", h.url)
		user, _ := body["user"].(map[string]any)
		token, _ := body["token"].(string)
		id, _ := user["id"].(string)
		if w.StatusCode != 200 || body["redirect"] != false || len(token) != 32 || len(id) != 32 {
			t.Fatalf("sign in: %d %v", w.StatusCode, body)
		}
		user["createdAt"], user["updatedAt"] = nil, nil
		if diff := cmp.Diff(map[string]any{
			"id": id, "name": "Ann", "email": "ann@host.example", "emailVerified": true, "image": nil, "createdAt": nil, "updatedAt": nil,
		}, user); diff != "" {
			t.Errorf("user (-want +got):\n%s", diff)
		}
		signed := w.Header.Get("Set-Auth-Token")
		cookie := w.Header.Get("Set-Cookie")
		pair, attributes, _ := strings.Cut(cookie, ";")
		if !strings.HasPrefix(signed, token+".") || !strings.HasPrefix(pair, "better-auth.session_token="+token+".") ||
			attributes != " Path=/; Max-Age=604800; HttpOnly; SameSite=Lax" {
			t.Errorf("set-auth-token %q, cookie %q", signed, cookie)
		}
		for name, header := range map[string][]string{
			"token": {"Authorization", "Bearer " + token}, "signed": {"Authorization", "Bearer " + signed}, "cookie": {"Cookie", pair},
		} {
			w, body = do("GET", "/api/v1/auth/get-session", "", header...)
			session, _ := body["session"].(map[string]any)
			me, _ := body["user"].(map[string]any)
			if w.StatusCode != 200 || session["userId"] != id || session["token"] != token || session["activeOrganizationId"] != nil ||
				me["isPlatformAdmin"] != true || !cmp.Equal(me["positions"], []any{"owner", "everyone"}) {
				t.Errorf("who am I by %s: %d %v", name, w.StatusCode, body)
			}
		}
		if w, body = do("GET", "/api/v1/auth/get-session", "", "Authorization", "Bearer "+token[:31]+"x"); w.StatusCode != 200 || body != nil {
			t.Errorf("a wrong token: %d %v, want null", w.StatusCode, body)
		}
		const create = "/api/v1/data/account"
		if w, body = do("POST", create, `{"name":"a"}`, "Cookie", pair, "Origin", h.url); w.StatusCode != 201 || body["record"].(map[string]any)["owner_id"] != id {
			t.Errorf("create by cookie: %d %v", w.StatusCode, body)
		}
		w, body = do("POST", create, `{"name":"a"}`, "Cookie", pair, "Origin", "https://evil.example")
		if w.StatusCode != 403 || body["code"] != "INVALID_ORIGIN" {
			t.Errorf("create by another site's page: %d %v", w.StatusCode, body)
		}
		w, body = do("POST", "/api/v1/auth/sign-out", `{}`, "Cookie", pair, "Origin", "https://evil.example")
		refused("sign out by another site's page", w, body, 403, "INVALID_ORIGIN")
		w, body = do("POST", "/api/v1/auth/sign-out", `{}`, "Cookie", pair, "Origin", h.url)
		if w.StatusCode != 200 || body["success"] != true || !strings.HasPrefix(w.Header.Get("Set-Cookie"), "better-auth.session_token=; Path=/; Max-Age=0;") {
			t.Errorf("sign out: %d %v %q", w.StatusCode, body, w.Header.Get("Set-Cookie"))
		}
		for _, header := range [][]string{{"Authorization", "Bearer " + token}, {"Authorization", "Bearer " + signed}, {"Cookie", pair}} {
			if w, body = do("GET", create, "", header...); w.StatusCode != 401 || body["code"] != "UNAUTHENTICATED" {
				t.Errorf("after signing out: %d %v", w.StatusCode, body)
			}
		}
		for range 10 {
			_, _ = do("POST", signIn, `{"email":"ann@host.example","password":"wrong"}`)
		}
		w, body = do("POST", signIn, good)
		refused("too many guesses", w, body, 429, "TOO_MANY_REQUESTS")
		if after := w.Header.Get("Retry-After"); len(after) != 3 {
			t.Errorf("Retry-After %q", after)
		}
	})
}
