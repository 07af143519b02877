package sqllog

import (
	"testing"

	"github.com/objecthost/objecthost/services/realtime/drivertest"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

func TestSuite(t *testing.T) {
	for name, dsn := range map[string]func(testing.TB) string{"sqlite": storagetest.SQLite, "postgres": storagetest.Postgres, "pgbouncer": storagetest.Pooled} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, func(t *testing.T) drivertest.Store {
				db := migrated(t, dsn(t))
				return drivertest.Store{Tx: db, Log: New(db, nil)}
			})
		})
	}
}

// migrated opens a database with the log's tables.
func migrated(t testing.TB, dsn string) *storage.DB {
	t.Helper()
	db := storagetest.Open(t, dsn, storage.Config{MaxConns: 8})
	if err := db.Migrate(t.Context(), Migrations()); err != nil {
		t.Fatal(err)
	}
	return db
}
