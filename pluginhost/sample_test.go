package pluginhost_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/pluginhost"
	"github.com/objecthost/objecthost/pluginhost/hosttest"
	"github.com/objecthost/objecthost/pluginhost/sqlstore"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

func TestPluginContributes(t *testing.T) {
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		h := start(t, "", func(c *hosttest.Config) { c.DB = db })
		s := wantState(t, h, pluginhost.StateReady)
		if s.PID == 0 || s.Generation != 1 || s.Memory == 0 {
			t.Errorf("status = %+v", s)
		}
		t.Run("before hook", func(t *testing.T) { checkBeforeHook(t, h) })
		t.Run("after hook", func(t *testing.T) { checkAfterHook(t, h) })
		t.Run("events", func(t *testing.T) { checkEvents(t, h) })
		t.Run("routes", func(t *testing.T) { checkRoutes(t, h) })
		t.Run("denials", func(t *testing.T) { checkDenials(t, h) })
		t.Run("transaction", func(t *testing.T) { checkTransaction(t, h) })
	})
}

func checkBeforeHook(t *testing.T, h *hosttest.Host) {
	made, err := h.Engine.Create(h.Context(), "fix_account", data.Record{"name": "Ada", "password": "s3cret"})
	if err != nil || made.Record["checked"] != "create" {
		t.Fatalf("create = %v, %v", made.Record, err)
	}
	secret, err := h.Engine.Reveal(h.Context(), made.Record["password"].(string))
	if err != nil || string(secret) != "s3cret" {
		t.Errorf("the secret after the hook = %q, %v", secret, err)
	}
	changed, err := h.Engine.Update(h.Context(), "fix_account", made.ID, data.Record{"name": "Eve"}, data.Match{})
	if err != nil || changed.Record["checked"] != "update" {
		t.Errorf("update = %v, %v", changed.Record, err)
	}
	if n, err := h.Engine.UpdateWhere(h.Context(), "fix_account", data.Eq("name", "Eve"), data.Record{"name": "Eva"}); n != 1 || err != nil {
		t.Errorf("predicate update = %d, %v", n, err)
	}
	if r, err := h.Engine.Get(h.Context(), "fix_account", made.ID); err != nil || r["checked"] != "update_where" {
		t.Errorf("a predicate update went past the hook: %v, %v", r, err)
	}
	status, body := h.Do(t, "POST", "/api/v1/data/fix_account", map[string]any{"name": "refused"})
	if status != 400 || !strings.Contains(body, "this name is taken") || !strings.Contains(body, "VALIDATION_FAILED") {
		t.Errorf("refusal = %d %s", status, body)
	}
	if _, err := h.Engine.Create(h.Context(), "fix_account", data.Record{"name": "panic"}); !data.IsCode(err, "PLUGIN_UNAVAILABLE") {
		t.Errorf("a hook that panics, fail closed = %v", err)
	}
	// A hook that writes another record does not wait for the writer.
	if _, err := h.Engine.Create(h.Context(), "fix_account", data.Record{"name": "side"}); err != nil {
		t.Errorf("a hook that writes = %v", err)
	}
	page, err := h.Engine.Find(h.Context(), "fix_note", data.Query{Where: data.Eq("text", "about side")})
	if err != nil || len(page.Records) != 1 {
		t.Errorf("the hook's own record: %v, %v", page, err)
	}
	// Fail open: after its deadline the write goes on without the hook.
	open, err := h.Engine.Create(h.Context(), "fix_open", data.Record{"name": "hang"})
	if err != nil || open.Record["checked"] != nil {
		t.Errorf("fail open = %v, %v", open.Record, err)
	}
}

func checkAfterHook(t *testing.T, h *hosttest.Host) {
	made, err := h.Engine.Create(h.Context(), "fix_account", data.Record{"name": "afterwards"})
	if err != nil {
		t.Fatal(err)
	}
	store := sqlstore.New(h.DB)
	eventually(t, "the after hook", func() bool {
		value, _, err := store.Value(t.Context(), "fixture", "after")
		return err == nil && string(value) == made.ID
	})
}

func checkEvents(t *testing.T, h *hosttest.Host) {
	made, err := h.Engine.Create(h.Context(), "fix_account", data.Record{"name": "noted"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the event's note", func() bool {
		page, err := h.Engine.Find(h.Context(), "fix_note", data.Query{Where: data.Eq("text", made.ID)})
		return err == nil && len(page.Records) == 1
	})
	received := make(chan string, 10)
	url := receiver(t, received)
	made, err = h.Engine.Create(h.Context(), "fix_account", data.Record{"name": "sent", "url": url})
	if err != nil {
		t.Fatal(err)
	}
	if got := <-received; got != made.ID {
		t.Errorf("delivered %q, want %q", got, made.ID)
	}
}

func checkRoutes(t *testing.T, h *hosttest.Host) {
	status, body := h.Do(t, "GET", "/api/v1/plugins/fixture/hello/Ada%20B?q=1", nil)
	if status != 202 || body != "hello Ada B from somebody" {
		t.Errorf("route = %d %q", status, body)
	}
	big := strings.Repeat("0123456789", 300_000)
	if status, body := h.Do(t, "POST", "/api/v1/plugins/fixture/echo", big); status != 200 || body != `"`+big+`"` {
		t.Errorf("echo = %d, %d bytes", status, len(body))
	}
	anonymous, err := http.Get(h.URL + "/api/v1/plugins/fixture/hello/x")
	if err != nil {
		t.Fatal(err)
	}
	_ = anonymous.Body.Close()
	if anonymous.StatusCode != 401 {
		t.Errorf("without a key = %d, want 401", anonymous.StatusCode)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, "GET", h.URL+"/api/v1/plugins/fixture/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+h.Key)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for _, want := range []string{"data: 0", "", "data: 1"} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("stream line = %q, want %q", lines.Text(), want)
		}
	}
	if status, body := h.Do(t, "POST", "/api/v1/plugins/fixture/do/missing", nil); status != 200 || !strings.HasPrefix(body, "RECORD_NOT_FOUND: ") {
		t.Errorf("an error of the data service in the plugin = %d %s", status, body)
	}
}

func checkDenials(t *testing.T, h *hosttest.Host) {
	for _, what := range []string{
		"read-denied", "read-system", "write-denied", "transaction-denied", "publish-denied", "egress-denied", "enqueue-denied", "service-denied",
	} {
		status, body := h.Do(t, "POST", "/api/v1/plugins/fixture/do/"+what, nil)
		if status != 200 || !strings.HasPrefix(body, "CAPABILITY_DENIED: ") {
			t.Errorf("%s = %d %s", what, status, body)
		}
	}
	if _, body := h.Do(t, "POST", "/api/v1/plugins/fixture/do/forge", nil); !strings.HasPrefix(body, "INVALID_REQUEST: ") {
		t.Errorf("a forged record event = %s", body)
	}
	page, err := h.Engine.Find(h.Context(), "fix_note", data.Query{Where: data.Eq("text", "half")})
	if err != nil || len(page.Records) != 0 {
		t.Errorf("half of a denied transaction: %v, %v", page, err)
	}
	denied := h.Status(t, "fixture").Denied
	for capability, want := range map[string]int64{"objects.fix_secret read": 1, "objects.sys_api_key read": 1, "objects.fix_read write": 2, "egress example.com": 2} {
		if denied[capability] != want {
			t.Errorf("denied %q %d times, want %d: %v", capability, denied[capability], want, denied)
		}
	}
}

// checkTransaction: hooks of several writes in one transaction run inside it,
// and must not wait for it.
func checkTransaction(t *testing.T, h *hosttest.Host) {
	records, err := h.Engine.Transaction(h.Context(), []data.Step{{Object: "fix_account", Action: "create", Data: data.Record{"name": "in one"}}})
	if err != nil || records[0].Record["checked"] != "create" {
		t.Errorf("transaction = %v, %v", records, err)
	}
	_, err = h.Engine.Transaction(h.Context(), []data.Step{{Object: "fix_account", Action: "create", Data: data.Record{"name": "side"}}})
	if err == nil || !strings.Contains(err.Error(), "transaction of several writes") {
		t.Errorf("a hook that writes inside a transaction = %v", err)
	}
}

func TestServicesAreStableHandles(t *testing.T) {
	var caller pluginhost.Caller
	h := start(t, "", func(c *hosttest.Config) {
		c.InProcess = func(*pluginhost.Manager) []core.Plugin { return []core.Plugin{&finder{found: &caller}} }
	})
	s := wantState(t, h, pluginhost.StateReady)
	payload := json.RawMessage(`{"n":12345678901234567890.10}`)
	if answer, err := caller.Call(t.Context(), "echo", payload); string(answer) != string(payload) || err != nil {
		t.Errorf("call = %s, %v", answer, err)
	}
	if _, err := caller.Call(t.Context(), "fail", nil); err == nil || err.Error() != "FIXTURE_FAILED: as asked" {
		t.Errorf("the service's error = %v", err)
	}
	// A call that is under way when the process dies ends in a retryable error,
	// and the same handle serves afterwards.
	ended := make(chan error, 1)
	go func() { _, err := caller.Call(t.Context(), "hang", nil); ended <- err }()
	eventually(t, "the call to be counted", func() bool { return strings.Contains(h.Log(), "fixture initialized") })
	kill(t, s.PID)
	if err := <-ended; !retryable(err) {
		t.Errorf("a call in flight = %v", err)
	}
	eventually(t, "the next generation", func() bool {
		answer, err := caller.Call(t.Context(), "echo", payload)
		return err == nil && string(answer) == string(payload)
	})
	if s := h.Status(t, "fixture"); s.Generation != 2 || s.Restarts != 1 {
		t.Errorf("status = %+v", s)
	}
	if err := h.Manager.Disable(t.Context(), "fixture"); err != nil {
		t.Fatal(err)
	}
	if _, err := caller.Call(t.Context(), "echo", payload); !retryable(err) {
		t.Errorf("a call while disabled = %v", err)
	}
}

// finder finds the fixture's service.
type finder struct{ found *pluginhost.Caller }

func (f *finder) Manifest() core.Manifest {
	return core.Manifest{ID: "com.example.finder", DependsOn: []string{"com.example.fixture"}}
}

func (f *finder) Init(ctx context.Context, host core.Context) (err error) {
	*f.found, err = core.Lookup(ctx, host, core.NewKey[pluginhost.Caller]("fixture.echo"))
	return err
}
