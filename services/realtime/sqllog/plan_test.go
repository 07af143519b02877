package sqllog

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/objecthost/objecthost/services/realtime/driver"
)

// fill inserts n rows in one transaction.
func fill(t testing.TB, f *fixture, n int) {
	t.Helper()
	exec(f.t, f, `INSERT INTO sys_event (sequence, xid, partition, id, type, object, record_id, matched, after_json, user_id, organization_id, occurred_at, appended_at)
		SELECT nextval('sys_event_sequence'), x.xid, i % 256, i::text, 't', 'o', 'r', 0, '{"n":' || i || '}', '', '', 1, 1
		FROM (SELECT pg_current_xact_id() AS xid OFFSET 0) x, generate_series(1, $1::bigint) i`, n)
}

// pages is how many pages a query touches on a connection that has its catalog
// pages already.
func pages(t *testing.T, f *fixture, query string, args ...any) int {
	t.Helper()
	var text string
	err := f.db.InTx(t.Context(), func(ctx context.Context) error {
		for range 2 {
			row := f.db.Write(ctx).QueryRowContext(ctx, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+query, args...)
			if err := row.Scan(&text); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var out []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out[0].Plan.Hit + out[0].Plan.Read
}

// Every batch of a long delta touches few pages, about one per row where rows
// are scattered, whatever the statistics say: none, old ones or good ones. The
// delta has two times 800 pages.
func TestBatchesOfALongDeltaAreCheap(t *testing.T) {
	t.Parallel()
	const rows, batch = 60_000, 500
	f := setup(t)
	exec(t, f, `ALTER TABLE sys_event SET (autovacuum_enabled = false)`)
	fill(t, f, 1000)
	late := f.begin()
	if _, err := f.db.Write(late.ctx).ExecContext(late.ctx, `INSERT INTO sys_event (sequence, xid, partition, id, type, object, record_id, matched,
		user_id, organization_id, occurred_at, appended_at)
		SELECT nextval('sys_event_sequence'), x.xid, i % 256, i::text, 't', 'o', 'r', 0, '', '', 1, 1
		FROM (SELECT pg_current_xact_id() AS xid OFFSET 0) x, generate_series(1, $1::bigint) i`, rows); err != nil {
		t.Fatal(err)
	}
	f.raiseFloor()
	late.commit()
	fill(t, f, rows)
	for _, statistics := range []string{`SELECT 1`, `ANALYZE sys_event`} {
		exec(t, f, statistics)
		pos, err := parsePosition(f.position)
		if err != nil {
			t.Fatal(err)
		}
		v, err := f.log.dialect.(*postgres).view(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		xids, n := pos.late(v.snapshot)
		if n < 1 { // others in the server's other schemas may count too
			t.Fatalf("%d late transactions in %s", n, f.position)
		}
		for name, n := range map[string]int{
			"late first":  pages(t, f, lateSQL, batch, 0, 255, 0, pos.floor, xids),
			"late middle": pages(t, f, lateSQL, batch, 0, 255, pos.floor-rows/2, pos.floor, xids),
			"fresh first": pages(t, f, freshSQL, batch, 0, 255, pos.floor, v.last, pos.base.String(), v.snapshot.String()),
			"fresh last":  pages(t, f, freshSQL, batch, 0, 255, v.last-batch, v.last, pos.base.String(), v.snapshot.String()),
		} {
			t.Logf("%s after %s: %d pages", name, statistics, n)
			if n > 120 {
				t.Errorf("%s after %s: %d pages", name, statistics, n)
			}
		}
	}
	read := 0
	for more := true; more; {
		page, err := f.log.Read(t.Context(), driver.Query{Position: f.position, Last: 255, Limit: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		f.position, more, read = page.Next, page.More, read+len(page.Events)
	}
	if read != 2*rows {
		t.Errorf("%d events of %d", read, 2*rows)
	}
}
