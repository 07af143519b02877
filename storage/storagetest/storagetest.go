// Package storagetest gives tests a database of each dialect.
package storagetest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/dsn"
)

// PostgresEnv names the environment variable with the DSN of the server that
// tests use; without it they use the one on this machine. Its user may create
// schemas.
const PostgresEnv = "HOST_TEST_POSTGRES"

const localPostgres = "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable"

// EachDialect runs fn as the sub-tests "sqlite" and "postgres", each with an
// empty database of its own that is removed afterwards.
func EachDialect(t *testing.T, fn func(t *testing.T, db *storage.DB)) {
	t.Helper()
	EachDialectDSN(t, func(t *testing.T, dsn string) {
		t.Helper()
		fn(t, Open(t, dsn, storage.Config{}))
	})
}

// EachDialectDSN is like EachDialect for tests that open the database
// themselves, or more than once.
func EachDialectDSN(t *testing.T, fn func(t *testing.T, dsn string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		fn(t, SQLite(t))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		fn(t, Postgres(t))
	})
}

// Open opens a database that is closed at the end of the test. The pool is
// small unless cfg says otherwise.
func Open(t testing.TB, name string, cfg storage.Config) *storage.DB {
	t.Helper()
	if cfg.MaxConns == 0 {
		cfg.MaxConns = 6
	}
	db, err := dsn.Open(t.Context(), name, cfg)
	if err != nil {
		t.Fatalf("open %s: %v", dsn.Redact(name), err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close the database: %v", err)
		}
	})
	return db
}

// SQLite returns the DSN of a new file in the test's temporary folder.
func SQLite(t testing.TB) string {
	t.Helper()
	return "sqlite:" + filepath.Join(t.TempDir(), "test.db")
}

// Postgres returns a DSN whose search_path is a new schema, which is dropped
// with all it holds at the end of the test. The test fails when no server
// answers: nothing is skipped.
func Postgres(t testing.TB) string {
	t.Helper()
	server := os.Getenv(PostgresEnv)
	if server == "" {
		server = localPostgres
	}
	schema := "test_" + randomHex(t)
	admin(t, server, "CREATE SCHEMA "+pgx.Identifier{schema}.Sanitize())
	t.Cleanup(func() {
		admin(t, server, "DROP SCHEMA "+pgx.Identifier{schema}.Sanitize()+" CASCADE")
	})
	u, err := url.Parse(server)
	if err != nil {
		t.Fatalf("%s is not a postgres:// URL", PostgresEnv)
	}
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String()
}

// Pooled returns a DSN like that of [Postgres] that leads through a
// [PgBouncer] with fewer sessions than most tests have connections.
func Pooled(t testing.TB) string {
	t.Helper()
	return PgBouncer(t, Postgres(t), 6)
}

func randomHex(t testing.TB) string {
	t.Helper()
	b := make([]byte, 8)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b)
}

// execute runs a statement again when the server made it the victim of a
// deadlock: dropping a schema locks all its tables, while the last statements of
// connections that are being closed, or the server's own vacuum, hold some.
func execute(ctx context.Context, db *sql.DB, statement string) error {
	for {
		_, err := db.ExecContext(ctx, statement)
		var failed *pgconn.PgError
		if !errors.As(err, &failed) || failed.Code != deadlockDetected {
			return err
		}
	}
}

// deadlockDetected is the SQLSTATE of a transaction that was rolled back to
// resolve a deadlock.
const deadlockDetected = "40P01"

// admin runs one statement on a connection of its own.
func admin(t testing.TB, server, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	db, err := sql.Open("pgx", server)
	if err == nil {
		err = execute(ctx, db, statement)
		_ = db.Close()
	}
	if err != nil {
		t.Fatalf("these tests need a PostgreSQL server at %s (set %s to another one): %v",
			dsn.Redact(server), PostgresEnv, err)
	}
}
