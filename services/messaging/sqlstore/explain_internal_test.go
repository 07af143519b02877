package sqlstore

import (
	"strings"
	"testing"

	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/lease"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// TestCase_OPS_04_HotStatementsUseTheirIndexes asks both databases how they
// run the statements of the dispatcher on a table of finished rows with a few
// waiting ones: none may look at the finished rows.
func TestCase_OPS_04_HotStatementsUseTheirIndexes(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		s := filled(t, db)
		node, token, hold := "node", "token", int64(5000)
		outcome := driver.Outcome{ID: "w1", Token: token, Status: driver.Success, Attempts: 1, Attempt: &driver.Attempt{DeliveryID: "w1", Attempt: 1}}
		outlook, _ := s.outlookSQL(driver.View{})
		statements := map[string]struct {
			sql   string
			args  []any
			index []string
		}{
			"outlook": {outlook, nil, []string{"sys_http_delivery_due"}},
			"claims":  {s.claimsSQL(db.Dialect() == storage.Postgres), []any{"node"}, []string{"sys_http_delivery_"}},
			"dedup":   {s.sql(dedupQuery), []any{"test", "", "k1"}, []string{"sys_http_delivery_dedup"}},
			"expire":  {s.expireSQL(false), []any{6, 6, 6, 6, 500}, []string{"sys_http_delivery_"}},
			"sweep":   {s.sweepSQL(), []any{500}, []string{"sys_http_delivery_due"}},
			"clean":   {s.cleanSQL(), []any{int64(1 << 50), int64(0), "", int64(1 << 50), 500}, []string{"sys_http_delivery_created"}},
		}
		switch d := s.dialect.(type) {
		case *postgres:
			for name, lease := range map[string]driver.Lease{
				"claim": {}, "claim of all partitions": {Token: token}, "claim of some partitions": {Token: token, Partitions: []int64{1, 2, 3}},
			} {
				query, args := d.claimStatement(driver.ClaimRequest{
					Node: node, Token: token, Lease: lease, Wants: []driver.Want{{TargetID: 1, First: 5, Retry: 2}, {TargetID: 2, First: 5, Retry: 2}},
				})
				statements[name] = struct {
					sql   string
					args  []any
					index []string
				}{query, args, []string{"sys_http_delivery_due", "Tid Scan"}}
			}
			query, partial := s.outlookSQL(driver.View{Partitions: []int64{1, 2, 3}, Anywhere: []int64{1}})
			statements["outlook of some partitions"] = struct {
				sql   string
				args  []any
				index []string
			}{query, partial, []string{"sys_http_delivery_due"}}
			args := append(outcomeArrays([]driver.Outcome{outcome}), attemptArrays([]*driver.Attempt{outcome.Attempt})...)
			statements["record"] = struct {
				sql   string
				args  []any
				index []string
			}{d.saveSQL, args, []string{"sys_http_delivery_pkey"}}
		case *sqlite:
			for name, query := range map[string]string{"claim of first attempts": d.firstSQL, "claim of retries": d.againSQL} {
				statements[name] = struct {
					sql   string
					args  []any
					index []string
				}{query, []any{int64(1), 5, int64(1)}, []string{"INDEX sys_http_delivery_due"}}
			}
			statements["claim"] = struct {
				sql   string
				args  []any
				index []string
			}{liteTake, []any{node, token, int64(1), hold, "[1,2]"}, []string{"INTEGER PRIMARY KEY"}}
			statements["record"] = struct {
				sql   string
				args  []any
				index []string
			}{liteFinish, []any{1, nil, nil, 200, "", false, nil, false, "success", "success", 1, 1, "w1", token}, []string{"sqlite_autoindex_sys_http_delivery_1"}}
		}
		for name, statement := range statements {
			plan := explain(t, db, statement.sql, statement.args)
			for _, index := range statement.index {
				if !strings.Contains(plan, index) {
					t.Errorf("%s does not use %s:\n%s", name, index, plan)
				}
			}
			for _, bad := range []string{"Seq Scan on sys_http_delivery", "SCAN sys_http_delivery\n", "SCAN d\n", "SCAN e\n"} {
				if strings.Contains(plan+"\n", bad) {
					t.Errorf("%s reads the whole table:\n%s", name, plan)
				}
			}
		}
	})
}

// filled returns a store whose table holds 20,000 finished and 60 other rows.
func filled(t *testing.T, db *storage.DB) *Store {
	t.Helper()
	ctx := t.Context()
	if err := db.Migrate(ctx, Migrations(), lease.Migrations()); err != nil {
		t.Fatal(err)
	}
	s := New(db)
	for _, key := range []string{"a", "b"} {
		if err := s.PutTarget(ctx, &driver.Target{Source: "test", Key: key, State: driver.TargetActive}, false); err != nil {
			t.Fatal(err)
		}
	}
	series := `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)`
	columns := `INSERT INTO sys_http_delivery (id, source, target_key, target_id, dedup_key, url, method, timeout_ms, payload_json,
		partition_key, order_seq, order_key, status, created_at, updated_at, `
	for _, fill := range []struct{ more, values, prefix string }{
		{`finished_at`, `'success', i, i, i`, `f`},
		{`next_retry_at`, `'pending', i, i, NULL`, `w`},
		{`claim_expires_at`, `'in_flight', i, i, i`, `c`},
	} {
		n := 30
		if fill.prefix == "f" {
			n = 20_000
		}
		query := columns + fill.more + `) ` + series + ` SELECT '` + fill.prefix + `' || i, 'test', 'a', 1 + i % 2, '` + fill.prefix +
			`k' || i, 'http://x.test/', 'POST', 1000, '{}', 0, i, i, ` + fill.values + ` FROM n`
		if db.Dialect() == storage.SQLite { // SQLite wants the WITH in front
			query = series + ` ` + columns + fill.more + `) SELECT '` + fill.prefix + `' || i, 'test', 'a', 1 + i % 2, '` + fill.prefix +
				`k' || i, 'http://x.test/', 'POST', 1000, '{}', 0, i, i, ` + fill.values + ` FROM n`
		}
		if _, err := db.Write(ctx).ExecContext(ctx, s.sql(query), n); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Write(ctx).ExecContext(ctx, `ANALYZE`); err != nil {
		t.Fatal(err)
	}
	return s
}

func explain(t *testing.T, db *storage.DB, query string, args []any) string {
	t.Helper()
	ctx := t.Context()
	prefix := `EXPLAIN `
	if db.Dialect() == storage.SQLite {
		prefix = `EXPLAIN QUERY PLAN `
	}
	rows, err := db.Write(ctx).QueryContext(ctx, prefix+query, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, query)
	}
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var line string
		if db.Dialect() == storage.SQLite {
			var id, parent, unused int
			err = rows.Scan(&id, &parent, &unused, &line)
		} else {
			err = rows.Scan(&line)
		}
		if err != nil {
			t.Fatal(err)
		}
		plan.WriteString(line + "\n")
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return plan.String()
}
