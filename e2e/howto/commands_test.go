package howto

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/objecthost/objecthost/e2e/proc"
)

// The session of the page is typed into a shell beside a running host.
func TestFollowUseTheCommandLine(t *testing.T) {
	blocks := map[string]Block{}
	for _, b := range pages(t) {
		if b.Page == "use-the-command-line.md" {
			blocks[b.Name] = b
		}
	}
	dir := t.TempDir()
	bin, err := proc.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	starting, cancel := context.WithTimeout(t.Context(), proc.WaitListening)
	defer cancel()
	host, err := proc.Start(starting, bin, []string{
		"--db", "sqlite:" + filepath.Join(dir, "host.db"), "--listen", "127.0.0.1:0",
		"--objects", filepath.Join(proc.Root(), "examples", "objects"), "--egress-allow", "127.0.0.1",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(host.Kill)
	receiver := freeAddress(t)
	env := append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOST_URL="+host.URL, "HOST_KEY="+host.Key)
	run := func(name string, out *output) *exec.Cmd {
		b, ok := blocks[name]
		if !ok {
			t.Fatalf("the page has no block %q", name)
		}
		cmd := exec.Command("bash", "-eu", "-c", strings.ReplaceAll(b.Text, "127.0.0.1:9000", receiver))
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, env, out, out
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the receiver is a child of the shell
		return cmd
	}

	received := newOutput("receiving on")
	receive := run("receiver", received)
	if err := receive.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-receive.Process.Pid, syscall.SIGKILL)
		_ = receive.Wait()
	})
	received.wait(t)

	session := newOutput("")
	if err := run("session", session).Run(); err != nil {
		t.Fatalf("%s: %v\n%s", blocks["session"], err, session)
	}
	for _, want := range []string{"Account", "maxLength 20", "create,update", "webhook.test", "success"} {
		if !strings.Contains(session.String(), want) {
			t.Errorf("the session shows no %q:\n%s", want, session)
		}
	}
	createAccount(t, host)
	replay := newOutput("")
	if err := run("replay", replay).Run(); err != nil {
		t.Fatalf("%s: %v\n%s", blocks["replay"], err, replay)
	}
	for _, want := range []string{`(?m)^matched +1$`, `(?m)^status +done$`, `(?m)^delivered +1$`} {
		if !regexp.MustCompile(want).MatchString(replay.String()) {
			t.Errorf("the replay shows no %s:\n%s", want, replay)
		}
	}
	completion := newOutput("")
	if err := run("completion", completion).Run(); err != nil {
		t.Errorf("%s: %v\n%s", blocks["completion"], err, completion)
	}
}

func createAccount(t *testing.T, host *proc.Host) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, host.URL+"/api/v1/data/account", strings.NewReader(`{"name":"Acme"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-Key", host.Key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("create an account: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// output collects what a command prints and tells when a text has come.
type output struct {
	mu     sync.Mutex
	text   bytes.Buffer
	awaits string
	came   chan struct{}
}

func newOutput(awaits string) *output { return &output{awaits: awaits, came: make(chan struct{})} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.text.Write(p)
	if o.awaits != "" && strings.Contains(o.text.String(), o.awaits) {
		o.awaits = ""
		close(o.came)
	}
	return n, err
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (o *output) wait(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), proc.WaitListening)
	defer cancel()
	select {
	case <-o.came:
	case <-ctx.Done():
		t.Fatalf("it did not print what was awaited, but\n%s", o)
	}
}
