package sqllog

import (
	"encoding/json"
	"strings"
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

// plan is a node of EXPLAIN's output.
type plan struct {
	Type    string  `json:"Node Type"`
	Index   string  `json:"Index Name"`
	Rows    float64 `json:"Actual Rows"`
	Loops   float64 `json:"Actual Loops"`
	Removed float64 `json:"Rows Removed by Filter"`
	Plans   []plan
}

// scanned is how many rows the scans of a plan looked at, and how.
func (p plan) scanned() (rows float64, how []string) {
	if strings.Contains(p.Type, "Scan") && p.Type != "Function Scan" && len(p.Plans) == 0 {
		rows, how = (p.Rows+p.Removed)*p.Loops, []string{p.Type + " " + p.Index}
	}
	for _, child := range p.Plans {
		r, h := child.scanned()
		rows, how = rows+r, append(how, h...)
	}
	return rows, how
}

func explain(t *testing.T, f *fixture, query string, args ...any) plan {
	t.Helper()
	var text string
	err := f.db.Write(t.Context()).QueryRowContext(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+query, args...).Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	var out []struct{ Plan plan }
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out[0].Plan
}

// Every batch of a long delta looks at about as many rows as it returns,
// whatever the statistics say: fresh events by the primary key, late ones by the
// xid index.
func TestBatchesOfALongDeltaAreCheap(t *testing.T) {
	t.Parallel()
	const rows, batch = 60_000, 500
	f := setup(t)
	exec(t, f, `ALTER TABLE sys_event SET (autovacuum_enabled = false)`)
	fill(t, f, 1000)
	exec(t, f, `ANALYZE sys_event`) // statistics that know nothing of what follows
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
		for name, p := range map[string]plan{
			"late first":  explain(t, f, lateSQL, batch, 0, 255, 0, pos.floor, xids),
			"late middle": explain(t, f, lateSQL, batch, 0, 255, pos.floor-rows/2, pos.floor, xids),
			"fresh first": explain(t, f, freshSQL, batch, 0, 255, pos.floor, v.last, pos.base.String(), v.snapshot.String()),
			"fresh last":  explain(t, f, freshSQL, batch, 0, 255, v.last-batch, v.last, pos.base.String(), v.snapshot.String()),
		} {
			if n, how := p.scanned(); n > 2*batch {
				t.Errorf("%s after %s: %v rows looked at by %v", name, statistics, n, how)
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
