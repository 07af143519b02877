package sqlstore_test

import (
	"flag"
	"fmt"
	"testing"
	"time"

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
