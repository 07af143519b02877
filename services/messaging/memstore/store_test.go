package memstore_test

import (
	"testing"

	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/services/messaging/drivertest"
	"github.com/objecthost/objecthost/services/messaging/memstore"
	"github.com/objecthost/objecthost/storage"
)

func TestStore(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, func(*testing.T) (driver.Store, storage.Transactor) {
		tx := storage.NewMemory()
		return memstore.New(tx, nil), tx
	})
}
