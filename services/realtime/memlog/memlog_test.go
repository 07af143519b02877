package memlog_test

import (
	"testing"

	"github.com/objecthost/objecthost/services/realtime/drivertest"
	"github.com/objecthost/objecthost/services/realtime/memlog"
	"github.com/objecthost/objecthost/storage"
)

func TestSuite(t *testing.T) {
	drivertest.Run(t, func(*testing.T) drivertest.Store {
		return drivertest.Store{Tx: storage.NewMemory(), Log: memlog.New()}
	})
}
