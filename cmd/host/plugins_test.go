package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/objecthost/objecthost/pluginhost/bundle"
	"github.com/objecthost/objecthost/pluginhost/hosttest"
)

// TestServePlugins runs the sample plugin beside a host as an operator does.
func TestServePlugins(t *testing.T) {
	dir, err := os.MkdirTemp("", "hp") // short, because sockets' paths are
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	hosttest.Build(t, dir, hosttest.Plugin{Name: "crm", Package: examples + "/plugin-process", Capabilities: bundle.Capabilities{
		Objects: map[string]string{"crm_account": "read"}, Hooks: []string{"crm_account"}, Routes: true,
	}})
	home := t.TempDir()
	host := start(t, home, "serve", "--listen", "127.0.0.1:0", "--plugins", dir, "--plugins-dev")
	key := host.line(t, "API key, shown this once: ")
	url := host.line(t, "objecthost listens on ")
	do := func(method, path, body string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, url+path, bytes.NewReader([]byte(body)))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+key)
		request.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	if status, body := do("POST", "/api/v1/data/crm_account", `{"name":"Ada","email":"Ada@Example.com"}`); status != 201 || !strings.Contains(body, `"ada@example.com"`) {
		t.Errorf("create = %d %s", status, body)
	}
	if status, body := do("POST", "/api/v1/data/crm_account", `{"name":"Eve","email":"eve"}`); status != 400 {
		t.Errorf("a bad address = %d %s", status, body)
	}
	if status, body := do("GET", "/api/v1/plugins/crm/accounts/count", ""); status != 200 || body != `{"success":true,"data":1}` {
		t.Errorf("count = %d %s", status, body)
	}
	status, body := do("GET", "/api/v1/system/plugins/crm", "")
	var shown struct {
		Data struct {
			State string `json:"state"`
			PID   int    `json:"pid"`
		} `json:"data"`
	}
	if err := json.Unmarshal([]byte(body), &shown); err != nil || status != 200 || shown.Data.State != "ready" {
		t.Errorf("status = %d %s, %v", status, body, err)
	}
	host.signal(t, syscall.SIGTERM)
	if code := host.wait(t); code != exitOK {
		t.Errorf("the host ended with %d:\n%s", code, host.stderr)
	}
	if err := syscall.Kill(shown.Data.PID, 0); err == nil {
		t.Errorf("the plugin's process %d outlived the host", shown.Data.PID)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".run", "*")); err != nil || len(left) != 0 {
		t.Errorf("left in the run folder: %v, %v", left, err)
	}
}
