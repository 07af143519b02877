package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/objecthost/objecthost/e2e/proc"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// tally is a receiver that counts calls by record and action.
type tally struct {
	*httptest.Server
	mu    sync.Mutex
	calls map[string]int
	ids   map[string]string // delivery ids by record and action
}

func newTally(t *testing.T) *tally {
	r := &tally{calls: map[string]int{}, ids: map[string]string{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		text, _ := io.ReadAll(req.Body)
		var body struct{ RecordID, Action string }
		_ = json.Unmarshal(text, &body)
		r.mu.Lock()
		defer r.mu.Unlock()
		key := body.RecordID + " " + body.Action
		r.calls[key]++
		r.ids[key] = req.Header.Get("X-Objectstack-Delivery")
	}))
	t.Cleanup(r.Close)
	return r
}

// exactlyOnce waits until n changes arrived, and fails when one came twice.
func (r *tally) exactlyOnce(t *testing.T, n int) {
	t.Helper()
	deadline := time.Now().Add(wide)
	for {
		r.mu.Lock()
		have := len(r.calls)
		r.mu.Unlock()
		if have >= n {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d changes arrived", have, n)
		}
		pause(t)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, times := range r.calls {
		if times != 1 {
			t.Errorf("%s arrived %d times", key, times)
		}
	}
	if len(r.calls) != n {
		t.Errorf("%d changes arrived, want %d", len(r.calls), n)
	}
}

// hosts starts host processes of one installation.
type hosts struct {
	bin, key, keyFile string
}

func newHosts(t *testing.T) *hosts {
	t.Helper()
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return &hosts{bin: bin, keyFile: filepath.Join(t.TempDir(), "key")}
}

// start starts one on a database. The first prints the key that all take.
func (h *hosts) start(t *testing.T, dsn string, args ...string) *flowHost {
	t.Helper()
	host := &flowHost{bin: h.bin, key: h.key, args: append([]string{
		"--db", dsn, "--key-file", h.keyFile, "--objects", filepath.Join(proc.Root(), "examples", "objects"),
		"--listen", "127.0.0.1:0", "--egress-allow", "127.0.0.1",
	}, args...)}
	host.start(t)
	t.Cleanup(func() { host.Kill() })
	h.key = host.key
	return host
}

func (h *flowHost) webhook(t *testing.T, name, url string) string {
	t.Helper()
	made := h.call(t, http.MethodPost, "/data/sys_webhook", map[string]any{
		"name": name, "object_name": "account", "triggers": []string{"create", "update", "delete"}, "url": url, "signing_secret": "s3cret",
	})
	return made["id"].(string)
}

// change creates, updates and deletes a record: three changes.
func (h *flowHost) change(t *testing.T, name string) {
	t.Helper()
	id := h.call(t, http.MethodPost, "/data/account", map[string]any{"name": name})["id"].(string)
	h.call(t, http.MethodPatch, "/data/account/"+id, map[string]any{"annual_revenue": 1})
	h.call(t, http.MethodDelete, "/data/account/"+id, nil)
}

// Two hosts behind a pooler in transaction mode: one has a DSN for listening,
// the other polls. Each change arrives once.
func TestHostsBehindAPooler(t *testing.T) {
	h := newHosts(t)
	server := storagetest.Postgres(t)
	pooled := storagetest.PgBouncer(t, server, 8)
	rx := newTally(t)
	one := h.start(t, pooled, "--db-listen-dsn", server, "--poll-interval", "10m")
	two := h.start(t, pooled, "--poll-interval", "200ms")
	one.webhook(t, "pooled", rx.URL)
	const each = 15
	var both sync.WaitGroup
	for i, host := range []*flowHost{one, two} {
		both.Go(func() {
			for n := range each {
				host.change(t, fmt.Sprintf("a%d-%d", i, n))
			}
		})
	}
	both.Wait()
	rx.exactlyOnce(t, 2*each*3)
	if out := two.Output(); !strings.Contains(out, "set db-listen-dsn") {
		t.Errorf("the host that polls doesn't say so:\n%s", out)
	}
	for _, host := range []*flowHost{one, two} {
		if out := host.Output(); strings.Contains(out, "level=ERROR") {
			t.Errorf("errors in the log:\n%s", out)
		}
	}
}

// A second host on a SQLite file ends with a sentence while the first one is
// busy, and nothing is sent twice.
func TestSecondServeOfAFile(t *testing.T) {
	h := newHosts(t)
	file := storagetest.SQLite(t)
	rx := newTally(t)
	one := h.start(t, file)
	one.webhook(t, "alone", rx.URL)
	const each = 20
	var load sync.WaitGroup
	load.Go(func() {
		for n := range each {
			one.change(t, fmt.Sprint("a", n))
		}
	})
	for range 3 {
		refused(t, h, file, "is in use by process ")
	}
	load.Wait()
	rx.exactlyOnce(t, each*3)
}

// An event stream of one host shows what another one wrote, without polling,
// whichever transport wakes them.
func TestStreamAcrossHosts(t *testing.T) {
	h := newHosts(t)
	for name, args := range map[string][]string{
		"postgres": {}, "nats": {"--nats-url", natsServer(t), "--nats-name", "e2e"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hosts{bin: h.bin, keyFile: filepath.Join(t.TempDir(), "key")}
			server := storagetest.Postgres(t)
			args := append(args, "--poll-interval", "10m")
			one, two := h.start(t, server, args...), h.start(t, server, args...)
			s := two.stream(t, "?object=account")
			s.line(t, "id: ") // it is live
			for i := range 10 {
				began := time.Now()
				id := one.call(t, http.MethodPost, "/data/account", map[string]any{"name": fmt.Sprint("n", i)})["id"].(string)
				var e struct{ RecordID, Type string }
				if err := json.Unmarshal([]byte(s.line(t, "data: ")), &e); err != nil || e.RecordID != id || e.Type != "data.record.created" {
					t.Fatalf("event %+v, %v; want the creation of %s", e, err, id)
				}
				t.Logf("%v from the call to the other host's stream", time.Since(began))
			}
			stopHost(t, two)
			if got := s.line(t, "data: "); got != `{"reason":"shutdown"}` {
				t.Errorf("at the stop: %s", got)
			}
		})
	}
}

// natsServer runs a NATS server in the process of the test.
func natsServer(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(wide) {
		t.Fatal("the NATS server did not start")
	}
	return s.ClientURL()
}

// eventStream reads a host's event stream.
type eventStream struct {
	host  *flowHost
	lines *bufio.Scanner
}

func (h *flowHost) stream(t *testing.T, query string) *eventStream {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+"/api/v1/events/stream"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-Key", h.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return &eventStream{host: h, lines: bufio.NewScanner(resp.Body)}
}

// line returns the rest of the next line that begins with a text.
func (s *eventStream) line(t *testing.T, prefix string) string {
	t.Helper()
	for s.lines.Scan() {
		if rest, ok := strings.CutPrefix(s.lines.Text(), prefix); ok {
			return rest
		}
	}
	t.Fatalf("the stream ended: %v\n%s", s.lines.Err(), s.host.Output())
	return ""
}

func contextWithin(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), proc.WaitListening)
}

// Settings that would do nothing stop the host.
func TestFanoutSettingsThatDoNothing(t *testing.T) {
	h := newHosts(t)
	sqlite := storagetest.SQLite(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--fanout", "postgres"}, "fanout: a SQLite file has one host"},
		{[]string{"--db-listen-dsn", "postgres://u:s3cret@127.0.0.1/x"}, "db-listen-dsn: is for a database on PostgreSQL"},
		{[]string{"--db-listen-dsn", "sqlite:x"}, "--db-listen-dsn: must be a DSN that starts with postgres://"},
		{[]string{"--nats-url", "nats://u:s3cret@127.0.0.1"}, "nats-url: a SQLite file has one host"},
		{[]string{"--fanout", "carrier-pigeon"}, "--fanout: must be auto, none, postgres or nats"},
	} {
		ctx, cancel := contextWithin(t)
		_, err := proc.Start(ctx, h.bin, append([]string{"--db", sqlite, "--listen", "127.0.0.1:0"}, c.args...))
		cancel()
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}

// built builds the host once for all tests.
var built = sync.OnceValues(func() (string, error) { return proc.Build(context.Background(), buildDir) })

var buildDir string

// TestMain keeps the settings of the machine out of the hosts.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "host")
	if err != nil {
		panic(err)
	}
	buildDir = dir
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "HOST_") && !strings.HasPrefix(name, "HOST_TEST_") {
			_ = os.Unsetenv(name)
		}
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}
