package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/objecthost/objecthost/cmd/host/internal/remote"
	"github.com/objecthost/objecthost/cmd/host/internal/settings"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// asHost makes the test's own binary be the host, so that tests can start it as
// a process.
const asHost = "HOST_TEST_AS_HOST"

func TestMain(m *testing.M) {
	if os.Getenv(asHost) == "1" {
		main()
		return
	}
	os.Exit(m.Run())
}

// examples is the folder of the repository's samples.
const examples = "../../examples"

// process is a host as a process of its own.
type process struct {
	cmd    *exec.Cmd
	lines  chan string // of stdout, closed at its end
	stderr *bytes.Buffer
}

// start runs the host with the working directory dir until the test ends.
func start(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(self, args...), lines: make(chan string, 100), stderr: &bytes.Buffer{}}
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), asHost+"=1")
	p.cmd.Stderr = p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has ended already in a good run
	})
	return p
}

// line returns the rest of the next line of stdout that starts with prefix.
func (p *process) line(t *testing.T, prefix string) string {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case text, open := <-p.lines:
			if !open {
				t.Fatalf("the host ended without a line %q:\n%s", prefix, p.stderr)
			}
			if rest, ok := strings.CutPrefix(text, prefix); ok {
				return rest
			}
		case <-deadline:
			t.Fatalf("no line %q within 30s:\n%s", prefix, p.stderr)
		}
	}
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// wait returns the exit code, -1 for a process that a signal ended.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	for range p.lines { // until stdout ends
	}
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// command runs one command line in this process.
func command(ctx context.Context, env map[string]string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(ctx, args, environment{getenv: func(name string) string { return env[name] }, stdout: &out, stderr: &errs})
	return code, out.String(), errs.String()
}

func TestServe(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, dsn string) {
		dir := t.TempDir()
		objects, err := filepath.Abs(examples + "/objects")
		if err != nil {
			t.Fatal(err)
		}
		args := []string{"serve", "--db", dsn, "--listen", "127.0.0.1:0", "--objects", objects, "--egress-allow", "127.0.0.1", "--key-file", filepath.Join(dir, "host.key")}
		p := start(t, dir, args...)
		p.line(t, "made key ")
		key := p.line(t, "API key, shown this once: ")
		env := map[string]string{remote.EnvKey: key, remote.EnvURL: p.line(t, "objecthost listens on ")}
		t.Run("commands", func(t *testing.T) { testCommands(t, env) })
		if code, out, errs := command(t.Context(), nil, "migrate", "--db", dsn); code != 0 || !strings.HasSuffix(out, " is up to date\n") {
			t.Errorf("migrate beside a running host: %d %q %q", code, out, errs)
		}
		p.signal(t, syscall.SIGTERM)
		if code := p.wait(t); code != 0 {
			t.Errorf("exit code %d after SIGTERM:\n%s", code, p.stderr)
		}

		again := start(t, dir, args...)
		env[remote.EnvURL] = again.line(t, "objecthost listens on ")
		if code, out, errs := command(t.Context(), env, "webhook", "list"); code != 0 || !strings.Contains(out, "\nhook  account  create    http://") {
			t.Errorf("after a restart: %d %q %q", code, out, errs)
		}
		again.signal(t, os.Interrupt)
		if code := again.wait(t); code != 0 {
			t.Errorf("exit code %d after SIGINT:\n%s", code, again.stderr)
		}
	})
}

// testCommands drives the commands for running hosts.
func testCommands(t *testing.T, env map[string]string) {
	hook := start(t, t.TempDir(), "receive", "--listen", "127.0.0.1:0", "--secret", "s3cret")
	url := hook.line(t, "receiving on ")
	must := func(want string, args ...string) string {
		t.Helper()
		code, out, errs := command(t.Context(), env, args...)
		if code != 0 || errs != "" || !strings.Contains(out, want) {
			t.Fatalf("host %s: %d\n%s%s\nwant %q", strings.Join(args, " "), code, out, errs, want)
		}
		return out
	}
	must("account  Account  13", "object", "list")
	must("industry                 select    Industry              one of technology|finance|retail", "object", "show", "account")
	must("created        hook\n", "webhook", "create", "hook", "--object", "account", "--trigger", "create", "--to", url+"/a", "--secret", "s3cret", "--header", "X-Team: crm")
	must("\nhook  account  create    "+url+"/a  on\n", "webhook", "list")
	must("result         HTTP 200\n", "webhook", "test", "hook")
	hook.line(t, "{")
	post(t, env, "/api/v1/data/account", `{"name":"Acme"}`)
	body := hook.line(t, "{")
	if !strings.Contains(body, `"name":"Acme"`) || !strings.HasSuffix(strings.Split(body, `,"timestamp"`)[0], `"action":"created"`) {
		t.Errorf("the receiver got %s", body)
	}
	var rows []struct{ ID, Label string }
	if err := json.Unmarshal([]byte(must("", "deliveries", "list", "--webhook", "hook", "--json")), &rows); err != nil || len(rows) != 2 || rows[0].Label != "data.record.created" {
		t.Fatalf("deliveries are %+v, %v", rows, err)
	}
	must(rows[0].ID+"  ", "deliveries", "list")
	waitFor(t, env, rows[0].ID, "success")
	must("\nROUND  TRY  STARTED ", "deliveries", "show", rows[0].ID)
	must("status         pending\n", "deliveries", "redeliver", rows[0].ID)
	if again := hook.line(t, "{"); again != body {
		t.Errorf("redelivered\n%s\ninstead of\n%s", again, body)
	}
	if code, out, errs := command(t.Context(), env, "deliveries", "show", "nope"); code != 1 || out != "" || errs != "host: Record nope not found in sys_http_delivery (HTTP 404, RECORD_NOT_FOUND)\n" {
		t.Errorf("unknown delivery: %d %q %q", code, out, errs)
	}
	hook.signal(t, os.Interrupt)
	if code := hook.wait(t); code != 0 {
		t.Errorf("receive ended with %d", code)
	}
}

// waitFor asks until a delivery has a status.
func waitFor(t *testing.T, env map[string]string, id, status string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		code, out, errs := command(ctx, env, "deliveries", "list", "--json", "--status", status)
		if code == 0 && strings.Contains(out, id) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("delivery %s is not %s: %s %s", id, status, out, errs)
		}
	}
}

// post calls the API and wants a 201.
func post(t *testing.T, env map[string]string, path, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, env[remote.EnvURL]+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-Key", env[remote.EnvKey])
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if answer, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusCreated {
		t.Fatalf("%s: %d %s", path, resp.StatusCode, answer)
	}
}

// A SQLite file has one host; the second one says so and ends.
func TestServeTwice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{"serve", "--db", "sqlite:" + filepath.Join(dir, "host.db"), "--listen", "127.0.0.1:0"}
	first := start(t, dir, args...)
	first.line(t, "objecthost listens on ")
	second := start(t, dir, args...)
	if code := second.wait(t); code != exitFailure {
		t.Errorf("exit code %d", code)
	}
	if got := second.stderr.String(); !strings.Contains(got, "is in use by process ") || strings.Count(got, "\n") != 1 {
		t.Errorf("got %q", got)
	}
	first.signal(t, syscall.SIGTERM)
	first.wait(t)
}

// A second signal does not wait for the grace time.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hanging, arrived := hangingReceiver(t)
	objects, err := filepath.Abs(examples + "/objects")
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, dir, "serve", "--listen", "127.0.0.1:0", "--grace", "10m", "--objects", objects, "--egress-allow", "127.0.0.1")
	env := map[string]string{remote.EnvKey: p.line(t, "API key, shown this once: "), remote.EnvURL: p.line(t, "objecthost listens on ")}
	if code, _, errs := command(t.Context(), env, "webhook", "create", "slow", "--to", hanging); code != 0 {
		t.Fatal(errs)
	}
	post(t, env, "/api/v1/data/account", `{"name":"Acme"}`)
	<-arrived
	p.signal(t, syscall.SIGTERM)
	stopped := make(chan int, 1)
	go func() { stopped <- p.wait(t) }()
	select { // the request in flight keeps it from ending
	case code := <-stopped:
		t.Fatalf("ended with %d before its delivery was answered", code)
	case <-time.After(300 * time.Millisecond):
	}
	p.signal(t, syscall.SIGTERM)
	if code := <-stopped; code != 128+int(syscall.SIGTERM) {
		t.Errorf("exit code %d", code)
	}
}

func hangingReceiver(t *testing.T) (url string, arrived chan struct{}) {
	t.Helper()
	arrived = make(chan struct{}, 1)
	server := newServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice that the client has gone
		arrived <- struct{}{}
		<-r.Context().Done()
	}))
	return server, arrived
}

func TestDemo(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"sqlite": {"demo"}, "postgres": {"demo", "--db", storagetest.Postgres(t)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out, errs := command(t.Context(), nil, args...)
			lines := strings.Split(strings.TrimSpace(out), "\n")
			if code != 0 || !strings.HasPrefix(lines[len(lines)-1], "OK 5 signed requests for 4 deliveries: ") {
				t.Errorf("exit code %d\n%s%s", code, out, errs)
			}
		})
	}
}

// A demo whose expectations do not hold says which and fails: here the host
// lacks the object.
func TestDemoFails(t *testing.T) {
	t.Parallel()
	cfg := settings.Settings{
		DB: storagetest.SQLite(t), Listen: "127.0.0.1:0", EgressAllow: []string{"127.0.0.1"},
		LogLevel: slog.LevelError, LogFormat: "text", Grace: 10 * time.Second,
	}
	var out, errs bytes.Buffer
	_, err := playDemo(t.Context(), cfg, "SQLite", environment{stdout: &out, stderr: &errs})
	if err == nil || err.Error() != `create the webhook: Object: there is no object "account" (HTTP 400, VALIDATION_FAILED)` {
		t.Errorf("got %v\n%s%s", err, &out, &errs)
	}
}

// An interrupted demo takes its schema with it.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	dsn := storagetest.Postgres(t)
	db := storagetest.Open(t, dsn, storage.Config{})
	p := start(t, t.TempDir(), "demo", "--db", dsn)
	p.line(t, "webhook ")
	if schemas(t, db, p) != 1 {
		t.Error("the demo has no schema of its own")
	}
	p.signal(t, os.Interrupt)
	if code := p.wait(t); code != exitFailure {
		t.Errorf("exit code %d", code)
	}
	if got := p.stderr.String(); !strings.HasPrefix(got, "host: demo: stopped by a signal") {
		t.Errorf("stderr %q", got)
	}
	if schemas(t, db, p) != 0 {
		t.Error("the schema is still there")
	}
}

// schemas counts the demo's schemas of a process.
func schemas(t *testing.T, db *storage.DB, p *process) (count int) {
	t.Helper()
	prefix := fmt.Sprintf("objecthost_demo_%d_", p.cmd.Process.Pid)
	err := db.Read(t.Context()).QueryRowContext(t.Context(), "SELECT count(*) FROM pg_namespace WHERE starts_with(nspname, $1)", prefix).Scan(&count)
	if err != nil {
		t.Fatal(err)
	}
	return count
}

func TestMisuse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"hooks/a.yaml":   "name: a\nurl: ftp://x.example/\n",
		"objects/a.yaml": "name: a\nfields:\n  x: {type: txt}\n",
		"unknown.yaml":   "db: sqlite:x\nlissten: a\n",
		"broken.yaml":    "db: [\n",
		"plugin.yaml":    "db: sqlite:" + filepath.Join(dir, "plugin.db") + "\nlisten: 127.0.0.1:0\nplugins:\n  com.example.nope: {a: 1}\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name string
		args []string
		code int
		want string // DIR stands for the folder
	}{
		{"unknown command", []string{"serv"}, exitMisuse, `unknown command "serv" for "host"`},
		{"unknown flag", []string{"serve", "--lissten", "x"}, exitMisuse, "unknown flag: --lissten"},
		{"extra argument", []string{"serve", "x"}, exitMisuse, `unknown command "x" for "host serve"`},
		{"missing flag", []string{"webhook", "create", "x"}, exitMisuse, `required flag(s) "to" not set`},
		{"value", []string{"serve", "--db", "mysql://u:geheim@h/d"}, exitMisuse, "--db: a DSN starts with sqlite: or postgres://, not with mysql"},
		{"unknown key", []string{"serve", "--config", "DIR/unknown.yaml"}, exitMisuse, "DIR/unknown.yaml:2: no such setting: lissten (did you mean listen?)"},
		{"broken file", []string{"serve", "--config", "DIR/broken.yaml"}, exitMisuse, "DIR/broken.yaml:1: sequence end token ']' not found"},
		{"unknown plugin", []string{"serve", "--config", "DIR/plugin.yaml"}, exitMisuse, "DIR/plugin.yaml:4: plugins.com.example.nope: there is no such plugin"},
		{"settings that do not fit", []string{"serve", "--db", "sqlite:DIR/a.db", "--delivery-retention", "1h"}, exitMisuse,
			"settings: messaging: Config.Retention is 1h0m0s, shorter than the event log's 168h0m0s: a replayed event could be delivered twice"},
		{"object", []string{"serve", "--db", "sqlite:DIR/c.db", "--objects", "DIR/objects"}, exitMisuse, `DIR/objects/a.yaml:3: fields.x.type: "txt" is not a field type`},
		{"webhook", []string{"serve", "--db", "sqlite:DIR/d.db", "--listen", "127.0.0.1:0", "--webhooks", "DIR/hooks"}, exitMisuse,
			"webhooks: declaration a.yaml webhook 1: URL: scheme must be http or https"},
		{"no origin", []string{"serve", "--public-url", "https://host.example/app"}, exitMisuse, `--public-url: "https://host.example/app" is not an origin such as https://host.example`},
		{"provider without an id", []string{"serve", "--db", "sqlite:DIR/e.db", "--oidc-issuer", "https://id.example"}, exitMisuse,
			"oidc-client-id: is needed along with the other settings of the OpenID Connect provider"},
		{"provider without a way back", []string{"serve", "--db", "sqlite:DIR/f.db", "--oidc-issuer", "https://id.example", "--oidc-client-id", "host"}, exitMisuse,
			"public-url: is needed along with the other settings of the OpenID Connect provider"},
		{"demo database", []string{"demo", "--db", "sqlite:x"}, exitMisuse, "--db: the demo takes a postgres:// DSN, or none for SQLite"},
		{"port in use", []string{"serve", "--db", "sqlite:DIR/b.db", "--listen", "ADDR"}, exitFailure, "rest: cannot listen on ADDR: bind: address already in use"},
		{"remote URL", []string{"object", "list", "--url", "nope"}, exitMisuse, `--url: "nope" is not a URL such as http://127.0.0.1:8080`},
		{"remote limit", []string{"deliveries", "list", "--limit", "0"}, exitMisuse, "--limit: must be 1 to 1000, not 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			fill := strings.NewReplacer("DIR", dir, "ADDR", strings.TrimPrefix(newServer(t, http.NotFoundHandler()), "http://"))
			args := make([]string, len(tc.args))
			for i, a := range tc.args {
				args[i] = fill.Replace(a)
			}
			code, _, errs := command(t.Context(), nil, args...)
			if want := "host: " + fill.Replace(tc.want) + "\n"; code != tc.code || lastLine(errs) != want {
				t.Errorf("code %d\ngot  %swant %s", code, errs, want)
			}
		})
	}
}

// lastLine is the last line; the log of a host that began to start may stand
// before it.
func lastLine(text string) string {
	lines := strings.SplitAfter(text, "\n")
	if len(lines) < 2 {
		return text
	}
	return lines[len(lines)-2]
}

func newServer(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}
