package storage_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

func openSQLite(t *testing.T, wait time.Duration) *storage.DB {
	t.Helper()
	return storagetest.Open(t, storagetest.SQLite(t), storage.Config{WriterWait: wait})
}

// wantBusy checks that err names the holder and a wait of about the bound.
func wantBusy(t *testing.T, err error, holder string, bound time.Duration) {
	t.Helper()
	var busy *storage.WriterBusyError
	if !errors.As(err, &busy) {
		t.Errorf("error = %v, want a WriterBusyError", err)
		return
	}
	if !strings.Contains(busy.Holder, holder) {
		t.Errorf("holder = %q, want %q in it", busy.Holder, holder)
	}
	if busy.Waited < bound || busy.Waited > bound+5*time.Second {
		t.Errorf("waited %v, want about %v", busy.Waited, bound)
	}
	if !storage.IsBusy(err) || !storage.IsTransient(err) {
		t.Errorf("%v is not taken for busy and transient", err)
	}
	if !strings.Contains(err.Error(), busy.Holder) {
		t.Errorf("%q doesn't name the holder", err)
	}
}

func holdTheWriter(ctx context.Context, db *storage.DB, fn func()) error {
	return db.InTx(ctx, func(context.Context) error { fn(); return nil })
}

func TestWriterWaitIsBoundedAndNamesTheHolder(t *testing.T) {
	t.Parallel()
	const wait = 50 * time.Millisecond
	db := openSQLite(t, wait)
	newTable(t, db)
	calls := 0
	blocked := func(holder string) func() {
		return func() {
			ctx := context.WithoutCancel(t.Context()) // a context without the transaction
			wantBusy(t, db.InTx(ctx, func(context.Context) error { calls++; return nil }), holder, wait)
			wantBusy(t, put(ctx, db, "a"), holder, wait)
			var n int
			wantBusy(t, db.Write(ctx).QueryRowContext(ctx, "SELECT 1").Scan(&n), holder, wait)
			_, err := db.Bun(ctx).NewRaw("DELETE FROM n").Exec(ctx)
			wantBusy(t, err, holder, wait)
		}
	}
	if err := holdTheWriter(storage.Named(t.Context(), "the nightly import"), db, blocked("the nightly import")); err != nil {
		t.Fatal(err)
	}
	if err := holdTheWriter(t.Context(), db, blocked("storage_test.holdTheWriter")); err != nil {
		t.Fatal(err)
	}
	if calls != 0 {
		t.Errorf("fn ran %d times without the writer", calls)
	}
	if err := put(t.Context(), db, "a"); err != nil {
		t.Errorf("the writer isn't usable afterwards: %v", err)
	}
}

func TestOpenRowsHoldTheWriter(t *testing.T) {
	t.Parallel()
	const wait = 50 * time.Millisecond
	db := openSQLite(t, wait)
	newTable(t, db)
	ctx := storage.Named(t.Context(), "the export")
	rows, err := db.Write(ctx).QueryContext(ctx, "INSERT INTO n (k, v) VALUES ('a', 1), ('b', 1) RETURNING k")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	wantBusy(t, put(t.Context(), db, "c"), "open rows of the export", wait)
	for rows.Next() {
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if err := put(t.Context(), db, "c"); err != nil {
		t.Errorf("write after the rows = %v", err)
	}
	if got := keys(t, db); got != "abc" {
		t.Errorf("keys = %q, want abc", got)
	}
}

func TestAnotherProcessHoldsTheFile(t *testing.T) {
	t.Parallel()
	const wait = 150 * time.Millisecond
	name := storagetest.SQLite(t)
	db := storagetest.Open(t, name, storage.Config{WriterWait: wait})
	other := storagetest.Open(t, name, storage.Config{WriterWait: wait})
	newTable(t, db)
	err := other.InTx(t.Context(), func(context.Context) error {
		wantBusy(t, db.InTx(t.Context(), func(context.Context) error { return nil }), "another process", wait)
		wantBusy(t, put(t.Context(), db, "a"), "another process", wait)
		// A cancelled wait ends at once.
		ctx, cancel := context.WithCancel(t.Context())
		stop := time.AfterFunc(20*time.Millisecond, cancel)
		defer stop.Stop()
		if err := db.InTx(ctx, func(context.Context) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled wait = %v, want Canceled", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := put(t.Context(), db, "a"); err != nil {
		t.Errorf("write afterwards = %v", err)
	}
}

func TestWaitForTheWriterEndsWithTheContext(t *testing.T) {
	t.Parallel()
	db := openSQLite(t, time.Minute)
	err := db.InTx(t.Context(), func(context.Context) error {
		ctx, cancel := context.WithCancel(context.Background())
		stop := time.AfterFunc(20*time.Millisecond, cancel)
		defer stop.Stop()
		if err := db.InTx(ctx, func(context.Context) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("InTx = %v, want Canceled", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The readers see the last commit while a transaction is open, and can't write.
func TestReadersBesideTheWriter(t *testing.T) {
	t.Parallel()
	db := openSQLite(t, time.Second)
	newTable(t, db)
	exec(t, t.Context(), db, "INSERT INTO n (k, v) VALUES ('a', 1)")
	err := db.InTx(t.Context(), func(ctx context.Context) error {
		if err := put(ctx, db, "b"); err != nil {
			return err
		}
		if got := keys(t, db); got != "a" {
			t.Errorf("readers see %q, want a", got)
		}
		var n int
		if err := db.Read(ctx).QueryRowContext(ctx, "SELECT count(*) FROM n").Scan(&n); err != nil || n != 2 {
			t.Errorf("the transaction sees %d rows, %v; want 2", n, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Read(t.Context()).ExecContext(t.Context(), "DELETE FROM n"); err == nil {
		t.Error("the readers can write")
	}
	if got := keys(t, db); got != "ab" {
		t.Errorf("keys = %q, want ab", got)
	}
}

func TestBusyErrorOfAForeignStatement(t *testing.T) {
	t.Parallel()
	db := openSQLite(t, time.Second)
	newTable(t, db)
	other, err := sql.Open("sqlite", "file:"+db.File())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	err = db.InTx(t.Context(), func(ctx context.Context) error {
		if err := put(ctx, db, "a"); err != nil {
			return err
		}
		_, err := other.ExecContext(ctx, "DELETE FROM n")
		if !storage.IsBusy(err) || !storage.IsTransient(fmt.Errorf("x: %w", err)) {
			t.Errorf("%v is not taken for busy", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
