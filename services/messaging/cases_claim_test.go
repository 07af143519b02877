package messaging_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/services/messaging/messagingtest"
	"github.com/objecthost/objecthost/services/messaging/sqlstore"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// quick makes claims short and looks at the store often, for tests in which
// claims end or other processes write.
func quick(c *messaging.Config) {
	c.QueueWait, c.ClaimMargin, c.PollInterval = 100*time.Millisecond, time.Second, 20*time.Millisecond
}

// sentOnce fails for every (delivery, attempt) that the receiver got twice.
func (b *bundle) sentOnce(t *testing.T, want int) {
	t.Helper()
	seen := make(map[string]int)
	for _, r := range b.receiver.Requests() {
		seen[r.Header.Get("X-Objectstack-Delivery")+" attempt "+r.Header.Get("X-Objectstack-Attempt")]++
	}
	for try, n := range seen {
		if n != 1 {
			t.Errorf("delivery %s was sent %d times", try, n)
		}
	}
	if len(seen) != want {
		t.Errorf("%d attempts arrived, want %d", len(seen), want)
	}
}

// Rows of one claim that wait for their turn longer than the claim allows are
// given back, not sent past its end.
func TestCase_CLM_01_OneRequestPerRowBehindASlowReceiver(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		for _, nodes := range []int{1, 2} {
			b := setup(t, db, quick)
			for range nodes - 1 {
				setup(t, db, quick)
			}
			b.receiver.Handle("/slow", messagingtest.Delay(150*time.Millisecond, messagingtest.Status(200, "")))
			b.target(t, func(target *messaging.Target) { target.State, target.MaxConcurrency = messaging.TargetHeld, 4 })
			var ids []string
			for range 32 {
				ids = append(ids, b.enqueue(t, b.request("/slow"))[0].ID)
			}
			b.target(t, func(target *messaging.Target) { target.MaxConcurrency = 4 })
			for _, id := range ids {
				if d := b.finished(t, id); d.Status != messaging.StatusSuccess || d.Attempts != 1 || d.CrashCount != 0 {
					t.Errorf("delivery = %+v", d)
				}
			}
			b.sentOnce(t, 32)
			b.halt(t)
		}
	})
}

// A worker that comes back after its claim has ended changes nothing, whatever
// it brings and whoever has the row now, a namesake included.
func TestCase_CLM_02_LateOutcomesChangeNothing(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		for _, c := range []struct{ name, node, other string }{{"another node", "a", "b"}, {"a node of the same name", "a", "a"}} {
			for _, late := range []int{503, 200, 404} {
				b := setup(t, db, quick, func(c2 *messaging.Config) { c2.Node = c.node })
				b.receiver.Handle("/in", messagingtest.Hang(messagingtest.Status(late, "late")), messagingtest.Status(200, "in time"))
				id := b.enqueue(t, b.request("/in"))[0].ID
				if _, err := b.receiver.WaitFor(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
				b.exec(t, `UPDATE sys_http_delivery SET claim_expires_at = 1 WHERE id = ?`, id)
				setup(t, db, quick, func(c2 *messaging.Config) { c2.Node = c.other }) // either may take it
				before := b.finished(t, id)
				b.receiver.Release()
				b.halt(t) // the late answer has been dealt with
				d := b.delivery(t, id)
				if d.Status != messaging.StatusSuccess || d.Attempts != 1 || d.ResponseBody != "in time" || d.Error != "" || !d.UpdatedAt.Equal(before.UpdatedAt) {
					t.Errorf("%s, late %d: %+v", c.name, late, d)
				}
				if attempts, err := b.Attempts(t.Context(), id); err != nil || len(attempts) != 1 || attempts[0].ResponseBody != "in time" {
					t.Errorf("%s, late %d: attempts %+v, %v", c.name, late, attempts, err)
				}
			}
		}
	})
}

// Nor does it while the newer claim is still at work.
func TestCase_CLM_02_LateOutcomesOfARowInFlight(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		for _, late := range []int{503, 200} {
			b := setup(t, db, quick)
			b.receiver.Handle("/in", messagingtest.Delay(400*time.Millisecond, messagingtest.Status(late, "late")),
				messagingtest.Hang(messagingtest.Status(200, "in time")))
			id := b.enqueue(t, b.request("/in"))[0].ID
			if _, err := b.receiver.WaitFor(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			b.exec(t, `UPDATE sys_http_delivery SET claim_expires_at = 1 WHERE id = ?`, id)
			other := setup(t, db, quick)
			if _, err := b.receiver.WaitFor(t.Context(), 2); err != nil {
				t.Fatal(err)
			}
			answered := time.NewTimer(700 * time.Millisecond)
			<-answered.C // the late answer is in
			if d := b.delivery(t, id); d.Status != messaging.StatusInFlight || d.Attempts != 0 || d.ResponseCode != 0 {
				t.Errorf("late %d while the newer claim is at work: %+v", late, d)
			}
			b.receiver.Release()
			if d := b.finished(t, id); d.Status != messaging.StatusSuccess || d.Attempts != 1 || d.ResponseBody != "in time" {
				t.Errorf("late %d: %+v", late, d)
			}
			b.halt(t)
			other.halt(t)
		}
	})
}

// A claim takes what it returns; when it cannot be read, it comes back by its
// own end.
func TestCase_CLM_06_ClaimsTakeWhatTheyReturn(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db, func(c *messaging.Config) { c.BatchSize, c.MaxInFlight, c.MaxPerTarget = 32, 8, 8 })
		b.receiver.Handle("/hang", messagingtest.Hang(messagingtest.Status(200, "")))
		b.hold(t)
		for range 10 {
			reqs := make([]messaging.Request, 300)
			for i := range reqs {
				reqs[i] = b.request("/hang")
			}
			b.enqueue(t, reqs...)
		}
		b.resume(t)
		if _, err := b.receiver.WaitFor(t.Context(), 8); err != nil {
			t.Fatal(err)
		}
		if n := b.number(t, `SELECT COUNT(*) FROM sys_http_delivery WHERE status = 'in_flight'`); n > 32+8 {
			t.Errorf("%d rows are claimed, want at most a batch of 32 and the 8 in flight", n)
		}
		b.hold(t)
		b.receiver.Release()
	})
}

func TestCase_CLM_06_ClaimsThatCannotBeReadComeBack(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		w := &lossy{}
		b := setup(t, db, quick, func(c *messaging.Config) { w.Store = c.Store; c.Store = w })
		b.hold(t)
		req := b.request("/in")
		req.Timeout = time.Second
		id := b.enqueue(t, req)[0].ID
		w.lose.Store(true)
		b.resume(t)
		if d := b.waitAttempt(t); d.ID != id || d.Status != messaging.StatusSuccess || d.Attempts != 1 {
			t.Errorf("delivery = %+v", d)
		}
		if w.lose.Load() {
			t.Error("no claim was lost")
		}
		b.sentOnce(t, 1)
	})
}

// lossy loses the answer of one claim that took rows.
type lossy struct {
	driver.Store
	lose atomic.Bool
}

func (l *lossy) Claim(ctx context.Context, req driver.ClaimRequest) ([]*driver.Row, error) {
	rows, err := l.Store.Claim(ctx, req)
	if len(rows) > 0 && l.lose.CompareAndSwap(true, false) {
		return nil, errors.New("connection lost")
	}
	return rows, err
}

// Three hosts on one database send each row once. SQLite knows one host per
// file, which its lock keeps; without it they still do not meet in a row.
func TestCase_CLM_07_HostsShareTheRows(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, dsn string) {
		first := storagetest.Open(t, dsn, storage.Config{})
		if first.Dialect() == storage.SQLite {
			release, err := first.Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var locked *storage.LockedError
			if _, err := storagetest.Open(t, dsn, storage.Config{}).Lock(t.Context()); !errors.As(err, &locked) || locked.PID != os.Getpid() {
				t.Errorf("the second lock = %v", err)
			}
			if err := release(); err != nil {
				t.Fatal(err)
			}
		}
		polls := func(c *messaging.Config) { c.PollInterval = 100 * time.Millisecond }
		b := setup(t, first, polls)
		all := []*bundle{b, setup(t, storagetest.Open(t, dsn, storage.Config{}), polls), setup(t, storagetest.Open(t, dsn, storage.Config{}), polls)}
		const batches = 10
		size := 150
		if first.Dialect() == storage.SQLite {
			size = 30 // the three wait for the file's lock by turns of sleep
		}
		var group sync.WaitGroup
		for n := range batches {
			reqs := make([]messaging.Request, size)
			for i := range reqs {
				reqs[i] = b.request(fmt.Sprintf("/%d", i%10))
				reqs[i].RefID = fmt.Sprintf("hook-%d", i%10)
			}
			group.Go(func() {
				if _, err := all[n%3].EnqueueBatch(t.Context(), reqs); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		eventually(t, "all rows are delivered", func() bool {
			return b.number(t, `SELECT COUNT(*) FROM sys_http_delivery WHERE status = 'success' AND attempts = 1`) == int64(batches*size)
		})
		b.sentOnce(t, batches*size)
	})
}

// The claim that has ended is found behind any number of valid ones.
func TestCase_CLM_09_StaleClaimsAreFoundBehindValidOnes(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db, quick, func(c *messaging.Config) { c.BatchSize = 50 })
		b.hold(t)
		reqs := make([]messaging.Request, 201)
		for i := range reqs {
			reqs[i] = b.request("/in")
		}
		got := b.enqueue(t, reqs...)
		stale := got[200].ID
		b.exec(t, `UPDATE sys_http_delivery SET status = 'in_flight', claimed_by = 'gone', claim_token = 'x', claim_expires_at = 99999999999999`)
		b.exec(t, `UPDATE sys_http_delivery SET claim_expires_at = 1 WHERE id = ?`, stale)
		b.resume(t)
		if d := b.finished(t, stale); d.Status != messaging.StatusSuccess || d.Attempts != 1 {
			t.Errorf("delivery = %+v", d)
		}
		if n := b.number(t, `SELECT COUNT(*) FROM sys_http_delivery WHERE status = 'in_flight'`); n != 200 {
			t.Errorf("%d rows are in flight, want the 200 valid claims", n)
		}
		b.sentOnce(t, 1)
	})
}

const caseChild = "OBJECTHOST_CASE_CHILD"

// Hosts whose clocks and time zones differ agree: the database's clock judges.
func TestCase_CLM_10_ClocksAndZonesOfHostsDoNotMatter(t *testing.T) {
	t.Parallel()
	if child := os.Getenv(caseChild); child != "" {
		dsn, dialect, _ := strings.Cut(child, "|")
		t.Run(dialect, func(t *testing.T) { zoneChild(t, dsn) })
		return
	}
	storagetest.EachDialectDSN(t, func(t *testing.T, dsn string) {
		b := setup(t, storagetest.Open(t, dsn, storage.Config{}))
		b.halt(t)
		b.receiver.Handle("/in", messagingtest.Status(503, ""), messagingtest.Status(200, ""))
		id := b.enqueue(t, b.request("/in"))[0].ID
		for i, zone := range []string{"America/New_York", "Asia/Tokyo"} {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCase_CLM_10_ClocksAndZonesOfHostsDoNotMatter$")
			cmd.Env = append(os.Environ(), "TZ="+zone, caseChild+"="+dsn+"|"+string(b.db.Dialect()))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", zone, err, out)
			}
			d := b.delivery(t, id)
			now, err := b.db.NowMillis(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if d.Attempts != i+1 || d.CreatedAt.UnixMilli() > now || d.UpdatedAt.UnixMilli() > now || now-d.LastAttemptAt.UnixMilli() > 30_000 {
				t.Errorf("%s: %+v at %d", zone, d, now)
			}
			if i == 0 {
				if wait := b.retryWait(t, id); d.Status != messaging.StatusPending || wait < 795*time.Millisecond || wait > 1200*time.Millisecond {
					t.Errorf("%s: the retry waits %s", zone, wait)
				}
			} else if d.Status != messaging.StatusSuccess || d.FinishedAt.UnixMilli() > now {
				t.Errorf("%s: %+v", zone, d)
			}
		}
		b.sentOnce(t, 2)
	})
}

// zoneChild sends what is due until one attempt is made. Its sender's clock is
// ten minutes off, to the side that its zone lies on.
func zoneChild(t *testing.T, dsn string) {
	skew := 10 * time.Minute
	if os.Getenv("TZ") == "Asia/Tokyo" {
		skew = -skew
	}
	if _, offset := time.Now().Zone(); offset == 0 {
		t.Fatal("the time zone is not in force")
	}
	b := setup(t, storagetest.Open(t, dsn, storage.Config{}), func(c *messaging.Config) {
		c.Sender.Now = func() time.Time { return time.Now().Add(skew) }
	})
	b.waitAttempt(t)
	b.halt(t)
}

// A retry that a wrong clock has put far into the future is visible, holds back
// nothing, and can be sent by hand.
func TestCase_CLM_11_RetriesInAWrongFuture(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		b.receiver.Handle("/in", messagingtest.Status(503, ""), messagingtest.Status(200, ""))
		id := b.enqueue(t, b.request("/in"))[0].ID
		b.waitAttempt(t)
		b.exec(t, `UPDATE sys_http_delivery SET next_retry_at = next_retry_at + 28800000 WHERE id = ?`, id)
		b.enqueue(t, b.request("/other"))
		if d := b.waitAttempt(t); d.ID == id || d.Status != messaging.StatusSuccess {
			t.Errorf("delivery = %+v", d)
		}
		if d := b.delivery(t, id); d.Status != messaging.StatusPending || time.Until(d.NextRetryAt) < 7*time.Hour {
			t.Errorf("delivery = %+v", d)
		}
		if _, err := b.Cancel(t.Context(), id, "due in a wrong future", messaging.RedeliverOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Redeliver(t.Context(), id, messaging.RedeliverOptions{}); err != nil {
			t.Fatal(err)
		}
		if d := b.waitAttempt(t); d.ID != id || d.Status != messaging.StatusSuccess {
			t.Errorf("delivery = %+v", d)
		}
	})
}

func TestCase_CLM_12_OneKeyTwiceInABatch(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		keyed := func(key string) messaging.Request {
			req := b.request("/" + key)
			req.DedupKey = key
			return req
		}
		got := b.enqueue(t, keyed("a"), keyed("b"), keyed("a"), keyed("c"), keyed("a"))
		if got[0].ID != got[2].ID || got[0].ID != got[4].ID || !got[0].New || got[2].New || got[4].New || !got[1].New || !got[3].New {
			t.Errorf("enqueued = %+v", got)
		}
		again := b.enqueue(t, keyed("d"), keyed("b"), keyed("d"))
		if again[1].ID != got[1].ID || again[1].New || again[0].ID != again[2].ID || !again[0].New {
			t.Errorf("enqueued again = %+v", again)
		}
		for range 4 {
			b.waitAttempt(t)
		}
		b.sentOnce(t, 4)
	})
}

// idle counts the calls that write, and the looks at the store.
type idle struct {
	driver.Store
	looks, writes atomic.Int64
}

func (s *idle) Outlook(ctx context.Context, p driver.View) (driver.Outlook, error) {
	s.looks.Add(1)
	return s.Store.Outlook(ctx, p)
}

func (s *idle) Claim(ctx context.Context, req driver.ClaimRequest) ([]*driver.Row, error) {
	s.writes.Add(1)
	return s.Store.Claim(ctx, req)
}

func (s *idle) Record(ctx context.Context, o []driver.Outcome, touches []driver.Touch) ([]bool, error) {
	s.writes.Add(1)
	return s.Store.Record(ctx, o, touches)
}

func (s *idle) Expire(ctx context.Context, all bool, deadAt, limit int) (int, []*driver.Row, error) {
	s.writes.Add(1)
	return s.Store.Expire(ctx, all, deadAt, limit)
}

func (s *idle) Sweep(ctx context.Context, limit int) ([]*driver.Row, error) {
	s.writes.Add(1)
	return s.Store.Sweep(ctx, limit)
}

// safeLog is a log that is read while others write.
type safeLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *safeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *safeLog) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.b.Reset()
	return l.b.String()
}

// An idle dispatcher only looks: no write, no log line, also while a row waits
// for a retry far away, a held target has rows, and a claim is valid.
func TestCase_CLM_13_IdleMeansNoWrites(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, dsn string) {
		w, log := &idle{}, &safeLog{}
		b := setup(t, storagetest.Open(t, dsn, storage.Config{}), func(c *messaging.Config) {
			w.Store = c.Store
			c.Store, c.PollInterval, c.Logger = w, 10*time.Millisecond, slog.New(slog.NewTextHandler(log, nil))
		})
		b.hold(t)
		b.enqueue(t, b.request("/held"))
		far, claimed := b.request("/far"), b.request("/claimed")
		far.RefID, claimed.RefID = "far", "claimed"
		b.receiver.Handle("/far", messagingtest.Status(503, "", "Retry-After: 3600"))
		b.receiver.Handle("/claimed", messagingtest.Hang(messagingtest.Status(200, "")))
		b.enqueue(t, far, claimed)
		b.waitAttempt(t)
		if _, err := b.receiver.WaitFor(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		looks := w.looks.Load()
		eventually(t, "what follows the attempt is done", func() bool { return w.looks.Load() > looks+5 })
		log.take()
		writes, marks := w.writes.Load(), b.fingerprint(t)
		looks = w.looks.Load()
		eventually(t, "30 looks at the store", func() bool { return w.looks.Load() > looks+30 })
		if n := w.writes.Load() - writes; n != 0 {
			t.Errorf("%d writes while idle", n)
		}
		if now := b.fingerprint(t); now != marks {
			t.Errorf("rows were written while idle: %s, then %s", marks, now)
		}
		if text := log.take(); text != "" {
			t.Errorf("log lines while idle:\n%s", text)
		}
		b.receiver.Release()
	})
}

// fingerprint changes with every write of a row: on SQLite it is the state of
// the files, on PostgreSQL the rows' own versions.
func (b *bundle) fingerprint(t *testing.T) string {
	t.Helper()
	if b.db.Dialect() == storage.SQLite {
		mark := ""
		for _, suffix := range []string{"", "-wal"} {
			info, err := os.Stat(b.db.File() + suffix)
			if err != nil {
				t.Fatal(err)
			}
			mark += fmt.Sprint(info.Size(), " ", info.ModTime().UnixNano(), " ")
		}
		return mark
	}
	query := `SELECT (SELECT string_agg(ctid::text || xmin::text, ',' ORDER BY id) FROM sys_http_delivery) || ';' ||
			(SELECT string_agg(ctid::text || xmin::text, ',' ORDER BY id) FROM sys_http_target)`
	var mark string
	if err := b.db.Read(t.Context()).QueryRowContext(t.Context(), query).Scan(&mark); err != nil {
		t.Fatal(err)
	}
	return mark
}

// What a dead process had claimed is taken back before this one claims, so that
// its own first claims are not among them.
func TestAStartTakesBackOldClaimsOnly(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		if err := db.Migrate(t.Context(), sqlstore.Migrations()); err != nil {
			t.Fatal(err)
		}
		receiver := messagingtest.New(t)
		early, err := messaging.New(messaging.Config{Store: sqlstore.New(db), Tx: db})
		if err != nil {
			t.Fatal(err)
		}
		// Enqueued before the start: looking for old claims holds the writer.
		req := messaging.Request{Source: messaging.SourceWebhook, RefID: "hook", URL: receiver.URL + "/in", Payload: []byte("{}")}
		if _, err := early.Enqueue(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		w := &slowExpiry{gate: make(chan struct{})}
		b := setup(t, db, func(c *messaging.Config) {
			w.Store = c.Store
			c.Store, c.Exclusive = w, true
		})
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := receiver.WaitFor(ctx, 1); err == nil {
			t.Error("a row was claimed before the old claims were taken back")
		}
		close(w.gate)
		if d := b.waitAttempt(t); d.Status != messaging.StatusSuccess || d.CrashCount != 0 {
			t.Errorf("delivery = %+v", d)
		}
		if n := len(receiver.Requests()); n != 1 {
			t.Errorf("sent %d times, want once", n)
		}
	})
}

// slowExpiry takes its time for the first look at old claims.
type slowExpiry struct {
	driver.Store
	gate chan struct{}
}

func (s *slowExpiry) Expire(ctx context.Context, all bool, deadAt, limit int) (int, []*driver.Row, error) {
	select {
	case <-s.gate:
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	}
	return s.Store.Expire(ctx, all, deadAt, limit)
}
