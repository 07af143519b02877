package sqlstore_test

import (
	"flag"
	"os"
	"testing"

	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/services/messaging/drivertest"
	"github.com/objecthost/objecthost/services/messaging/sqlstore"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	for name, dsn := range map[string]func(testing.TB) string{"sqlite": storagetest.SQLite, "postgres": storagetest.Postgres, "pgbouncer": storagetest.Pooled} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			drivertest.Run(t, func(t *testing.T) (driver.Store, storage.Transactor) {
				db := storagetest.Open(t, dsn(t), storage.Config{})
				if err := db.Migrate(t.Context(), sqlstore.Migrations()); err != nil {
					t.Fatal(err)
				}
				return sqlstore.New(db), db
			})
		})
	}
}

// TestMain lowers the number of random runs, each of which takes hundreds of
// commits; -rapid.checks raises it again.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "12"); err != nil {
		panic(err)
	}
	flag.Parse()
	os.Exit(m.Run())
}
