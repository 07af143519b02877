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
	Egress: []string{"127.0.0.1"}, Provides: []string{"crm.score"}, Routes: true,
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
			if status, body := h.Do(t, "GET", "/api/v1/plugins/crm/accounts/count", nil); status != 200 || body != `{"success":true,"data":1}` {
				t.Errorf("count = %d %s", status, body)
			}
		})
	}
}
