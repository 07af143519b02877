package bench

import (
	"context"
	"fmt"
	"strings"

	"github.com/objecthost/objecthost/storage"
)

// fillChunk is how many rows one transaction copies.
const fillChunk = 200_000

// fillFinished puts n finished deliveries with their attempts into the tables,
// as copies of the ones that the runs before have left, with small bodies: what
// matters is their number in the indexes. Their ids sort before all real ones.
func (b *box) fillFinished(ctx context.Context, n int) error {
	deliveries, err := b.columns(ctx, "sys_http_delivery")
	if err != nil {
		return err
	}
	attempts, err := b.columns(ctx, "sys_http_attempt")
	if err != nil {
		return err
	}
	id := "'00000000-0000-7000-8000-' || substr('000000000000' || CAST(g.n AS TEXT), -12)"
	series := "WITH RECURSIVE g(n) AS (SELECT CAST(? AS INTEGER) UNION ALL SELECT n + 1 FROM g WHERE n < ?)"
	if b.db.Dialect() == storage.Postgres {
		id = "'00000000-0000-7000-8000-' || lpad(g.n::text, 12, '0')"
		series = "WITH g(n) AS (SELECT generate_series(?::bigint, ?::bigint))"
	}
	// One template per webhook, numbered from 0.
	template := `, t AS (SELECT d.*, row_number() OVER (ORDER BY id) - 1 AS k FROM sys_http_delivery d
		WHERE id IN (SELECT max(id) FROM sys_http_delivery WHERE status = 'success' GROUP BY target_id))`
	copyDeliveries := "INSERT INTO sys_http_delivery (" + strings.Join(deliveries, ", ") + ") " + series + template + " SELECT " +
		replaced(deliveries, "t", map[string]string{
			"id": id, "dedup_key": id, "payload_json": "'{}'", "order_key": "NULL", "order_seq": "g.n",
			// A millisecond apart, within what retention keeps.
			"created_at": "t.created_at - g.n % 1000000000", "finished_at": "t.finished_at - g.n % 1000000000",
		}) + " FROM g JOIN t ON t.k = g.n % (SELECT count(*) FROM t)"
	copyAttempts := "INSERT INTO sys_http_attempt (" + strings.Join(attempts, ", ") + ") " + series +
		", t AS (SELECT * FROM sys_http_attempt ORDER BY id DESC LIMIT 1) SELECT " +
		replaced(attempts, "t", map[string]string{"id": id + " || '.0.1'", "delivery_id": id}) + " FROM g CROSS JOIN t"
	for at := 1; at <= n; at += fillChunk {
		last := min(at+fillChunk-1, n)
		err := b.db.InTx(ctx, func(ctx context.Context) error {
			for _, q := range []string{copyDeliveries, copyAttempts} {
				if _, err := b.db.Write(ctx).ExecContext(ctx, b.db.sql(q), at, last); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		b.progress("%d of %d finished rows are in the table", last, n)
	}
	return b.settle(ctx)
}

// settle does what the database would do by itself in a while.
func (b *box) settle(ctx context.Context) error {
	statements := []string{"ANALYZE"}
	if b.db.Dialect() == storage.Postgres {
		statements = []string{"VACUUM ANALYZE sys_http_delivery", "VACUUM ANALYZE sys_http_attempt"}
	}
	for _, s := range statements {
		if _, err := b.db.Write(ctx).ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", strings.ToLower(s), err)
		}
	}
	return nil
}

// columns are the names of a table's columns.
func (b *box) columns(ctx context.Context, table string) ([]string, error) {
	rows, err := b.db.Read(ctx).QueryContext(ctx, "SELECT * FROM "+table+" LIMIT 0")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	return names, rows.Err()
}

// replaced lists columns of a table, some by an expression.
func replaced(columns []string, table string, by map[string]string) string {
	out := make([]string, len(columns))
	for i, c := range columns {
		out[i] = table + "." + c
		if e, ok := by[c]; ok {
			out[i] = e
		}
	}
	return strings.Join(out, ", ")
}
