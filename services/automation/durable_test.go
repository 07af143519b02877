package automation

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/objecthost/objecthost/services/automation/sqlstore"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// crash leaves a run as a process that is gone would: claimed, with its claim
// run out.
func (n *node) crash(t testing.TB, id string) {
	t.Helper()
	_, err := n.db.Bun(t.Context()).NewRaw("UPDATE sys_automation_run SET status = 'running', claim_token = 'gone', claim_expires_at = 1 WHERE id = ?", id).Exec(t.Context())
	fatal(t, err)
}

func TestRunGoesOnFromWhereItWasSaved(t *testing.T) {
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		keys := keyOf(t)
		first := newNode(t, db, nodeConfig{still: true, keyring: keys})
		rx := newReceiver(t)
		stuck := make(chan struct{})
		var runs atomic.Int32
		fatal(t, first.RegisterNode(NodeType{Type: "stick", Run: func(ctx context.Context, s *Step) (Result, error) {
			runs.Add(1)
			close(stuck)
			<-ctx.Done()
			return Result{}, ctx.Err()
		}}))
		first.put(t, "long", `{"variables":[{"name":"first","type":"text","isOutput":true},{"name":"count","type":"number","isOutput":true}],`+chain("",
			`{"id":"mk","type":"create_record","config":{"objectName":"note","fields":{"text":"once"}}}`,
			`{"id":"call","type":"http","config":{"url":"`+rx.URL+`","durable":true}}`,
			`{"id":"set","type":"assignment","config":{"assignments":{"first":"{call.deliveryId}"}}}`,
			`{"id":"stick","type":"stick"}`,
			`{"id":"all","type":"get_record","config":{"objectName":"note","limit":10}}`,
			`{"id":"n","type":"script","config":{"variables":{"count":"all.records.size()"}}}`)+`}`)
		failed := make(chan error, 1)
		go func() {
			_, err := first.Execute(system(t), "long", Trigger{})
			failed <- err
		}()
		<-stuck
		// The process ends here: the run stands behind its delivery.
		first.cut(t)
		if err := <-failed; !errors.Is(err, errStopped) {
			t.Fatalf("execute: %v", err)
		}
		id := first.logOf(t, "long")[0].ID
		second := newNode(t, db, nodeConfig{still: true, keyring: keys})
		fatal(t, second.RegisterNode(NodeType{Type: "stick", Run: func(context.Context, *Step) (Result, error) {
			runs.Add(1)
			return Result{}, nil
		}}))
		second.crash(t, id)
		second.run(t)
		run := second.ended(t, "long", 1)[0]
		if run.ID != id || run.Status != RunCompleted || runs.Load() != 2 {
			t.Fatalf("run: %+v, stick ran %d times", run, runs.Load())
		}
		output := run.Output.(map[string]any)
		equal(t, "records", output["count"], `1`)
		second.await(t, "the delivery", func() bool { return len(rx.got()) > 0 })
		if calls := rx.got(); len(calls) != 1 || calls[0].header.Get("X-Objectstack-Delivery") != output["first"] {
			t.Errorf("calls: %v, delivery %v", calls, output["first"])
		}
	})
}

// cut cuts a node off: what runs has no time to come to an end.
func (n *node) cut(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	fatal(t, n.Stop(ctx))
}

func TestInterruptedCallFailsOrIsTriedAgain(t *testing.T) {
	for _, c := range []struct{ name, handling, status, node string }{
		{"fails", ``, RunFailed, "post"},
		{"tried again", `"errorHandling":{"strategy":"retry","maxRetries":2,"backoffMs":1},`, RunCompleted, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, nodeConfig{}, func(t *testing.T, n *node) {
				rx := newReceiver(t)
				rx.answer = func(*http.Request, []byte) (int, string) {
					// The process ends while the call is under way.
					if len(rx.calls) == 1 {
						_, err := n.db.Bun(context.Background()).NewRaw("UPDATE sys_automation_run SET claim_token = 'gone', claim_expires_at = 1").Exec(context.Background())
						if err != nil {
							t.Error(err)
						}
					}
					return 200, `{}`
				}
				n.put(t, "post", `{`+c.handling+chain("", `{"id":"post","type":"http","config":{"url":"`+rx.URL+`","method":"POST"}}`)+`}`)
				if _, err := n.Execute(system(t), "post", Trigger{}); !errors.Is(err, errLost) {
					t.Fatalf("execute: %v, want %v", err, errLost)
				}
				run := n.ended(t, "post", 1)[0]
				if run.Status != c.status {
					t.Fatalf("run: %s %s", run.Status, run.Error)
				}
				if c.node != "" && run.Error != "Node 'post' failed: the host ended while the node was executed; whether it had its effect is not known" {
					t.Errorf("error: %s", run.Error)
				}
				want := 1
				if c.status == RunCompleted {
					want = 2
				}
				if got := len(rx.got()); got != want {
					t.Errorf("%d calls, want %d", got, want)
				}
			})
		})
	}
}

func TestRunThatEndsItsProcessIsGivenUp(t *testing.T) {
	each(t, nodeConfig{still: true, cfg: Config{Limits: Limits{Crashes: 2}}}, func(t *testing.T, n *node) {
		n.put(t, "hold", `{`+chain("", `{"id":"w","type":"wait","waitEventConfig":{"eventType":"signal"}}`, `{"id":"e","type":"script","config":{"expression":"1"}}`)+`}`)
		r, err := n.Execute(system(t), "hold", Trigger{})
		fatal(t, err)
		for range 2 {
			n.crash(t, r.RunID)
			rows, err := n.store.Claim(t.Context(), "other", "gone", 0, 1)
			fatal(t, err)
			if len(rows) != 1 {
				t.Fatalf("claimed %d runs", len(rows))
			}
		}
		fatal(t, n.Start(t.Context())) // and finds it once more
		run := n.ended(t, "hold", 1)[0]
		equal(t, "end", []any{run.Status, run.Error}, `["failed","The process ended 3 times while it executed this run"]`)
	})
}

func TestTimerSurvivesARestart(t *testing.T) {
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		keys := keyOf(t)
		n := newNode(t, db, nodeConfig{still: true, keyring: keys})
		n.put(t, "nap", `{"variables":[{"name":"x","type":"text","isOutput":true}],`+chain("",
			`{"id":"nap","type":"wait","waitEventConfig":{"eventType":"timer","timerDuration":"PT0.2S"}}`,
			`{"id":"s","type":"assignment","config":{"assignments":{"x":"awake"}}}`)+`}`)
		r, err := n.Execute(system(t), "nap", Trigger{})
		fatal(t, err)
		if r.Status != sqlstore.StatusPaused {
			t.Fatalf("status %s", r.Status)
		}
		other := newNode(t, db, nodeConfig{keyring: keys})
		run := other.ended(t, "nap", 1)[0]
		equal(t, "run", []any{run.ID == r.RunID, run.Status, run.Output}, `[true,"completed",{"x":"awake"}]`)
	})
}

func TestWaitForDelivery(t *testing.T) {
	each(t, nodeConfig{}, func(t *testing.T, n *node) {
		rx := newReceiver(t)
		rx.answer = func(r *http.Request, _ []byte) (int, string) {
			if r.URL.Path == "/bad" {
				return 400, "no"
			}
			return 200, "yes"
		}
		n.put(t, "deliver", `{"variables":[{"name":"path","type":"text","isInput":true},{"name":"out","type":"object","isOutput":true}],`+chain("",
			`{"id":"send","type":"http","config":{"url":"`+rx.URL+`{path}","durable":true,"waitForDelivery":true}}`,
			`{"id":"s","type":"script","config":{"variables":{"out":"send"}}}`)+`}`)
		for _, c := range []struct{ path, want string }{
			{"/good", `{"deliveryId":"x","enqueued":true,"status":"success","delivered":true,"attempts":1,"responseCode":200,"error":null}`},
			{"/bad", `{"deliveryId":"x","enqueued":true,"status":"dead","delivered":false,"attempts":1,"responseCode":400,"error":"HTTP 400"}`},
		} {
			r, err := n.Execute(system(t), "deliver", Trigger{Params: map[string]any{"path": c.path}})
			fatal(t, err)
			if r.Status != sqlstore.StatusPaused {
				t.Fatalf("status %s", r.Status)
			}
			var run *RunLog
			n.await(t, "the end of the run", func() bool {
				run, err = n.Run(system(t), "deliver", r.RunID)
				fatal(t, err)
				return run.CompletedAt != ""
			})
			out := run.Output.(map[string]any)["out"].(map[string]any)
			out["deliveryId"] = "x"
			equal(t, c.path, out, c.want)
		}
	})
}

func TestStepAndDeliveryCommitTogether(t *testing.T) {
	each(t, nodeConfig{still: true}, func(t *testing.T, n *node) {
		n.put(t, "two", `{`+chain("",
			`{"id":"a","type":"http","config":{"url":"http://127.0.0.1:9/a","durable":true}}`,
			`{"id":"b","type":"http","config":{"url":"http://127.0.0.1:9/b","durable":true,"ordering":"run"}}`)+`}`)
		// Somebody else takes the run over while b is enqueued: nothing of b stays.
		fl, err := n.flows.runnable(t.Context(), "two")
		fatal(t, err)
		tr := &trigger{Type: triggerManual}
		w := n.newWalk(fl, n.newRow(fl, tr), tr)
		for len(w.st.Executions) < 2 { // start and a
			fatal(t, w.next(t.Context(), w.st.top()))
		}
		n.crash(t, w.row.ID)
		var last error
		for last == nil {
			last = w.next(t.Context(), w.st.top())
		}
		if !errors.Is(last.(*fatalError).err, errLost) {
			t.Fatalf("b: %v", last)
		}
		page, err := n.engine.Find(system(t), messaging.DeliveryObject, data.Query{})
		fatal(t, err)
		if len(page.Records) != 1 || page.Records[0]["step_id"] != "a" {
			t.Fatalf("deliveries: %v", page.Records)
		}
	})
}

func TestScheduleFiresOnOneNode(t *testing.T) {
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		keys := keyOf(t)
		a := newNode(t, db, nodeConfig{still: true, keyring: keys})
		b := newNode(t, db, nodeConfig{still: true, keyring: keys})
		a.put(t, "beat", `{"type":"schedule",`+chain(`,"config":{"schedule":{"type":"interval","intervalMs":60000}}`, `{"id":"end","type":"end"}`)+`}`)
		fatal(t, a.tick(t.Context()))
		fatal(t, b.flows.refresh(t.Context(), 0))
		for round := range 3 { // each round its time has come
			_, err := db.Bun(t.Context()).NewRaw("UPDATE sys_automation_schedule SET next_at = ?", time.Now().UnixMilli()-1000*int64(round+1)).Exec(t.Context())
			fatal(t, err)
			done := make(chan error, 2)
			for _, n := range []*node{a, b} {
				go func() { done <- n.tick(context.Background()) }()
			}
			fatal(t, errors.Join(<-done, <-done))
			fatal(t, a.tick(t.Context()))
		}
		runs := a.logOf(t, "beat")
		if len(runs) != 3 {
			t.Fatalf("%d runs, want 3", len(runs))
		}
		equal(t, "run", []any{runs[0].Status, runs[0].Trigger}, `["pending",{"type":"schedule"}]`)
		fatal(t, a.Toggle(t.Context(), "beat", false))
		fatal(t, a.tick(t.Context()))
		left, err := a.store.Schedules(t.Context())
		fatal(t, err)
		if len(left) != 0 {
			t.Errorf("schedules of switched-off flows: %v", left)
		}
	})
}
