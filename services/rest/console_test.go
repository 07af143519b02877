package rest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

const page = `<!doctype html><html><head><title>C</title><script>boot()</script><script src="./assets/app-1.js"></script></head><body></body></html>`

// consoleHost serves a small console out of a folder.
func consoleHost(t *testing.T) *Server {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"secret.txt": "outside", "dist/index.html": page, "dist/assets/app-1.js": "app()", "dist/logo.svg": "<svg/>", "dist/plain": "a file without an ending",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "secret.txt"), filepath.Join(dir, "dist", "link.txt")); err != nil {
		t.Fatal(err)
	}
	h := setupHost(t, storagetest.Open(t, storagetest.SQLite(t), storage.Config{}))
	server, err := New(Config{Console: filepath.Join(dir, "dist")}, Parts{Auth: h.auth, Data: h.engine})
	if err != nil {
		t.Fatal(err)
	}
	return server
}

func TestConsole(t *testing.T) {
	t.Parallel()
	server := consoleHost(t)
	based := strings.Replace(page, "<head>", `<head><base href="/_console/">`, 1)
	for path, want := range map[string]struct{ body, kind, cache string }{
		"/_console/":                    {based, "text/html; charset=utf-8", "no-cache"},
		"/_console/index.html":          {based, "text/html; charset=utf-8", "no-cache"},
		"/_console/apps/host/account/7": {based, "text/html; charset=utf-8", "no-cache"},
		"/_console/assets/app-1.js":     {"app()", "text/javascript; charset=utf-8", "public, max-age=31536000, immutable"},
		"/_console/logo.svg":            {"<svg/>", "image/svg+xml", "no-cache"},
		"/_console/plain":               {"a file without an ending", "application/octet-stream", "no-cache"},
	} {
		w := call(t, server.Handler(), "GET", path, "")
		if w.Code != 200 || w.Body.String() != want.body || w.Header().Get("Content-Type") != want.kind || w.Header().Get("Cache-Control") != want.cache {
			t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
		}
	}
	for _, path := range []string{"/_console/assets/gone.js", "/_console/assets", "/_console/link.txt", "/_console/..%2fsecret.txt", "/_console/../secret.txt", "/_console/%2e%2e/secret.txt"} {
		if w := call(t, server.Handler(), "GET", path, ""); strings.Contains(w.Body.String(), "outside") || strings.HasSuffix(path, ".js") && w.Code != 404 || path == "/_console/link.txt" && w.Code != 404 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	// The script that stands in the page may run by its hash, others may not.
	policy := call(t, server.Handler(), "GET", "/_console/", "").Header().Get("Content-Security-Policy")
	if !strings.Contains(policy, "script-src 'self' 'sha256-MeZS89WlF0u+o0hCvHTBt4q1WHU+U+sJKgbdRUc36mY=';") {
		t.Errorf("policy %s", policy)
	}
	if w := call(t, server.Handler(), "GET", "/", ""); w.Code != 302 || w.Header().Get("Location") != "/_console/" {
		t.Errorf("/: %d %v", w.Code, w.Header())
	}
	if w := call(t, server.Handler(), "POST", "/_console/", ""); w.Code != 405 {
		t.Errorf("POST: %d", w.Code)
	}
}

func TestConsoleNeedsItsPage(t *testing.T) {
	t.Parallel()
	h := setupHost(t, storagetest.Open(t, storagetest.SQLite(t), storage.Config{}))
	dir := t.TempDir()
	_, err := New(Config{Console: dir}, Parts{Auth: h.auth, Data: h.engine})
	if err == nil || !strings.Contains(err.Error(), "rest: the folder "+dir+" holds no console") {
		t.Errorf("err = %v", err)
	}
	if w := h.do("GET", "/_console/", ""); w.Code != 404 {
		t.Errorf("without a console: %d", w.Code)
	}
}
