package pluginhost_test

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/core/event"
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
