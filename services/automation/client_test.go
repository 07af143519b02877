package automation

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"testing"

	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
)

// What the official client asks of a server, one test per check of its smoke
// test, on both dialects.

const scoreFlow = `{"label":"Score","successMessage":"Scored",
	"variables":[{"name":"amount","type":"number","isInput":true,"defaultValue":0},{"name":"tier","type":"text","isOutput":true,"defaultValue":"none"}],
	"nodes":[{"id":"start","type":"start","label":"start"},
		{"id":"check","type":"decision","label":"check","config":{"conditions":[{"label":"big","expression":"amount >= 1000"}]}},
		{"id":"gold","type":"assignment","label":"gold","config":{"assignments":{"tier":"gold"}}},
		{"id":"silver","type":"assignment","label":"silver","config":{"assignments":{"tier":"silver"}}},
		{"id":"end","type":"end","label":"end"}],
	"edges":[{"id":"e1","source":"start","target":"check"},{"id":"e2","source":"check","target":"gold","label":"big"},
		{"id":"e3","source":"check","target":"silver","isDefault":true},{"id":"e4","source":"gold","target":"end"},{"id":"e5","source":"silver","target":"end"}]}`

func TestClientRegisterListGet(t *testing.T) {
	each(t, nodeConfig{still: true}, func(t *testing.T, n *node) {
		want := `{"name":"score","label":"Score","successMessage":"Scored","version":1,"status":"active","type":"autolaunched","runAs":"system",
			"variables":[{"name":"amount","type":"number","isInput":true,"isOutput":false,"defaultValue":0},
				{"name":"tier","type":"text","isInput":false,"isOutput":true,"defaultValue":"none"}],
			"nodes":[{"id":"start","type":"start","label":"start"},
				{"id":"check","type":"decision","label":"check","config":{"conditions":[{"label":"big","expression":"amount >= 1000"}]}},
				{"id":"gold","type":"assignment","label":"gold","config":{"assignments":{"tier":"gold"}}},
				{"id":"silver","type":"assignment","label":"silver","config":{"assignments":{"tier":"silver"}}},
				{"id":"end","type":"end","label":"end"}],
			"edges":[{"id":"e1","source":"start","target":"check","type":"default","isDefault":false},
				{"id":"e2","source":"check","target":"gold","type":"default","label":"big","isDefault":false},
				{"id":"e3","source":"check","target":"silver","type":"default","isDefault":true},
				{"id":"e4","source":"gold","target":"end","type":"default","isDefault":false},
				{"id":"e5","source":"silver","target":"end","type":"default","isDefault":false}]}`
		equal(t, "create", n.ok(t, "POST", "", string(flowSource(t, "score", scoreFlow))), want)
		equal(t, "list", n.ok(t, "GET", "", nil), `{"flows":["score"],"total":1,"hasMore":false}`)
		equal(t, "get", n.ok(t, "GET", "/score", nil), want)
	})
}

func TestClientExecute(t *testing.T) {
	each(t, nodeConfig{still: true}, func(t *testing.T, n *node) {
		n.put(t, "score", scoreFlow)
		got := n.ok(t, "POST", "/score/trigger", `{"params":{"amount":5000}}`)
		delete(got, "durationMs")
		equal(t, "gold", got, `{"success":true,"output":{"tier":"gold"},"successMessage":"Scored","summary":{"selected":0,"acted":0,"skipped":0,"unmeasured":0,"failed":0,
			"nodes":[{"nodeId":"start","nodeType":"start","status":"success","runs":1,"failures":0,"skipped":0},
				{"nodeId":"check","nodeType":"decision","status":"success","runs":1,"failures":0,"skipped":0},
				{"nodeId":"gold","nodeType":"assignment","status":"success","runs":1,"failures":0,"skipped":0}],"gates":[]}}`)
		equal(t, "flat params, default edge", n.ok(t, "POST", "/score/trigger", `{"amount":1}`)["output"], `{"tier":"silver"}`)
		equal(t, "legacy path", n.ok(t, "POST", "/trigger/score", `{"amount":2000}`)["output"], `{"tier":"gold"}`)
		n.refused(t, "POST", "/no_such_flow/trigger", `{}`, http.StatusNotFound, "RESOURCE_NOT_FOUND")

		runs := n.ok(t, "GET", "/score/runs?limit=1", nil)
		list := runs["runs"].([]any)
		if len(list) != 1 || runs["hasMore"] != true {
			t.Fatalf("runs: %v", runs)
		}
		newest := list[0].(map[string]any)
		equal(t, "run", []any{newest["flowName"], newest["flowVersion"], newest["status"], newest["trigger"], newest["output"]},
			`["score",1,"completed",{"type":"manual","userId":"ada"},{"tier":"gold"}]`)
		if steps := newest["steps"].([]any); len(steps) != 3 || newest["startedAt"] == "" {
			t.Errorf("steps: %v", steps)
		}
		equal(t, "getRun", n.ok(t, "GET", "/score/runs/"+newest["id"].(string), nil), newest)
		next := n.ok(t, "GET", "/score/runs?limit=2&cursor="+runs["nextCursor"].(string), nil)
		if more := next["runs"].([]any); len(more) != 2 || next["hasMore"] != false {
			t.Errorf("second page: %v", next)
		}
	})
}

const crudFlow = `{"variables":[{"name":"nm","type":"text","isInput":true},{"name":"made","type":"object","isOutput":true},{"name":"found","type":"object","isOutput":true},
		{"name":"seen","type":"number","isOutput":true,"defaultValue":0},{"name":"rows","type":"list"}],`

func TestClientRecordNodesAndLoop(t *testing.T) {
	each(t, nodeConfig{still: true}, func(t *testing.T, n *node) {
		n.put(t, "crud", crudFlow+chain("",
			`{"id":"mk","type":"create_record","config":{"objectName":"account","fields":{"name":"{nm}","annual_revenue":7},"outputVariable":"made"}}`,
			`{"id":"up","type":"update_record","config":{"objectName":"account","filter":{"id":"{made.id}"},"fields":{"annual_revenue":8}}}`,
			`{"id":"get","type":"get_record","config":{"objectName":"account","filter":{"id":"{made.id}"},"outputVariable":"found"}}`,
			`{"id":"all","type":"get_record","config":{"objectName":"account","filter":{"name":"{nm}"},"limit":5,"outputVariable":"rows"}}`,
			`{"id":"each","type":"loop","config":{"collection":"{rows}","iteratorVariable":"row","indexVariable":"i","body":{"nodes":[{"id":"inc","type":"assignment","config":{"assignments":{"seen":"{i + 1}"}}}],"edges":[]}}}`,
			`{"id":"del","type":"delete_record","config":{"objectName":"account","filter":{"id":"{made.id}"}}}`,
			`{"id":"end","type":"end"}`)+`}`)
		got := n.ok(t, "POST", "/crud/trigger", `{"params":{"nm":"Flow 1"}}`)
		output := got["output"].(map[string]any)
		equal(t, "output", []any{output["made"].(map[string]any)["name"], output["made"].(map[string]any)["annual_revenue"], output["found"].(map[string]any)["annual_revenue"], output["seen"]},
			`["Flow 1",7,8,1]`)
		summary := got["summary"].(map[string]any)
		equal(t, "summary", []any{summary["selected"], summary["acted"]}, `[2,3]`)
		page, err := n.engine.Find(system(t), "account", data.Query{})
		fatal(t, err)
		if len(page.Records) != 0 {
			t.Errorf("left behind: %v", page.Records)
		}
	})
}

func TestClientHTTPInlineAndDurable(t *testing.T) {
	each(t, nodeConfig{}, func(t *testing.T, n *node) {
		rx := newReceiver(t)
		n.put(t, "http", `{"variables":[{"name":"target","type":"text","isInput":true},{"name":"status","type":"number","isOutput":true},{"name":"reply","type":"object","isOutput":true},{"name":"delivery","type":"text","isOutput":true}],`+
			chain("",
				`{"id":"inline","type":"http","config":{"url":"{target}","method":"POST","headers":{"Content-Type":"application/json"},"body":{"hello":"world","run":"{$runId}"},"timeoutMs":3000}}`,
				`{"id":"s1","type":"assignment","config":{"assignments":{"status":"{inline.status}","reply":"{inline.response}"}}}`,
				`{"id":"durable","type":"http","config":{"url":"{target}","durable":true,"headers":{"X-Demo":"1"},"signingSecret":"s3cret","body":{"durable":true}}}`,
				`{"id":"s2","type":"assignment","config":{"assignments":{"delivery":"{durable.deliveryId}"}}}`,
				`{"id":"end","type":"end"}`)+`}`)
		got := n.ok(t, "POST", "/http/trigger", map[string]any{"params": map[string]any{"target": rx.URL + "/flow"}})
		output := got["output"].(map[string]any)
		equal(t, "inline", []any{output["status"], output["reply"]}, `[200,{"ok":true}]`)
		summary := got["summary"].(map[string]any)
		equal(t, "summary", []any{summary["acted"], summary["unmeasured"]}, `[1,1]`)
		id := output["delivery"].(string)
		var d messaging.Delivery
		n.await(t, "the delivery", func() bool {
			var err error
			d, err = n.outbox.Get(system(t), id)
			fatal(t, err)
			return d.Status == messaging.StatusSuccess
		})
		calls := rx.got()
		if len(calls) != 2 {
			t.Fatalf("calls: %v", calls)
		}
		mac := hmac.New(sha256.New, []byte("s3cret"))
		mac.Write([]byte(`{"durable":true}`))
		h := calls[1].header
		equal(t, "durable call", []any{
			h.Get("X-Objectstack-Delivery"), h.Get("X-Objectstack-Event"), h.Get("X-Objectstack-Attempt"), h.Get("X-Demo"), calls[1].body,
			h.Get("X-Objectstack-Signature"),
		}, []any{id, "flow:durable", "1", "1", `{"durable":true}`, "sha256=" + hex.EncodeToString(mac.Sum(nil))})
		equal(t, "row", []any{d.Source, d.RefID, d.TargetKey, d.Label, d.Attempts, d.StepID},
			`["flow","durable","http:durable","flow:durable",1,"durable"]`)
		run := n.logOf(t, "http")[0]
		if d.RunID != run.ID || d.DedupKey != run.ID+":durable:0" {
			t.Errorf("the delivery links to run %s, dedup %s; the run is %s", d.RunID, d.DedupKey, run.ID)
		}
		if run.Steps[3].DeliveryID != id {
			t.Errorf("the step links to %q, want %q", run.Steps[3].DeliveryID, id)
		}
		record, err := n.engine.Get(system(t), "sys_http_delivery", id)
		fatal(t, err)
		if _, shown := record["headers_json"]; shown || record["run_id"] != run.ID {
			t.Errorf("record: %v", record)
		}
	})
}

const callFlow = `{"id":"call","type":"http","config":{"url":"http://127.0.0.1:9/x","method":"POST","timeoutMs":800}}`

func TestClientFailures(t *testing.T) {
	each(t, nodeConfig{still: true}, func(t *testing.T, n *node) {
		n.put(t, "fail", `{"errorMessage":"It broke",`+chain("", callFlow, `{"id":"end","type":"end"}`)+`}`)
		e := n.refused(t, "POST", "/fail/trigger", `{}`, http.StatusBadRequest, "FLOW_FAILED")
		details := e["details"].(map[string]any)
		equal(t, "errorMessage", details["errorMessage"], `"It broke"`)
		equal(t, "summary", details["summary"], `{"selected":0,"acted":0,"skipped":0,"unmeasured":1,"failed":1,"nodes":[
			{"nodeId":"start","nodeType":"start","status":"success","runs":1,"failures":0,"skipped":0},
			{"nodeId":"call","nodeType":"http","status":"failure","runs":1,"failures":1,"skipped":0,"unmeasured":1}],"gates":[]}`)

		n.put(t, "fault", `{"variables":[{"name":"why","type":"text","isOutput":true}],"nodes":[{"id":"start","type":"start"},`+callFlow+`,
			{"id":"caught","type":"assignment","config":{"assignments":{"why":"{$error.nodeId}"}}},{"id":"end","type":"end"}],
			"edges":[{"id":"a","source":"start","target":"call"},{"id":"b","source":"call","target":"end"},{"id":"f","source":"call","target":"caught","type":"fault"}]}`)
		equal(t, "fault edge", n.ok(t, "POST", "/fault/trigger", `{}`)["output"], `{"why":"call"}`)

		n.put(t, "nostart", `{"nodes":[{"id":"set","type":"assignment","config":{"assignments":{"a":1}}}]}`)
		n.refused(t, "POST", "/nostart/trigger", `{}`, http.StatusUnprocessableEntity, "FLOW_NO_START_NODE")

		n.put(t, "gated", `{`+chain(`,"config":{"condition":"1 == 2"}`, `{"id":"end","type":"end"}`)+`}`)
		equal(t, "skipped", n.ok(t, "POST", "/gated/trigger", `{}`), `{"success":true,"output":{"skipped":true,"reason":"condition_not_met"}}`)

		n.put(t, "strange", `{`+chain("", `{"id":"odd","type":"no_such_type"}`)+`}`)
		if e := n.refused(t, "POST", "/strange/trigger", `{}`, http.StatusBadRequest, "FLOW_FAILED"); e["message"] != "Node 'odd' failed: No executor registered for node type 'no_such_type'" {
			t.Errorf("message: %v", e["message"])
		}
	})
}

func TestClientSubflow(t *testing.T) {
	each(t, nodeConfig{still: true}, func(t *testing.T, n *node) {
		n.put(t, "score", scoreFlow)
		n.put(t, "parent", `{"variables":[{"name":"child","type":"object","isOutput":true}],`+
			chain("", `{"id":"sub","type":"subflow","config":{"flowName":"score","input":{"amount":2000},"outputVariable":"child"}}`, `{"id":"end","type":"end"}`)+`}`)
		got := n.ok(t, "POST", "/parent/trigger", `{}`)
		equal(t, "output", got["output"], `{"child":{"tier":"gold"}}`)
		equal(t, "summary", got["summary"].(map[string]any)["nodes"], `[{"nodeId":"start","nodeType":"start","status":"success","runs":1,"failures":0,"skipped":0},
			{"nodeId":"sub","nodeType":"subflow","status":"success","runs":1,"failures":0,"skipped":0,"selected":0,"acted":0}]`)
	})
}

func TestClientWaitAndResume(t *testing.T) {
	each(t, nodeConfig{still: true}, func(t *testing.T, n *node) {
		n.put(t, "wait", `{"label":"Wait","variables":[{"name":"x","type":"text","isOutput":true}],`+chain("",
			`{"id":"hold","type":"wait","label":"hold","waitEventConfig":{"eventType":"signal","signalName":"go"}}`,
			`{"id":"set","type":"assignment","config":{"assignments":{"x":"{hold.got} {note}"}}}`)+`}`)
		paused := n.ok(t, "POST", "/wait/trigger", `{}`)
		id, _ := paused["runId"].(string)
		if paused["success"] != true || paused["status"] != "paused" || id == "" {
			t.Fatalf("paused: %v", paused)
		}
		run := n.ok(t, "GET", "/wait/runs/"+id, nil)
		equal(t, "run", []any{run["status"], run["variables"]},
			[]any{"paused", map[string]any{"previous": nil, "$runId": id, "$flowName": "wait", "$flowLabel": "Wait"}})
		got := n.ok(t, "POST", "/wait/runs/"+id+"/resume", `{"inputs":{"note":"hi"},"output":{"got":"sig"}}`)
		equal(t, "resumed", []any{got["success"], got["output"]}, `[true,{"x":"sig hi"}]`)
		e := n.refused(t, "POST", "/wait/runs/"+id+"/resume", `{}`, http.StatusNotFound, "RESOURCE_NOT_FOUND")
		equal(t, "message", []any{e["message"]}, []any{"No suspended run '" + id + "'"})
		n.refused(t, "POST", "/wait/runs/run_x/resume", `{}`, http.StatusNotFound, "RESOURCE_NOT_FOUND")
		n.refused(t, "POST", "/wait/runs/"+id+"/resume", `{"outputs":{}}`, http.StatusBadRequest, "INVALID_SIGNAL")
	})
}

func TestClientRefusedDefinitions(t *testing.T) {
	each(t, nodeConfig{still: true}, func(t *testing.T, n *node) {
		e := n.refused(t, "POST", "", `{"name":"bad","label":"Bad","type":"nope","nodes":[],"edges":[]}`, http.StatusBadRequest, "VALIDATION_FAILED")
		equal(t, "fields", e["details"].(map[string]any)["fields"],
			`[{"field":"type","code":"invalid_option","message":"Invalid option: expected one of \"autolaunched\"|\"record_change\"|\"schedule\"|\"screen\"|\"api\""}]`)
		n.refused(t, "POST", "", `{"name":"bad","label":"Bad","type":"autolaunched","nodes":[{"id":"start","type":"start"},{"id":"a","type":"end"},{"id":"b","type":"end"}],
			"edges":[{"source":"start","target":"a"},{"source":"a","target":"b"},{"source":"b","target":"a"}]}`, http.StatusBadRequest, "VALIDATION_FAILED")
		e = n.refused(t, "POST", "", `{"name":"bad","label":"Bad","type":"autolaunched","nodes":[{"id":"start","type":"start"},{"id":"call","type":"http","config":{"url":"x","bogus":1}}],
			"edges":[{"source":"start","target":"call"}]}`, http.StatusBadRequest, "VALIDATION_FAILED")
		equal(t, "fields", e["details"].(map[string]any)["fields"].([]any)[0].(map[string]any)["field"], `"nodes[1].config.bogus"`)
	})
}

func TestClientToggleAndDelete(t *testing.T) {
	each(t, nodeConfig{still: true}, func(t *testing.T, n *node) {
		n.put(t, "score", scoreFlow)
		equal(t, "off", n.ok(t, "POST", "/score/toggle", `{"enabled":false}`), `{"name":"score","enabled":false}`)
		n.refused(t, "POST", "/score/trigger", `{}`, http.StatusConflict, "FLOW_DISABLED")
		equal(t, "on", n.ok(t, "POST", "/score/toggle", `{"enabled":true}`), `{"name":"score","enabled":true}`)
		n.ok(t, "POST", "/score/trigger", `{}`)
		equal(t, "deleted", n.ok(t, "DELETE", "/score", nil), `{"name":"score","deleted":true}`)
		n.refused(t, "DELETE", "/score", nil, http.StatusNotFound, "RESOURCE_NOT_FOUND")
		n.refused(t, "POST", "/score/trigger", `{}`, http.StatusNotFound, "RESOURCE_NOT_FOUND")
		equal(t, "list", n.ok(t, "GET", "", nil), `{"flows":[],"total":0,"hasMore":false}`)
	})
}

func TestClientActions(t *testing.T) {
	each(t, nodeConfig{still: true}, func(t *testing.T, n *node) {
		got := n.ok(t, "GET", "/actions", nil)
		var types []any
		for _, a := range got["actions"].([]any) {
			types = append(types, a.(map[string]any)["type"])
		}
		equal(t, "types", types, `["decision","assignment","script","wait","loop","try_catch","subflow","map",
			"get_record","create_record","update_record","delete_record","http","notify"]`)
		equal(t, "total", got["total"], `14`)
	})
}

func TestClientRecordChange(t *testing.T) {
	each(t, nodeConfig{}, func(t *testing.T, n *node) {
		n.put(t, "onrec", `{"type":"record_change",`+chain(`,"config":{"objectName":"account","triggerType":"record-after-update","condition":"record.name == 'Trig' && record.industry != 'retail'"}`,
			`{"id":"mark","type":"update_record","config":{"objectName":"account","filter":{"id":"{record.id}"},"fields":{"industry":"retail"}}}`, `{"id":"end","type":"end"}`)+`}`)
		r, err := n.engine.Create(user(t), "account", data.Record{"name": "Trig"})
		fatal(t, err)
		_, err = n.engine.Update(user(t), "account", r.ID, data.Record{"annual_revenue": 5}, data.Match{})
		fatal(t, err)
		n.ended(t, "onrec", 1)
		record, err := n.engine.Get(system(t), "account", r.ID)
		fatal(t, err)
		equal(t, "record", []any{record["industry"], record["annual_revenue"]}, `["retail",5]`)
	})
}
