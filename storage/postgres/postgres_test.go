package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/postgres"
	"github.com/objecthost/objecthost/storage/storagetest"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Postgres(t), storage.Config{})
	got, err := db.Settings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Version == "" {
		t.Error("Version is empty")
	}
	for name, value := range map[string]string{"synchronous_commit": got.SynchronousCommit, "fsync": got.Fsync, "full_page_writes": got.FullPageWrites} {
		var want string
		if err := db.Read(t.Context()).QueryRowContext(t.Context(), "SHOW "+name).Scan(&want); err != nil || value != want {
			t.Errorf("%s = %q, %v; want %q", name, value, err, want)
		}
	}
	want := storage.Settings{
		Dialect: storage.Postgres, Version: got.Version, Encoding: "UTF8",
		SynchronousCommit: got.SynchronousCommit, Fsync: got.Fsync, FullPageWrites: got.FullPageWrites,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Settings (-want +got):\n%s", diff)
	}
}

// Any number of hosts may serve.
func TestLockAdmitsMany(t *testing.T) {
	t.Parallel()
	name := storagetest.Postgres(t)
	for range 2 {
		db := storagetest.Open(t, name, storage.Config{})
		release, err := db.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := release(); err != nil {
				t.Error(err)
			}
		}()
		if db.File() != "" || db.Waiting() != 0 {
			t.Errorf("File = %q, Waiting = %d", db.File(), db.Waiting())
		}
	}
}

func TestPoolIsBounded(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Postgres(t), storage.Config{MaxConns: 2})
	writer, readers := db.Stats()
	if writer.MaxOpenConnections != 2 || readers.MaxOpenConnections != 2 {
		t.Errorf("bounds = %d and %d, want 2", writer.MaxOpenConnections, readers.MaxOpenConnections)
	}
}

// A pooler in transaction mode needs sessions without named statements.
func TestNoNamedStatements(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Postgres(t), storage.Config{MaxConns: 1})
	for range 10 {
		var n int
		if err := db.Read(t.Context()).QueryRowContext(t.Context(), "SELECT $1::int + 1", 1).Scan(&n); err != nil || n != 2 {
			t.Fatalf("n = %d, %v", n, err)
		}
	}
	var n int
	if err := db.Read(t.Context()).QueryRowContext(t.Context(), "SELECT count(*) FROM pg_prepared_statements").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d prepared statements, %v; want none", n, err)
	}
}

func TestErrorsHoldNoPassword(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"postgres://u:s3cret@127.0.0.1:1/db?sslmode=disable",
		"postgres://u:s3cret@127.0.0.1:notaport/db",
		"postgres://u:s3cret@127.0.0.1/db?sslmode=what",
		"postgres://u:s3cret@%zz/db",
	} {
		_, err := postgres.Open(t.Context(), dsn, storage.Config{})
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("Open(%q) = %v, want an error without the password", dsn, err)
		}
	}
}

func TestFault(t *testing.T) {
	t.Parallel()
	d := new(postgres.Driver)
	pg := func(code string) error { return &pgconn.PgError{Code: code, ConstraintName: "t_pkey"} }
	for _, c := range []struct {
		err  error
		want storage.Fault
	}{
		{nil, storage.Fault{}},
		{errors.New("other"), storage.Fault{}},
		{context.Canceled, storage.Fault{}},
		{context.DeadlineExceeded, storage.Fault{}},
		{pg("23505"), storage.Fault{Kind: storage.FaultUnique, Constraint: "t_pkey"}},
		{pg("23503"), storage.Fault{}},
		{pg("22003"), storage.Fault{}},
		{pg("40001"), storage.Fault{Kind: storage.FaultConflict}},
		{pg("40P01"), storage.Fault{Kind: storage.FaultConflict}},
		{pg("55P03"), storage.Fault{Kind: storage.FaultBusy}},
		{pg("57P01"), storage.Fault{Kind: storage.FaultConnection}},
		{pg("57P03"), storage.Fault{Kind: storage.FaultConnection}},
		{pg("53300"), storage.Fault{Kind: storage.FaultConnection}},
		{pg("08006"), storage.Fault{Kind: storage.FaultConnection}},
		{pg("57014"), storage.Fault{}}, // query_canceled
		{io.ErrUnexpectedEOF, storage.Fault{Kind: storage.FaultConnection}},
		{pgconn.ErrConnClosed, storage.Fault{Kind: storage.FaultConnection}},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, storage.Fault{Kind: storage.FaultConnection}},
	} {
		if got := d.Fault(fmt.Errorf("wrapped: %w", c.err)); c.err != nil && got != c.want {
			t.Errorf("Fault(%v) = %v, want %v", c.err, got, c.want)
		}
	}
}
