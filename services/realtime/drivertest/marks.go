package drivertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime/driver"
)

// marks: reading on from the mark of an event gives what comes after it.
func marks(t *testing.T, s Store) {
	names := []string{"a", "b", "c", "d", "e", "f", "g"}
	for _, name := range names {
		s.append(t, 1, name)
	}
	// Two pages, so that the second begins in the middle of what the first saw.
	position, seen := s.position(t, driver.Earliest), 0
	for _, limit := range []int{3, 100} {
		page, err := s.Log.Read(t.Context(), driver.Query{Position: position, Last: 255, Limit: limit, Marks: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Marks) != len(page.Events) {
			t.Fatalf("%d marks of %d events", len(page.Marks), len(page.Events))
		}
		for i, mark := range page.Marks {
			got, _ := s.read(t, mark, all)
			equal(t, "after "+page.Events[i].ID, append([]string{}, names[seen+i+1:]...), got)
		}
		position, seen = page.Next, seen+len(page.Events)
	}
	if seen != len(names) {
		t.Errorf("%d events, want %d", seen, len(names))
	}
	page, err := s.Log.Read(t.Context(), driver.Query{Position: s.position(t, driver.Earliest), Last: 255, Limit: all})
	if err != nil || page.Marks != nil {
		t.Errorf("marks nobody asked for: %v, %v", page.Marks, err)
	}
}

// until: a page ends where another reader is.
func until(t *testing.T, s Store) {
	s.append(t, 1, "a")
	s.append(t, 1, "b")
	_, whole := s.read(t, s.position(t, driver.Earliest), all)
	latest := s.position(t, driver.Latest)
	s.append(t, 1, "c")
	for name, end := range map[string]string{"a whole page's end": whole.Next, "the latest": latest} {
		query := driver.Query{Position: s.position(t, driver.Earliest), Last: 255, Limit: 1, Until: end, Marks: true}
		var got []string
		for {
			page, err := s.Log.Read(t.Context(), query)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, ids(page.Events)...)
			query.Position = page.Next
			if !page.More {
				break
			}
			equal(t, "the page's mark", page.Marks, []string{page.Next})
		}
		equal(t, "until "+name, []string{"a", "b"}, got)
		if query.Position != end {
			t.Errorf("the last page ends at %s, want %s", query.Position, end)
		}
		rest, _ := s.read(t, query.Position, all)
		equal(t, "after "+name, []string{"c"}, rest)
	}
	// A reader that is ahead of the end gets nothing.
	_, ahead := s.read(t, s.position(t, driver.Earliest), all)
	page, err := s.Log.Read(t.Context(), driver.Query{Position: ahead.Next, Last: 255, Limit: all, Until: whole.Next})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "ahead of the end", []string{}, ids(page.Events))
}

func badPositions(t *testing.T, s Store) {
	good := s.position(t, driver.Latest)
	for _, bad := range []string{"", "x", "-1", "1:2", "5:3:@0", "3:9:8,4@0", "3:9:12@0", "3:9:@x", "0:0:@0", good + "|", "'; DROP TABLE sys_event"} {
		if _, err := s.Log.Read(t.Context(), driver.Query{Position: bad, Last: 255, Limit: 1}); !errors.Is(err, driver.ErrBadPosition) {
			t.Errorf("position %q: %v", bad, err)
		}
		if bad == "" {
			continue // no end
		}
		if _, err := s.Log.Read(t.Context(), driver.Query{Position: good, Until: bad, Last: 255, Limit: 1}); !errors.Is(err, driver.ErrBadPosition) {
			t.Errorf("until %q: %v", bad, err)
		}
	}
}

// scan: events are found by the time that they tell, in order, in steps.
func scan(t *testing.T, s Store) {
	if got, err := s.Log.Scan(t.Context(), driver.Scan{To: 100, Limit: 5}); err != nil || !got.Done || len(got.Events) != 0 {
		t.Errorf("an empty log: %+v, %v", got, err)
	}
	for i, name := range []string{"a", "b", "c", "d", "e"} {
		e := Event("o", name)
		e.Timestamp = time.UnixMilli(int64(10 * (i + 1))).UTC()
		s.InTx(t, func(ctx context.Context) error { return s.Log.Append(ctx, []*event.Event{e}, 1) })
	}
	step := driver.Scan{From: 20, To: 50, Limit: 2}
	var got []string
	for calls := 0; ; calls++ {
		found, err := s.Log.Scan(t.Context(), step)
		if err != nil || calls > 5 {
			t.Fatalf("%v after %d calls", err, calls)
		}
		if len(found.Events) > 2 {
			t.Errorf("%d events at once", len(found.Events))
		}
		got = append(got, ids(found.Events)...)
		if found.Done {
			break
		}
		if found.Last <= step.After {
			t.Fatalf("the scan stays at %d", found.Last)
		}
		step.After = found.Last
	}
	equal(t, "in the window", []string{"b", "c", "d"}, got)
}
