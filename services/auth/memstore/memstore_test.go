package memstore_test

import (
	"testing"

	"github.com/objecthost/objecthost/services/auth/driver"
	"github.com/objecthost/objecthost/services/auth/drivertest"
	"github.com/objecthost/objecthost/services/auth/memstore"
	"github.com/objecthost/objecthost/storage"
)

func TestStore(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, func(*testing.T) (driver.Store, storage.Transactor) {
		return memstore.New(), storage.NewMemory()
	})
}
