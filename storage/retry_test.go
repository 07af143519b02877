package storage_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/dsn"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// conflict runs a statement in ctx's transaction that fails as one that lost
// against another: a serialization failure on Postgres, a locked file on
// SQLite.
func conflict(t *testing.T, ctx context.Context, db *storage.DB) error {
	t.Helper()
	if db.Dialect() == storage.Postgres {
		_, err := db.Write(ctx).ExecContext(ctx, "DO $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '40001'; END $$")
		return err
	}
	other, err := sql.Open("sqlite", "file:"+db.File()+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	_, err = other.BeginTx(ctx, nil) // the file is locked by ctx's transaction
	return err
}

func TestRetryAtTheOutermostLevel(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		newTable(t, db)
		var r tape
		outer, inner := 0, 0
		err := db.InTx(t.Context(), func(ctx context.Context) error {
			outer++
			storage.AfterCommit(ctx, r.hook(fmt.Sprint("commit ", outer)))
			storage.OnRollback(ctx, r.undo(fmt.Sprint("undo ", outer)))
			if err := put(ctx, db, "a"); err != nil {
				return err
			}
			return db.InTx(ctx, func(ctx context.Context) error {
				inner++
				storage.AfterCommit(ctx, r.hook(fmt.Sprint("inner ", inner)))
				if inner < 3 {
					return fmt.Errorf("wrapped: %w", conflict(t, ctx, db))
				}
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		if outer != 3 || inner != 3 {
			t.Errorf("outer ran %d times, inner %d; want 3 and 3", outer, inner)
		}
		r.want(t, "undo 1", "undo 2", "commit 3", "inner 3")
		if got := keys(t, db); got != "a" {
			t.Errorf("keys = %q, want a", got)
		}
	})
}

func TestRetryIsBounded(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, name string) {
		db := storagetest.Open(t, name, storage.Config{TxAttempts: 3})
		calls := 0
		err := db.InTx(t.Context(), func(ctx context.Context) error {
			calls++
			return conflict(t, ctx, db)
		})
		if !storage.IsTransient(err) || calls != 3 {
			t.Errorf("InTx = %v after %d calls, want the transient error after 3", err, calls)
		}
		calls = 0
		if err := db.InTx(t.Context(), func(context.Context) error { calls++; return errNo }); err != errNo || calls != 1 {
			t.Errorf("InTx = %v after %d calls, want errNo after 1", err, calls)
		}
	})
}

// A function that hides the database's error in its own is called again all
// the same.
func TestRetryOfAHiddenError(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Postgres(t), storage.Config{})
	calls := 0
	err := db.InTx(t.Context(), func(ctx context.Context) error {
		if calls++; calls == 1 {
			return fmt.Errorf("could not do it: %v", conflict(t, ctx, db))
		}
		return nil
	})
	if err != nil || calls != 2 {
		t.Errorf("InTx = %v after %d calls, want success after 2", err, calls)
	}
}

func TestRealDeadlockIsRetried(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Postgres(t), storage.Config{})
	newTable(t, db)
	exec(t, t.Context(), db, "INSERT INTO n (k, v) VALUES ('a', 0), ('b', 0)")
	var ready, done sync.WaitGroup
	ready.Add(2)
	for _, order := range [][2]string{{"a", "b"}, {"b", "a"}} {
		done.Go(func() {
			var once sync.Once
			err := db.InTx(t.Context(), func(ctx context.Context) error {
				for i, k := range order {
					if _, err := db.Write(ctx).ExecContext(ctx, "UPDATE n SET v = v + 1 WHERE k = $1", k); err != nil {
						return err
					}
					if i == 0 {
						once.Do(func() { ready.Done(); ready.Wait() })
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	var sum int
	if err := db.Read(t.Context()).QueryRowContext(t.Context(), "SELECT sum(v) FROM n").Scan(&sum); err != nil || sum != 4 {
		t.Errorf("sum = %d, %v; want 4", sum, err)
	}
}

// Clients that read and then write never see a busy error, and no update is
// lost (DBS-02).
func TestReadThenWriteUnderLoad(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		newTable(t, db)
		exec(t, t.Context(), db, "INSERT INTO n (k, v) VALUES ('a', 0)")
		const clients, rounds = 8, 25
		forUpdate := ""
		if db.Dialect() == storage.Postgres {
			forUpdate = " FOR UPDATE"
		}
		var wg sync.WaitGroup
		for range clients {
			wg.Go(func() {
				for range rounds {
					err := db.InTx(t.Context(), func(ctx context.Context) error {
						var v int
						row := db.Read(ctx).QueryRowContext(ctx, "SELECT v FROM n WHERE k = 'a'"+forUpdate)
						if err := row.Scan(&v); err != nil {
							return err
						}
						_, err := db.Write(ctx).ExecContext(ctx, "UPDATE n SET v = $1 WHERE k = 'a'", v+1)
						return err
					})
					if err != nil {
						t.Error(err)
					}
					if _, err := db.Write(t.Context()).ExecContext(t.Context(), "UPDATE n SET v = v WHERE k = 'a'"); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		var v int
		if err := db.Read(t.Context()).QueryRowContext(t.Context(), "SELECT v FROM n").Scan(&v); err != nil || v != clients*rounds {
			t.Errorf("v = %d, %v; want %d", v, err, clients*rounds)
		}
	})
}

func TestUniqueViolationThroughWrapping(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		ctx := t.Context()
		exec(t, ctx, db, "CREATE TABLE u (id BIGINT PRIMARY KEY, a TEXT, b TEXT, c TEXT)")
		exec(t, ctx, db, "CREATE UNIQUE INDEX u_ab ON u (a, b)")
		exec(t, ctx, db, "CREATE UNIQUE INDEX u_c ON u (lower(c))")
		exec(t, ctx, db, "INSERT INTO u VALUES (1, 'x', 'y', 'z')")
		for _, c := range []struct{ values, sqlite, postgres string }{
			{"1, 'p', 'p', 'p'", "u.id", "u_pkey"},
			{"2, 'x', 'y', 'p'", "u.a, u.b", "u_ab"},
			{"2, 'p', 'p', 'Z'", "u_c", "u_c"},
		} {
			_, err := db.Write(ctx).ExecContext(ctx, "INSERT INTO u VALUES ("+c.values+")")
			got, ok := storage.IsUniqueViolation(fmt.Errorf("put: %w", errors.Join(errNo, err)))
			want := c.sqlite
			if db.Dialect() == storage.Postgres {
				want = c.postgres
			}
			if !ok || got != want {
				t.Errorf("(%s): IsUniqueViolation = %q, %v; want %q (%v)", c.values, got, ok, want, err)
			}
			if storage.IsTransient(err) || storage.IsBusy(err) || storage.IsConnectionLost(err) {
				t.Errorf("%v is taken for transient", err)
			}
		}
		for _, err := range []error{nil, errNo, context.Canceled} {
			if _, ok := storage.IsUniqueViolation(err); ok || storage.IsTransient(err) {
				t.Errorf("%v is classified as a database's error", err)
			}
		}
	})
}

func TestOpenRefusesBadConfig(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]storage.Config{
		"storage: MaxConns must be 1 to 1000, not 1001":            {MaxConns: 1001},
		"storage: TxAttempts must be 1 to 100, not -1":             {TxAttempts: -1},
		"storage: WriterWait must be at least 10ms, not 1ms":       {WriterWait: 1e6},
		"storage: ConnMaxIdle must be at least 1s, not 1ms":        {ConnMaxIdle: 1e6},
		"storage: ConnectTimeout must be at least 10ms, not -10ms": {ConnectTimeout: -1e7},
	} {
		_, err := dsn.Open(t.Context(), "sqlite::memory:", cfg)
		if err == nil || err.Error() != want {
			t.Errorf("Open = %v, want %q", err, want)
		}
	}
}
