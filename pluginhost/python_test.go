package pluginhost_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/pluginhost"
	"github.com/objecthost/objecthost/pluginhost/bundle"
	"github.com/objecthost/objecthost/pluginhost/hosttest"
	"github.com/objecthost/objecthost/pluginsdk"
	"github.com/objecthost/objecthost/services/data"
)

// TestPython runs examples/plugin-python: any language will do that has gRPC.
// It needs Debian's python3-grpcio.
func TestPython(t *testing.T) {
	const example = "../examples/plugin-python"
	dir := t.TempDir()
	home := filepath.Join(dir, "welcome")
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"plugin.py", "plugin_pb2.py"} {
		text, err := os.ReadFile(filepath.Join(example, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, name), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(home, "plugin.py"), "describe").CombinedOutput()
	if err != nil {
		t.Fatalf("describe: %v (is python3-grpcio installed?)\n%s", err, out)
	}
	var says pluginsdk.Description
	if err := json.Unmarshal(out, &says); err != nil {
		t.Fatal(err)
	}
	if _, err := bundle.Write(home, bundle.Manifest{
		Name: "welcome", ID: says.ID, Version: says.Version, Protocol: 1, Transport: "plain",
		Executables: map[string]bundle.Executable{"any": {Path: "plugin.py"}},
		Contributes: says.Contributes,
		Capabilities: bundle.Capabilities{
			Objects: map[string]string{"crm_account": "read", "welcome_task": "write"}, Events: []string{"data.record.created"},
			Hooks: []string{"crm_account"}, Provides: []string{"welcome.score"}, Nodes: []string{"welcome.*"}, Routes: true,
		},
	}, "plugin.py", "plugin_pb2.py"); err != nil {
		t.Fatal(err)
	}
	text := func(name string) object.Field { return object.Field{Name: name, Type: object.Text} }
	h := hosttest.Start(t, hosttest.Config{Dir: dir, PluginHost: quick(), Objects: []object.Schema{
		{Name: "crm_account", Fields: object.Fields{text("name")}},
	}})
	if s := h.Status(t, "welcome"); s.State != pluginhost.StateReady {
		t.Fatalf("status = %+v", s)
	}
	made, err := h.Engine.Create(h.Context(), "crm_account", data.Record{"name": " Ada "})
	if err != nil || made.Record["name"] != "Ada" {
		t.Errorf("create = %v, %v", made.Record, err)
	}
	if _, err := h.Engine.Create(h.Context(), "crm_account", data.Record{"name": " "}); err == nil || !strings.Contains(err.Error(), "A name is needed") {
		t.Errorf("an empty name = %v", err)
	}
	eventually(t, "the task", func() bool {
		task, err := h.Engine.Get(h.Context(), "welcome_task", made.ID)
		return err == nil && task["subject"] == "Welcome Ada"
	})
	if status, body := h.Do(t, "GET", "/api/v1/plugins/welcome/greeting/Bob", nil); status != 200 || body != `{"success": true, "data": "Hello Bob"}` {
		t.Errorf("route = %d %s", status, body)
	}
	const flow = `{"name":"greet","label":"Greet","type":"autolaunched","status":"active","variables":[{"name":"in","type":"text","isInput":true},{"name":"out","type":"text","isOutput":true}],
		"errorHandling":{"strategy":"retry","maxRetries":3,"backoffMs":60000},
		"nodes":[{"id":"start","type":"start"},{"id":"greet","type":"welcome.greeting","config":{"name":"Ada","language":"{in}"}},
			{"id":"keep","type":"assignment","config":{"assignments":{"out":"{greet.text}"}}},{"id":"end","type":"end"}],
		"edges":[{"id":"a","source":"start","target":"greet"},{"id":"b","source":"greet","target":"keep"},{"id":"c","source":"keep","target":"end"}]}`
	if status, body := h.Do(t, "POST", "/api/v1/automation", json.RawMessage(flow)); status != 200 {
		t.Fatalf("register a flow = %d %s", status, body)
	}
	for language, want := range map[string]string{"fr": `"out":"Bonjour Ada"`, "it": "LANGUAGE_UNKNOWN: no greeting in it"} {
		if _, body := h.Do(t, "POST", "/api/v1/automation/greet/trigger", map[string]any{"params": map[string]any{"in": language}}); !strings.Contains(body, want) {
			t.Errorf("a flow in %s = %s, want %s", language, body, want)
		}
	}
	if !strings.Contains(h.Log(), "ready to welcome") {
		t.Error("the plugin's log is not in the host's")
	}
	if err := h.Manager.Disable(t.Context(), "welcome"); err != nil {
		t.Fatal(err)
	}
}
