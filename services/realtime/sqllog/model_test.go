package sqllog

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/services/realtime/drivertest"
)

var errCrash = errors.New("crash")

// model knows what a consumer has to get.
type model struct {
	committed map[string]bool  // not delivered yet
	delivered map[string]bool  // by a batch that was committed
	order     map[string][]int // per record: the numbers of its writes that were delivered
}

// machine does random steps on a log with one consumer of two ranges.
type machine struct {
	f       *fixture
	open    []*openTx
	records map[string]int // writes per record
	holder  map[string]*openTx
	// searched holds, by first partition, the last look that found nothing.
	searched map[int]search
	next     int
	m        model
}

type openTx struct {
	w      *writer
	events []*event.Event
}

// TestModel interleaves transactions with batches, some of which crash between
// the handler and the commit: every committed event is delivered exactly once,
// the events of one record in the order of their writes.
func TestModel(t *testing.T) {
	t.Parallel()
	f := setup(t)
	rapid.Check(t, func(rt *rapid.T) {
		exec(t, f, `DELETE FROM sys_event_consumer`)
		position := f.at(driver.Latest)
		for _, r := range [][2]int{{0, 127}, {128, 255}} {
			if _, err := f.log.Insert(t.Context(), driver.Range{Consumer: "c", First: r[0], Last: r[1], Position: position, Enabled: true}); err != nil {
				t.Fatal(err)
			}
		}
		m := &machine{f: f, records: map[string]int{}, holder: map[string]*openTx{}, searched: map[int]search{},
			m: model{committed: map[string]bool{}, delivered: map[string]bool{}, order: map[string][]int{}}}
		defer func() {
			for _, o := range m.open {
				o.w.rollback()
			}
		}()
		for range rapid.IntRange(5, 60).Draw(rt, "steps") {
			m.step(rt)
		}
		for len(m.open) > 0 {
			m.finish(rt, 0, rapid.Bool().Draw(rt, "commit"))
		}
		for range 200 {
			if m.batch(rt, 0, false)+m.batch(rt, 128, false) == 0 {
				break
			}
		}
		if diff := cmp.Diff(map[string]bool{}, m.m.committed); diff != "" {
			rt.Fatalf("committed and not delivered: %s", diff)
		}
	})
}

func (m *machine) step(rt *rapid.T) {
	switch rapid.IntRange(0, 9).Draw(rt, "step") {
	case 0, 1:
		if len(m.open) < 4 {
			m.open = append(m.open, &openTx{w: m.f.begin()})
		}
	case 2, 3, 4:
		if len(m.open) > 0 {
			m.append(rt, rapid.SampledFrom(m.open).Draw(rt, "tx"))
		}
	case 5, 6:
		if len(m.open) > 0 {
			m.finish(rt, rapid.IntRange(0, len(m.open)-1).Draw(rt, "tx"), rapid.IntRange(0, 3).Draw(rt, "outcome") > 0)
		}
	default:
		m.batch(rt, rapid.SampledFrom([]int{0, 128}).Draw(rt, "range"), rapid.IntRange(0, 3).Draw(rt, "crash") == 0)
	}
	m.look(rt, 0)
	m.look(rt, 128)
}

// append writes one to three records that no other open transaction holds.
func (m *machine) append(rt *rapid.T, o *openTx) {
	var events []*event.Event
	for range rapid.IntRange(1, 3).Draw(rt, "events") {
		record := fmt.Sprint("r", rapid.IntRange(0, 5).Draw(rt, "record"))
		if holder := m.holder[record]; holder != nil && holder != o {
			continue
		}
		m.holder[record] = o
		m.records[record]++
		m.next++
		e := drivertest.Event("o", record)
		e.ID, e.Matched = fmt.Sprint("e", m.next), int64(m.records[record])
		events = append(events, e)
	}
	if len(events) == 0 {
		return
	}
	if err := m.f.log.Append(o.w.ctx, events, 1); err != nil {
		rt.Fatal(err)
	}
	if rapid.Bool().Draw(rt, "gap") { // so that floors are raised
		exec(m.f.t, m.f, `SELECT nextval('sys_event_sequence') FROM generate_series(1, $1::bigint)`, floorLag)
	}
	o.events = append(o.events, events...)
}

func (m *machine) finish(_ *rapid.T, i int, commit bool) {
	o := m.open[i]
	m.open = append(m.open[:i:i], m.open[i+1:]...)
	if commit {
		o.w.commit()
		for _, e := range o.events {
			m.m.committed[e.ID] = true
		}
	} else {
		o.w.rollback()
	}
	for record, holder := range m.holder {
		if holder == o {
			delete(m.holder, record)
		}
	}
}

// look reads without a lock, as consumers do before a batch. Where a survey says
// that nothing is ahead of the end of a look that found nothing, the next finds
// nothing either.
func (m *machine) look(rt *rapid.T, first int) {
	survey, err := m.f.log.Survey(m.f.t.Context(), "c")
	if err != nil {
		rt.Fatal(err)
	}
	for _, r := range survey.Ranges {
		if r.First != first {
			continue
		}
		page, err := m.f.log.Read(m.f.t.Context(), driver.Query{Position: r.Position, First: r.First, Last: r.Last, Limit: 1})
		if err != nil {
			rt.Fatal(err)
		}
		last, known := m.searched[first]
		if known && last.from == r.Position && !survey.Ahead(last.to) && len(page.Events) > 0 {
			rt.Fatalf("event %s is not ahead of %s", page.Events[0].ID, last.to)
		}
		delete(m.searched, first)
		if len(page.Events) == 0 {
			m.searched[first] = search{from: r.Position, to: page.Next}
		}
	}
}

// search is a look that found nothing.
type search struct{ from, to string }

// batch consumes up to three events of a range, or crashes after handling them.
func (m *machine) batch(rt *rapid.T, first int, crash bool) int {
	var got, echo []*event.Event
	moved := false
	if rapid.IntRange(0, 3).Draw(rt, "echo") == 0 && len(m.m.committed) > 0 {
		m.next++
		echo = []*event.Event{drivertest.Event("echo", fmt.Sprint("e", m.next))}
	}
	m.look(rt, first)
	err := m.f.db.InTx(context.WithoutCancel(m.f.t.Context()), func(ctx context.Context) error {
		r, err := m.f.log.Lock(ctx, "c", first)
		if err != nil {
			return err
		}
		if echo != nil { // the handler's own events
			if err := m.f.log.Append(ctx, echo, 1); err != nil {
				return err
			}
			// A later transaction completes first.
			m.next++
			name := fmt.Sprint("e", m.next)
			m.f.begin().append(name).commit()
			m.m.committed[name] = true
		}
		page, err := m.f.log.Read(ctx, driver.Query{Position: r.Position, First: r.First, Last: r.Last,
			Limit: rapid.IntRange(1, 3).Draw(rt, "limit")})
		if err != nil || len(page.Events) == 0 && !page.Stale {
			return err
		}
		got, moved, r.Position = page.Events, true, page.Next
		if crash {
			return errCrash
		}
		return m.f.log.Save(ctx, r)
	})
	if errors.Is(err, errCrash) {
		return 0
	}
	if err != nil {
		rt.Fatal(err)
	}
	for _, e := range echo {
		m.m.committed[e.ID] = true
	}
	for _, e := range got {
		if !m.m.committed[e.ID] {
			rt.Fatalf("event %s was delivered: before: %v", e.ID, m.m.delivered[e.ID])
		}
		delete(m.m.committed, e.ID)
		m.m.delivered[e.ID] = true
		if o := m.m.order[e.RecordID]; len(o) > 0 && o[len(o)-1] >= int(e.Matched) {
			rt.Fatalf("write %d of %s after %v", e.Matched, e.RecordID, o)
		}
		m.m.order[e.RecordID] = append(m.m.order[e.RecordID], int(e.Matched))
	}
	if moved {
		return max(1, len(got))
	}
	return 0
}
