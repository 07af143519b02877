package messaging

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/services/messaging/memstore"
	"github.com/objecthost/objecthost/storage"
)

// A commit without an answer gives its slots back at once, and its rows, if they
// are stored: they are sent then, in their order.
func TestRowsOfAnUnknownCommitAreSent(t *testing.T) {
	t.Parallel()
	sent := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { sent <- r.Header.Get(headerEvent) }))
	t.Cleanup(receiver.Close)
	allow, err := ParseEgressAllow([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	tx := storage.NewMemory()
	s, err := New(Config{Store: memstore.New(tx, nil), Tx: tx, Sender: SenderConfig{Egress: EgressConfig{Allow: allow}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(context.Background()) })
	if err := s.PutTarget(t.Context(), Target{Source: "test", Key: "default", MaxConcurrency: 1}); err != nil {
		t.Fatal(err)
	}
	request := func(label string) Request {
		return Request{Source: "test", URL: receiver.URL, Label: label, OrderingKey: "key", Payload: []byte("{}")}
	}
	next := func(want string) {
		t.Helper()
		select {
		case got := <-sent:
			if got != want {
				t.Errorf("%s was sent, want %s", got, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s was not sent", want)
		}
	}
	if _, err := s.Enqueue(t.Context(), request("first")); err != nil {
		t.Fatal(err)
	}
	next("first") // from now on the target is known, and rows are stored as claimed
	d := s.dispatch
	for _, stored := range []bool{true, false} {
		req := request("unknown")
		row, err := s.rowOf(&req)
		if err != nil {
			t.Fatal(err)
		}
		rows := []*driver.Row{row}
		var r *reservation
		for r == nil || r.held == nil { // until the row before is settled
			row.Status = StatusPending
			err := tx.InTx(t.Context(), func(ctx context.Context) error {
				if err := s.resolveTargets(ctx, rows); err != nil {
					return err
				}
				if r = d.reserve(ctx, rows); r.held == nil || !stored {
					return nil
				}
				_, err := s.cfg.Store.Insert(ctx, rows, driver.Terms{Hold: s.cfg.hold()})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		r.unknown()
		if _, err := s.Enqueue(t.Context(), request("later")); err != nil {
			t.Fatal(err)
		}
		if stored {
			next("unknown")
		}
		next("later")
	}
}

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
