package storage_test

import (
	"context"
	"errors"
	"testing"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// newTable creates table n(k text primary key, v bigint).
func newTable(t *testing.T, db *storage.DB) {
	t.Helper()
	exec(t, t.Context(), db, `CREATE TABLE n (k TEXT PRIMARY KEY, v BIGINT NOT NULL)`)
}

func exec(t *testing.T, ctx context.Context, db *storage.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Write(ctx).ExecContext(ctx, query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func put(ctx context.Context, db *storage.DB, k string) error {
	_, err := db.Write(ctx).ExecContext(ctx, "INSERT INTO n (k, v) VALUES ($1, 1)", k)
	return err
}

// keys returns the committed keys, joined.
func keys(t *testing.T, db *storage.DB) string {
	t.Helper()
	ctx := context.Background()
	rows, err := db.Read(ctx).QueryContext(ctx, "SELECT k FROM n ORDER BY k")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	all := ""
	for rows.Next() {
		var k string
		if err := rows.Scan(&k); err != nil {
			t.Fatal(err)
		}
		all += k
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestInTxCommitsAndRollsBack(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		newTable(t, db)
		boom := errors.New("boom")
		if err := db.InTx(t.Context(), func(ctx context.Context) error { return put(ctx, db, "a") }); err != nil {
			t.Fatal(err)
		}
		err := db.InTx(t.Context(), func(ctx context.Context) error {
			if err := put(ctx, db, "b"); err != nil {
				return err
			}
			return boom
		})
		if err != boom {
			t.Fatalf("InTx = %v, want fn's own error", err)
		}
		if got := keys(t, db); got != "a" {
			t.Fatalf("keys = %q, want a", got)
		}
	})
}
