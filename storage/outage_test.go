package storage_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/dsn"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// proxied opens a Postgres database whose connections can be cut.
func proxied(t *testing.T) (*storagetest.Proxy, *storage.DB) {
	t.Helper()
	proxy, name := storagetest.ProxyDSN(t, storagetest.Postgres(t))
	db := storagetest.Open(t, name, storage.Config{ConnectTimeout: 2 * time.Second})
	newTable(t, db)
	return proxy, db
}

func TestDatabaseGoneForAWhile(t *testing.T) {
	t.Parallel()
	proxy, db := proxied(t)
	proxy.Cut()
	calls := 0
	err := db.InTx(t.Context(), func(ctx context.Context) error { calls++; return put(ctx, db, "a") })
	if !storage.IsConnectionLost(err) || !storage.IsTransient(err) {
		t.Errorf("InTx = %v, want a lost connection", err)
	}
	if err := put(t.Context(), db, "a"); !storage.IsConnectionLost(err) {
		t.Errorf("Write = %v, want a lost connection", err)
	}
	if err := db.Ping(t.Context()); !storage.IsConnectionLost(err) {
		t.Errorf("Ping = %v, want a lost connection", err)
	}
	if _, err := db.NowMillis(t.Context()); !storage.IsConnectionLost(err) {
		t.Errorf("NowMillis = %v, want a lost connection", err)
	}
	proxy.Restore()
	if err := db.InTx(t.Context(), func(ctx context.Context) error { return put(ctx, db, "b") }); err != nil {
		t.Fatalf("InTx after the outage = %v", err)
	}
	if got := keys(t, db); got != "b" {
		t.Errorf("keys = %q, want b", got)
	}
}

// A connection lost in the middle of a transaction costs one more call of fn.
func TestConnectionLostInATransaction(t *testing.T) {
	t.Parallel()
	proxy, db := proxied(t)
	var r tape
	calls := 0
	err := db.InTx(t.Context(), func(ctx context.Context) error {
		calls++
		storage.AfterCommit(ctx, r.hook("commit"))
		storage.OnRollback(ctx, r.undo("undo"))
		if err := put(ctx, db, "a"); err != nil {
			return err
		}
		if calls == 1 {
			proxy.Cut()
			proxy.Restore()
		}
		return put(ctx, db, "b")
	})
	if err != nil || calls != 2 {
		t.Fatalf("InTx = %v after %d calls, want success after 2", err, calls)
	}
	r.want(t, "undo", "commit")
	if got := keys(t, db); got != "ab" {
		t.Errorf("keys = %q, want ab", got)
	}
}

// The server ends the session (a restart): the next use finds a new one.
func TestSessionTerminated(t *testing.T) {
	t.Parallel()
	name := storagetest.Postgres(t)
	db := storagetest.Open(t, name, storage.Config{MaxConns: 1})
	admin := storagetest.Open(t, name, storage.Config{MaxConns: 1})
	newTable(t, db)
	terminate := func(ctx context.Context) {
		var pid int
		if err := db.Read(ctx).QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			t.Error(err)
		}
		// The second argument waits until the session is gone.
		var gone bool
		err := admin.Write(t.Context()).QueryRowContext(t.Context(), "SELECT pg_terminate_backend($1, 5000)", pid).Scan(&gone)
		if err != nil || !gone {
			t.Errorf("terminate = %v, %v", gone, err)
		}
	}
	terminate(t.Context())
	if err := db.InTx(t.Context(), func(ctx context.Context) error { return put(ctx, db, "a") }); err != nil {
		t.Errorf("InTx on a dead idle connection = %v", err)
	}
	calls := 0
	err := db.InTx(t.Context(), func(ctx context.Context) error {
		if calls++; calls == 1 {
			terminate(ctx)
		}
		return put(ctx, db, "b")
	})
	if err != nil || calls != 2 {
		t.Errorf("InTx = %v after %d calls, want success after 2", err, calls)
	}
	terminate(t.Context())
	if err := put(t.Context(), db, "c"); err != nil {
		t.Errorf("Write on a dead idle connection = %v", err)
	}
	terminate(t.Context())
	if err := db.Ping(t.Context()); err != nil {
		t.Errorf("Ping on a dead idle connection = %v", err)
	}
	if got := keys(t, db); got != "abc" {
		t.Errorf("keys = %q, want abc", got)
	}
}

var errUndone = errors.New("undone")

// When the connection is lost before the commit is answered nobody knows what
// became of it: no retry, no hooks but those for this case, a typed error.
func TestCommitOutcomeUnknown(t *testing.T) {
	t.Parallel()
	proxy, db := proxied(t)
	var r tape
	calls := 0
	err := db.InTx(t.Context(), func(ctx context.Context) error {
		calls++
		storage.AfterCommit(ctx, r.hook("commit"))
		storage.OnRollback(ctx, r.undo("undo"))
		storage.OnCommitUnknown(ctx, r.undo("unknown"))
		if err := put(ctx, db, "a"); err != nil {
			return err
		}
		err := db.InTx(ctx, func(ctx context.Context) error {
			storage.OnCommitUnknown(ctx, r.undo("unknown in a kept savepoint"))
			return nil
		})
		undone := db.InTx(ctx, func(ctx context.Context) error {
			storage.OnCommitUnknown(ctx, r.undo("unknown in a savepoint that was undone"))
			return errUndone
		})
		if err != nil || !errors.Is(undone, errUndone) {
			t.Errorf("savepoints: %v, %v", err, undone)
		}
		proxy.Cut()
		proxy.Restore()
		return nil
	})
	var unknown *storage.CommitUnknownError
	if !errors.As(err, &unknown) || storage.IsTransient(err) {
		t.Errorf("InTx = %v, want a CommitUnknownError that isn't transient", err)
	}
	if calls != 1 {
		t.Errorf("fn ran %d times, want once", calls)
	}
	r.want(t, "unknown", "unknown in a kept savepoint")
	if err := put(t.Context(), db, "b"); err != nil {
		t.Errorf("use afterwards = %v", err)
	}
}

func TestOpenWithoutAServer(t *testing.T) {
	t.Parallel()
	proxy, name := storagetest.ProxyDSN(t, storagetest.Postgres(t))
	proxy.Cut()
	if _, err := dsn.Open(t.Context(), name, storage.Config{}); !storage.IsConnectionLost(err) {
		t.Errorf("Open = %v, want a lost connection", err)
	}
	proxy.Restore()
	storagetest.Open(t, name, storage.Config{})
}

func TestCancelledStatementsLeaveThePoolWhole(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Postgres(t), storage.Config{MaxConns: 2})
	newTable(t, db)
	for range 6 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := db.Write(ctx).ExecContext(ctx, "SELECT pg_sleep(10)"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Exec = %v, want DeadlineExceeded", err)
		}
		cancel()
	}
	if err := put(t.Context(), db, "a"); err != nil {
		t.Fatal(err)
	}
	if stats, _ := db.Stats(); stats.InUse != 0 {
		t.Errorf("%d connections in use, want none", stats.InUse)
	}
}

// A pool full of dead connections doesn't cost one attempt each.
func TestPoolRecoversAtOnce(t *testing.T) {
	t.Parallel()
	proxy, name := storagetest.ProxyDSN(t, storagetest.Postgres(t))
	db := storagetest.Open(t, name, storage.Config{MaxConns: 6, TxAttempts: 2})
	newTable(t, db)
	var all sync.WaitGroup
	all.Add(6)
	var done sync.WaitGroup
	for range 6 { // each holds a connection until all have one
		done.Go(func() {
			err := db.InTx(t.Context(), func(context.Context) error { all.Done(); all.Wait(); return nil })
			if err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	if n := proxy.Conns(); n != 6 {
		t.Fatalf("%d connections, want 6", n)
	}
	proxy.Cut()
	proxy.Restore()
	if err := db.InTx(t.Context(), func(ctx context.Context) error { return put(ctx, db, "a") }); err != nil {
		t.Errorf("InTx = %v, want success at the second attempt", err)
	}
}

// A transaction that is bounded gives up its locks when its process does not go
// on, though its connection is there.
func TestBoundedTransactionsEndWhenIdle(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Postgres(t), storage.Config{})
	newTable(t, db)
	if err := put(t.Context(), db, "a"); err != nil {
		t.Fatal(err)
	}
	locked, free := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- db.InTx(t.Context(), func(ctx context.Context) error {
			var n int
			if err := db.Write(ctx).QueryRowContext(ctx, `SELECT 1 FROM n WHERE k = 'a' AND `+db.BoundedSQL(5*time.Second)+` FOR UPDATE`).Scan(&n); err != nil {
				return err
			}
			select {
			case <-locked:
				return nil // a retry: the first attempt was the one to be ended
			default:
			}
			close(locked)
			<-free
			_, err := db.Write(ctx).ExecContext(ctx, `SELECT 1`)
			return err
		})
	}()
	<-locked
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := db.Write(ctx).ExecContext(ctx, `DELETE FROM n WHERE k = 'a'`)
	close(free)
	if err != nil {
		t.Errorf("the lock of an idle transaction is not given up: %v", err)
	}
	if err := <-ended; err == nil {
		t.Error("the idle transaction went on")
	}
}
