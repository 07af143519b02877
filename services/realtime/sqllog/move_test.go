package sqllog

import (
	"context"
	"errors"
	"testing"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/services/realtime/drivertest"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// handle moves the consumer past everything that is committed.
func handle(t *testing.T, l *Log, db *storage.DB) (handled []string) {
	t.Helper()
	err := db.InTx(t.Context(), func(ctx context.Context) error {
		r, err := l.Lock(ctx, "c", 0)
		if err != nil {
			return err
		}
		page, err := l.Read(ctx, driver.Query{Position: r.Position, Last: 255, Limit: 100})
		if err != nil {
			return err
		}
		for _, e := range page.Events {
			handled = append(handled, e.ID)
		}
		r.Position = page.Next
		return l.Save(ctx, r)
	})
	if err != nil {
		t.Fatal(err)
	}
	return handled
}

func TestMovePositions(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, dsn string) {
		db := migrated(t, dsn)
		l := New(db, nil)
		add := func(name string) {
			t.Helper()
			if err := db.InTx(t.Context(), func(ctx context.Context) error {
				return l.Append(ctx, []*event.Event{drivertest.Event("o", name)}, 1)
			}); err != nil {
				t.Fatal(err)
			}
		}
		start, err := l.Position(t.Context(), driver.Earliest)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Insert(t.Context(), driver.Range{Consumer: "c", Last: 255, Position: start, Enabled: true}); err != nil {
			t.Fatal(err)
		}
		expect := func(what, sqlite, postgres string) {
			t.Helper()
			for dialect, want := range map[storage.Dialect]string{storage.SQLite: sqlite, storage.Postgres: postgres} {
				translate, err := MovePositions(t.Context(), db, dialect)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := translate("c", 0); err != nil || got != want {
					t.Errorf("%s for %s: %q, %v; want %q", what, dialect, got, err, want)
				}
				if _, err := translate("c", 7); err == nil {
					t.Error("a range that is not there has a position")
				}
			}
		}
		expect("nothing happened", "0", "3:3:@0")
		add("a")
		add("b")
		expect("nothing handled", "0", "3:3:@0")
		handle(t, l, db)
		expect("all handled", "2", "3:3:@2")
		add("c")
		expect("one waits", "2", "3:3:@2")
	})
}

// An event that was committed after a later one was handled has no number
// before which all are handled.
func TestMovePositionsOfAnUnsettledConsumer(t *testing.T) {
	t.Parallel()
	db := migrated(t, storagetest.Postgres(t))
	l := New(db, nil)
	start, err := l.Position(t.Context(), driver.Earliest)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Insert(t.Context(), driver.Range{Consumer: "c", Last: 255, Position: start, Enabled: true}); err != nil {
		t.Fatal(err)
	}
	err = db.InTx(t.Context(), func(late context.Context) error {
		if err := l.Append(late, []*event.Event{drivertest.Event("o", "late")}, 1); err != nil {
			return err
		}
		// On other connections, while the first transaction is open.
		err := db.InTx(t.Context(), func(ctx context.Context) error {
			return l.Append(ctx, []*event.Event{drivertest.Event("o", "early")}, 1)
		})
		if got := handle(t, l, db); len(got) != 1 || got[0] != "early" {
			t.Errorf("handled %v", got)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var unsettled *UnsettledError
	if _, err := MovePositions(t.Context(), db, storage.SQLite); !errors.As(err, &unsettled) || unsettled.Consumer != "c" {
		t.Errorf("MovePositions = %v", err)
	}
	if got := handle(t, l, db); len(got) != 1 || got[0] != "late" {
		t.Errorf("handled %v", got)
	}
	translate, err := MovePositions(t.Context(), db, storage.SQLite)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := translate("c", 0); err != nil || got != "2" {
		t.Errorf("position %q, %v", got, err)
	}
}
