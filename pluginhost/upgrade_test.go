package pluginhost_test

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/pluginhost"
	"github.com/objecthost/objecthost/pluginhost/bundle"
	"github.com/objecthost/objecthost/pluginhost/hosttest"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// variant makes a bundle of the fixture that differs from the usual one, in a
// folder of its own, and signs it unless key is nil.
func variant(t *testing.T, key ed25519.PrivateKey, values map[string]any) string {
	t.Helper()
	text, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	b := hosttest.Build(t, t.TempDir(), hosttest.Plugin{
		Name: "fixture", Binary: fixture, Capabilities: grants(), Files: map[string][]byte{"variant.json": text},
	})
	if key != nil {
		sign(t, b.Dir, key)
	}
	return b.Dir
}

// strict starts a host on the signed and locked fixture.
func strict(t *testing.T, db *storage.DB) (h *hosttest.Host, dir string, key ed25519.PrivateKey) {
	t.Helper()
	h = start(t, "", func(c *hosttest.Config) {
		c.Strict, c.DB, dir = true, db, c.Dir
		_, key = install(t, c.Dir)
	})
	wantState(t, h, pluginhost.StateReady)
	return h, dir, key
}

const adminPath = "/api/v1/system/plugins"

func get(t *testing.T, h *hosttest.Host, path string, status int, body string) {
	t.Helper()
	if got, text := h.Do(t, "GET", "/api/v1/plugins/fixture"+path, nil); got != status || !strings.Contains(text, body) {
		t.Errorf("GET %s = %d %s, want %d %s", path, got, text, status, body)
	}
}

// TestUpgradeWhileServing: events, hooks, routes and calls go on across
// upgrades: nothing is lost, handled twice or refused.
func TestUpgradeWhileServing(t *testing.T) {
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		h, dir, key := strict(t, db)
		before := h.Status(t, "fixture")
		second := variant(t, key, map[string]any{"Version": "2.0.0", "Route": "/second", "Object": "fix_extra", "Handlers": []string{"more"}})
		get(t, h, "/second", 404, "")
		stop, done := make(chan struct{}), make(chan []string, 1)
		go func() {
			var ids []string
			defer func() { done <- ids }()
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprintf("n%d", i)
				e := &event.Event{Type: event.RecordCreated, Object: "fix_account", RecordID: id, After: json.RawMessage(`{"name":"noted"}`)}
				if err := h.Events.Append(h.Context(), e); err != nil {
					t.Error(err)
					return
				}
				ids = append(ids, id)
				if made, err := h.Engine.Create(h.Context(), "fix_open", data.Record{"name": id}); err != nil || made.Record["checked"] != "create" {
					t.Errorf("a write with its hook = %v, %v", made.Record, err)
				}
				if status, body := h.Do(t, "GET", helloPath, nil); status != 202 {
					t.Errorf("a route = %d %s", status, body)
				}
			}
		}()
		eventually(t, "the first note", func() bool { return notes(t, h, "n0") == 1 })
		status, err := h.Manager.Upgrade(t.Context(), "fixture", second, pluginhost.Change{})
		if err != nil || status.Version != "2.0.0" || status.Generation != 2 || status.State != pluginhost.StateReady {
			t.Fatalf("upgrade = %+v, %v", status, err)
		}
		if alive(before.PID) || status.PID == before.PID {
			t.Errorf("the old process %d lives, the new one is %d", before.PID, status.PID)
		}
		get(t, h, "/second", 200, "2.0.0")
		if made, err := h.Engine.Create(h.Context(), "fix_extra", data.Record{"text": "x"}); err != nil {
			t.Errorf("an object of the new version = %v, %v", made, err)
		}
		eventually(t, "an event that the new version handled", func() bool {
			page, err := h.Engine.Find(h.Context(), "fix_note", data.Query{Where: data.Eq("name", "2.0.0")})
			return err == nil && len(page.Records) > 0
		})
		// And to one that contributes less.
		third := variant(t, key, map[string]any{"Version": "3.0.0", "Service": "-", "Node": "-"})
		if status, err = h.Manager.Upgrade(t.Context(), "fixture", third, pluginhost.Change{}); err != nil || status.Version != "3.0.0" {
			t.Fatalf("upgrade = %+v, %v", status, err)
		}
		get(t, h, "/second", 404, "")
		close(stop)
		checkHandledOnce(t, h, <-done)
		lock, err := bundle.LoadLock(dir)
		if e := lock["fixture"]; err != nil || e.Version != "3.0.0" || e.KeyID != "k" || !e.Enabled || !e.Grants.Routes {
			t.Errorf("lock = %+v, %v", e, err)
		}
		onlyThese(t, dir, "fixture", "plugins.lock", "trust")
	})
}

// checkHandledOnce: the handler copy, which all versions have, wrote one note
// for each event. The handler more of the second version wrote further ones.
func checkHandledOnce(t *testing.T, h *hosttest.Host, ids []string) {
	t.Helper()
	eventually(t, "the last note", func() bool { return notes(t, h, ids[len(ids)-1]) > 0 })
	for i, id := range ids {
		page, err := h.Engine.Find(h.Context(), "fix_note", data.Query{Where: data.Eq("text", id)})
		if err != nil {
			t.Fatal(err)
		}
		versions := map[any]int{}
		for _, r := range page.Records {
			versions[r["name"]]++
		}
		if total := versions["1.0.0"] + versions["3.0.0"] + min(1, versions["2.0.0"]); total == 0 || versions["1.0.0"] > 1 || versions["3.0.0"] > 1 || versions["2.0.0"] > 2 ||
			versions["1.0.0"] > 0 && versions["3.0.0"] > 0 {
			t.Errorf("event %d of %d was handled by %v", i, len(ids), versions)
		}
	}
}

func onlyThese(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, want) {
		t.Errorf("in the folder of plugins: %v, want %v", names, want)
	}
}

// TestUpgradeRollsBack: whatever is wrong with a new version, the old one goes
// on, and nothing is left of the new one.
func TestUpgradeRollsBack(t *testing.T) {
	_, foreign, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		source func(t *testing.T, key ed25519.PrivateKey) string
		want   string
	}{
		{"does not start", func(t *testing.T, key ed25519.PrivateKey) string {
			return variant(t, key, map[string]any{"Version": "2.0.0", "Mode": "init-error", "Route": "/second"})
		}, "no license"},
		{"dies", func(t *testing.T, key ed25519.PrivateKey) string {
			return variant(t, key, map[string]any{"Version": "2.0.0", "Mode": "exit-later"})
		}, "exit status 5"},
		{"is not well", func(t *testing.T, key ed25519.PrivateKey) string {
			return variant(t, key, map[string]any{"Version": "2.0.0", "Mode": "unwell", "Route": "/second"})
		}, "the disk is full"},
		{"unsigned", func(t *testing.T, _ ed25519.PrivateKey) string {
			return variant(t, nil, map[string]any{"Version": "2.0.0"})
		}, "not signed"},
		{"another's key", func(t *testing.T, _ ed25519.PrivateKey) string {
			return variant(t, foreign, map[string]any{"Version": "2.0.0"})
		}, "does not fit the manifest"},
		{"tampered", func(t *testing.T, key ed25519.PrivateKey) string {
			source := variant(t, key, map[string]any{"Version": "2.0.0"})
			if err := os.WriteFile(filepath.Join(source, "variant.json"), []byte(`{}`), 0o644); err != nil {
				t.Fatal(err)
			}
			return source
		}, "has the SHA-256"},
		{"has a bad route", func(t *testing.T, key ed25519.PrivateKey) string {
			return variant(t, key, map[string]any{"Version": "2.0.0", "Route": "/all/*"})
		}, "which is no parameter"},
		{"takes an object", func(t *testing.T, key ed25519.PrivateKey) string {
			return variant(t, key, map[string]any{"Version": "2.0.0", "Object": "fix_note"})
		}, "belongs to somebody else"},
		{"no bundle", func(t *testing.T, _ ed25519.PrivateKey) string { return t.TempDir() }, "no such file"},
	}
	h, dir, key := strict(t, nil)
	before := h.Status(t, "fixture")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := h.Manager.Upgrade(t.Context(), "fixture", tt.source(t, key), pluginhost.Change{}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("upgrade = %v, want %q", err, tt.want)
			}
			now := h.Status(t, "fixture")
			if now.PID != before.PID || now.Version != "1.0.0" || now.State != pluginhost.StateReady || now.Generation != 1 {
				t.Errorf("status = %+v", now)
			}
			get(t, h, "/hello/x", 202, "hello x")
			get(t, h, "/second", 404, "")
			if made, err := h.Engine.Create(h.Context(), "fix_account", data.Record{"name": "y"}); err != nil || made.Record["checked"] != "create" {
				t.Errorf("a write with its hook = %v, %v", made.Record, err)
			}
			id := noted(t, h)
			eventually(t, "the note", func() bool { return notes(t, h, id) == 1 })
			onlyThese(t, dir, "fixture", "plugins.lock", "trust")
			entries, err := os.ReadDir(h.RunDir)
			if err != nil || len(entries) != 1 {
				t.Errorf("in the run folder: %v, %v", entries, err)
			}
		})
	}
}

// TestUpgradeDrains: a call of the old version that is under way ends where it
// began, until the grace time has passed.
func TestUpgradeDrains(t *testing.T) {
	h, _, key := strict(t, nil)
	request, err := http.NewRequestWithContext(t.Context(), "GET", h.URL+"/api/v1/plugins/fixture/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+h.Key)
	stream, err := http.DefaultClient.Do(request)
	if err != nil || stream.StatusCode != 200 {
		t.Fatal(stream, err)
	}
	defer stream.Body.Close()
	old := h.Status(t, "fixture").PID
	upgraded := make(chan error, 1)
	go func() {
		_, err := h.Manager.Upgrade(t.Context(), "fixture", variant(t, key, map[string]any{"Version": "2.0.0", "Route": "/second"}), pluginhost.Change{})
		upgraded <- err
	}()
	eventually(t, "the new version", func() bool { return h.Status(t, "fixture").PID != old })
	get(t, h, "/second", 200, "2.0.0")
	if !alive(old) {
		t.Error("the old version did not wait for its stream")
	}
	if _, err := stream.Body.Read(make([]byte, 10)); err != nil {
		t.Errorf("the stream of the old version: %v", err)
	}
	_ = stream.Body.Close() // the last call that it waits for
	if err := <-upgraded; err != nil {
		t.Fatal(err)
	}
	if alive(old) {
		t.Error("the old version is alive")
	}
}

// TestUpgradeInPlace: a version that was put into the plugin's folder is taken
// by a restart, and by an upgrade without a bundle.
func TestUpgradeInPlace(t *testing.T) {
	h, dir, key := strict(t, nil)
	put := func(values map[string]any) {
		t.Helper()
		staged, err := bundle.Stage(dir, variant(t, key, values))
		if err != nil {
			t.Fatal(err)
		}
		lock, err := bundle.LoadLock(dir)
		if err != nil {
			t.Fatal(err)
		}
		e := lock["fixture"]
		e.Digest, e.Version = staged.Digest, staged.Manifest.Version
		if _, err := staged.Commit(dir, filepath.Join(dir, "fixture"), e); err != nil {
			t.Fatal(err)
		}
	}
	put(map[string]any{"Version": "2.0.0", "Route": "/second"})
	if err := h.Manager.Restart(t.Context(), "fixture"); err != nil {
		t.Fatal(err)
	}
	if s := wantState(t, h, pluginhost.StateReady); s.Generation != 2 || s.Version != "2.0.0" {
		t.Errorf("status = %+v", s)
	}
	get(t, h, "/second", 200, "2.0.0")
	put(map[string]any{"Version": "3.0.0", "Route": "/third"})
	if status, body := h.Do(t, "POST", adminPath+"/fixture/upgrade", nil); status != 200 || !strings.Contains(body, `"version":"3.0.0"`) {
		t.Errorf("upgrade = %d %s", status, body)
	}
	get(t, h, "/second", 404, "")
	get(t, h, "/third", 200, "3.0.0")
	// After a crash too.
	put(map[string]any{"Version": "4.0.0", "Route": "/fourth"})
	kill(t, h.Status(t, "fixture").PID)
	eventually(t, "the fourth version", func() bool { return h.Status(t, "fixture").Version == "4.0.0" })
	wantState(t, h, pluginhost.StateReady)
	get(t, h, "/fourth", 200, "4.0.0")
}

// TestUpgradeFromFailed: an upgrade is a way out of a plugin that failed, and one
// of a disabled plugin leaves it disabled.
func TestUpgradeFromFailed(t *testing.T) {
	h := start(t, "exit", nil)
	wantState(t, h, pluginhost.StateFailed)
	if _, err := h.Manager.Upgrade(t.Context(), "fixture", variant(t, nil, map[string]any{"Version": "2.0.0"}), pluginhost.Change{}); err != nil {
		t.Fatal(err)
	}
	wantState(t, h, pluginhost.StateReady)
	get(t, h, "/hello/x", 202, "hello x")
	if err := h.Manager.Disable(t.Context(), "fixture"); err != nil {
		t.Fatal(err)
	}
	s, err := h.Manager.Upgrade(t.Context(), "fixture", variant(t, nil, map[string]any{"Version": "3.0.0", "Route": "/third"}), pluginhost.Change{})
	if err != nil || s.State != pluginhost.StateDisabled || s.Version != "3.0.0" {
		t.Errorf("upgrade of a disabled plugin = %+v, %v", s, err)
	}
	get(t, h, "/third", 503, "PLUGIN_UNAVAILABLE")
	if err := h.Manager.Enable(t.Context(), "fixture"); err != nil {
		t.Fatal(err)
	}
	get(t, h, "/third", 200, "3.0.0")
}

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
