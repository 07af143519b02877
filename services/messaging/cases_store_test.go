package messaging_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/services/messaging/messagingtest"
	"github.com/objecthost/objecthost/services/messaging/sqlstore"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// Fifty callers of two hosts race for one key: one row, one request, one id for
// all, and no error.
func TestCase_EVT_04_RacingKeysConverge(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, dsn string) {
		b := setup(t, storagetest.Open(t, dsn, storage.Config{}), quick)
		other := setup(t, storagetest.Open(t, dsn, storage.Config{}), quick)
		ids := raceForKey(t, b, other)
		if len(ids) != 1 {
			t.Errorf("%d ids for one key: %v", len(ids), ids)
		}
		for id := range ids {
			b.finished(t, id)
		}
		b.sentOnce(t, 1)
	})
}

// raceForKey enqueues one key from fifty goroutines in three ways and returns
// the ids that they got.
func raceForKey(t *testing.T, nodes ...*bundle) map[string]int {
	t.Helper()
	var mu sync.Mutex
	ids := make(map[string]int)
	var group sync.WaitGroup
	for i := range 50 {
		group.Go(func() {
			b := nodes[i%len(nodes)]
			req := nodes[0].request("/in")
			req.DedupKey = "one"
			var got []messaging.Enqueued
			var err error
			switch i % 3 {
			case 0: // by itself: shares commits
				got, err = b.EnqueueBatch(t.Context(), []messaging.Request{req})
			case 1: // in a transaction of the caller
				err = b.db.InTx(t.Context(), func(ctx context.Context) (err error) {
					got, err = b.EnqueueBatch(ctx, []messaging.Request{req})
					return err
				})
			default: // in a savepoint, behind another row
				err = b.db.InTx(t.Context(), func(ctx context.Context) error {
					return b.db.InTx(ctx, func(ctx context.Context) (err error) {
						got, err = b.EnqueueBatch(ctx, []messaging.Request{req, req})
						return err
					})
				})
			}
			if err != nil {
				t.Errorf("caller %d: %v", i, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, e := range got {
				ids[e.ID]++
			}
		})
	}
	group.Wait()
	return ids
}

// The violation of the unique key is recognised through every wrapping, also
// when the key's holder has ended or was redelivered.
func TestCase_DBS_10_KnownKeysAreFoundInEveryState(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		for _, source := range []string{messaging.SourceWebhook, messaging.SourceFlow, "plugin"} {
			req := b.request("/in")
			req.Source, req.DedupKey = source, "one"
			first := b.enqueue(t, req)[0]
			b.waitAttempt(t)
			for range 2 {
				if again := b.enqueue(t, req)[0]; again.ID != first.ID || again.New {
					t.Errorf("%s: %+v, want the id %s", source, again, first.ID)
				}
				if _, err := b.Redeliver(t.Context(), first.ID, messaging.RedeliverOptions{}); err != nil {
					t.Fatal(err)
				}
				b.waitAttempt(t)
			}
		}
		if n := b.number(t, `SELECT COUNT(*) FROM sys_http_delivery`); n != 3 {
			t.Errorf("%d rows, want one per source", n)
		}
		if ids := raceForKey(t, b); len(ids) != 1 {
			t.Errorf("%d ids for one key", len(ids))
		}
	})
}

func TestCase_EVT_12_KeysOfOrganizationsDoNotMeet(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		var reqs []messaging.Request
		for _, organization := range []string{"", "a", "b"} {
			req := b.request("/in")
			req.DedupKey, req.OrganizationID = "order-1", organization
			reqs = append(reqs, req)
		}
		got := b.enqueue(t, append(reqs, reqs...)...)
		for i := range 3 {
			if !got[i].New || got[i+3].New || got[i+3].ID != got[i].ID {
				t.Errorf("organization %q: %+v and %+v", reqs[i].OrganizationID, got[i], got[i+3])
			}
			b.waitAttempt(t)
		}
		b.sentOnce(t, 3)
	})
}

// Writers, dispatcher, redeliveries and clean-up at once: nobody gets an error
// and every row ends once.
func TestCase_DBS_02_WritersNeverFail(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db, func(c *messaging.Config) { c.CleanInterval = 10 * time.Millisecond })
		const writers, each = 8, 40
		var group sync.WaitGroup
		for n := range writers {
			group.Go(func() {
				for i := range each {
					err := db.InTx(t.Context(), func(ctx context.Context) error {
						var rows int
						if err := db.Read(ctx).QueryRowContext(ctx, `SELECT COUNT(*) FROM sys_http_target`).Scan(&rows); err != nil {
							return err
						}
						_, err := b.Enqueue(ctx, b.request(fmt.Sprintf("/%d/%d", n, i)))
						return err
					})
					if err != nil {
						t.Errorf("writer %d: %v", n, err)
					}
				}
			})
		}
		group.Wait()
		for range writers * each {
			if d := b.waitAttempt(t); d.Status != messaging.StatusSuccess || d.Attempts != 1 {
				t.Errorf("delivery = %+v", d)
			}
		}
		b.sentOnce(t, writers*each)
	})
}

// A reader that stays open through many deliveries costs space only while it
// is open.
func TestCase_DBS_03_TheLogIsBoundedAfterALongRead(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, dsn string) {
		b := setup(t, storagetest.Open(t, dsn, storage.Config{}))
		rounds := func(n int) {
			for range n {
				reqs := make([]messaging.Request, 100)
				for i := range reqs {
					reqs[i] = b.request("/in")
					reqs[i].Payload = []byte(`"` + strings.Repeat("x", 4000) + `"`)
				}
				b.enqueue(t, reqs...)
				for range reqs {
					b.waitAttempt(t)
				}
			}
		}
		rounds(1)
		rows, err := b.db.Read(t.Context()).QueryContext(t.Context(), `SELECT id FROM sys_http_delivery`)
		if err != nil {
			t.Fatal(err)
		}
		rows.Next() // a cursor in the middle of its result
		rounds(6)
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
		path, lite := strings.CutPrefix(dsn, "sqlite:")
		if !lite {
			if n := b.number(t, `SELECT COUNT(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND query LIKE '%sys_http_%' AND datname = current_database() AND pid = ANY(SELECT pid FROM pg_locks WHERE relation = 'sys_http_delivery'::regclass)`); n != 0 {
				t.Errorf("%d sessions hold the table while nothing happens", n)
			}
			return
		}
		// The log begins again at its start once nobody reads its old end.
		for tries := 0; ; tries++ {
			before := walSize(t, path)
			rounds(2)
			if walSize(t, path) == before {
				break
			}
			if tries == 20 {
				t.Fatalf("the write-ahead log went on growing to %d bytes without a reader", walSize(t, path))
			}
		}
	})
}

func walSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// Due times are numbers, whoever wrote them: they compare by the instant.
func TestCase_DBS_04_DueTimesCompareByInstant(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		b.halt(t)
		now, err := db.NowMillis(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		second := now / 1000 * 1000
		due := []int64{second - 1000, second - 880, second - 1001, second - 999, 1, second - 60_000, second + 3_600_000}
		ids := make(map[string]int64)
		for _, at := range due {
			id := b.enqueue(t, b.request("/in"))[0].ID
			b.exec(t, `UPDATE sys_http_delivery SET attempts = 1, next_retry_at = ? WHERE id = ?`, at, id)
			ids[id] = at
		}
		target := b.number(t, `SELECT number FROM sys_http_target`)
		var got []int64
		for {
			rows, err := sqlstore.New(db).Claim(t.Context(), driver.ClaimRequest{
				Node: "n", Token: fmt.Sprint("token", len(got)), Hold: time.Minute, Wants: []driver.Want{{TargetID: target, First: 5, Retry: 1}},
			})
			if err != nil || len(rows) > 1 {
				t.Fatalf("claim = %d rows, %v", len(rows), err)
			}
			if len(rows) == 0 {
				break
			}
			got = append(got, ids[rows[0].ID])
		}
		slices.Sort(due)
		if want := due[:6]; !slices.Equal(got, want) {
			t.Errorf("claimed in the order %v, want %v", got, want)
		}
	})
}

// The whole life of rows, up to their removal, with times as both databases
// hold them.
func TestCase_DBS_05_RowsLiveAndLeaveOnTime(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db, func(c *messaging.Config) { c.CleanInterval = 50 * time.Millisecond })
		b.receiver.Handle("/retry", messagingtest.Status(503, "", "Retry-After: 3600"))
		b.receiver.Handle("/dead", messagingtest.Status(400, ""))
		b.receiver.Handle("/hang", messagingtest.Hang(messagingtest.Status(200, "")))
		ids := make(map[string]string)
		for _, path := range []string{"/old", "/dead", "/fresh", "/retry", "/hang"} {
			req := b.request(path)
			req.RefID = path
			ids[path] = b.enqueue(t, req)[0].ID
			if path != "/hang" {
				b.waitAttempt(t)
			}
		}
		if _, err := b.receiver.WaitFor(t.Context(), 5); err != nil {
			t.Fatal(err)
		}
		const month = 31 * 24 * 3600 * 1000
		b.exec(t, `UPDATE sys_http_delivery SET created_at = created_at - ?`, int64(month))
		b.exec(t, `UPDATE sys_http_delivery SET finished_at = finished_at - ? WHERE id = ?`, int64(month), ids["/old"])
		eventually(t, "the old row leaves", func() bool {
			return b.number(t, `SELECT COUNT(*) FROM sys_http_delivery WHERE id = ?`, ids["/old"]) == 0
		})
		if n := b.number(t, `SELECT COUNT(*) FROM sys_http_attempt WHERE delivery_id = ?`, ids["/old"]); n != 0 {
			t.Errorf("%d attempts outlive their delivery", n)
		}
		for path, want := range map[string]messaging.Status{
			"/dead": messaging.StatusDead, "/fresh": messaging.StatusSuccess, "/retry": messaging.StatusPending, "/hang": messaging.StatusInFlight,
		} {
			if d := b.delivery(t, ids[path]); d.Status != want || time.Since(d.CreatedAt) < 30*24*time.Hour {
				t.Errorf("%s: %+v", path, d)
			}
		}
		b.receiver.Release()
		b.finished(t, ids["/hang"])
	})
}

// A session's time zone moves nothing.
func TestCase_DBS_06_ZonesOfSessionsDoNotMatter(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, dsn string) {
		if u, err := url.Parse(dsn); err == nil && u.Scheme != "sqlite" {
			q := u.Query()
			q.Set("timezone", "Asia/Bangkok")
			u.RawQuery = q.Encode()
			dsn = u.String()
		}
		b := setup(t, storagetest.Open(t, dsn, storage.Config{}))
		b.receiver.Handle("/in", messagingtest.Status(503, "", "Retry-After: 3600"))
		id := b.enqueue(t, b.request("/in"))[0].ID
		b.waitAttempt(t)
		d := b.delivery(t, id)
		if off := time.Until(d.NextRetryAt) - time.Hour; off < -time.Minute || off > time.Minute {
			t.Errorf("the retry is due at %s", d.NextRetryAt)
		}
		for name, at := range map[string]time.Time{"created": d.CreatedAt, "updated": d.UpdatedAt, "attempted": d.LastAttemptAt} {
			if since := time.Since(at); since < -time.Minute || since > time.Minute || at.Location() != time.UTC {
				t.Errorf("%s at %s", name, at)
			}
		}
	})
}

// Zero values and NULL are written as they are meant.
func TestCase_DBS_08_ZeroValuesStick(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		b.receiver.Handle("/in", messagingtest.Status(503, "no"), messagingtest.Status(404, "gone"), messagingtest.Status(200, ""))
		req := b.request("/in")
		req.ExpireAfter = time.Hour
		id := b.enqueue(t, req)[0].ID
		b.waitAttempt(t)
		b.rush(t, id)
		b.waitAttempt(t)
		is := func(when, condition string) {
			t.Helper()
			if n := b.number(t, `SELECT COUNT(*) FROM sys_http_delivery WHERE id = ? AND `+condition, id); n != 1 {
				t.Errorf("%s: not %s", when, condition)
			}
		}
		is("dead", `status = 'dead' AND attempts = 2 AND error = 'HTTP 404' AND response_code = 404 AND next_retry_at IS NULL AND expires_at IS NOT NULL`)
		b.hold(t)
		if _, err := b.Redeliver(t.Context(), id, messaging.RedeliverOptions{}); err != nil {
			t.Fatal(err)
		}
		is("redelivered", `status = 'pending' AND attempts = 0 AND round = 1 AND error IS NULL AND response_code IS NULL AND response_body IS NULL
			AND next_retry_at IS NULL AND expires_at IS NULL AND finished_at IS NULL AND claim_token IS NULL AND crash_count = 0`)
		b.resume(t)
		b.waitAttempt(t)
		is("delivered", `status = 'success' AND attempts = 1 AND error IS NULL AND response_code = 200 AND next_retry_at IS NULL AND finished_at IS NOT NULL`)
		b.target(t, func(target *messaging.Target) {
			target.MaxConcurrency, target.RatePerSecond, target.RateBurst = 5, 2, 3
		})
		b.target(t, func(*messaging.Target) {})
		if n := b.number(t, `SELECT COUNT(*) FROM sys_http_target WHERE target_key = 'hook' AND max_concurrency = 0 AND rate_per_second = 0 AND rate_burst = 0 AND state = 'active'`); n != 1 {
			t.Error("limits of a target cannot be taken away")
		}
	})
}

// A lock that another program holds for a while spends no attempt and loses
// nothing; SQLite's counterpart of a server that is gone.
func TestCase_CON_04_WriterHeldForAWhile(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		dsn := storagetest.SQLite(t)
		cfg := storage.Config{WriterWait: 50 * time.Millisecond}
		b := setup(t, storagetest.Open(t, dsn, cfg), quick)
		other := storagetest.Open(t, dsn, storage.Config{})
		b.receiver.Handle("/in", messagingtest.Hang(messagingtest.Status(200, "ok")))
		var reqs []messaging.Request
		for i := range 8 {
			req := b.request("/in")
			req.RefID, req.Timeout = fmt.Sprintf("hook-%d", i), 30*time.Second
			reqs = append(reqs, req)
		}
		b.enqueue(t, reqs...)
		if _, err := b.receiver.WaitFor(t.Context(), 8); err != nil {
			t.Fatal(err)
		}
		locked, unlock := make(chan struct{}), make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() {
			err := other.InTx(t.Context(), func(ctx context.Context) error {
				_, err := other.Write(ctx).ExecContext(ctx, `UPDATE sys_http_target SET updated_at = updated_at`)
				close(locked)
				<-unlock
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
		<-locked
		b.receiver.Release() // the answers come while the file cannot be written
		eventually(t, "the outage is noticed", func() bool { return b.CheckHealth(t.Context()) != nil })
		close(unlock)
		group.Wait()
		for range reqs {
			if d := b.waitAttempt(t); d.Status != messaging.StatusSuccess || d.Attempts != 1 || d.CrashCount != 0 {
				t.Errorf("delivery = %+v", d)
			}
		}
		b.sentOnce(t, 8)
		eventually(t, "the service is healthy again", func() bool { return b.CheckHealth(t.Context()) == nil })
	})
}

// A host that was killed left claims behind: they come back within their own
// time, or at once when nobody else can be sending.
func TestCase_SHT_02_ClaimsOfAKilledHostComeBack(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		for _, exclusive := range []bool{false, true} {
			b := setup(t, db)
			b.hold(t)
			var ids []string
			for range 20 {
				ids = append(ids, b.enqueue(t, b.request("/in"))[0].ID)
			}
			b.halt(t)
			now, err := db.NowMillis(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ends := now + 700
			if exclusive {
				ends = now + 3_600_000
			}
			b.exec(t, `UPDATE sys_http_delivery SET status = 'in_flight', claimed_by = 'killed', claim_token = 'x', claimed_at = ?, claim_expires_at = ? WHERE status = 'pending'`, now, ends)
			b.exec(t, `UPDATE sys_http_target SET state = 'active'`)
			began := time.Now()
			again := setup(t, db, func(c *messaging.Config) { c.Exclusive = exclusive })
			for range ids {
				id := again.waitAttempt(t).ID
				if d := again.delivery(t, id); d.Status != messaging.StatusSuccess || d.Attempts != 1 || d.CrashCount != 0 {
					t.Errorf("delivery = %+v", d)
				}
			}
			if took := time.Since(began); took > 4*time.Second || !exclusive && took < 500*time.Millisecond {
				t.Errorf("exclusive %v: the rows were sent after %s", exclusive, took)
			}
			b.sentOnce(t, 20)
			again.halt(t)
		}
	})
}

// A start while the database is away works once it is back.
func TestCase_SHT_05_StartBeforeTheDatabase(t *testing.T) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		direct := storagetest.Postgres(t)
		if err := storagetest.Open(t, direct, storage.Config{}).Migrate(t.Context(), sqlstore.Migrations()); err != nil {
			t.Fatal(err)
		}
		proxy, dsn := storagetest.ProxyDSN(t, direct)
		lateStart(t, dsn, storage.Config{}, func() (restore func()) {
			proxy.Cut()
			return proxy.Restore
		})
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		dsn := storagetest.SQLite(t)
		other := storagetest.Open(t, dsn, storage.Config{})
		if err := other.Migrate(t.Context(), sqlstore.Migrations()); err != nil {
			t.Fatal(err)
		}
		lateStart(t, dsn, storage.Config{WriterWait: 50 * time.Millisecond}, func() (restore func()) {
			locked, unlock, done := make(chan struct{}), make(chan struct{}), make(chan error)
			go func() {
				done <- other.InTx(t.Context(), func(ctx context.Context) error {
					_, err := other.Write(ctx).ExecContext(ctx, `DELETE FROM sys_http_target`)
					close(locked)
					<-unlock
					return err
				})
			}()
			<-locked
			return func() {
				close(unlock)
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		})
	})
}

// lateStart starts a service while cut is in force.
func lateStart(t *testing.T, dsn string, cfg storage.Config, cut func() (restore func())) {
	t.Helper()
	db := storagetest.Open(t, dsn, cfg)
	receiver := messagingtest.New(t)
	allow, err := messaging.ParseEgressAllow([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	attempts := make(chan messaging.Delivery, 1)
	s, err := messaging.New(messaging.Config{
		Store: sqlstore.New(db), Tx: db, Exclusive: true, PollInterval: 20 * time.Millisecond,
		Sender:    messaging.SenderConfig{Egress: messaging.EgressConfig{Allow: allow}},
		OnAttempt: func(d messaging.Delivery, _ messaging.Attempt) { attempts <- d },
	})
	if err != nil {
		t.Fatal(err)
	}
	restore := cut()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := &bundle{Service: s, db: db, receiver: receiver, attempts: attempts}
	t.Cleanup(func() { b.halt(t) })
	eventually(t, "the missing database is noticed", func() bool { return s.CheckHealth(t.Context()) != nil })
	restore()
	eventually(t, "the service is healthy", func() bool { return s.CheckHealth(t.Context()) == nil })
	b.enqueue(t, b.request("/in"))
	if d := b.waitAttempt(t); d.Status != messaging.StatusSuccess {
		t.Errorf("delivery = %+v", d)
	}
}

// A rolling restart under load sends nothing twice.
func TestCase_SHT_06_RollingRestartsSendNothingTwice(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, dsn string) {
		start := func() *bundle { return setup(t, storagetest.Open(t, dsn, storage.Config{MaxConns: 3}), quick) }
		first := start()
		nodes := []*bundle{first, start(), start()}
		first.receiver.Handle("/in", messagingtest.Delay(5*time.Millisecond, messagingtest.Status(200, "")))
		var total int
		for round := range 9 {
			for range 10 {
				req := first.request("/in")
				req.RefID = fmt.Sprintf("hook-%d", total%5)
				if _, err := nodes[total%3].Enqueue(t.Context(), req); err != nil {
					t.Fatal(err)
				}
				total++
			}
			nodes[round%3].halt(t)
			nodes[round%3] = start()
		}
		eventually(t, "all rows are delivered", func() bool {
			return first.number(t, `SELECT COUNT(*) FROM sys_http_delivery WHERE status = 'success' AND attempts = 1 AND crash_count = 0`) == int64(total)
		})
		first.sentOnce(t, total)
	})
}
