package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/storage/storagetest"
)

// TestFirstAdministrator starts a host that says a setup token once, and one
// whose administrator is in the environment.
func TestFirstAdministrator(t *testing.T) {
	t.Setenv(envAdminEmail, "")
	dir := t.TempDir()
	serve := func(dsn string) *process {
		return start(t, dir, "serve", "--db", dsn, "--listen", "127.0.0.1:0", "--key-file", filepath.Join(dir, "host.key"))
	}
	post := func(url, path, body string) int {
		t.Helper()
		answer, err := http.Post(url+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return answer.StatusCode
	}
	const signIn = `{"email":"ann@host.example","password":"correct horse"}`
	dsn := storagetest.SQLite(t)
	p := serve(dsn)
	token := p.line(t, "Setup token, good for making the first administrator: ")
	url := p.line(t, "objecthost listens on ")
	setup := `{"token":"` + token + `","email":"ann@host.example","password":"correct horse","name":"Ann"}`
	if code := post(url, "/api/v1/auth/bootstrap", strings.Replace(setup, token, strings.Repeat("a", 32), 1)); code != 403 {
		t.Errorf("with another token: %d", code)
	}
	if code := post(url, "/api/v1/auth/bootstrap", setup); code != 200 {
		t.Errorf("with the token: %d", code)
	}
	if code := post(url, "/api/v1/auth/bootstrap", strings.Replace(setup, "ann@", "bob@", 1)); code != 403 {
		t.Errorf("the second time: %d", code)
	}
	if code := post(url, "/api/v1/auth/sign-in/email", signIn); code != 200 {
		t.Errorf("sign in: %d", code)
	}

	t.Setenv(envAdminEmail, "ann@host.example")
	t.Setenv(envAdminPassword, "correct horse")
	p = serve(storagetest.SQLite(t))
	key := p.line(t, "API key, shown this once: ") // no token comes before
	url = p.line(t, "objecthost listens on ")
	if code := post(url, "/api/v1/auth/sign-in/email", signIn); code != 200 || !strings.HasPrefix(key, "osk_") {
		t.Errorf("sign in as the administrator of the environment: %d", code)
	}
}
