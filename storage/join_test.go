package storage_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// foreign opens the host program's own pool on the same database.
func foreign(t *testing.T, db *storage.DB, name string) *sql.DB {
	t.Helper()
	driver := "pgx"
	if db.Dialect() == storage.SQLite {
		driver, name = "sqlite", "file:"+db.File()+"?_pragma=busy_timeout(5000)&_txlock=immediate"
	}
	pool, err := sql.Open(driver, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

func TestJoinAForeignTransaction(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, name string) {
		db := storagetest.Open(t, name, storage.Config{})
		newTable(t, db)
		pool := foreign(t, db, name)
		for _, commit := range []bool{true, false} {
			tx, err := pool.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(t.Context(), "INSERT INTO n (k, v) VALUES ('host', 1)"); err != nil {
				t.Fatal(err)
			}
			var r tape
			ctx, joined := db.WithTx(t.Context(), tx)
			storage.AfterCommit(ctx, r.hook("commit"))
			storage.OnRollback(ctx, r.undo("undo"))
			if !storage.InTransaction(ctx) {
				t.Error("not InTransaction")
			}
			if err := db.InTx(ctx, func(ctx context.Context) error { return put(ctx, db, "ours") }); err != nil {
				t.Fatal(err)
			}
			if err := db.InTx(ctx, func(ctx context.Context) error {
				storage.AfterCommit(ctx, r.hook("forgotten"))
				return put(ctx, db, "ours") // there is one
			}); err == nil {
				t.Error("a second row was taken")
			}
			r.want(t)
			if commit {
				if err := tx.Commit(); err != nil {
					t.Fatal(err)
				}
				joined.Committed()
				joined.RolledBack() // too late
				r.want(t, "commit")
			} else {
				if err := tx.Rollback(); err != nil {
					t.Fatal(err)
				}
				joined.RolledBack()
				joined.Committed()
				r.want(t, "undo")
			}
			if err := put(ctx, db, "late"); !errors.Is(err, storage.ErrTxFinished) {
				t.Errorf("use after the end = %v, want ErrTxFinished", err)
			}
			if got := keys(t, db); got != map[bool]string{true: "hostours", false: ""}[commit] {
				t.Errorf("commit %v: keys = %q", commit, got)
			}
			exec(t, t.Context(), db, "DELETE FROM n")
		}
	})
}

// The caller ended its transaction without telling: still a typed error.
func TestJoinEndedBehindOurBack(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, name string) {
		db := storagetest.Open(t, name, storage.Config{})
		newTable(t, db)
		tx, err := foreign(t, db, name).BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, joined := db.WithTx(t.Context(), tx)
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := put(ctx, db, "a"); !errors.Is(err, storage.ErrTxFinished) {
			t.Errorf("Exec = %v, want ErrTxFinished", err)
		}
		var n int
		if err := db.Read(ctx).QueryRowContext(ctx, "SELECT 1").Scan(&n); !errors.Is(err, storage.ErrTxFinished) {
			t.Errorf("QueryRow = %v, want ErrTxFinished", err)
		}
		if err := db.InTx(ctx, func(context.Context) error { return nil }); !errors.Is(err, storage.ErrTxFinished) {
			t.Errorf("InTx = %v, want ErrTxFinished", err)
		}
		var r tape
		storage.AfterCommit(ctx, r.hook("commit"))
		joined.Committed()
		r.want(t, "commit")
	})
}
