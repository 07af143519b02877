package pluginhost_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/pluginhost"
	"github.com/objecthost/objecthost/pluginhost/bundle"
	"github.com/objecthost/objecthost/pluginhost/hosttest"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// flow registers a flow that runs the fixture's node.
func flow(t *testing.T, h *hosttest.Host, name, config, strategy string) {
	t.Helper()
	text := `{"name":"` + name + `","label":"x","type":"autolaunched","status":"active","errorHandling":` + strategy + `,
		"variables":[{"name":"name","type":"text","isInput":true},{"name":"out","type":"text","isOutput":true},{"name":"greeting","type":"text","isOutput":true},
			{"name":"retry","type":"number","isOutput":true},{"name":"way","type":"text","isOutput":true}],
		"nodes":[{"id":"start","type":"start"},{"id":"join","type":"fixture.join","config":` + config + `},
			{"id":"keep","type":"assignment","config":{"assignments":{"out":"{join.text}","retry":"{join.retry}"}}},
			{"id":"labelled","type":"assignment","config":{"assignments":{"way":"labelled"}}},{"id":"end","type":"end"}],
		"edges":[{"id":"a","source":"start","target":"join"},{"id":"b","source":"join","target":"keep"},{"id":"c","source":"join","target":"labelled","label":"go"},
			{"id":"d","source":"keep","target":"end"},{"id":"e","source":"labelled","target":"keep"}]}`
	if status, body := h.Do(t, "POST", "/api/v1/automation", json.RawMessage(text)); status != 200 {
		t.Fatalf("register %s = %d %s", name, status, body)
	}
}

// runs runs a flow and wants its answer to hold a text.
func runs(t *testing.T, h *hosttest.Host, name, want string) {
	t.Helper()
	if _, body := h.Do(t, "POST", "/api/v1/automation/"+name+"/trigger", map[string]any{"params": map[string]any{"name": "Ada"}}); !strings.Contains(body, want) {
		t.Errorf("flow %s = %s, want %s", name, body, want)
	}
}

const (
	never = `{"strategy":"fail"}`
	again = `{"strategy":"retry","maxRetries":2,"backoffMs":1}`
)

func TestFlowNodes(t *testing.T) {
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		h := start(t, "", func(c *hosttest.Config) { c.DB = db })
		s := wantState(t, h, pluginhost.StateReady)
		_, body := h.Do(t, "GET", "/api/v1/automation/actions", nil)
		for _, want := range []string{`"type":"fixture.join"`, `"name":"Join"`, `"required":["left"]`, `"source":"plugin"`} {
			if !strings.Contains(body, want) {
				t.Errorf("node types = %s, want %s", body, want)
			}
		}
		flow(t, h, "join", `{"left":"hello","right":"{name}"}`, never)
		runs(t, h, "join", `"out":"helloAda"`)
		runs(t, h, "join", `"greeting":"hello Ada"`)
		flow(t, h, "labelled", `{"left":"x","right":"go"}`, never)
		runs(t, h, "labelled", `"way":"labelled"`)
		flow(t, h, "unchecked", `{"left":"{nothing}"}`, never)
		runs(t, h, "unchecked", `config.left`)
		flow(t, h, "refused", `{"left":"refuse"}`, again)
		runs(t, h, "refused", `FIXTURE_REFUSED: not with me`)
		flow(t, h, "once", `{"left":"once"}`, never)
		runs(t, h, "once", `FIXTURE_BUSY: come again`)
		flow(t, h, "twice", `{"left":"once"}`, again)
		runs(t, h, "twice", `"retry":1`)
		flow(t, h, "hang", `{"left":"hang"}`, never)
		runs(t, h, "hang", "TIMEOUT")
		flow(t, h, "exit", `{"left":"exit"}`, never)
		runs(t, h, "exit", "PLUGIN_UNAVAILABLE")
		eventually(t, "the next generation", func() bool { return h.Status(t, "fixture").PID != s.PID })
		wantState(t, h, pluginhost.StateReady)
		runs(t, h, "join", `"out":"helloAda"`)
		if err := h.Manager.Disable(t.Context(), "fixture"); err != nil {
			t.Fatal(err)
		}
		runs(t, h, "join", "PLUGIN_UNAVAILABLE")
	})
}

// TestFlowNodesNeedAGrant: what was not granted is not offered.
func TestFlowNodesNeedAGrant(t *testing.T) {
	h := start(t, "", func(c *hosttest.Config) {
		b, err := bundle.Open(c.Dir + "/fixture")
		if err != nil {
			t.Fatal(err)
		}
		m := b.Manifest
		m.Capabilities.Nodes = nil
		if _, err := bundle.Write(b.Dir, m, "plugin"); err != nil {
			t.Fatal(err)
		}
	})
	wantState(t, h, pluginhost.StateReady)
	if _, body := h.Do(t, "GET", "/api/v1/automation/actions", nil); strings.Contains(body, "fixture.join") {
		t.Error("a node type that was not granted is listed")
	}
	if n := h.Status(t, "fixture").Denied["nodes fixture.join"]; n == 0 {
		t.Error("the denial was not counted")
	}
}
