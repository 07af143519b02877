package messaging

import (
	"testing"
	"time"

	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/services/messaging/memstore"
	"github.com/objecthost/objecthost/storage"
)

// A transaction whose end nobody tells gives its slots back in the end.
func TestSlotsOfAnUnknownCommitComeBack(t *testing.T) {
	t.Parallel()
	tx := storage.NewMemory()
	s, err := New(Config{Store: memstore.New(tx, nil), Tx: tx})
	if err != nil {
		t.Fatal(err)
	}
	d := s.dispatch
	d.reservationLimit = time.Millisecond
	d.started = true
	target := d.target(1)
	target.cfg = &targetConfig{row: &driver.Target{State: TargetActive}}
	row := &driver.Row{ID: "a", TargetID: 1, OrderKey: 7, Status: StatusPending, URL: "http://a.test/"}
	d.reserve(t.Context(), []*driver.Row{row})
	select {
	case <-d.unreserved:
	case <-time.After(10 * time.Second):
		t.Fatal("the slot did not come back")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if row.Status != StatusPending || d.reserved != 0 || target.reserved != 0 || len(d.lanes) != 0 {
		t.Errorf("row %s, reserved %d, of the target %d, lanes %d; want pending and none", row.Status, d.reserved, target.reserved, len(d.lanes))
	}
}
