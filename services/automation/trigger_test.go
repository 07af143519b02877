package automation

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/automation/sqlstore"
	"github.com/objecthost/objecthost/services/data"
)

func onAccount(trigger, rest string) string {
	return `,"config":{"objectName":"account","triggerType":"` + trigger + `"` + rest + `}`
}

func TestRecordChangesRunInOrder(t *testing.T) {
	each(t, nodeConfig{}, func(t *testing.T, n *node) {
		const records, changes = 3, 8
		var mu sync.Mutex
		order := map[string][]any{}
		written := make(chan struct{})
		fatal(t, n.RegisterNode(NodeType{Type: "see", Run: func(_ context.Context, s *Step) (Result, error) {
			<-written // every run of the other changes could overtake this one
			record, _ := s.Variable("record")
			values := record.(map[string]any)
			mu.Lock()
			defer mu.Unlock()
			id := values["id"].(string)
			order[id] = append(order[id], values["annual_revenue"])
			return Result{}, nil
		}}))
		n.put(t, "follow", `{"type":"record_change",`+chain(onAccount("record-after-write", ""), `{"id":"see","type":"see"}`)+`}`)
		var ids []string
		for range records {
			r, err := n.engine.Create(user(t), "account", data.Record{"name": "a", "annual_revenue": 0})
			fatal(t, err)
			ids = append(ids, r.ID)
		}
		for i := 1; i <= changes; i++ {
			for _, id := range ids {
				_, err := n.engine.Update(user(t), "account", id, data.Record{"annual_revenue": i}, data.Match{})
				fatal(t, err)
			}
		}
		n.await(t, "all runs", func() bool { return len(n.logOf(t, "follow")) == records*(changes+1) })
		running := map[string]int{}
		for _, run := range n.logOf(t, "follow") {
			if run.Status == sqlstore.StatusRunning {
				running[run.Trigger.RecordID]++
			}
		}
		for id, count := range running {
			if count > 1 {
				t.Errorf("%d runs for %s at once", count, id)
			}
		}
		close(written)
		n.ended(t, "follow", records*(changes+1))
		for _, id := range ids {
			equal(t, "order of "+id, order[id], `[0,1,2,3,4,5,6,7,8]`)
		}
	})
}

func TestOnlyARunsOwnWritesDoNotReenterIt(t *testing.T) {
	each(t, nodeConfig{cfg: Config{Limits: Limits{Depth: 3}}}, func(t *testing.T, n *node) {
		bump := `{"id":"up","type":"update_record","config":{"objectName":"account","filter":{"id":"{record.id}"},"fields":{"annual_revenue":"{record.annual_revenue + 1}"}}}`
		n.put(t, "self", `{"type":"record_change",`+chain(onAccount("record-after-update", ""), bump)+`}`)
		r, err := n.engine.Create(user(t), "account", data.Record{"name": "a", "annual_revenue": 1})
		fatal(t, err)
		_, err = n.engine.Update(user(t), "account", r.ID, data.Record{"annual_revenue": 10}, data.Match{})
		fatal(t, err)
		runs := n.ended(t, "self", 1)
		previous := n.row(t, "self", runs[0].ID)
		equal(t, "previous", []any{previous.trigger.Previous["annual_revenue"], previous.trigger.Record["annual_revenue"]}, `[1,10]`)

		// Two flows that answer each other's writes come to an end as well.
		n.put(t, "other", `{"type":"record_change",`+chain(onAccount("record-after-update", ""), bump)+`}`)
		_, err = n.engine.Update(user(t), "account", r.ID, data.Record{"annual_revenue": 100}, data.Match{})
		fatal(t, err)
		n.await(t, "the end of the chain", func() bool {
			for _, run := range append(n.logOf(t, "self"), n.logOf(t, "other")...) {
				if run.Status == RunFailed {
					equal(t, "error", []any{run.Error}, `["Flows start each other more than 3 deep"]`)
					return true
				}
			}
			return false
		})
	})
}

// row is a stored run with its trigger.
func (n *node) row(t testing.TB, flow, id string) *walk {
	t.Helper()
	row, err := n.store.Run(t.Context(), flow, id)
	fatal(t, err)
	w := &walk{row: row, trigger: &trigger{}}
	fatal(t, decodeJSON([]byte(row.Trigger), w.trigger))
	return w
}

func TestDeleteStartsFlows(t *testing.T) {
	each(t, nodeConfig{}, func(t *testing.T, n *node) {
		n.put(t, "gone", `{"type":"record_change","variables":[{"name":"name","type":"text","isInput":true,"isOutput":true}],`+chain(onAccount("record-after-delete", ""), `{"id":"end","type":"end"}`)+`}`)
		r, err := n.engine.Create(user(t), "account", data.Record{"name": "gone"})
		fatal(t, err)
		fatal(t, n.engine.Delete(user(t), "account", r.ID, data.Match{}))
		run := n.ended(t, "gone", 1)[0]
		equal(t, "run", []any{run.Trigger.RecordID == r.ID, run.Output}, `[true,{"name":"gone"}]`)
	})
}

func TestBeforeAWrite(t *testing.T) {
	each(t, nodeConfig{cfg: Config{Limits: Limits{BeforeTime: 500 * time.Millisecond}}}, func(t *testing.T, n *node) {
		rx := newReceiver(t)
		// The flow writes a record and calls out to somebody who writes one
		// too: neither may wait for the request that they belong to.
		rx.answer = func(*http.Request, []byte) (int, string) {
			_, err := n.engine.Create(identity.With(context.Background(), identity.System()), "note", data.Record{"text": "from the receiver"})
			return 200, fmt.Sprintf(`{"failed":%t}`, err != nil)
		}
		n.put(t, "guard", `{"type":"record_change","variables":[{"name":"failed","type":"boolean"}],
			"nodes":[{"id":"start","type":"start"`+onAccount("record-before-write", "")+`},
				{"id":"check","type":"decision","config":{"conditions":[{"label":"no","expression":"record.name == 'bad'"},{"label":"slow","expression":"record.name == 'slow'"},{"label":"broken","expression":"record.name == 'broken'"}]}},
				{"id":"stop","type":"end","config":{"refuse":"'{record.name}' is not wanted"}},
				{"id":"break","type":"script","config":{"expression":"nothing.at.all"}},
				{"id":"call","type":"http","config":{"url":"`+rx.URL+`","method":"POST"}},
				{"id":"log","type":"create_record","config":{"objectName":"note","fields":{"text":"from the flow"}}},
				{"id":"set","type":"assignment","config":{"assignments":{"record.industry":"retail","record.annual_revenue":"{record.annual_revenue * 2}"}}}],
			"edges":[{"source":"start","target":"check","id":"1"},{"source":"check","target":"stop","label":"no","id":"2"},{"source":"check","target":"break","label":"broken","id":"5"},
				{"source":"check","target":"call","isDefault":true,"id":"3"},{"source":"check","target":"call","label":"slow","id":"6"},{"source":"call","target":"log","id":"4"},{"source":"log","target":"set","id":"7"}]}`)
		refused := func(name, message string) {
			t.Helper()
			_, err := n.engine.Create(user(t), "account", data.Record{"name": name})
			var e *data.Error
			if !errors.As(err, &e) || e.Code != data.CodeValidationFailed || e.Message != message {
				t.Fatalf("%s: %v, want %s", name, err, message)
			}
		}
		refused("bad", "'bad' is not wanted")
		refused("broken", `Flow 'guard' failed before the write: Node 'break' failed: expression "nothing.at.all": no such attribute(s): nothing.at.all`)
		r, err := n.engine.Create(user(t), "account", data.Record{"name": "good", "annual_revenue": 21, "token": "s3cret"})
		fatal(t, err)
		equal(t, "record", []any{r.Record["industry"], r.Record["annual_revenue"]}, `["retail",42]`)
		secret, err := n.engine.Reveal(system(t), r.Record["token"].(string))
		fatal(t, err)
		equal(t, "secret", []any{string(secret)}, `["s3cret"]`)
		page, err := n.engine.Find(system(t), "note", data.Query{OrderBy: []data.Sort{{Field: "text"}}})
		fatal(t, err)
		if len(page.Records) != 2 {
			t.Fatalf("notes: %v", page.Records)
		}
		release := make(chan struct{})
		free := sync.OnceFunc(func() { close(release) })
		defer free()
		rx.mu.Lock()
		rx.answer = func(*http.Request, []byte) (int, string) { <-release; return 200, "" }
		rx.mu.Unlock()
		refused("slow", "Flow 'guard' failed before the write: The flows before the write take longer than 500ms")
		free()
		if _, err := n.engine.Find(system(t), "account", data.Query{}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestBeforeFlowsCannotWait(t *testing.T) {
	each(t, nodeConfig{still: true}, func(t *testing.T, n *node) {
		_, err := n.Put(t.Context(), flowSource(t, "w", `{"type":"record_change",`+chain(onAccount("record-before-create", ""), `{"id":"w","type":"wait","waitEventConfig":{"eventType":"signal"}}`)+`}`))
		var invalid *ValidationError
		if !errors.As(err, &invalid) {
			t.Fatalf("registered: %v", err)
		}
		equal(t, "problems", invalid.Problems, `[{"field":"(body)","code":"invalid_value","message":"The node 'w' waits, which a flow that runs before a write cannot"}]`)
	})
}

func TestHooks(t *testing.T) {
	each(t, nodeConfig{}, func(t *testing.T, n *node) {
		n.put(t, "inbound", `{"type":"api","variables":[{"name":"n","type":"number","isInput":true,"isOutput":true}],`+
			chain(`,"config":{"hookId":"orders","secret":"long enough"}`, `{"id":"end","type":"end"}`)+`}`)
		n.put(t, "open", `{"type":"api",`+chain(``, `{"id":"end","type":"end"}`)+`}`)
		body := []byte(`{"n": 12345678901234567890.5}`)
		mac := hmac.New(sha256.New, []byte("long enough"))
		mac.Write(body)
		good := "sha256=" + hex.EncodeToString(mac.Sum(nil))
		for _, c := range []struct {
			name, path, signature, user string
			status                      int
			code                        string
		}{
			{"signed", "/hooks/inbound/orders", good, "", 202, ""},
			{"no signature", "/hooks/inbound/orders", "", "ada", 401, "INVALID_SIGNATURE"},
			{"wrong signature", "/hooks/inbound/orders", "sha256=" + hex.EncodeToString(make([]byte, 32)), "", 401, "INVALID_SIGNATURE"},
			{"without its name", "/hooks/inbound/orders", hex.EncodeToString(mac.Sum(nil)), "", 401, "INVALID_SIGNATURE"},
			{"wrong hook", "/hooks/inbound/default", good, "", 404, "RESOURCE_NOT_FOUND"},
			{"no secret, nobody", "/hooks/open/default", "", "", 401, "UNAUTHENTICATED"},
			{"no secret, somebody", "/hooks/open/default", "", "ada", 202, ""},
		} {
			req := httptest.NewRequest("POST", base+c.path, bytes.NewReader(body))
			req.Header.Set("X-Objectstack-Signature", c.signature)
			req.Header.Set("X-User", c.user)
			status, answer := n.send(t, req)
			e, _ := answer["error"].(map[string]any)
			if status != c.status || c.code != "" && e["code"] != c.code {
				t.Errorf("%s: %d %v", c.name, status, answer)
			}
		}
		run := n.ended(t, "inbound", 1)[0]
		equal(t, "run", []any{run.Trigger.Type, run.Output}, `["api",{"n":12345678901234567890.5}]`)
		shown := n.ok(t, "GET", "/inbound", nil)
		equal(t, "secret", shown["nodes"].([]any)[0].(map[string]any)["config"], `{"hookId":"orders","secret":"••••••••"}`)
	})
}

func TestRunAsUser(t *testing.T) {
	each(t, nodeConfig{}, func(t *testing.T, n *node) {
		read := `{"id":"get","type":"get_record","config":{"objectName":"note","limit":5}}`
		write := `{"id":"mk","type":"create_record","config":{"objectName":"note","fields":{"text":"x"}}}`
		n.put(t, "reads", `{"runAs":"user",`+chain("", read)+`}`)
		n.put(t, "writes", `{"runAs":"user",`+chain("", read, write)+`}`)
		n.put(t, "elevated", `{`+chain("", write)+`}`)
		reader := identity.With(t.Context(), identity.Principal{UserID: "bob", KeyID: "reader"})
		_, err := n.Execute(reader, "reads", Trigger{})
		fatal(t, err)
		_, err = n.Execute(reader, "writes", Trigger{})
		var failed *FailedError
		if !errors.As(err, &failed) || failed.Summary.Failed != 1 || !data.IsCode(err, data.CodePermissionDenied) {
			t.Fatalf("writes: %v", err)
		}
		_, err = n.Execute(reader, "elevated", Trigger{})
		fatal(t, err)
		_, err = n.Execute(t.Context(), "reads", Trigger{})
		if err == nil || err.Error() != "Node 'get' failed: get_record: the flow runs as its user, but nobody triggered it: set runAs to system" {
			t.Errorf("nobody: %v", err)
		}
		// A record change acts for whoever wrote the record, key and all.
		n.put(t, "after", `{"type":"record_change","runAs":"user",`+chain(onAccount("record-after-create", ""), write)+`}`)
		_, err = n.engine.Create(user(t), "account", data.Record{"name": "a"})
		fatal(t, err)
		equal(t, "after", []any{n.ended(t, "after", 1)[0].Status}, `["completed"]`)
		_, err = n.engine.Create(system(t), "account", data.Record{"name": "b"})
		fatal(t, err)
		equal(t, "by the host", []any{n.ended(t, "after", 2)[0].Status}, `["failed"]`)
	})
}
