package automation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// execute runs a flow and returns its output as JSON, or its error.
func (n *node) execute1(t testing.TB, name string, params map[string]any) (map[string]any, error) {
	t.Helper()
	r, err := n.Execute(system(t), name, Trigger{Params: params})
	if err != nil {
		return nil, err
	}
	return r.Output, nil
}

func TestErrorHandling(t *testing.T) {
	each(t, nodeConfig{still: true}, func(t *testing.T, n *node) {
		fails := 0
		fatal(t, n.RegisterNode(NodeType{Type: "flaky", Run: func(_ context.Context, s *Step) (Result, error) {
			if fails > 0 {
				fails--
				return Result{}, fmt.Errorf("try %d", s.Retry)
			}
			return Result{Output: map[string]any{"tries": s.Retry}}, nil
		}}))
		const flaky = `{"id":"f","type":"flaky"}`
		const out = `"variables":[{"name":"out","type":"object","isOutput":true}],`
		const keep = `{"id":"s","type":"assignment","config":{"assignments":{"out":"{f.tries}"}}}`
		n.put(t, "retry", `{"errorHandling":{"strategy":"retry","maxRetries":2,"backoffMs":1,"backoffMultiplier":2,"jitter":true},`+out+chain("", flaky, keep)+`}`)
		n.put(t, "go_on", `{"errorHandling":{"strategy":"continue"},`+out+chain("", flaky, `{"id":"s","type":"assignment","config":{"assignments":{"out":"{$error.message}"}}}`)+`}`)
		n.put(t, "caught", `{`+out+chain("",
			`{"id":"safe","type":"try_catch","config":{"errorVariable":"why","retry":{"maxRetries":1,"backoffMs":1},"try":{"nodes":[`+flaky+`]},"catch":{"nodes":[{"id":"c","type":"assignment","config":{"assignments":{"out":"{why.nodeId}: {why.message}"}}}]}}}`,
			`{"id":"end","type":"end"}`)+`}`)
		for _, c := range []struct {
			flow  string
			fails int
			want  string
		}{
			{"retry", 2, `{"out":2}`},
			{"retry", 3, "Node 'f' failed: try 2"},
			{"go_on", 1, `{"out":"try 0"}`},
			{"caught", 1, `{}`},
			{"caught", 2, `{"out":"f: try 0"}`},
		} {
			fails = c.fails
			got, err := n.execute1(t, c.flow, nil)
			if err != nil {
				equal(t, c.flow, []any{err.Error()}, []any{c.want})
				continue
			}
			equal(t, c.flow, got, c.want)
		}
		run := n.logOf(t, "retry")[1]
		var tries []any
		for _, s := range run.Steps {
			tries = append(tries, s.NodeID, s.Status, s.Retry)
		}
		equal(t, "steps", tries, `["start","success",0,"f","failure",0,"f","failure",1,"f","success",2,"s","success",0]`)
	})
}

// TestPermanentErrors: what would fail again is not tried again, and can be
// caught.
func TestPermanentErrors(t *testing.T) {
	each(t, nodeConfig{still: true}, func(t *testing.T, n *node) {
		runs := 0
		fatal(t, n.RegisterNode(NodeType{Type: "never", Run: func(context.Context, *Step) (Result, error) {
			runs++
			return Result{}, &PermanentError{errors.New("no such country")}
		}}))
		const never = `{"id":"f","type":"never"}`
		const retry = `"errorHandling":{"strategy":"retry","maxRetries":3,"backoffMs":1},`
		n.put(t, "plain", `{`+retry+chain("", never)+`}`)
		n.put(t, "caught", `{`+retry+`"variables":[{"name":"out","type":"text","isOutput":true}],`+chain("",
			`{"id":"safe","type":"try_catch","config":{"retry":{"maxRetries":3,"backoffMs":1},"try":{"nodes":[`+never+`]},"catch":{"nodes":[{"id":"c","type":"assignment","config":{"assignments":{"out":"{$error.message}"}}}]}}}`)+`}`)
		if _, err := n.execute1(t, "plain", nil); err == nil || err.Error() != "Node 'f' failed: no such country" || runs != 1 {
			t.Errorf("error %v after %d runs, want 1", err, runs)
		}
		got, err := n.execute1(t, "caught", nil)
		fatal(t, err)
		equal(t, "caught", got, `{"out":"no such country"}`)
		if runs != 2 {
			t.Errorf("%d runs, want 2", runs)
		}
	})
}

// TestReplaceNodes: types come and go while the service runs.
func TestReplaceNodes(t *testing.T) {
	each(t, nodeConfig{still: true}, func(t *testing.T, n *node) {
		says := func(name, text string) NodeType {
			return NodeType{Type: name, Run: func(context.Context, *Step) (Result, error) {
				return Result{Output: map[string]any{"text": text}}, nil
			}}
		}
		n.put(t, "use", `{"variables":[{"name":"out","type":"text","isOutput":true}],`+chain("", `{"id":"p","type":"acme.a"}`,
			`{"id":"s","type":"assignment","config":{"assignments":{"out":"{p.text}"}}}`)+`}`)
		check := func(want string) {
			t.Helper()
			got, err := n.execute1(t, "use", nil)
			if err != nil {
				got = map[string]any{"out": err.Error()}
			}
			equal(t, "output", []any{got["out"]}, []any{want})
		}
		const missing = "Node 'p' failed: No executor registered for node type 'acme.a'"
		check(missing)
		fatal(t, n.ReplaceNodes(nil, []NodeType{says("acme.a", "first")}))
		check("first")
		fatal(t, n.ReplaceNodes([]string{"acme.a", "acme.nothing"}, []NodeType{says("acme.a", "second"), says("acme.b", "b")}))
		check("second")
		if err := n.ReplaceNodes([]string{"acme.a"}, []NodeType{says("acme.b", "twice")}); !errors.Is(err, ErrDuplicateNode) {
			t.Errorf("a type of which there is one = %v", err)
		}
		if err := n.ReplaceNodes([]string{"assignment"}, []NodeType{says("assignment", "mine")}); !errors.Is(err, ErrDuplicateNode) {
			t.Errorf("a built-in type = %v", err)
		}
		check("second") // a refusal changes nothing
		fatal(t, n.ReplaceNodes([]string{"acme.a", "acme.b"}, nil))
		check(missing)
	})
}

func TestGuardsAreNotCaught(t *testing.T) {
	each(t, nodeConfig{still: true}, func(t *testing.T, n *node) {
		caught := func(inner string) string {
			return `{` + chain("", `{"id":"safe","type":"try_catch","config":{"try":{"nodes":[`+inner+`]},"catch":{"nodes":[{"id":"c","type":"assignment","config":{"assignments":{"x":1}}}]}}}`) + `}`
		}
		for i, c := range []struct{ node, want string }{
			{`{"id":"a","type":"http","config":{"url":"{nothing}"}}`, "Node 'a' failed: http: config.url: got null, want string"},
			{`{"id":"a","type":"update_record","config":{"objectName":"note","filter":{"id":"{nothing.id}"},"fields":{}}}`, "Node 'a' failed: the filter's {nothing.id} resolves to nothing, which would select other records than meant"},
			{`{"id":"a","type":"delete_record","config":{"objectName":"note","filter":{"text":"x"}}}`, `Node 'a' failed: delete_record: without multi the filter must be {"id": …} and nothing else`},
			{`{"id":"a","type":"update_record","config":{"objectName":"note","fields":{}}}`, `Node 'a' failed: update_record: without multi the filter must be {"id": …} and nothing else`},
		} {
			name := fmt.Sprintf("guard%d", i)
			n.put(t, name, caught(c.node))
			_, err := n.execute1(t, name, nil)
			if err == nil || err.Error() != c.want {
				t.Errorf("%s:\n got %v\nwant %s", c.node, err, c.want)
			}
		}
	})
}

func TestLimits(t *testing.T) {
	each(t, nodeConfig{still: true, cfg: Config{Limits: Limits{Steps: 50, NodeEntries: 5, LoopSize: 20, Depth: 3, RunTime: 300 * time.Millisecond}}}, func(t *testing.T, n *node) {
		fatal(t, n.RegisterNode(NodeType{Type: "hang", Run: func(ctx context.Context, _ *Step) (Result, error) {
			<-ctx.Done()
			return Result{}, ctx.Err()
		}}))
		n.put(t, "steps", `{"variables":[{"name":"l","type":"list","defaultValue":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]}],`+chain("",
			`{"id":"loop","type":"loop","config":{"collection":"{l}","body":{"nodes":[{"id":"a","type":"script","config":{"expression":"1"}},{"id":"b","type":"script","config":{"expression":"1"}},{"id":"c","type":"script","config":{"expression":"1"}}],
				"edges":[{"id":"1","source":"a","target":"b"},{"id":"2","source":"b","target":"c"}]}}}`)+`}`)
		n.put(t, "entries", `{"nodes":[{"id":"start","type":"start"},{"id":"a","type":"script","config":{"expression":"1"}}],
			"edges":[{"id":"1","source":"start","target":"a"},{"id":"2","source":"a","target":"a","type":"back"}]}`)
		n.put(t, "size", `{"variables":[{"name":"l","type":"list","isInput":true}],`+chain("", `{"id":"loop","type":"loop","config":{"collection":"{l}","maxIterations":2,"body":{"nodes":[],"edges":[]}}}`)+`}`)
		n.put(t, "deep", `{`+chain("", `{"id":"again","type":"subflow","config":{"flowName":"deep"}}`)+`}`)
		n.put(t, "slow", `{`+chain("", `{"id":"h","type":"hang"}`)+`}`)
		n.put(t, "timeout", `{`+chain("", `{"id":"h","type":"hang","timeoutMs":20}`)+`}`)
		for _, c := range []struct{ flow, want string }{
			{"steps", "The run has more than 50 steps, the last is 'a'"},
			{"entries", "Node 'a' was entered more than 5 times"},
			{"size", "Node 'loop' failed: loop: the list has 3 elements, more than the 2 that are allowed"},
			{"deep", "Node 'again' failed: Flows call each other more than 3 deep, the last is 'deep'"},
			{"slow", "The run takes longer than 300ms"},
			{"timeout", "Node 'h' failed: timeout after 20ms"},
		} {
			_, err := n.execute1(t, c.flow, map[string]any{"l": []any{"a", "b", "c"}})
			if err == nil || !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("%s:\n got %v\nwant %s", c.flow, err, c.want)
			}
		}
		run := n.logOf(t, "slow")[0]
		equal(t, "slow", []any{run.Status, run.Error}, `["failed","The run takes longer than 300ms"]`)
	})
}

func TestMapAndSubflowsWait(t *testing.T) {
	each(t, nodeConfig{still: true}, func(t *testing.T, n *node) {
		n.put(t, "ask", `{"variables":[{"name":"q","type":"text","isInput":true},{"name":"a","type":"text","isOutput":true}],`+chain("",
			`{"id":"hold","type":"wait","waitEventConfig":{"eventType":"signal"}}`,
			`{"id":"s","type":"assignment","config":{"assignments":{"a":"{q}={hold.answer}"}}}`)+`}`)
		n.put(t, "all", `{"variables":[{"name":"list","type":"list","isInput":true},{"name":"answers","type":"list","isOutput":true}],`+chain("",
			`{"id":"m","type":"map","config":{"collection":"{list}","flowName":"ask","iteratorVariable":"one","input":{"q":"{one}"},"outputVariable":"answers"}}`)+`}`)
		r, err := n.Execute(system(t), "all", Trigger{Params: map[string]any{"list": []any{"x", "y"}}})
		fatal(t, err)
		id := r.RunID
		for i := 1; i <= 2; i++ {
			if r.Status != "paused" {
				t.Fatalf("round %d: %+v", i, r)
			}
			r, err = n.Resume(system(t), "all", id, Resume{Output: map[string]any{"answer": fmt.Sprint(i)}})
			fatal(t, err)
		}
		equal(t, "output", r.Output, `{"answers":[{"a":"x=1"},{"a":"y=2"}]}`)
	})
}

func TestARunKeepsItsVersion(t *testing.T) {
	each(t, nodeConfig{still: true}, func(t *testing.T, n *node) {
		def := func(text string) string {
			return `{"variables":[{"name":"x","type":"text","isOutput":true}],` + chain("",
				`{"id":"hold","type":"wait","waitEventConfig":{"eventType":"signal"}}`,
				`{"id":"s","type":"assignment","config":{"assignments":{"x":"`+text+`"}}}`) + `}`
		}
		n.put(t, "v", def("old"))
		n.put(t, "v", def("old"))
		old, err := n.Execute(system(t), "v", Trigger{})
		fatal(t, err)
		got := n.ok(t, "PUT", "/v", map[string]any{"definition": jsonOf(t, flowSource(t, "v", def("new")))})
		equal(t, "version", got["version"], `2`)
		fresh, err := n.Execute(system(t), "v", Trigger{})
		fatal(t, err)
		n.ok(t, "DELETE", "/v", nil)
		for _, c := range []struct {
			id, want string
			version  int
		}{{old.RunID, `{"x":"old"}`, 1}, {fresh.RunID, `{"x":"new"}`, 2}} {
			r, err := n.Resume(system(t), "v", c.id, Resume{})
			fatal(t, err)
			equal(t, "output", r.Output, c.want)
			run, err := n.Run(system(t), "v", c.id)
			fatal(t, err)
			equal(t, "version", []any{run.FlowVersion}, []any{c.version})
		}
		n.put(t, "v", def("again"))
		d, err := n.Get(t.Context(), "v")
		fatal(t, err)
		equal(t, "after deletion", []any{d.Version}, `[3]`)
	})
}

func jsonOf(t testing.TB, source []byte) any {
	t.Helper()
	var v any
	fatal(t, decodeJSON(source, &v))
	return v
}

func TestSecretsOfDefinitions(t *testing.T) {
	each(t, nodeConfig{still: true}, func(t *testing.T, n *node) {
		def := `{` + chain("", `{"id":"c","type":"http","config":{"url":"http://127.0.0.1:9/","durable":true,"signingSecret":"very secret","headers":{"Authorization":"Bearer very secret","X-Demo":"1"}}}`) + `}`
		n.put(t, "s", def)
		var sealed string
		fatal(t, n.db.BunRead(t.Context()).NewRaw("SELECT definition_sealed FROM sys_automation_version").Scan(t.Context(), &sealed))
		if strings.Contains(sealed, "secret") {
			t.Fatalf("stored in clear: %s", sealed)
		}
		shown := n.ok(t, "GET", "/s", nil)
		config := shown["nodes"].([]any)[1].(map[string]any)["config"]
		equal(t, "shown", config, `{"url":"http://127.0.0.1:9/","durable":true,"signingSecret":"••••••••","headers":{"Authorization":"••••••••","X-Demo":"1"}}`)
		shown["label"] = "Changed"
		n.ok(t, "PUT", "/s", shown)
		d, err := n.Get(t.Context(), "s")
		fatal(t, err)
		equal(t, "kept", []any{d.Label, d.Version, d.Nodes[1].Config["signingSecret"]}, `["Changed",2,"very secret"]`)
	})
}

func TestFolderOfFlows(t *testing.T) {
	each(t, nodeConfig{still: true}, func(t *testing.T, n *node) {
		dir := t.TempDir()
		write := func(name, text string) { fatal(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)) }
		write("a.yaml", "name: a\nlabel: A\ntype: autolaunched\nstatus: active\nrunAs: system\nvariables:\n  - {name: n, type: number, isOutput: true, defaultValue: 123456789012345678901234567890.25}\nnodes:\n  - {id: start, type: start}\nedges: []\n")
		write("b.json", string(flowSource(t, "b", `{`+chain("")+`}`)))
		write("notes.txt", "not a flow")
		fatal(t, n.LoadDir(t.Context(), dir))
		fatal(t, n.LoadDir(t.Context(), dir))
		got, err := n.execute1(t, "a", nil)
		fatal(t, err)
		equal(t, "digits", got, `{"n":123456789012345678901234567890.25}`)
		d, err := n.Get(t.Context(), "a")
		fatal(t, err)
		equal(t, "unchanged", []any{d.Version}, `[1]`)

		n.ok(t, "PUT", "/b", jsonOf(t, flowSource(t, "b", `{"label":"Mine",`+chain("")+`}`)))
		fatal(t, n.LoadDir(t.Context(), dir))
		d, err = n.Get(t.Context(), "b")
		fatal(t, err)
		equal(t, "an edit stays", []any{d.Label, d.Version}, `["Mine",2]`)

		write("c.yaml", "name: c\nlabel: C\ntype: nope\nnodes: []\nedges: []\n")
		write("d.yaml", "name: [d\n")
		err = n.LoadDir(t.Context(), dir)
		if err == nil || !strings.Contains(err.Error(), "flow file c.yaml: Invalid flow definition: type: Invalid option") || !strings.Contains(err.Error(), "flow file d.yaml: line ") {
			t.Errorf("error: %v", err)
		}
	})
}

func TestRetention(t *testing.T) {
	each(t, nodeConfig{still: true, cfg: Config{Retention: time.Hour}}, func(t *testing.T, n *node) {
		n.put(t, "a", `{`+chain("")+`}`)
		for range 2 {
			_, err := n.execute1(t, "a", nil)
			fatal(t, err)
		}
		old := n.logOf(t, "a")[0].ID
		_, err := n.db.Bun(t.Context()).NewRaw("UPDATE sys_automation_run SET completed_at = ? WHERE id = ?", time.Now().Add(-2*time.Hour).UnixMilli(), old).Exec(t.Context())
		fatal(t, err)
		fatal(t, n.Clean(t.Context()))
		left := n.logOf(t, "a")
		if len(left) != 1 || left[0].ID == old {
			t.Fatalf("left: %v", left)
		}
	})
}

func TestRegisterNode(t *testing.T) {
	each(t, nodeConfig{still: true}, func(t *testing.T, n *node) {
		n.put(t, "early", `{"variables":[{"name":"x","type":"text","isOutput":true}],`+chain("", `{"id":"e","type":"acme.echo","config":{"say":"{$flowName}"}}`, `{"id":"s","type":"assignment","config":{"assignments":{"x":"{e.said}"}}}`)+`}`)
		echo := NodeType{
			Type: "acme.echo", Name: "Echo", ConfigSchema: []byte(`{"type":"object","required":["say"],"properties":{"say":{"type":"string"}}}`),
			Run: func(_ context.Context, s *Step) (Result, error) {
				return Result{Output: map[string]any{"said": s.Config["say"]}}, nil
			},
		}
		fatal(t, n.RegisterNode(echo))
		if err := n.RegisterNode(echo); !errors.Is(err, ErrDuplicateNode) {
			t.Errorf("twice: %v", err)
		}
		got, err := n.execute1(t, "early", nil)
		fatal(t, err)
		equal(t, "output", got, `{"x":"early"}`)
		e := n.refused(t, "POST", "", string(flowSource(t, "late", `{`+chain("", `{"id":"e","type":"acme.echo","config":{"shout":1}}`)+`}`)), http.StatusBadRequest, "VALIDATION_FAILED")
		equal(t, "fields", e["details"].(map[string]any)["fields"], `[{"field":"nodes[1].config.say","code":"required","message":"is required"},
			{"field":"nodes[1].config.shout","code":"unknown_field","message":"unknown config key `+"`shout`"+`. Declared here: say."}]`)
	})
}

func TestStopReleasesRuns(t *testing.T) {
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		n := newNode(t, db, nodeConfig{still: true})
		fatal(t, n.Stop(t.Context()))
		fatal(t, n.Stop(t.Context()))
		n.put(t, "a", `{`+chain("")+`}`)
		if _, err := n.execute1(t, "a", nil); !errors.Is(err, errStopped) {
			t.Errorf("execute after stop: %v", err)
		}
	})
}
