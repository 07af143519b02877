package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/objecthost/objecthost/e2e/proc"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// buildNewer builds a host of a newer version, with more migrations of the
// outbox, which the older version doesn't know, from number 9001 on.
func buildNewer(t *testing.T, ups ...string) string {
	t.Helper()
	dir := t.TempDir()
	replace := map[string]string{}
	for i, up := range ups {
		for _, dialect := range []string{"postgres", "sqlite"} {
			for suffix, text := range map[string]string{"up": up, "down": "SELECT 1;"} {
				name := fmt.Sprintf("%04d_change_outbox.tx.%s.sql", 9001+i, suffix)
				file := filepath.Join(dir, dialect+name)
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				replace[filepath.Join(proc.Root(), "services", "messaging", "sqlstore", "migrations", dialect, name)] = file
			}
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay, bin := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "host")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", bin, "./cmd/host")
	cmd.Dir = proc.Root()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the newer host: %v\n%s", err, out)
	}
	return bin
}

// Two versions serve one database under load while hosts of each come and go:
// each change arrives once. After a breaking migration the older one refuses to
// start, while the newer one goes on. A SQLite file has one host at a time, so
// that there the versions take turns.
func TestCase_OPS_08_RollingUpgrade(t *testing.T) {
	h := newHosts(t)
	const adds, drops = "-- additive\nALTER TABLE sys_http_delivery ADD COLUMN newer TEXT;", "ALTER TABLE sys_http_delivery DROP COLUMN newer;"
	old, additive, breaking := h.bin, buildNewer(t, adds), buildNewer(t, adds, drops)
	for name, dsn := range map[string]func(testing.TB) string{"sqlite": storagetest.SQLite, "postgres": storagetest.Postgres} {
		t.Run(name, func(t *testing.T) {
			u := &upgrade{hosts: &hosts{keyFile: filepath.Join(t.TempDir(), "key")}, dsn: dsn(t), rx: newTally(t)}
			together := name == "postgres"
			one := u.start(t, old)
			one.webhook(t, "upgraded", u.rx.URL)
			u.load(t, one)
			if !together {
				stopHost(t, one)
			}
			two := u.start(t, additive)
			u.load(t, two)
			if together {
				u.load(t, one, two)
				stopHost(t, one) // work that it held goes on with the newer one
				u.load(t, two)
			} else {
				stopHost(t, two)
			}
			three := u.start(t, old)
			u.load(t, three)
			if together {
				u.load(t, two, three)
				stopHost(t, two)
				u.load(t, three)
			}
			u.rx.exactlyOnce(t, u.total)
			u.nothingWaits(t, three)
			stopHost(t, three)

			four := u.start(t, breaking)
			u.load(t, four)
			if !together {
				stopHost(t, four)
			}
			for _, bin := range []string{old, additive} {
				u.bin = bin
				refused(t, u.hosts, u.dsn, "migration messaging/9002_change_outbox, which this program doesn't know; use a newer version")
			}
			if !together {
				four = u.start(t, breaking)
			}
			u.load(t, four)
			u.rx.exactlyOnce(t, u.total)
		})
	}
}

// upgrade is one installation that several versions serve.
type upgrade struct {
	*hosts
	dsn   string
	rx    *tally
	total int
}

func (u *upgrade) start(t *testing.T, bin string) *flowHost {
	t.Helper()
	u.bin = bin
	return u.hosts.start(t, u.dsn)
}

// load changes records on each host from two sides.
func (u *upgrade) load(t *testing.T, hosts ...*flowHost) {
	t.Helper()
	var wg sync.WaitGroup
	const each = 8
	for i, host := range hosts {
		for w := range 2 {
			wg.Go(func() {
				for n := range each {
					host.change(t, fmt.Sprintf("c%d-%d-%d-%d", u.total, i, w, n))
				}
			})
		}
	}
	wg.Wait()
	u.total += len(hosts) * 2 * each * 3
}

// nothingWaits fails when a row is stuck. The last outcome may still be on its
// way to the database.
func (u *upgrade) nothingWaits(t *testing.T, h *flowHost) {
	t.Helper()
	deadline := time.Now().Add(wide)
	for {
		open := h.call(t, http.MethodPost, "/data/sys_http_delivery/query", map[string]any{
			"where": map[string]any{"status": map[string]any{"$ne": "success"}}, "limit": 1,
		})
		if open["total"] == 0.0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("rows are stuck: %v", open)
		}
		pause(t)
	}
}
