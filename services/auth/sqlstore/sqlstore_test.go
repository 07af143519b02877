package sqlstore_test

import (
	"testing"

	"github.com/objecthost/objecthost/services/auth/driver"
	"github.com/objecthost/objecthost/services/auth/drivertest"
	"github.com/objecthost/objecthost/services/auth/sqlstore"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		drivertest.Run(t, func(t *testing.T) (driver.Store, storage.Transactor) {
			store := sqlstore.New(db)
			if err := store.Migrate(t.Context()); err != nil {
				t.Fatalf("Migrate = %v", err)
			}
			if _, err := db.Bun(t.Context()).ExecContext(t.Context(), "DELETE FROM sys_api_key"); err != nil {
				t.Fatal(err)
			}
			return store, db
		})
	})
}
