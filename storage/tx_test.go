package storage_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

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

func TestNestedInTxIsASavepoint(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		newTable(t, db)
		err := db.InTx(t.Context(), func(ctx context.Context) error {
			if err := put(ctx, db, "a"); err != nil {
				return err
			}
			err := db.InTx(ctx, func(ctx context.Context) error {
				if err := put(ctx, db, "b"); err != nil {
					return err
				}
				return put(ctx, db, "a")
			})
			if constraint, ok := storage.IsUniqueViolation(err); !ok || constraint == "" {
				t.Errorf("nested InTx = %v, want a unique violation with its constraint", err)
			}
			if err := db.InTx(ctx, func(ctx context.Context) error { return put(ctx, db, "c") }); err != nil {
				return err
			}
			return put(ctx, db, "d")
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := keys(t, db); got != "acd" {
			t.Fatalf("keys = %q, want acd", got)
		}
	})
}

func TestOuterRollbackTakesTheSavepoint(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		newTable(t, db)
		boom := errors.New("boom")
		err := db.InTx(t.Context(), func(ctx context.Context) error {
			if err := db.InTx(ctx, func(ctx context.Context) error { return put(ctx, db, "a") }); err != nil {
				return err
			}
			return boom
		})
		if err != boom || keys(t, db) != "" {
			t.Fatalf("InTx = %v, keys = %q; want boom and none", err, keys(t, db))
		}
	})
}

func TestFailedStatementEndsItsLevel(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		newTable(t, db)
		err := db.InTx(t.Context(), func(ctx context.Context) error {
			if err := put(ctx, db, "a"); err != nil {
				return err
			}
			if err := put(ctx, db, "a"); err == nil {
				t.Error("a second a was taken")
			}
			if err := put(ctx, db, "b"); !errors.Is(err, storage.ErrTxAborted) {
				t.Errorf("statement after a failed one = %v, want ErrTxAborted", err)
			}
			var n int
			if err := db.Read(ctx).QueryRowContext(ctx, "SELECT 1").Scan(&n); !errors.Is(err, storage.ErrTxAborted) {
				t.Errorf("query after a failed statement = %v, want ErrTxAborted", err)
			}
			return nil
		})
		if !errors.Is(err, storage.ErrTxAborted) {
			t.Errorf("InTx = %v, want ErrTxAborted", err)
		}
		if _, ok := storage.IsUniqueViolation(err); !ok {
			t.Errorf("InTx = %v, want the first statement's error in it", err)
		}
		if got := keys(t, db); got != "" {
			t.Errorf("keys = %q, want none", got)
		}
	})
}

func TestPanicRollsBackAndGoesOn(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		newTable(t, db)
		undone := 0
		func() {
			defer func() {
				if got := recover(); got != "boom" {
					t.Errorf("recovered %v, want boom", got)
				}
			}()
			_ = db.InTx(t.Context(), func(ctx context.Context) error {
				storage.OnRollback(ctx, func() { undone++ })
				if err := put(ctx, db, "a"); err != nil {
					return err
				}
				return db.InTx(ctx, func(context.Context) error { panic("boom") })
			})
		}()
		if undone != 1 {
			t.Errorf("undo ran %d times, want once", undone)
		}
		if err := db.InTx(t.Context(), func(ctx context.Context) error { return put(ctx, db, "b") }); err != nil {
			t.Fatal(err)
		}
		if got := keys(t, db); got != "b" {
			t.Errorf("keys = %q, want b", got)
		}
	})
}

// A recovered panic inside leaves the outer transaction usable.
func TestRecoveredPanicOfASavepoint(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		newTable(t, db)
		err := db.InTx(t.Context(), func(ctx context.Context) error {
			func() {
				defer func() { _ = recover() }()
				_ = db.InTx(ctx, func(ctx context.Context) error {
					if err := put(ctx, db, "a"); err != nil {
						return err
					}
					panic("boom")
				})
			}()
			return put(ctx, db, "b")
		})
		if err != nil || keys(t, db) != "b" {
			t.Fatalf("InTx = %v, keys = %q; want b", err, keys(t, db))
		}
	})
}

func TestGoexitRollsBack(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		newTable(t, db)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = db.InTx(context.Background(), func(ctx context.Context) error {
				_ = put(ctx, db, "a")
				runtime.Goexit()
				return nil
			})
		}()
		<-done
		exec(t, t.Context(), db, "INSERT INTO n (k, v) VALUES ('b', 1)")
		if got := keys(t, db); got != "b" {
			t.Fatalf("keys = %q, want b", got)
		}
	})
}

func TestCancelledContextRollsBack(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		newTable(t, db)
		ctx, cancel := context.WithCancelCause(t.Context())
		reason := errors.New("the client left")
		calls, committed := 0, false
		err := db.InTx(ctx, func(ctx context.Context) error {
			calls++
			storage.AfterCommit(ctx, func(context.Context) { committed = true })
			if err := put(ctx, db, "a"); err != nil {
				return err
			}
			cancel(reason)
			return nil
		})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, reason) {
			t.Errorf("InTx = %v, want Canceled and its cause", err)
		}
		if calls != 1 || committed {
			t.Errorf("fn ran %d times, hooks %v; want once and none", calls, committed)
		}
		if err := db.InTx(ctx, func(context.Context) error { calls++; return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("InTx with an ended context = %v, want Canceled", err)
		}
		if calls != 1 {
			t.Error("fn ran with an ended context")
		}
		exec(t, t.Context(), db, "INSERT INTO n (k, v) VALUES ('b', 1)")
		if got := keys(t, db); got != "b" {
			t.Errorf("keys = %q, want b", got)
		}
	})
}

// slow is a statement that runs until it is cancelled, and writes. On Postgres
// it ends by itself in the end: a cancel request that overtakes its statement
// is lost, and the table's locks stay until then.
func slow(db *storage.DB) string {
	if db.Dialect() == storage.Postgres {
		return "INSERT INTO n (k, v) SELECT 'slow', 1 FROM pg_sleep(10)"
	}
	return `INSERT INTO n (k, v) WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c)
		SELECT 'slow', i FROM c WHERE i < 0`
}

// A statement that is cancelled on its own ends the transaction, on SQLite
// too, where it rolls back behind everyone's back: nothing after it may run
// as a transaction of its own.
func TestCancelledStatement(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		newTable(t, db)
		err := db.InTx(t.Context(), func(ctx context.Context) error {
			if err := put(ctx, db, "a"); err != nil {
				return err
			}
			err := db.InTx(ctx, func(ctx context.Context) error {
				short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
				_, err := db.Write(short).ExecContext(short, slow(db))
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("cancelled statement = %v, want DeadlineExceeded", err)
				}
				return err
			})
			if err == nil {
				t.Error("the nested InTx ended well")
			}
			if err := put(ctx, db, "b"); err == nil {
				t.Error("a statement ran after the transaction was gone")
			}
			return nil
		})
		if err == nil {
			t.Error("InTx ended well")
		}
		exec(t, t.Context(), db, "INSERT INTO n (k, v) VALUES ('c', 1)")
		if got := keys(t, db); got != "c" {
			t.Errorf("keys = %q, want c", got)
		}
	})
}

func TestCancelWhileAStatementRuns(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		newTable(t, db)
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			err := db.InTx(ctx, func(ctx context.Context) error {
				if err := put(ctx, db, "a"); err != nil {
					return err
				}
				_, err := db.Write(ctx).ExecContext(ctx, slow(db))
				return err
			})
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("InTx = %v, want DeadlineExceeded", err)
			}
			if err := db.InTx(t.Context(), func(ctx context.Context) error {
				_, err := db.Write(ctx).ExecContext(ctx, "UPDATE n SET v = v + 1")
				return err
			}); err != nil {
				t.Fatalf("the writer isn't usable afterwards: %v", err)
			}
		}
		if got := keys(t, db); got != "" {
			t.Errorf("keys = %q, want none", got)
		}
		if writer, _ := db.Stats(); writer.InUse != 0 {
			t.Errorf("%d connections are still in use", writer.InUse)
		}
	})
}

func TestUseAfterTheEnd(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		newTable(t, db)
		use := func(t *testing.T, ctx context.Context) {
			t.Helper()
			var n int
			_, execErr := db.Write(ctx).ExecContext(ctx, "INSERT INTO n (k, v) VALUES ('x', 1)")
			_, queryErr := db.Read(ctx).QueryContext(ctx, "SELECT 1") //nolint:sqlclosecheck,rowserrcheck // there are no rows
			_, bunErr := db.Bun(ctx).NewRaw("DELETE FROM n").Exec(ctx)
			for name, err := range map[string]error{
				"exec":  execErr,
				"query": queryErr,
				"row":   db.Read(ctx).QueryRowContext(ctx, "SELECT 1").Scan(&n),
				"bun":   bunErr,
				"InTx":  db.InTx(ctx, func(context.Context) error { return nil }),
			} {
				if !errors.Is(err, storage.ErrTxFinished) || !errors.Is(err, sql.ErrTxDone) {
					t.Errorf("%s = %v, want ErrTxFinished", name, err)
				}
			}
			if storage.InTransaction(ctx) {
				t.Error("InTransaction after the end")
			}
		}
		var outer, released, rolledBack context.Context
		err := db.InTx(t.Context(), func(ctx context.Context) error {
			outer = ctx
			if !storage.InTransaction(ctx) {
				t.Error("not InTransaction inside")
			}
			if err := db.InTx(ctx, func(ctx context.Context) error { released = ctx; return put(ctx, db, "a") }); err != nil {
				return err
			}
			use(t, released)
			_ = db.InTx(ctx, func(ctx context.Context) error { rolledBack = ctx; return errors.New("no") })
			use(t, rolledBack)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for _, ctx := range []context.Context{outer, released, rolledBack} {
			wg.Go(func() { use(t, ctx) })
		}
		wg.Wait()
		if got := keys(t, db); got != "a" {
			t.Errorf("keys = %q, want a", got)
		}
	})
}

// A goroutine that outlives its savepoint never writes into the outer level,
// however its statements fall around the end.
func TestLeakedGoroutine(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		newTable(t, db)
		var wg sync.WaitGroup
		err := db.InTx(t.Context(), func(ctx context.Context) error {
			for i := range 20 {
				started := make(chan struct{})
				_ = db.InTx(ctx, func(ctx context.Context) error {
					wg.Go(func() {
						close(started)
						for j := 0; ; j++ {
							if err := put(ctx, db, fmt.Sprintf("%d-%d", i, j)); err != nil {
								if !errors.Is(err, storage.ErrTxFinished) {
									t.Errorf("leaked statement = %v, want ErrTxFinished", err)
								}
								return
							}
						}
					})
					<-started
					return errors.New("roll back")
				})
			}
			return nil
		})
		wg.Wait()
		if err != nil {
			t.Fatal(err)
		}
		if got := keys(t, db); got != "" {
			t.Errorf("keys = %q, want none", got)
		}
	})
}

func TestOuterContextInsideASavepoint(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		newTable(t, db)
		err := db.InTx(t.Context(), func(outer context.Context) error {
			return db.InTx(outer, func(context.Context) error {
				if err := put(outer, db, "a"); !errors.Is(err, storage.ErrNestedOpen) {
					t.Errorf("statement on the outer context = %v, want ErrNestedOpen", err)
				}
				if err := db.InTx(outer, func(context.Context) error { return nil }); !errors.Is(err, storage.ErrNestedOpen) {
					t.Errorf("InTx on the outer context = %v, want ErrNestedOpen", err)
				}
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestTwoDatabasesInOneContext(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, a *storage.DB) {
		b := storagetest.Open(t, storagetest.SQLite(t), storage.Config{})
		newTable(t, a)
		newTable(t, b)
		boom := errors.New("boom")
		var hooks []string
		err := a.InTx(t.Context(), func(ctx context.Context) error {
			storage.AfterCommit(ctx, func(context.Context) { hooks = append(hooks, "a") })
			if err := b.InTx(ctx, func(ctx context.Context) error {
				storage.AfterCommit(ctx, func(ctx context.Context) {
					hooks = append(hooks, "b")
					if err := put(ctx, a, "z"); err != nil { // a's transaction is still there
						t.Error(err)
					}
				})
				if err := put(ctx, a, "x"); err != nil {
					return err
				}
				return put(ctx, b, "y")
			}); err != nil {
				return err
			}
			return boom
		})
		if err != boom {
			t.Fatal(err)
		}
		if keys(t, a) != "" || keys(t, b) != "y" {
			t.Errorf("a = %q, b = %q; want none and y: each ends for itself", keys(t, a), keys(t, b))
		}
		if len(hooks) != 1 || hooks[0] != "b" {
			t.Errorf("hooks = %v, want b's alone", hooks)
		}
	})
}
