package sqlstore_test

import (
	"bytes"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/services/messaging/sqlstore"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

var held = flag.Int("held", 10_000, "rows of a held target in BenchmarkClaimBesideHeldRows")

// BenchmarkClaimBesideHeldRows claims one row of an active target and gives it
// back, without other rows and beside many rows of a held target.
func BenchmarkClaimBesideHeldRows(b *testing.B) {
	for name, dsn := range map[string]func(testing.TB) string{"sqlite": storagetest.SQLite, "postgres": storagetest.Postgres} {
		for _, n := range []int{0, *held} {
			b.Run(fmt.Sprintf("%s/held=%d", name, n), func(b *testing.B) {
				benchmarkClaim(b, storagetest.Open(b, dsn(b), storage.Config{}), n)
			})
		}
	}
}

func benchmarkClaim(b *testing.B, db *storage.DB, n int) {
	ctx := b.Context()
	if err := db.Migrate(ctx, sqlstore.Migrations()); err != nil {
		b.Fatal(err)
	}
	s := sqlstore.New(db)
	paused := &driver.Target{Source: "test", Key: "held", State: driver.TargetHeld}
	active := &driver.Target{Source: "test", Key: "active", State: driver.TargetActive}
	for _, t := range []*driver.Target{paused, active} {
		if err := s.PutTarget(ctx, t, false); err != nil {
			b.Fatal(err)
		}
	}
	columns := `INSERT INTO sys_http_delivery (id, source, target_key, target_id, dedup_key, url, method, timeout_ms, payload_json,
		partition_key, order_seq, status, created_at, updated_at)`
	fill := columns + ` WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
		SELECT 'held-' || i, 'test', 'held', CAST($2 AS BIGINT), 'k' || i, 'http://x.test/', 'POST', 1000, '{}', 0, i, 'pending', i, i FROM n WHERE i <= $1`
	if n > 0 {
		if _, err := db.Write(ctx).ExecContext(ctx, fill, n, paused.ID); err != nil {
			b.Fatal(err)
		}
	}
	row := &driver.Row{ID: "row", Source: "test", TargetKey: "active", TargetID: active.ID, DedupKey: "row", URL: "http://x.test/", Method: "POST",
		TimeoutMillis: 1000, Payload: []byte("{}"), OrderSeq: 1, Status: driver.Pending}
	if _, err := s.Insert(ctx, []*driver.Row{row}, driver.Terms{Hold: time.Second}); err != nil {
		b.Fatal(err)
	}
	if _, err := db.Write(ctx).ExecContext(ctx, `ANALYZE`); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		got, err := s.Claim(ctx, driver.ClaimRequest{Node: "n", Token: "t", Hold: time.Second, Wants: []driver.Want{{TargetID: active.ID, First: 5, Retry: 5}}})
		if err != nil || len(got) != 1 {
			b.Fatal(len(got), err)
		}
		if _, err := s.Record(ctx, []driver.Outcome{{ID: "row", Token: "t", Status: driver.Pending, Released: true}}, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBatch stores, claims and finishes batches of 500 deliveries of 1 KB
// over 25 targets, and reports the time that each step takes per row.
func BenchmarkBatch(b *testing.B) {
	for name, dsn := range map[string]func(testing.TB) string{"sqlite": storagetest.SQLite, "postgres": storagetest.Postgres} {
		b.Run(name, func(b *testing.B) { benchmarkBatch(b, storagetest.Open(b, dsn(b), storage.Config{})) })
	}
}

func benchmarkBatch(b *testing.B, db *storage.DB) {
	const targets, perTarget = 25, 20
	ctx := b.Context()
	if err := db.Migrate(ctx, sqlstore.Migrations()); err != nil {
		b.Fatal(err)
	}
	s := sqlstore.New(db)
	wants := make([]driver.Want, targets)
	for i := range wants {
		t := &driver.Target{Source: "test", Key: fmt.Sprint("target", i), State: driver.TargetActive}
		if err := s.PutTarget(ctx, t, false); err != nil {
			b.Fatal(err)
		}
		wants[i] = driver.Want{TargetID: t.ID, First: perTarget, Retry: perTarget}
	}
	steps := map[string]time.Duration{}
	n := 0
	step := func(name string, do func() error) {
		began := time.Now()
		if err := do(); err != nil {
			b.Fatal(name, err)
		}
		steps[name] += time.Since(began)
	}
	for b.Loop() {
		rows := make([]*driver.Row, 0, targets*perTarget)
		for range perTarget {
			for i, w := range wants {
				n++
				id := uuid.Must(uuid.NewV7()).String()
				rows = append(rows, &driver.Row{ID: id, Source: "test", RefID: "0197a8c2-7e7e-7000-8000-000000000001", TargetKey: fmt.Sprint("target", i), TargetID: w.TargetID,
					DedupKey: "0197a8c2-7e7e-7000-8000-000000000001:account:" + id + ":created:2026-01-01T00:00:00.000Z:" + id, Label: "data.record.created",
					URL: "http://127.0.0.1:8080/hook", Method: "POST", TimeoutMillis: 15000, Payload: bytes.Repeat([]byte("x"), 1024),
					Partition: n % 256, OrderKey: int64(n), OrderSeq: int64(n), EventID: id, Status: driver.Pending})
			}
		}
		step("insert", func() error { _, err := s.Insert(ctx, rows, driver.Terms{Hold: time.Second}); return err })
		var claimed []*driver.Row
		step("claim", func() (err error) {
			claimed, err = s.Claim(ctx, driver.ClaimRequest{Node: "node", Token: uuid.NewString(), Hold: time.Second, Wants: wants})
			return err
		})
		if len(claimed) != len(rows) {
			b.Fatalf("claimed %d rows of %d", len(claimed), len(rows))
		}
		outcomes := make([]driver.Outcome, len(claimed))
		for i, r := range claimed {
			outcomes[i] = driver.Outcome{ID: r.ID, Token: r.ClaimToken, Status: driver.Success, Attempts: 1, ResponseCode: 200,
				Signature: "sha256=" + strings.Repeat("a", 64), Attempt: &driver.Attempt{DeliveryID: r.ID, Attempt: 1, Node: "node", Duration: time.Millisecond,
					RemoteAddr: "127.0.0.1:8080", RequestHeaders: `{"Content-Type":["application/json"],"User-Agent":["ObjectStack-Http/1.0"],"X-Objectstack-Delivery":["` + r.ID + `"]}`,
					ResponseCode: 200, ResponseHeaders: `{"Content-Length":["0"],"Date":["Thu, 01 Jan 2026 00:00:00 GMT"]}`}}
		}
		step("record", func() error { _, err := s.Record(ctx, outcomes, nil); return err })
	}
	for name, took := range steps {
		b.ReportMetric(float64(took.Microseconds())/float64(n), name+"-µs/row")
	}
}
