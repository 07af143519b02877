// Package e2e tests whole host processes.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/objecthost/objecthost/e2e/proc"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// wide bounds waits for something that must happen.
const wide = 2 * time.Minute

// flowHost is a host process that tests kill and start again on one database.
type flowHost struct {
	*proc.Host
	bin, key string
	args     []string
}

func (h *flowHost) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), proc.WaitListening)
	defer cancel()
	started, err := proc.Start(ctx, h.bin, h.args)
	if err != nil {
		t.Fatal(err)
	}
	h.Host = started
	if started.Key != "" {
		h.key = started.Key
	}
}

// call makes a request and decodes the answer's data.
func (h *flowHost) call(t *testing.T, method, path string, body any) map[string]any {
	t.Helper()
	var source []byte
	if text, ok := body.(string); ok {
		source = []byte(text)
	} else if body != nil {
		source, _ = json.Marshal(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, h.URL+"/api/v1"+path, bytes.NewReader(source))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-Key", h.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var answer map[string]any
	if err := json.Unmarshal(text, &answer); err != nil || resp.StatusCode > 299 {
		t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, text)
	}
	if data, ok := answer["data"].(map[string]any); ok {
		return data
	}
	return answer
}

// run awaits that the newest run of a flow is in a status.
func (h *flowHost) run(t *testing.T, flow, status string) map[string]any {
	t.Helper()
	var last any
	deadline := time.Now().Add(wide)
	for time.Now().Before(deadline) {
		runs, _ := h.call(t, http.MethodGet, "/automation/"+flow+"/runs?limit=10", nil)["runs"].([]any)
		if last = runs; len(runs) == 1 {
			if run := runs[0].(map[string]any); run["status"] == status {
				return run
			}
		}
		pause(t)
	}
	t.Fatalf("no run of %s is %s: %v\n%s", flow, status, last, h.Output())
	return nil
}

// pause is the time between two looks at another process.
func pause(t *testing.T) {
	t.Helper()
	timer := time.NewTimer(20 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// deliveries is a receiver that counts calls by delivery.
type deliveries struct {
	*httptest.Server
	mu     sync.Mutex
	calls  map[string]int
	status int
}

func newDeliveries(t *testing.T) *deliveries {
	d := &deliveries{calls: map[string]int{}, status: http.StatusOK}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.calls[r.Header.Get("X-Objectstack-Delivery")]++
		w.WriteHeader(d.status)
	}))
	t.Cleanup(d.Close)
	return d
}

func (d *deliveries) answer(status int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.status = status
}

func (d *deliveries) counts() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []int
	for _, n := range d.calls {
		out = append(out, n)
	}
	return out
}

func (d *deliveries) await(t *testing.T, want ...int) {
	t.Helper()
	deadline := time.Now().Add(wide)
	for fmt.Sprint(d.counts()) != fmt.Sprint(want) {
		if time.Now().After(deadline) {
			t.Fatalf("calls by delivery: %v, want %v", d.counts(), want)
		}
		pause(t)
	}
}

// A host is killed while a run with a durable call waits, and started again:
// the run completes and the call was made once.
func TestFlowSurvivesKill(t *testing.T) {
	bin, err := proc.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	storagetest.EachDialectDSN(t, func(t *testing.T, dsn string) {
		rx := newDeliveries(t)
		h := &flowHost{bin: bin, args: []string{
			"--db", dsn, "--key-file", filepath.Join(t.TempDir(), "key"), "--objects", filepath.Join(proc.Root(), "examples", "objects"),
			"--listen", "127.0.0.1:0", "--egress-allow", "127.0.0.1", "--poll-interval", "100ms",
		}}
		h.start(t)
		t.Cleanup(func() { h.Kill() })

		const nodes = `"nodes":[{"id":"start","type":"start","config":{"objectName":"account","triggerType":"record-after-create","condition":"record.name == '%[1]s'"}},
			{"id":"call","type":"http","config":{"url":%[2]q,"durable":true%[3]s,"body":{"id":"{record.id}"}}},
			{"id":"nap","type":"wait","waitEventConfig":{"eventType":"timer","timerDuration":%[4]q}},
			{"id":"mark","type":"update_record","config":{"objectName":"account","filter":{"id":"{record.id}"},"fields":{"annual_revenue":"{record.annual_revenue + 1}"}}}],
			"edges":[{"id":"1","source":"start","target":"call"},{"id":"2","source":"call","target":"nap"},{"id":"3","source":"nap","target":"mark"}]`
		register := func(name, extra, timer string) string {
			h.call(t, http.MethodPost, "/automation", fmt.Sprintf(
				`{"name":%[1]q,"label":"Killed","type":"record_change","status":"active","runAs":"system",`+nodes+`}`, name, rx.URL, extra, timer))
			id, _ := h.call(t, http.MethodPost, "/data/account", map[string]any{"name": name, "annual_revenue": 41})["id"].(string)
			return id
		}
		marked := func(id string) {
			t.Helper()
			record := h.call(t, http.MethodGet, "/data/account/"+id, nil)["record"].(map[string]any)
			if record["annual_revenue"] != 42.0 {
				t.Errorf("record: %v, want annual_revenue 42: the step after the wait ran once", record)
			}
		}

		// Killed in the timer, after the call was delivered.
		id := register("napping", "", "PT3S")
		paused := h.run(t, "napping", "paused")
		rx.await(t, 1)
		h.Kill()
		h.start(t)
		if done := h.run(t, "napping", "completed"); done["id"] != paused["id"] {
			t.Errorf("completed %v, paused %v", done["id"], paused["id"])
		}
		marked(id)
		rx.await(t, 1)

		// Killed while the run waits for the end of its delivery.
		rx.answer(http.StatusServiceUnavailable)
		id = register("waiting", `,"waitForDelivery":true`, "PT0S")
		h.run(t, "waiting", "paused")
		h.Kill()
		rx.answer(http.StatusOK)
		h.start(t)
		h.run(t, "waiting", "completed")
		marked(id)
		if n := len(rx.counts()); n != 2 {
			t.Errorf("%d deliveries, want 2", n)
		}
	})
}
