package main_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/examples/plugin-process/crm"
	"github.com/objecthost/objecthost/pluginhost"
	"github.com/objecthost/objecthost/pluginhost/bundle"
	"github.com/objecthost/objecthost/pluginhost/hosttest"
)

var capabilities = bundle.Capabilities{
	Objects: map[string]string{crm.Account: "read"}, Events: []string{"data.record.created"}, Hooks: []string{crm.Account},
	Egress: []string{"127.0.0.1"}, Provides: []string{"crm.score"}, Nodes: []string{"crm.segment"}, Routes: true,
}

// TestInAHost runs the plugin in a real host, in a process of its own and in
// the host's: it is the same value and does the same.
func TestInAHost(t *testing.T) {
	for _, place := range []string{"process", "in the host"} {
		t.Run(place, func(t *testing.T) {
			told := make(chan string, 1)
			receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				told <- string(body)
			}))
			defer receiver.Close()
			cfg := hosttest.Config{
				Dir:          t.TempDir(),
				PluginConfig: map[string]json.RawMessage{"com.example.crm": json.RawMessage(`{"notify":"` + receiver.URL + `"}`)},
			}
			if place == "process" {
				hosttest.Build(t, cfg.Dir, hosttest.Plugin{Name: "crm", Package: ".", Capabilities: capabilities})
			} else {
				cfg.InProcess = func(m *pluginhost.Manager) []core.Plugin {
					p, err := m.InProcess("crm", crm.New(), capabilities)
					if err != nil {
						t.Fatal(err)
					}
					return []core.Plugin{p}
				}
			}
			h := hosttest.Start(t, cfg)
			status, body := h.Do(t, "POST", "/api/v1/data/crm_account", map[string]any{"name": "Ada", "email": "Ada@Example.com"})
			if status != 201 || !strings.Contains(body, `"ada@example.com"`) {
				t.Fatalf("create = %d %s", status, body)
			}
			status, body = h.Do(t, "POST", "/api/v1/data/crm_account", map[string]any{"name": "Eve", "email": "eve"})
			if status != 400 || !strings.Contains(body, "This is no e-mail address") {
				t.Errorf("a bad address = %d %s", status, body)
			}
			if got := <-told; !strings.Contains(got, `"ada@example.com"`) {
				t.Errorf("told = %s", got)
			}
			const flow = `{"name":"sort","label":"Sort","type":"autolaunched","status":"active","variables":[{"name":"email","type":"text","isInput":true},{"name":"segment","type":"text","isOutput":true}],
				"nodes":[{"id":"start","type":"start"},{"id":"sort","type":"crm.segment","config":{"email":"{email}"}},
					{"id":"keep","type":"assignment","config":{"assignments":{"segment":"{sort.segment}"}}},{"id":"end","type":"end"}],
				"edges":[{"id":"a","source":"start","target":"sort"},{"id":"b","source":"sort","target":"keep"},{"id":"c","source":"keep","target":"end"}]}`
			if status, body := h.Do(t, "POST", "/api/v1/automation", json.RawMessage(flow)); status != 200 {
				t.Fatalf("register a flow = %d %s", status, body)
			}
			status, body = h.Do(t, "POST", "/api/v1/automation/sort/trigger", map[string]any{"params": map[string]any{"email": "eve@gmail.com"}})
			if status != 200 || !strings.Contains(body, `"segment":"private"`) {
				t.Errorf("a flow with the plugin's node = %d %s", status, body)
			}
			if status, body := h.Do(t, "GET", "/api/v1/plugins/crm/accounts/count", nil); status != 200 || body != `{"success":true,"data":1}` {
				t.Errorf("count = %d %s", status, body)
			}
		})
	}
}
