package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/objecthost/objecthost/e2e/proc"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// An installation grows from SQLite to PostgreSQL, or shrinks back: what waited
// in the old database is sent from the new one, nothing twice.
func TestCopyOfAnInstallation(t *testing.T) {
	kinds := map[string]func(testing.TB) string{"sqlite": storagetest.SQLite, "postgres": storagetest.Postgres}
	for _, way := range [][2]string{{"sqlite", "postgres"}, {"postgres", "sqlite"}} {
		t.Run(way[0]+" to "+way[1], func(t *testing.T) {
			h := newHosts(t)
			from, to := kinds[way[0]](t), kinds[way[1]](t)
			rx := newTally(t)
			old := h.start(t, from)
			hook := "/data/sys_webhook/" + old.webhook(t, "accounts", rx.URL)
			const writers, each = 4, 12
			load := func() {
				var wg sync.WaitGroup
				for w := range writers {
					wg.Go(func() {
						for n := range each {
							old.change(t, fmt.Sprintf("old%d-%d", w, n))
						}
					})
				}
				wg.Wait()
			}
			load()
			rx.exactlyOnce(t, writers*each*3)
			old.call(t, http.MethodPatch, hook, map[string]any{"paused": true})
			load()
			kept := old.call(t, http.MethodPost, "/data/account", map[string]any{
				"name": "kept", "annual_revenue": 12.5, "industry": "finance", "code": "KEPT",
			})["id"].(string)
			// Killed: deliveries wait for the webhook, some events are not matched yet,
			// and no request is in flight that could be made twice.
			old.Kill()

			if out, err := h.copyStorage(t, from, to, 3); err == nil || !strings.Contains(out, "account: ") {
				t.Fatalf("the copy was not killed: %v\n%s", err, out)
			}
			refused(t, h, to, "give host storage copy once more")
			out, err := h.copyStorage(t, from, to, 0)
			if err != nil || !strings.Contains(out, "compared them") {
				t.Fatalf("copy: %v\n%s", err, out)
			}
			if out, err := h.copyStorage(t, from, to, 0); err == nil || !strings.Contains(out, "not empty") {
				t.Errorf("a second copy: %v\n%s", err, out)
			}

			next := h.start(t, to)
			record := next.call(t, http.MethodGet, "/data/account/"+kept, nil)["record"].(map[string]any)
			if record["name"] != "kept" || record["annual_revenue"] != 12.5 || record["code"] != "KEPT" {
				t.Errorf("the record after the copy: %v", record)
			}
			for n := range each {
				next.change(t, fmt.Sprintf("new-%d", n))
			}
			next.call(t, http.MethodPatch, hook, map[string]any{"paused": false})
			rx.exactlyOnce(t, (2*writers+1)*each*3+1)
			stopHost(t, next)
		})
	}
}

func stopHost(t *testing.T, h *flowHost) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wide)
	defer cancel()
	if err := h.Stop(ctx); err != nil {
		t.Fatalf("stop: %v\n%s", err, h.Output())
	}
}

// refused checks that no host serves a database.
func refused(t *testing.T, h *hosts, dsn, why string) {
	t.Helper()
	ctx, cancel := contextWithin(t)
	defer cancel()
	started, err := proc.Start(ctx, h.bin, []string{"--db", dsn, "--key-file", h.keyFile, "--listen", "127.0.0.1:0"})
	if err == nil {
		started.Kill()
	}
	if err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("start = %v, want %q", err, why)
	}
}

// copyStorage runs host storage copy and returns what it printed. It is killed
// after some lines of progress, unless that is 0.
func (h *hosts) copyStorage(t *testing.T, from, to string, killAfter int) (string, error) {
	t.Helper()
	var out bytes.Buffer
	for try := 0; ; try++ {
		out.Reset()
		cmd := exec.Command(h.bin, "storage", "copy", "--from", from, "--to", to)
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		var stdout bytes.Buffer
		cmd.Stdout = &stdout
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(stderr)
		for n := 1; lines.Scan(); n++ {
			fmt.Fprintln(&out, lines.Text())
			if n == killAfter {
				_ = cmd.Process.Signal(syscall.SIGKILL)
			}
		}
		err = cmd.Wait()
		out.Write(stdout.Bytes())
		// A host that has just stopped may count as serving for a moment.
		if err != nil && strings.Contains(out.String(), "is served by") && try < 600 {
			pause(t)
			continue
		}
		if exit := new(exec.ExitError); killAfter > 0 && errors.As(err, &exit) && exit.ExitCode() != -1 {
			t.Fatalf("the copy ended by itself: %v\n%s", err, out.String())
		}
		return out.String(), err
	}
}

// A database that a host serves is not copied.
func TestCopyOfAServedDatabase(t *testing.T) {
	h := newHosts(t)
	for name, dsn := range map[string]func(testing.TB) string{"sqlite": storagetest.SQLite, "postgres": storagetest.Postgres} {
		t.Run(name, func(t *testing.T) {
			from := dsn(t)
			host := h.start(t, from)
			_ = host.call(t, http.MethodGet, "/data/account", nil)
			deadline := time.Now().Add(wide)
			for {
				cmd := exec.Command(h.bin, "storage", "copy", "--from", from, "--to", storagetest.SQLite(t))
				out, err := cmd.CombinedOutput()
				if err != nil && (strings.Contains(string(out), "is served by") || strings.Contains(string(out), "in use by process")) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("copy of a served database: %v\n%s", err, out)
				}
				pause(t)
			}
		})
	}
}
