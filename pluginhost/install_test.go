package pluginhost_test

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/pluginhost"
	"github.com/objecthost/objecthost/pluginhost/bundle"
	"github.com/objecthost/objecthost/pluginhost/hosttest"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// TestInstallAndUninstall takes a plugin into a host that runs and out of it
// again, by the API.
func TestInstallAndUninstall(t *testing.T) {
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		dir := t.TempDir()
		public, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		trust(t, dir, public)
		h := hosttest.Start(t, hosttest.Config{DB: db, Dir: dir, Objects: objects(), PluginHost: quick(), Strict: true})
		ask := func(want int, wantBody, method, path string, body any) {
			t.Helper()
			if status, text := h.Do(t, method, adminPath+path, body); status != want || !strings.Contains(text, wantBody) {
				t.Fatalf("%s %s = %d %s, want %d %s", method, path, status, text, want, wantBody)
			}
		}
		first := variant(t, key, map[string]any{"Object": "fix_extra"})
		get(t, h, "/hello/x", 404, "")
		ask(400, "bundle: is required", "POST", "", map[string]any{})
		ask(400, "absolute path", "POST", "", map[string]any{"bundle": "x"})
		ask(400, "unknown field", "POST", "", map[string]any{"bundel": first})
		ask(400, "cannot be given together", "POST", "", map[string]any{"bundle": first, "grant": true, "grants": map[string]any{}})
		ask(400, "neither read nor write", "POST", "", map[string]any{"bundle": first, "grants": map[string]any{"objects": map[string]any{"a": "rw"}}})
		ask(400, "no such file", "POST", "", map[string]any{"bundle": "/nothing/here"})
		ask(409, "not signed", "POST", "", map[string]any{"bundle": variant(t, nil, map[string]any{})})
		ask(409, "no license", "POST", "", map[string]any{"bundle": variant(t, key, map[string]any{"Mode": "init-error"})})
		onlyThese(t, dir, "trust")
		goroutines := runtime.NumGoroutine()
		for range 2 { // the second time like the first
			checkInstalled(t, h, dir, first, ask)
		}
		eventually(t, "as few goroutines as before", func() bool { return runtime.NumGoroutine() <= goroutines })
		ask(404, "no such plugin", "DELETE", "/fixture", nil)
		noLeftovers(t, h)
	})
}

func checkInstalled(t *testing.T, h *hosttest.Host, dir, source string, ask func(int, string, string, string, any)) {
	t.Helper()
	ask(201, `"state":"ready"`, "POST", "", map[string]any{"bundle": source, "grant": true})
	ask(409, "installed already", "POST", "", map[string]any{"bundle": source, "grant": true})
	get(t, h, "/hello/x", 202, "hello x")
	if made, err := h.Engine.Create(h.Context(), "fix_account", data.Record{"name": "y"}); err != nil || made.Record["checked"] != "create" {
		t.Errorf("a write with its hook = %v, %v", made.Record, err)
	}
	if _, err := h.Engine.Create(h.Context(), "fix_extra", data.Record{"text": "x"}); err != nil {
		t.Errorf("a record of the plugin's object = %v", err)
	}
	id := noted(t, h)
	eventually(t, "the note", func() bool { return notes(t, h, id) == 1 })
	if status, body := h.Do(t, "GET", "/api/v1/automation/actions", nil); status != 200 || !strings.Contains(body, `"fixture.join"`) {
		t.Errorf("flow nodes = %d %s", status, body)
	}
	packages := func(want bool) {
		t.Helper()
		if status, body := h.Do(t, "GET", "/api/v1/packages", nil); status != 200 || strings.Contains(body, "com.example.fixture") != want {
			t.Errorf("packages = %d %s, want the plugin: %t", status, body, want)
		}
	}
	packages(true)
	lock, err := bundle.LoadLock(dir)
	if e := lock["fixture"]; err != nil || !e.Enabled || e.GrantedBy == "" || !e.Grants.KV {
		t.Errorf("lock = %+v, %v", e, err)
	}
	pid := h.Status(t, "fixture").PID
	ask(400, "purge must be", "DELETE", "/fixture?purge=1", nil)
	ask(200, `"uninstalled":true`, "DELETE", "/fixture?purge=true", nil)
	if syscall.Kill(pid, 0) == nil {
		t.Errorf("the process %d is there", pid)
	}
	packages(false)
	get(t, h, "/hello/x", 404, "")
	if made, err := h.Engine.Create(h.Context(), "fix_account", data.Record{"name": "refused"}); err != nil || made.Record["checked"] != nil {
		t.Errorf("a write afterwards = %v, %v", made.Record, err)
	}
	if _, body := h.Do(t, "GET", "/api/v1/automation/actions", nil); strings.Contains(body, `"fixture.join"`) {
		t.Error("the flow node is still listed")
	}
	consumers, err := h.Events.Consumers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range consumers {
		if strings.HasPrefix(c.Name, "plugin.") {
			t.Errorf("the consumer %s is still in the log", c.Name)
		}
	}
	onlyThese(t, dir, "plugins.lock", "trust")
	if lock, err = bundle.LoadLock(dir); err != nil || len(lock) != 0 {
		t.Errorf("lock = %v, %v", lock, err)
	}
}

// TestUninstallOfTheBoot: a plugin that was there at the boot goes and comes
// like any other, and the host stops without it.
func TestUninstallOfTheBoot(t *testing.T) {
	h, _, key := strict(t, nil)
	if err := h.Manager.Uninstall(t.Context(), "fixture", false); err != nil {
		t.Fatal(err)
	}
	get(t, h, "/hello/x", 404, "")
	if err := h.Manager.Enable(t.Context(), "fixture"); err == nil || !strings.Contains(err.Error(), "no such plugin") {
		t.Errorf("enable afterwards = %v", err)
	}
	if _, err := h.Manager.Install(t.Context(), variant(t, key, map[string]any{"Version": "2.0.0"}), pluginhost.Change{GrantRequested: true}); err != nil {
		t.Fatal(err)
	}
	get(t, h, "/hello/x", 202, "hello x")
	pid := h.Status(t, "fixture").PID
	noLeftovers(t, h)
	if alive(pid) {
		t.Error("the process outlived the host's stop")
	}
}

// TestLogsFollow reads a plugin's log as it is written.
func TestLogsFollow(t *testing.T) {
	h := start(t, "", nil)
	wantState(t, h, pluginhost.StateReady)
	request, err := http.NewRequestWithContext(t.Context(), "GET", h.URL+adminPath+"/fixture/logs?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+h.Key)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := readLines(answer.Body)
	if line := <-lines; !strings.Contains(line, "fixture initialized") {
		t.Errorf("the first line = %q", line)
	}
	if err := h.Manager.Restart(t.Context(), "fixture"); err != nil {
		t.Fatal(err)
	}
	if line := <-lines; !strings.Contains(line, "fixture initialized") {
		t.Errorf("a line that came later = %q", line)
	}
	// It ends when the host stops, which does not wait for it.
	h.Stop(t)
	if line, more := <-lines; more {
		t.Errorf("after the host's stop: %q", line)
	}
}

// onlyWord refuses every configuration without a word.
type onlyWord struct{}

func (onlyWord) ValidateConfig(_ string, _, config json.RawMessage) error {
	var c struct{ Word string }
	if err := json.Unmarshal(config, &c); err != nil || c.Word == "" {
		return errors.New("word is missing")
	}
	return nil
}

// TestInstallWithConfiguration: what a plugin was configured with when it was
// installed is checked, kept and given to it at the next start of the host.
func TestInstallWithConfiguration(t *testing.T) {
	cfg := hosttest.Config{Dir: t.TempDir(), Objects: objects(), PluginHost: quick(), Strict: true}
	cfg.PluginHost.Validator = onlyWord{}
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	trust(t, cfg.Dir, public)
	h := hosttest.Start(t, cfg)
	plain, schema := variant(t, key, map[string]any{}), variant(t, key, map[string]any{"Schema": map[string]any{"type": "object"}})
	install := func(source string, config json.RawMessage, want string) {
		t.Helper()
		_, err := h.Manager.Install(t.Context(), source, pluginhost.Change{GrantRequested: true, Config: config})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Fatalf("install = %v, want %q", err, want)
		}
	}
	install(plain, json.RawMessage(`{}`), "takes none")
	install(schema, nil, "word is missing")
	install(schema, json.RawMessage(`{"word":""}`), "word is missing")
	onlyThese(t, cfg.Dir, "trust")
	install(schema, json.RawMessage(`{"word":"first"}`), "")
	if !strings.Contains(h.Log(), `first`) {
		t.Error("the plugin did not get its configuration")
	}
	if _, err := h.Manager.Upgrade(t.Context(), "fixture", schema, pluginhost.Change{Config: json.RawMessage(`{"word":"second"}`)}); err != nil {
		t.Fatal(err)
	}
	h.Stop(t)
	again := hosttest.Start(t, cfg)
	wantState(t, again, pluginhost.StateReady)
	if log := again.Log(); !strings.Contains(log, "second") || strings.Contains(log, "first") {
		t.Error("after a start of the host the plugin has another configuration")
	}
}

// TestInstallBesideOthers: a plugin that cannot be beside what is there is
// refused.
func TestInstallBesideOthers(t *testing.T) {
	h, dir, key := strict(t, nil)
	other := hosttest.Build(t, t.TempDir(), hosttest.Plugin{Name: "other", Binary: fixture, Capabilities: grants()})
	sign(t, other.Dir, key)
	var conflict *pluginhost.ConflictError
	if _, err := h.Manager.Install(t.Context(), other.Dir, pluginhost.Change{}); !errors.As(err, &conflict) || !strings.Contains(err.Error(), "the id com.example.fixture") {
		t.Errorf("another plugin with the same id = %v", err)
	}
	if _, err := h.Manager.Upgrade(t.Context(), "fixture", other.Dir, pluginhost.Change{}); !errors.As(err, &conflict) || !strings.Contains(err.Error(), "of plugin other") {
		t.Errorf("an upgrade by another plugin = %v", err)
	}
	lonely := hosttest.Build(t, t.TempDir(), hosttest.Plugin{Name: "tiny", Binary: tiny, Files: map[string][]byte{"id": []byte("com.example.tiny")}})
	m := lonely.Manifest
	m.Contributes.DependsOn = []string{"com.example.nothing"}
	m.Contributes.Objects = []object.Schema{{Name: "fix_tiny", Fields: object.Fields{{Name: "text", Type: object.Text}}}}
	if _, err := bundle.Write(lonely.Dir, m, "plugin", "id"); err != nil {
		t.Fatal(err)
	}
	sign(t, lonely.Dir, key)
	if _, err := h.Manager.Install(t.Context(), lonely.Dir, pluginhost.Change{}); !errors.As(err, &conflict) || !strings.Contains(err.Error(), "depends on plugin com.example.nothing") {
		t.Errorf("a plugin without what it depends on = %v", err)
	}
	onlyThese(t, dir, "fixture", "plugins.lock", "trust")
}
