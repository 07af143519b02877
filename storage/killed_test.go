package storage_test

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// A migration that is killed while it makes an index leaves nothing of it; the
// next start makes all of it, and the index holds.
func TestCase_OPS_06_KilledMigrationLeavesNoHalfMadeIndex(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, dsn string) {
		db, other := storagetest.Open(t, dsn, storage.Config{}), storagetest.Open(t, dsn, storage.Config{WriterWait: 20 * time.Millisecond})
		newTable(t, db)
		exec(t, t.Context(), db, `CREATE TABLE slow (s BIGINT)`)
		exec(t, t.Context(), db, `INSERT INTO slow VALUES (2000000000)`)
		linger := map[storage.Dialect]string{
			storage.Postgres: `SELECT pg_sleep(s) FROM slow;`,
			storage.SQLite:   `INSERT INTO slow SELECT -1 WHERE (WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < (SELECT MAX(s) FROM slow)) SELECT COUNT(*) FROM c) < 0;`,
		}[db.Dialect()]
		mark := rand.Text() // tells this run's session from others'
		files := set("-- "+mark+"\nCREATE UNIQUE INDEX n_v ON n (v);\n"+linger, "DROP INDEX n_v;")

		ctx, kill := context.WithCancel(t.Context())
		defer kill()
		ended := make(chan error, 1)
		go func() { ended <- db.Migrate(ctx, files) }()
		until(t, "the migration lingers", func() bool { return lingers(t, other, mark) })
		if db.Dialect() == storage.Postgres {
			exec(t, t.Context(), other, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE $1 AND pid <> pg_backend_pid()`, "-- "+mark+"%")
		}
		kill()
		if err := <-ended; err == nil {
			t.Fatal("the migration was not killed")
		}
		exec(t, t.Context(), db, `UPDATE slow SET s = 0`)
		if err := db.Migrate(t.Context(), files); err != nil {
			t.Fatal(err)
		}
		if err := put(t.Context(), db, "a"); err != nil {
			t.Fatal(err)
		}
		if constraint, unique := storage.IsUniqueViolation(put(t.Context(), db, "b")); !unique || constraint == "" {
			t.Errorf("the index does not hold: %q", constraint)
		}
	})
}

// lingers tells whether the migration is in its last statement.
func lingers(t *testing.T, db *storage.DB, mark string) bool {
	t.Helper()
	if db.Dialect() == storage.SQLite {
		err := db.InTx(t.Context(), func(context.Context) error { return nil })
		var busy *storage.WriterBusyError
		return errors.As(err, &busy) || storage.IsBusy(err)
	}
	var n int
	err := db.Read(t.Context()).QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity
		WHERE wait_event = 'PgSleep' AND query LIKE $1`, "-- "+mark+"%").Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n > 0
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
