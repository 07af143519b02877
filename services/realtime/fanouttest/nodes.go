package fanouttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/services/realtime/sqllog"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// Promised is how soon a node sees what another one wrote.
const Promised = 100 * time.Millisecond

// RunNodes runs two services on one database, given by its DSN, that never poll,
// so that whatever one of them sees of the other came through the transport.
// open is called once per test, with a database whose log is migrated.
func RunNodes(t *testing.T, dsn func(t testing.TB) string, open func(t *testing.T, db *storage.DB) Transport) {
	for name, test := range map[string]func(*testing.T, *nodes){
		"SubscribersAndConsumersSeeTheOtherNodesEvents": seeEvents,
		"AnnouncementsFollowTheCommit":                  followCommit,
		"WhatWasMissedDuringALossIsFound":               catchUp,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := &nodes{dsn: dsn(t)}
			db := n.database(t)
			if err := db.Migrate(t.Context(), sqllog.Migrations()); err != nil {
				t.Fatal(err)
			}
			n.Transport = open(t, db)
			test(t, n)
		})
	}
}

type nodes struct {
	Transport
	dsn string
}

func (n *nodes) database(t *testing.T) *storage.DB {
	return storagetest.Open(t, n.dsn, storage.Config{})
}

// node is one service and what it saw.
type node struct {
	*realtime.Service
	db *storage.DB

	mu       sync.Mutex
	seen     map[string]int // by subscriber or consumer and event
	details  []string
	more     chan struct{}
	listened chan struct{}
}

// start starts a node and returns when it hears the others.
func (n *nodes) start(t *testing.T) *node {
	t.Helper()
	db := n.database(t)
	x := &node{db: db, seen: map[string]int{}, more: make(chan struct{}, 1), listened: make(chan struct{}, 1)}
	s, err := realtime.New(db, sqllog.New(db, nil), realtime.Config{Fanout: n.Join(t), PollInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	x.Service = s
	if _, err := s.Subscribe(realtime.Filter{}, func(_ context.Context, e *event.Event) { x.note("subscriber " + e.RecordID) }); err != nil {
		t.Fatal(err)
	}
	err = s.Consume(realtime.ConsumerConfig{Name: "c"}, func(ctx context.Context, events []*event.Event) error {
		storage.AfterCommit(ctx, func(context.Context) {
			for _, e := range events {
				x.note("consumer " + e.RecordID)
			}
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.OnAnnounce("deliveries", func(details []string) {
		x.mu.Lock()
		x.details = append(x.details, details...)
		x.mu.Unlock()
		if details == nil {
			poke(x.listened)
		}
		poke(x.more)
	})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wide)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	x.listens(t)
	return x
}

func (x *node) listens(t *testing.T) {
	t.Helper()
	select {
	case <-x.listened:
	case <-time.After(wide):
		t.Fatal("the node doesn't listen")
	}
}

func (x *node) note(what string) {
	x.mu.Lock()
	x.seen[what]++
	x.mu.Unlock()
	poke(x.more)
}

func (x *node) await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(wide)
	for {
		x.mu.Lock()
		ok := holds()
		x.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-x.more:
		case <-deadline:
			t.Fatalf("%s did not come", what)
		}
	}
}

func (x *node) write(t *testing.T, record string) {
	t.Helper()
	if err := x.Append(t.Context(), &event.Event{Type: event.RecordCreated, Object: "account", RecordID: record}); err != nil {
		t.Fatal(err)
	}
}

func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func seeEvents(t *testing.T, n *nodes) {
	a, b := n.start(t), n.start(t)
	var took []time.Duration
	for i := range 20 {
		record := fmt.Sprint("r", i)
		began := time.Now()
		a.write(t, record)
		b.await(t, "the event on the other node", func() bool { return b.seen["subscriber "+record] == 1 })
		took = append(took, time.Since(began))
		// Either node's consumer handles it, once.
		deadline := time.After(wide)
		for once := 0; once != 1; {
			a.mu.Lock()
			b.mu.Lock()
			once = a.seen["consumer "+record] + b.seen["consumer "+record]
			b.mu.Unlock()
			a.mu.Unlock()
			if once > 1 {
				t.Fatalf("%s was handled %d times", record, once)
			}
			if once == 1 {
				break
			}
			select {
			case <-a.more:
			case <-b.more:
			case <-deadline:
				t.Fatalf("%s was not handled", record)
			}
		}
	}
	slices.Sort(took)
	t.Logf("an event reached the other node's subscriber after %v (median), %v (slowest of %d)", took[len(took)/2], took[len(took)-1], len(took))
	// A busy machine may delay single ones.
	if took[0] > Promised {
		t.Errorf("the fastest took %v, promised are %v", took[0], Promised)
	}
}

func followCommit(t *testing.T, n *nodes) {
	a, b := n.start(t), n.start(t)
	undo := errors.New("undo")
	err := a.db.InTx(t.Context(), func(ctx context.Context) error {
		if err := a.Announce(ctx, "deliveries", "lost"); err != nil {
			return err
		}
		return undo
	})
	if !errors.Is(err, undo) {
		t.Fatal(err)
	}
	err = a.db.InTx(t.Context(), func(ctx context.Context) error {
		for _, detail := range []string{"17", "18"} {
			if err := a.Announce(ctx, "deliveries", detail); err != nil {
				return err
			}
		}
		return a.Announce(ctx, "others", "x")
	})
	if err != nil {
		t.Fatal(err)
	}
	b.await(t, "the announcement", func() bool { return slices.Contains(b.details, "17") && slices.Contains(b.details, "18") })
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.details) != 2 {
		t.Errorf("heard %v", b.details)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.details) != 0 {
		t.Errorf("a node heard itself: %v", a.details)
	}
}

func catchUp(t *testing.T, n *nodes) {
	if n.Cut == nil {
		return
	}
	a, b := n.start(t), n.start(t)
	n.Cut()
	a.write(t, "missed")
	n.Restore()
	b.await(t, "the event that was missed", func() bool { return b.seen["subscriber missed"] == 1 })
	b.listens(t)
	a.write(t, "later")
	b.await(t, "the event after the loss", func() bool { return b.seen["subscriber later"] == 1 })
}
