// Package drivertest is the suite that every implementation of driver.Log
// passes.
package drivertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/storage"
)

// Store is an empty log and where its transactions come from.
type Store struct {
	Tx  storage.Transactor
	Log driver.Log
}

// Run runs the suite. open is called once per test.
func Run(t *testing.T, open func(t *testing.T) Store) {
	tests := map[string]func(*testing.T, Store){
		"EventsComeBackExactly":          exact,
		"AppendGivesGrowingSequences":    sequences,
		"RolledBackEventsAreNeverRead":   rolledBack,
		"ReadsInBatches":                 batches,
		"ReadsTheRangesPartitions":       partitions,
		"LatestIsAfterWhatIsCommitted":   latest,
		"OwnEventsComeAfterTheCommit":    ownEvents,
		"PositionRollsBack":              positionRollsBack,
		"RangesAreStored":                ranges,
		"SurveysTellWhatIsAhead":         surveys,
		"BacklogCounts":                  backlog,
		"CleanNeverPassesEnabledRanges":  clean,
		"CleanGoesInSmallBatches":        cleanBatches,
		"SequencesAreNotUsedAgain":       noReuse,
		"EmptyRangeMovesPastOtherRanges": stale,
		"ScansAWindowOfTime":             scan,
		"MarksFollowTheirEvents":         marks,
		"ReadsUntilAPosition":            until,
		"BadPositionsAreNamed":           badPositions,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, open(t)) })
	}
}

const all = 1 << 20

// Event is an event of a record.
func Event(object, record string) *event.Event {
	return &event.Event{ID: record, Type: event.RecordCreated, Object: object, RecordID: record, Timestamp: time.UnixMilli(1).UTC()}
}

// InTx runs fn in a transaction and fails the test on an error.
func (s Store) InTx(t *testing.T, fn func(ctx context.Context) error) {
	t.Helper()
	if err := s.Tx.InTx(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

// append appends one event per record name at the time at.
func (s Store) append(t *testing.T, at int64, records ...string) []*event.Event {
	t.Helper()
	var events []*event.Event
	for _, r := range records {
		events = append(events, Event("o", r))
	}
	s.InTx(t, func(ctx context.Context) error { return s.Log.Append(ctx, events, at) })
	return events
}

// read reads at most limit events of all partitions and returns their IDs.
func (s Store) read(t *testing.T, position string, limit int) ([]string, driver.Page) {
	t.Helper()
	page, err := s.Log.Read(t.Context(), driver.Query{Position: position, Last: event.Partitions - 1, Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	return ids(page.Events), page
}

func ids(events []*event.Event) []string {
	names := []string{}
	for _, e := range events {
		names = append(names, e.ID)
	}
	return names
}

func (s Store) position(t *testing.T, start driver.Start) string {
	t.Helper()
	p, err := s.Log.Position(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func equal(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

func exact(t *testing.T, s Store) {
	full := &event.Event{
		ID: "0190", Type: event.RecordUpdated, Object: "crm_account", RecordID: "ä\u2028<&>'\"",
		Changes: json.RawMessage(`{ "n" : 12345678901234567890.10, "e":1E400 }`), Before: json.RawMessage(`{}`),
		After: json.RawMessage("{\"s\":\"\\u0000 \xe2\x80\xa8 <b>\",\"d\":1.0,\"d\":1.00}"), UserID: "u", OrganizationID: "org",
		Timestamp: time.Date(2026, 12, 31, 23, 59, 59, 999_000_000, time.UTC),
	}
	bulk := &event.Event{ID: "0191", Type: event.RecordsDeleted, Object: "crm_account", Matched: 1 << 40, Timestamp: time.UnixMilli(0).UTC()}
	s.InTx(t, func(ctx context.Context) error { return s.Log.Append(ctx, []*event.Event{full, bulk}, 7) })
	_, page := s.read(t, s.position(t, driver.Earliest), all)
	equal(t, "events", []*event.Event{full, bulk}, page.Events)
}

func sequences(t *testing.T, s Store) {
	var records []string
	for i := range 300 { // more than one statement on SQLite
		records = append(records, fmt.Sprint("r", i))
	}
	first := s.append(t, 1, records...)
	second := s.append(t, 1, "last")
	for i, e := range append(first, second...) {
		if e.Sequence < 1 || i > 0 && e.Sequence <= append(first, second...)[i-1].Sequence {
			t.Fatalf("event %d has sequence %d", i, e.Sequence)
		}
	}
	got, _ := s.read(t, s.position(t, driver.Earliest), all)
	equal(t, "order", append(records, "last"), got)
}

var errBoom = errors.New("boom")

func rolledBack(t *testing.T, s Store) {
	start := s.position(t, driver.Latest)
	err := s.Tx.InTx(t.Context(), func(ctx context.Context) error {
		if err := s.Log.Append(ctx, []*event.Event{Event("o", "never")}, 1); err != nil {
			return err
		}
		return errBoom
	})
	if !errors.Is(err, errBoom) {
		t.Fatal(err)
	}
	s.InTx(t, func(ctx context.Context) error {
		if err := s.Log.Append(ctx, []*event.Event{Event("o", "kept 1")}, 1); err != nil {
			return err
		}
		err := s.Tx.InTx(ctx, func(ctx context.Context) error {
			if err := s.Log.Append(ctx, []*event.Event{Event("o", "savepoint")}, 1); err != nil {
				return err
			}
			return errBoom
		})
		if !errors.Is(err, errBoom) {
			return fmt.Errorf("nested: %w", err)
		}
		return s.Log.Append(ctx, []*event.Event{Event("o", "kept 2")}, 1)
	})
	got, _ := s.read(t, start, all)
	equal(t, "events", []string{"kept 1", "kept 2"}, got)
}

func batches(t *testing.T, s Store) {
	s.append(t, 1, "a", "b")
	s.append(t, 1, "c", "d", "e")
	position := s.position(t, driver.Earliest)
	for _, want := range [][]string{{"a", "b"}, {"c", "d"}, {"e"}, {}} {
		got, page := s.read(t, position, 2)
		equal(t, "batch", want, got)
		equal(t, "More", len(want) == 2, page.More)
		position = page.Next
	}
	// A batch that happens to be the last of what was there when the first one
	// was read is followed by what came meanwhile.
	position = s.position(t, driver.Latest)
	s.append(t, 1, "f", "g", "h", "i")
	_, page := s.read(t, position, 2)
	s.append(t, 1, "j")
	got, page := s.read(t, page.Next, 2)
	equal(t, "second batch", []string{"h", "i"}, got)
	got, page = s.read(t, page.Next, 2)
	equal(t, "third batch", []string{"j"}, got)
	s.append(t, 1, "k")
	got, _ = s.read(t, page.Next, 2)
	equal(t, "last batch", []string{"k"}, got)
}

func partitions(t *testing.T, s Store) {
	var records []string
	for i := range 64 {
		records = append(records, fmt.Sprint("r", i))
	}
	events := s.append(t, 1, records...)
	const middle = 100
	for _, r := range [][2]int{{0, middle - 1}, {middle, event.Partitions - 1}} {
		want := []string{}
		for _, e := range events {
			if p := e.Partition(); r[0] <= p && p <= r[1] {
				want = append(want, e.ID)
			}
		}
		got := []string{}
		for position, more := s.position(t, driver.Earliest), true; more; {
			page, err := s.Log.Read(t.Context(), driver.Query{Position: position, First: r[0], Last: r[1], Limit: 5})
			if err != nil {
				t.Fatal(err)
			}
			got, position, more = append(got, ids(page.Events)...), page.Next, page.More
		}
		equal(t, fmt.Sprint("partitions ", r), want, got)
	}
}

func latest(t *testing.T, s Store) {
	s.append(t, 1, "before")
	position := s.position(t, driver.Latest)
	got, _ := s.read(t, position, all)
	equal(t, "at the end", []string{}, got)
	s.append(t, 1, "after")
	got, _ = s.read(t, position, all)
	equal(t, "after the end", []string{"after"}, got)
}

// ownEvents: what a batch's transaction appends itself is not in the batch, and
// is in the next one.
func ownEvents(t *testing.T, s Store) {
	s.append(t, 1, "a")
	position := s.position(t, driver.Earliest)
	insert(t, s, driver.Range{Consumer: "c", Last: 255, Position: position, Enabled: true})
	s.InTx(t, func(ctx context.Context) error {
		r, err := s.Log.Lock(ctx, "c", 0)
		if err != nil {
			return err
		}
		if err := s.Log.Append(ctx, []*event.Event{Event("o", "own")}, 1); err != nil {
			return err
		}
		page, err := s.Log.Read(ctx, driver.Query{Position: r.Position, Last: 255, Limit: 1})
		if err != nil {
			return err
		}
		r.Position = page.Next
		equal(t, "batch", []string{"a"}, ids(page.Events))
		return s.Log.Save(ctx, r)
	})
	s.append(t, 1, "b")
	got, _ := s.read(t, onlyRange(t, s, "c").Position, all)
	equal(t, "next batch", []string{"own", "b"}, got)
}

func insert(t *testing.T, s Store, r driver.Range) {
	t.Helper()
	s.InTx(t, func(ctx context.Context) error {
		inserted, err := s.Log.Insert(ctx, r)
		if err == nil && !inserted {
			err = errors.New("the range was there")
		}
		return err
	})
}

func (s Store) survey(t *testing.T, consumer string) driver.Survey {
	t.Helper()
	survey, err := s.Log.Survey(t.Context(), consumer)
	if err != nil {
		t.Fatal(err)
	}
	return survey
}

func (s Store) ranges(t *testing.T, consumer string) []driver.Range {
	t.Helper()
	return s.survey(t, consumer).Ranges
}

func onlyRange(t *testing.T, s Store, consumer string) driver.Range {
	t.Helper()
	rs := s.ranges(t, consumer)
	if len(rs) != 1 {
		t.Fatalf("ranges %v", rs)
	}
	return rs[0]
}

func positionRollsBack(t *testing.T, s Store) {
	s.append(t, 1, "a")
	before := driver.Range{Consumer: "c", Last: 255, Position: s.position(t, driver.Earliest), Enabled: true, UpdatedAt: 5}
	insert(t, s, before)
	err := s.Tx.InTx(t.Context(), func(ctx context.Context) error {
		r, err := s.Log.Lock(ctx, "c", 0)
		if err != nil {
			return err
		}
		_, page := s.read(t, r.Position, all)
		r.Position, r.UpdatedAt = page.Next, 6
		if err := s.Log.Save(ctx, r); err != nil {
			return err
		}
		if _, err := s.Log.Insert(ctx, driver.Range{Consumer: "d", Last: 255, Position: r.Position}); err != nil {
			return err
		}
		return errBoom
	})
	if !errors.Is(err, errBoom) {
		t.Fatal(err)
	}
	equal(t, "ranges", []driver.Range{before}, s.ranges(t, ""))
}

func ranges(t *testing.T, s Store) {
	start := s.position(t, driver.Earliest)
	a := driver.Range{Consumer: "a", First: 0, Last: 255, Position: start, Enabled: true, UpdatedAt: 1}
	b1 := driver.Range{Consumer: "b", First: 0, Last: 99, Position: start, UpdatedAt: 2}
	b2 := driver.Range{Consumer: "b", First: 100, Last: 255, Position: start, Enabled: true, UpdatedAt: 3,
		Failure: &driver.Failure{EventID: "e", Sequence: 9, Attempts: 4, Error: "no\nluck", Since: 8}}
	for _, r := range []driver.Range{b2, a, b1} {
		insert(t, s, r)
	}
	s.InTx(t, func(ctx context.Context) error {
		inserted, err := s.Log.Insert(ctx, driver.Range{Consumer: "b", First: 100, Last: 200, Position: start})
		equal(t, "inserted twice", false, inserted)
		return err
	})
	equal(t, "all ranges", []driver.Range{a, b1, b2}, s.ranges(t, ""))

	b2.Failure, b2.Last, b2.Enabled, b2.UpdatedAt = nil, 150, false, 4
	s.InTx(t, func(ctx context.Context) error {
		if _, err := s.Log.Lock(ctx, "b", 100); err != nil {
			return err
		}
		return s.Log.Save(ctx, b2)
	})
	equal(t, "ranges of b", []driver.Range{b1, b2}, s.ranges(t, "b"))
	equal(t, "ranges of nobody", 0, len(s.ranges(t, "nobody")))

	s.InTx(t, func(ctx context.Context) error {
		if _, err := s.Log.Lock(ctx, "b", 7); !errors.Is(err, driver.ErrNoRange) {
			return fmt.Errorf("lock of no range: %w", err)
		}
		for _, want := range []bool{true, false} {
			dropped, err := s.Log.Drop(ctx, "b")
			if err != nil {
				return err
			}
			equal(t, "dropped", want, dropped)
		}
		return nil
	})
	equal(t, "the range that is left", a, onlyRange(t, s, ""))
}

// surveys: something that was committed is ahead at once, and what was read to
// its end is behind at last.
func surveys(t *testing.T, s Store) {
	position := s.position(t, driver.Earliest)
	for _, name := range []string{"a", "b", "c"} {
		s.append(t, 1, name)
		for range 2 { // also where the log was surveyed meanwhile
			if !s.survey(t, "").Ahead(position) {
				t.Fatalf("%s is not ahead of %s", name, position)
			}
		}
		got, page := s.read(t, position, all)
		equal(t, "events", []string{name}, got)
		position = page.Next
		// What else ends on the server may count as something.
		for looks := 0; s.survey(t, "").Ahead(position); looks++ {
			if looks == 1000 {
				t.Fatalf("after %d looks that found nothing there is something ahead of %s", looks, position)
			}
			got, page := s.read(t, position, all)
			equal(t, "events of a log at rest", []string{}, got)
			position = page.Next
		}
	}
	if !s.survey(t, "").Ahead("nonsense") {
		t.Error("nothing is ahead of a position that can't be read")
	}
}

func backlog(t *testing.T, s Store) {
	start := s.position(t, driver.Latest)
	s.append(t, 30, "a", "b")
	s.append(t, 20, "c")
	count := func(position string, limit int) driver.Backlog {
		t.Helper()
		b, err := s.Log.Backlog(t.Context(), driver.Query{Position: position, Last: 255, Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	equal(t, "all", driver.Backlog{Events: 3, Oldest: 20}, count(start, 10))
	equal(t, "capped", driver.Backlog{Events: 2, Oldest: 30}, count(start, 2))
	_, page := s.read(t, start, 2)
	equal(t, "in the middle", driver.Backlog{Events: 1, Oldest: 20}, count(page.Next, 10))
	equal(t, "at the end", driver.Backlog{}, count(s.position(t, driver.Latest), 10))
}

func (s Store) clean(t *testing.T, c driver.Clean) driver.Cleaned {
	t.Helper()
	done, err := s.Log.Clean(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func clean(t *testing.T, s Store) {
	earliest := s.position(t, driver.Earliest)
	s.append(t, 10, "a", "b")
	middle := s.position(t, driver.Latest)
	s.append(t, 20, "c", "d")
	s.append(t, 90, "young")
	end := s.position(t, driver.Latest)
	for consumer, r := range map[string]driver.Range{
		"done":    {Position: end, Enabled: true},
		"behind":  {Position: middle, Enabled: true},
		"off":     {Position: earliest},
		"nothing": {Position: earliest, Enabled: true},
	} {
		r.Consumer, r.Last = consumer, 255
		insert(t, s, r)
	}
	equal(t, "with a consumer at the beginning", 0, s.clean(t, driver.Clean{Before: 50, Limit: 100}).Removed)
	s.InTx(t, func(ctx context.Context) error { _, err := s.Log.Drop(ctx, "nothing"); return err })
	equal(t, "with a consumer behind", 2, s.clean(t, driver.Clean{Before: 50, Limit: 100}).Removed)
	got, _ := s.read(t, earliest, all)
	equal(t, "left", []string{"c", "d", "young"}, got)
	got, _ = s.read(t, middle, all)
	equal(t, "left to the one behind", []string{"c", "d", "young"}, got)

	s.InTx(t, func(ctx context.Context) error {
		r, err := s.Log.Lock(ctx, "behind", 0)
		r.Position = end
		return errors.Join(err, s.Log.Save(ctx, r))
	})
	equal(t, "with all at the end", 2, s.clean(t, driver.Clean{Before: 50, Limit: 100}).Removed)
	got, _ = s.read(t, earliest, all)
	equal(t, "left in the end", []string{"young"}, got)
}

func cleanBatches(t *testing.T, s Store) {
	for i := range 10 {
		s.append(t, int64(10+i), fmt.Sprint("r", i))
	}
	var removed []int
	request := driver.Clean{Before: 17, Limit: 3}
	for done := false; !done && len(removed) < 10; {
		c := s.clean(t, request)
		removed, request.After, done = append(removed, c.Removed), c.Last, c.Done
	}
	equal(t, "removed per batch", []int{3, 3, 1}, removed[:3])
	got, _ := s.read(t, s.position(t, driver.Earliest), all)
	equal(t, "left", []string{"r7", "r8", "r9"}, got)
}

func noReuse(t *testing.T, s Store) {
	last := s.append(t, 1, "a", "b")[1].Sequence
	end := s.position(t, driver.Latest)
	s.clean(t, driver.Clean{Before: 50, Limit: 100})
	if next := s.append(t, 1, "c")[0].Sequence; next <= last {
		t.Fatalf("sequence %d after %d", next, last)
	}
	got, _ := s.read(t, end, all)
	equal(t, "after the end", []string{"c"}, got)
}

// stale: an idle range whose neighbours are busy is told to move.
func stale(t *testing.T, s Store) {
	first := Event("o", "x")
	own := first.Partition()
	query := driver.Query{Position: s.position(t, driver.Latest), First: own, Last: own, Limit: 10}
	batch := make([]*event.Event, 0, 2000)
	for i := 0; len(batch) < cap(batch); i++ {
		if e := Event("o", fmt.Sprint("y", i)); e.Partition() != own {
			batch = append(batch, e)
		}
	}
	for range 6 {
		s.InTx(t, func(ctx context.Context) error { return s.Log.Append(ctx, batch, 1) })
	}
	var page driver.Page
	for range 3 { // the first look may only find out that it is far behind
		var err error
		if page, err = s.Log.Read(t.Context(), query); err != nil {
			t.Fatal(err)
		}
		equal(t, "events", []string{}, ids(page.Events))
		if page.Stale {
			query.Position = page.Next
		}
	}
	equal(t, "stale after moving", false, page.Stale)
	s.InTx(t, func(ctx context.Context) error { return s.Log.Append(ctx, slices.Insert(batch[:1:1], 0, first), 1) })
	page, err := s.Log.Read(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "after moving", []string{"x"}, ids(page.Events))
}
