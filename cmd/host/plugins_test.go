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
	dir, err := os.MkdirTemp("", "hp") //nolint:usetesting // the paths of sockets are short
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
	if status, body := do("GET", "/metrics", ""); status != 200 || !strings.Contains(body, `objecthost_plugin_state{plugin="crm",state="ready"} 1`) ||
		!strings.Contains(body, `objecthost_plugin_call_seconds_count{method="BeforeWrite",outcome="ok",plugin="crm"} 2`) {
		t.Errorf("metrics = %d %s", status, body)
	}
	if answer, err := http.Get(url + "/metrics"); err != nil || answer.StatusCode != 401 {
		t.Errorf("metrics for nobody = %v, %v", answer, err)
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

// TestPluginCommands takes a plugin from its program to a running host, signed.
func TestPluginCommands(t *testing.T) {
	dir, err := os.MkdirTemp("", "hp") //nolint:usetesting // the paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	plugins, dist := filepath.Join(dir, "p"), filepath.Join(dir, "crm")
	for _, folder := range []string{filepath.Join(plugins, "trust"), dist} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	hosttest.Compile(t, examples+"/plugin-process", filepath.Join(dist, "plugin"))
	capabilities := filepath.Join(dir, "capabilities.json")
	if err := os.WriteFile(capabilities, []byte(`{"objects":{"crm_account":"read"},"hooks":["crm_account"],"routes":true}`), 0o644); err != nil {
		t.Fatal(err)
	}
	step := func(want int, wantOut string, args ...string) {
		t.Helper()
		code, stdout, stderr := command(t.Context(), nil, args...)
		if code != want || !strings.Contains(stdout+stderr, wantOut) {
			t.Fatalf("host %s = %d\n%s%s\nwant %d and %q", strings.Join(args, " "), code, stdout, stderr, want, wantOut)
		}
	}
	key := filepath.Join(dir, "acme")
	step(0, "", "plugin", "keygen", key)
	step(1, "file exists", "plugin", "keygen", key)
	step(0, "crm 1.0.0, 1 files", "plugin", "pack", dist, "--capabilities", capabilities, "--key", key+".key")
	step(1, "not in the trust store", "plugin", "verify", dist, "--plugins", plugins)
	if err := os.Rename(key+".pub", filepath.Join(plugins, "trust", "acme.pub")); err != nil {
		t.Fatal(err)
	}
	step(0, "signed by acme", "plugin", "verify", dist, "--plugins", plugins)
	step(1, "say --grant", "plugin", "install", dist, "--plugins", plugins)
	step(0, `"crm_account": "read"`, "plugin", "install", dist, "--plugins", plugins, "--grant")

	host := start(t, t.TempDir(), "serve", "--listen", "127.0.0.1:0", "--plugins", plugins)
	vars := map[string]string{"HOST_KEY": host.line(t, "API key, shown this once: "), "HOST_URL": host.line(t, "objecthost listens on ")}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"plugin", "list"}, "ready"},
		{[]string{"plugin", "info", "crm"}, "signed by      acme"},
		{[]string{"plugin", "disable", "crm"}, "disabled"},
		{[]string{"plugin", "enable", "crm"}, "ready"},
		{[]string{"plugin", "restart", "crm", "--json"}, `"generation": 3`},
		{[]string{"plugin", "logs", "crm"}, ""},
		{[]string{"plugin", "upgrade", "crm", "--json"}, `"generation": 4`},
		{[]string{"plugin", "uninstall", "crm", "--purge"}, "crm is uninstalled"},
		{[]string{"plugin", "list", "--json"}, "[]"},
		{[]string{"plugin", "install", dist, "--grant"}, "ready"},
		{[]string{"plugin", "upgrade", "crm", dist, "--grants", capabilities, "--json"}, `"state": "ready"`},
	} {
		if code, stdout, stderr := command(t.Context(), vars, tt.args...); code != 0 || !strings.Contains(stdout, tt.want) {
			t.Errorf("host %s = %d, want %q:\n%s%s", strings.Join(tt.args, " "), code, tt.want, stdout, stderr)
		}
	}
	if code, _, stderr := command(t.Context(), vars, "plugin", "install", dist); code != 1 || !strings.Contains(stderr, "say --grant") {
		t.Errorf("an install without grants = %d %s", code, stderr)
	}
	if code, _, stderr := command(t.Context(), vars, "plugin", "install", dist, "--grant"); code != 1 || !strings.Contains(stderr, "installed already") {
		t.Errorf("an install of what is there = %d %s", code, stderr)
	}
	followed := make(chan string, 1)
	go func() {
		_, stdout, _ := command(t.Context(), vars, "plugin", "logs", "crm", "-f")
		followed <- stdout
	}()
	if code, _, stderr := command(t.Context(), vars, "plugin", "info", "nothing"); code != 1 || !strings.Contains(stderr, "no such plugin") {
		t.Errorf("an unknown plugin = %d %s", code, stderr)
	}
	// A disabled plugin stays disabled: the lock file remembers.
	if code, _, stderr := command(t.Context(), vars, "plugin", "disable", "crm"); code != 0 {
		t.Error(stderr)
	}
	lock, err := bundle.LoadLock(plugins)
	if err != nil || lock["crm"].Enabled || lock["crm"].KeyID != "acme" || lock["crm"].GrantedBy == "" {
		t.Errorf("lock = %+v, %v", lock["crm"], err)
	}
	host.signal(t, syscall.SIGTERM)
	if code := host.wait(t); code != exitOK {
		t.Errorf("the host ended with %d:\n%s", code, host.stderr)
	}
	<-followed // which the host's stop has ended
}
