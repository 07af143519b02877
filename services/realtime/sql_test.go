package realtime_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/services/realtime/memfanout"
	"github.com/objecthost/objecthost/services/realtime/sqllog"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// database opens an own schema or file with the log's tables and a table in
// which the consumer of effects counts what it handled.
func database(t testing.TB, dsn string) *storage.DB {
	t.Helper()
	db := storagetest.Open(t, dsn, storage.Config{MaxConns: 20})
	if err := db.Migrate(t.Context(), sqllog.Migrations()); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Write(t.Context()).ExecContext(t.Context(), `CREATE TABLE effect (n INTEGER, event TEXT, record TEXT, node TEXT)`); err != nil {
		t.Fatal(err)
	}
	return db
}

func onEachDialect(t *testing.T, fn func(t *testing.T, db *storage.DB)) {
	t.Helper()
	storagetest.EachDialectDSN(t, func(t *testing.T, dsn string) {
		t.Helper()
		fn(t, database(t, dsn))
	})
}

func newSQL(t testing.TB, db *storage.DB, cfg realtime.Config) *realtime.Service {
	t.Helper()
	s, err := realtime.New(db, sqllog.New(db, nil), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// effects writes a row per event in the batch's transaction, and reports how
// many were committed.
type effects struct {
	db        *storage.DB
	node      string
	committed *signal
	fail      func(n int) error
	calls     atomic.Int64
}

func (e *effects) handle(ctx context.Context, events []*event.Event) error {
	for _, ev := range events {
		insert := fmt.Sprintf(`INSERT INTO effect (n, event, record, node) VALUES (%d, '%s', '%s', '%s')`, ev.Sequence, ev.ID, ev.RecordID, e.node)
		if _, err := e.db.Write(ctx).ExecContext(ctx, insert); err != nil {
			return err
		}
	}
	storage.AfterCommit(ctx, func(context.Context) { e.committed.add(len(events)) })
	if e.fail != nil {
		return e.fail(int(e.calls.Add(1)))
	}
	return nil
}

// signal counts up and wakes who waits for a number.
type signal struct {
	mu    sync.Mutex
	count int
	ch    chan struct{}
}

func newSignal() *signal { return &signal{ch: make(chan struct{})} }

func (s *signal) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count += n
	close(s.ch)
	s.ch = make(chan struct{})
}

func (s *signal) wait(t *testing.T, n int) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		s.mu.Lock()
		count, ch := s.count, s.ch
		s.mu.Unlock()
		if count >= n {
			return
		}
		select {
		case <-ch:
		case <-deadline:
			t.Fatalf("%d of %d", count, n)
		}
	}
}

// once fails unless every event has exactly one effect, and there are n.
func once(t *testing.T, db *storage.DB, n int) {
	t.Helper()
	var rows, distinct int
	err := db.Read(t.Context()).QueryRowContext(t.Context(), `SELECT COUNT(*), COUNT(DISTINCT event) FROM effect`).Scan(&rows, &distinct)
	if err != nil {
		t.Fatal(err)
	}
	if rows != n || distinct != n {
		t.Fatalf("%d effects of %d events, want %d of each", rows, distinct, n)
	}
}

// Two hosts on one database run the same consumer: each event has its effects
// once, also when batches fail after their effects were written.
func TestTwoNodesHandleEachEventOnce(t *testing.T) {
	t.Parallel()
	onEachDialect(t, func(t *testing.T, db *storage.DB) {
		const writers, each = 16, 25
		var hub memfanout.Hub
		done := newSignal()
		var nodes []*realtime.Service
		for _, name := range []string{"one", "two"} {
			s := newSQL(t, db, realtime.Config{Fanout: hub.Join()})
			e := &effects{db: db, node: name, committed: done, fail: func(n int) error {
				if n%3 == 0 {
					return errors.New("every third batch fails")
				}
				return nil
			}}
			consume(t, s, realtime.ConsumerConfig{BatchSize: 20, MinBackoff: time.Millisecond, EventAttempts: 100}, e.handle)
			start(t, s)
			nodes = append(nodes, s)
		}
		if err := nodes[0].Split(t.Context(), "c", 128); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for i := range each {
					err := db.InTx(t.Context(), func(ctx context.Context) error {
						if err := nodes[w%2].Append(ctx, events(fmt.Sprintf("%d-%d", w, i))...); err != nil {
							return err
						}
						if i%5 == 4 {
							return errUndo
						}
						return nil
					})
					if err != nil && !errors.Is(err, errUndo) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		done.wait(t, writers*each*4/5)
		for _, s := range nodes {
			if err := s.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		once(t, db, writers*each*4/5)
	})
}

var errUndo = errors.New("undo")

// The process dies after the commit and before anybody was woken: the next one
// finds the events. A log that is written directly wakes nobody.
func TestNothingIsLostBetweenCommitAndWakeUp(t *testing.T) {
	t.Parallel()
	onEachDialect(t, func(t *testing.T, db *storage.DB) {
		first := newSQL(t, db, realtime.Config{})
		consume(t, first, realtime.ConsumerConfig{}, func(context.Context, []*event.Event) error { return nil })
		if err := first.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := db.InTx(t.Context(), func(ctx context.Context) error {
			return sqllog.New(db, nil).Append(ctx, events("a", "b"), 1)
		})
		if err != nil {
			t.Fatal(err)
		}
		done := newSignal()
		second := newSQL(t, db, realtime.Config{})
		consume(t, second, realtime.ConsumerConfig{}, (&effects{db: db, committed: done}).handle)
		start(t, second)
		done.wait(t, 2)
		once(t, db, 2)

		// The same while it runs: the poll finds it.
		err = db.InTx(t.Context(), func(ctx context.Context) error { return sqllog.New(db, nil).Append(ctx, events("c"), 1) })
		if err != nil {
			t.Fatal(err)
		}
		done.wait(t, 3)
		once(t, db, 3)
	})
}

// A handler's own events are handled by its next batch.
func TestHandlerAppends(t *testing.T) {
	t.Parallel()
	onEachDialect(t, func(t *testing.T, db *storage.DB) {
		s, done := newSQL(t, db, realtime.Config{}), newSignal()
		e := &effects{db: db, committed: done}
		consume(t, s, realtime.ConsumerConfig{}, func(ctx context.Context, batch []*event.Event) error {
			for _, ev := range batch {
				if len(ev.ID) < 4 {
					if err := s.Append(ctx, events(ev.ID+"x")...); err != nil {
						return err
					}
				}
			}
			return e.handle(ctx, batch)
		})
		start(t, s)
		if err := s.Append(t.Context(), events("a", "b")...); err != nil {
			t.Fatal(err)
		}
		done.wait(t, 8)
		once(t, db, 8)
	})
}

// A statement that fails, although the handler hides it, fails the batch.
func TestPoisonousEventOnSQL(t *testing.T) {
	t.Parallel()
	onEachDialect(t, func(t *testing.T, db *storage.DB) {
		s, done := newSQL(t, db, realtime.Config{}), newSignal()
		e := &effects{db: db, committed: done}
		stuck := newSignal()
		cfg := realtime.ConsumerConfig{BatchAttempts: 1, EventAttempts: 2, MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond}
		consume(t, s, cfg, func(ctx context.Context, batch []*event.Event) error {
			for _, ev := range batch {
				if ev.ID == "bad" {
					if len(batch) == 1 {
						stuck.add(1)
					}
					_, _ = db.Write(ctx).ExecContext(ctx, `INSERT INTO no_such_table VALUES (1)`)
					return nil
				}
			}
			return e.handle(ctx, batch)
		})
		start(t, s)
		if err := s.Append(t.Context(), events("a", "b", "bad", "c", "d")...); err != nil {
			t.Fatal(err)
		}
		done.wait(t, 2)
		stuck.wait(t, 4) // the third attempt comes after the second was recorded
		status := statusOf(t, s)
		equal(t, "state", realtime.StateStuck, status.State)
		equal(t, "stuck at", "bad", status.Ranges[0].Stuck.EventID)
		equal(t, "lag", int64(3), status.LagEvents)
		if err := s.Skip(t.Context(), "c", "bad"); err != nil {
			t.Fatal(err)
		}
		done.wait(t, 4)
		once(t, db, 4)
	})
}

// looks is a log that reports every look into it.
type looks struct {
	driver.Log
	seen *signal
}

func (l looks) Read(ctx context.Context, q driver.Query) (driver.Page, error) {
	page, err := l.Log.Read(ctx, q)
	l.seen.add(1)
	return page, err
}

// Idle consumers don't write: the range's row stays as it is, and unlocked.
func TestIdleConsumersDoNotWrite(t *testing.T) {
	t.Parallel()
	db := database(t, storagetest.Postgres(t))
	log := looks{sqllog.New(db, nil), newSignal()}
	s, err := realtime.New(db, log, realtime.Config{})
	if err != nil {
		t.Fatal(err)
	}
	done := newSignal()
	consume(t, s, realtime.ConsumerConfig{}, (&effects{db: db, committed: done}).handle)
	start(t, s)
	if err := s.Append(t.Context(), events("a")...); err != nil {
		t.Fatal(err)
	}
	done.wait(t, 1)
	version := func() (v string) {
		// A row lock shows in xmax.
		if err := db.Read(t.Context()).QueryRowContext(t.Context(), `SELECT ctid::text || ' ' || xmin || ' ' || xmax FROM sys_event_consumer`).Scan(&v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	before := version()
	// After the batch of a: a look and the batch's own, and one more.
	for i := range 5 {
		s.Wake()
		log.seen.wait(t, 4+i)
	}
	equal(t, "row version", before, version())
}

// Subscribers see the order of each record's writes, from concurrent writers.
func TestSubscribersSeeTheOrderOfWrites(t *testing.T) {
	t.Parallel()
	onEachDialect(t, func(t *testing.T, db *storage.DB) {
		const writers, each = 8, 20
		s, done := newSQL(t, db, realtime.Config{}), newSignal()
		var got []*event.Event
		if _, err := s.Subscribe(realtime.Filter{}, func(_ context.Context, e *event.Event) { got = append(got, e); done.add(1) }); err != nil {
			t.Fatal(err)
		}
		start(t, s)
		if _, err := db.Write(t.Context()).ExecContext(t.Context(), `INSERT INTO effect (n) VALUES (0)`); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() {
				for range each {
					err := db.InTx(t.Context(), func(ctx context.Context) error {
						var n int64
						if err := db.Write(ctx).QueryRowContext(ctx, `UPDATE effect SET n = n + 1 RETURNING n`).Scan(&n); err != nil {
							return err
						}
						return s.Append(ctx, &event.Event{Type: event.RecordUpdated, Object: "o", RecordID: "r", Matched: n})
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		done.wait(t, writers*each)
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, e := range got {
			if e.Matched != int64(i+1) {
				t.Fatalf("write %d is number %d", e.Matched, i+1)
			}
		}
	})
}
