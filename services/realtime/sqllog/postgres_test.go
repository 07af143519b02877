package sqllog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/services/realtime/drivertest"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// fixture is a log on PostgreSQL and a reader that moves on.
type fixture struct {
	t        *testing.T
	dsn      string
	db       *storage.DB
	log      *Log
	position string
}

func setup(t *testing.T) *fixture {
	t.Helper()
	dsn := storagetest.Postgres(t)
	f := &fixture{t: t, dsn: dsn, db: migrated(t, dsn)}
	f.log = New(f.db, nil)
	f.position = f.at(driver.Latest)
	return f
}

func (f *fixture) at(start driver.Start) string {
	f.t.Helper()
	p, err := f.log.Position(f.t.Context(), start)
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

// raiseFloor moves to the end, with a floor above all that was appended. The
// floor is raised only when floorLag numbers have gone by.
func (f *fixture) raiseFloor() {
	f.t.Helper()
	exec(f.t, f, `SELECT nextval('sys_event_sequence') FROM generate_series(1, $1::bigint)`, floorLag)
	f.position = f.at(driver.Latest)
	if pos, err := parsePosition(f.position); err != nil || pos.floor < floorLag {
		f.t.Fatalf("floor of %s, %v", f.position, err)
	}
}

// next reads up to limit events and moves on.
func (f *fixture) next(limit int) []string {
	f.t.Helper()
	page, err := f.log.Read(f.t.Context(), driver.Query{Position: f.position, Last: 255, Limit: limit})
	if err != nil {
		f.t.Fatal(err)
	}
	f.position = page.Next
	got := []string{}
	for _, e := range page.Events {
		got = append(got, e.ID)
	}
	return got
}

func (f *fixture) expect(limit int, want ...string) {
	f.t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), f.next(limit)); diff != "" {
		f.t.Fatalf("events (-want +got):\n%s\nposition %s", diff, f.position)
	}
}

// writer is a transaction that is open until told otherwise.
type writer struct {
	f    *fixture
	ctx  context.Context
	end  chan error
	done chan error
}

// begin opens a transaction on a connection of its own.
func (f *fixture) begin() *writer {
	f.t.Helper()
	w := &writer{f: f, end: make(chan error), done: make(chan error, 1)}
	opened := make(chan context.Context)
	go func() {
		w.done <- f.db.InTx(context.WithoutCancel(f.t.Context()), func(ctx context.Context) error {
			opened <- ctx
			return <-w.end
		})
	}()
	select {
	case w.ctx = <-opened:
	case err := <-w.done:
		f.t.Fatal(err)
	}
	f.t.Cleanup(w.rollback) // does nothing when it has ended
	return w
}

func (w *writer) append(names ...string) *writer {
	w.f.t.Helper()
	var events []*event.Event
	for _, n := range names {
		events = append(events, drivertest.Event("o", n))
	}
	if err := w.f.log.Append(w.ctx, events, 1); err != nil {
		w.f.t.Fatal(err)
	}
	return w
}

func (w *writer) commit() {
	w.f.t.Helper()
	w.end <- nil
	if err := <-w.done; err != nil {
		w.f.t.Fatal(err)
	}
	w.end = nil
}

var errUndo = errors.New("undo")

func (w *writer) rollback() {
	if w.end != nil {
		w.end <- errUndo
		if err := <-w.done; !errors.Is(err, errUndo) {
			panic(fmt.Sprintf("rollback: %v", err))
		}
		w.end = nil
	}
}

func TestCommitsInReverseOrder(t *testing.T) {
	t.Parallel()
	f := setup(t)
	first, second := f.begin().append("a1"), f.begin().append("b1")
	first.append("a2")
	f.expect(10)
	second.commit()
	f.expect(10, "b1")
	f.expect(10)
	first.commit()
	f.expect(10, "a1", "a2")
	f.expect(10)
}

func TestOpenTransactionsHoldNobodyBack(t *testing.T) {
	t.Parallel()
	f := setup(t)
	other := otherDatabase(t)
	holdTx(t, other, `CREATE TABLE held (id INTEGER); INSERT INTO held VALUES (1)`)
	holdTx(t, f.dsn, `CREATE TABLE unrelated (id INTEGER); INSERT INTO unrelated VALUES (1)`)
	open := f.begin().append("late 1")
	rolled := f.begin().append("never")
	for i := range 5 {
		f.begin().append(fmt.Sprint("e", i)).commit()
		f.expect(10, fmt.Sprint("e", i))
	}
	open.append("late 2")
	rolled.rollback()
	f.expect(10)
	f.begin().append("e5").commit()
	f.expect(10, "e5")
	open.commit()
	f.expect(10, "late 1", "late 2")
	f.expect(10)
}

// otherDatabase makes a second database on the server.
func otherDatabase(t *testing.T) string {
	t.Helper()
	dsn := storagetest.Postgres(t)
	name := fmt.Sprintf("realtime_test_%d", time.Now().UnixNano())
	admin, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close() })
	if _, err := admin.Exec(`CREATE DATABASE ` + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := admin.Exec(`DROP DATABASE ` + name + ` WITH (FORCE)`); err != nil {
			t.Error(err)
		}
	})
	base, _, _ := strings.Cut(dsn, "?")
	return base[:strings.LastIndex(base, "/")+1] + name + "?sslmode=disable"
}

// holdTx runs statements in a transaction that stays open until the test ends.
func holdTx(t *testing.T, dsn, statements string) {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(context.WithoutCancel(t.Context()), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(); _ = db.Close() })
	for s := range strings.SplitSeq(statements, ";") {
		if _, err := tx.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
}

// A transaction below xmax commits in the middle of a delta that is read in
// batches: it is not in the pinned target, and comes with the next delta.
func TestLateCommitDuringALongDelta(t *testing.T) {
	t.Parallel()
	f := setup(t)
	late := f.begin().append("late 1")
	f.begin().append("a", "b").commit()
	late.append("late 2")
	f.begin().append("c", "d").commit()
	f.expect(1, "a")
	late.commit()
	f.begin().append("e").commit()
	f.expect(2, "b", "c")
	f.expect(2, "d", "late 1")
	f.expect(2, "late 2", "e")
	f.expect(2)
}

// Late events of several transactions come in batches, by sequence, before what
// is fresh.
func TestLateEventsInBatches(t *testing.T) {
	t.Parallel()
	f := setup(t)
	x, y, z := f.begin().append("x1"), f.begin().append("y1"), f.begin().append("z1")
	x.append("x2")
	y.append("y2")
	f.begin().append("a").commit()
	f.raiseFloor()
	x.commit()
	y.commit()
	f.begin().append("b").commit()
	f.expect(2, "x1", "y1")
	z.commit() // after the target of this delta
	f.expect(2, "x2", "y2")
	f.expect(2, "b", "z1")
	f.expect(2)
}

// Subtransactions have xids of their own; rows carry the top-level one.
func TestSavepoints(t *testing.T) {
	t.Parallel()
	f := setup(t)
	w := f.begin().append("top")
	err := f.db.InTx(w.ctx, func(ctx context.Context) error {
		return f.log.Append(ctx, []*event.Event{drivertest.Event("o", "kept")}, 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	f.begin().append("other").commit()
	f.expect(10, "other")
	w.commit()
	f.expect(10, "top", "kept")
}

// The batch's own transaction has an xid below the xmax of its snapshot when a
// later one has completed. What it appends must not count as read.
func TestOwnTransactionBelowXmax(t *testing.T) {
	t.Parallel()
	f := setup(t)
	w := f.begin().append("own 1") // has its xid
	f.begin().append("other").commit()
	page, err := f.log.Read(w.ctx, driver.Query{Position: f.position, Last: 255, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Events) != 1 || page.Events[0].ID != "other" {
		t.Fatalf("events %v", page.Events)
	}
	f.position = page.Next
	w.append("own 2").commit()
	f.expect(10, "own 1", "own 2")
}

// Two open transactions append to one partition, and a third commits meanwhile:
// nobody waits for anybody.
func TestWritersDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	f := setup(t)
	first, second := f.begin().append("r"), f.begin()
	ctx, cancel := context.WithTimeout(second.ctx, 5*time.Second)
	defer cancel()
	for range 2 {
		if err := f.log.Append(ctx, []*event.Event{drivertest.Event("o", "r")}, 1); err != nil {
			t.Fatalf("append beside an open transaction: %v", err)
		}
	}
	var waiting int
	err := f.db.Read(t.Context()).QueryRowContext(t.Context(), `SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
		WHERE NOT l.granted AND c.relnamespace = current_schema()::regnamespace`).Scan(&waiting)
	if err != nil || waiting != 0 {
		t.Fatalf("%d waiting, %v", waiting, err)
	}
	second.commit()
	f.expect(10, "r", "r")
	first.commit()
	f.expect(10, "r")
}

// The database is restored into a cluster whose xids are lower.
func TestRestoredDatabase(t *testing.T) {
	t.Parallel()
	for name, lastRead := range map[string]int{"between deltas": 10, "within a delta": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			late := f.begin().append("late")
			f.raiseFloor()
			f.begin().append("a", "b", "c").commit()
			f.expect(lastRead, []string{"a", "b", "c"}[:min(lastRead, 3)]...)
			insertRange(t, f, f.position)
			late.commit()
			f.begin().append("d").commit()
			shiftXids(t, f, 1_000_000_000)

			f.log = New(f.db, nil) // the host starts on the restored database
			if err := f.log.Verify(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.position = lockedPosition(t, f)
			f.begin().append("new").commit()
			// late has the lowest number, so everything comes again.
			f.expect(10, "late", "a", "b", "c", "d", "new")
			f.expect(10)
			var foreign int
			if err := f.db.Read(t.Context()).QueryRowContext(t.Context(),
				`SELECT count(*) FROM sys_event WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())`).Scan(&foreign); err != nil || foreign != 0 {
				t.Fatalf("%d rows of the other cluster, %v", foreign, err)
			}
		})
	}
	t.Run("position only", func(t *testing.T) {
		t.Parallel()
		f := setup(t)
		f.begin().append("a", "b").commit()
		f.expect(10, "a", "b")
		insertRange(t, f, f.position)
		shiftXids(t, f, 1_000_000_000)
		exec(t, f, `DELETE FROM sys_event`) // retention has removed the rows
		if _, err := f.log.Read(t.Context(), driver.Query{Position: onlyPosition(t, f), Last: 255, Limit: 1}); !errors.Is(err, driver.ErrForeignPosition) {
			t.Fatalf("read: %v", err)
		}
		f.begin().append("c").commit()
		f.position = lockedPosition(t, f)
		got := f.next(10)
		if len(got) == 0 || got[len(got)-1] != "c" {
			t.Fatalf("events %v", got)
		}
	})
}

func exec(t *testing.T, f *fixture, query string, args ...any) {
	t.Helper()
	if _, err := f.db.Write(t.Context()).ExecContext(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
}

func insertRange(t *testing.T, f *fixture, position string) {
	t.Helper()
	r := driver.Range{Consumer: "c", Last: 255, Position: position, Enabled: true}
	if _, err := f.log.Insert(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func onlyPosition(t *testing.T, f *fixture) string {
	t.Helper()
	survey, err := f.log.Survey(t.Context(), "c")
	if err != nil || len(survey.Ranges) != 1 {
		t.Fatal(survey.Ranges, err)
	}
	return survey.Ranges[0].Position
}

// rest reads to the end until a survey says that nothing is ahead. What ends in
// other tests' transactions meanwhile may count as something.
func (f *fixture) rest() {
	f.t.Helper()
	for range 1000 {
		if !f.ahead() {
			return
		}
		f.expect(10)
	}
	f.t.Fatalf("something is always ahead of %s", f.position)
}

func (f *fixture) ahead() bool {
	f.t.Helper()
	survey, err := f.log.Survey(f.t.Context(), "")
	if err != nil {
		f.t.Fatal(err)
	}
	return survey.Ahead(f.position)
}

// What commits late is ahead of a log that seemed to be at rest, whether its
// numbers were taken before or not.
func TestLateCommitsAreAhead(t *testing.T) {
	t.Parallel()
	f := setup(t)
	early, late := f.begin().append("early"), f.begin()
	f.begin().append("a").commit()
	f.expect(10, "a")
	f.rest()
	early.commit()
	if !f.ahead() {
		t.Error("a commit with an old number is not ahead")
	}
	f.expect(10, "early")
	f.rest()
	late.append("late").commit()
	if !f.ahead() {
		t.Error("a commit with a new number is not ahead")
	}
	f.expect(10, "late")
	f.begin().append("undone").rollback()
	f.rest()
}

// A position at the end of a log at rest costs no search for events.
func TestRestRaisesTheFloor(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.begin().append("a").commit()
	f.expect(10, "a")
	f.rest()
	pos, err := parsePosition(f.position)
	if err != nil || pos.floor != 1 {
		t.Errorf("floor of %s is not the last number, 1; %v", f.position, err)
	}
}

func lockedPosition(t *testing.T, f *fixture) (position string) {
	t.Helper()
	err := f.db.InTx(t.Context(), func(ctx context.Context) error {
		r, err := f.log.Lock(ctx, "c", 0)
		position = r.Position
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return position
}

// shiftXids makes stored xids look like those of a cluster that is further on.
func shiftXids(t *testing.T, f *fixture, by uint64) {
	t.Helper()
	exec(t, f, `UPDATE sys_event SET xid = (xid::text::bigint + $1)::text::xid8`, int64(by))
	pos, err := parsePosition(onlyPosition(t, f))
	if err != nil {
		t.Fatal(err)
	}
	shift := func(s *snapshot) {
		s.xmin, s.xmax = s.xmin+by, s.xmax+by
		for i := range s.xip {
			s.xip[i] += by
		}
	}
	shift(&pos.base)
	if pos.pinned != nil {
		shift(&pos.pinned.target)
	}
	exec(t, f, `UPDATE sys_event_consumer SET position = $1`, pos.String())
}
