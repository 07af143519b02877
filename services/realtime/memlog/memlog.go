// Package memlog keeps the event log in memory, for tests and for programs
// without a database. It takes part in the transactions of a storage.Memory:
// events and positions of a transaction that rolls back are gone.
package memlog

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/storage"
)

// Log is a log in memory. Transactions of a storage.Memory run one at a time,
// so the order of sequences is the order of commits, and a position is simply
// the sequence of the last event before it.
type Log struct {
	mu       sync.Mutex
	sequence int64
	entries  []*entry // by sequence
	ranges   map[key]driver.Range
}

type entry struct {
	event     event.Event
	at        int64
	committed bool
}

type key struct {
	consumer string
	first    int
}

var _ driver.Log = (*Log)(nil)

// New returns an empty log. Its callers' transactions all have to come from
// one storage.Memory.
func New() *Log { return &Log{ranges: map[key]driver.Range{}} }

// Verify implements [driver.Log].
func (l *Log) Verify(context.Context) error { return nil }

// Append implements [driver.Log].
func (l *Log) Append(ctx context.Context, events []*event.Event, at int64) error {
	l.mu.Lock()
	added := make([]*entry, len(events))
	for i, e := range events {
		l.sequence++
		e.Sequence = l.sequence
		added[i] = &entry{event: *e, at: at}
	}
	l.entries = append(l.entries, added...)
	l.mu.Unlock()

	storage.OnRollback(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.entries = slices.DeleteFunc(l.entries, func(e *entry) bool { return slices.Contains(added, e) })
	})
	storage.AfterCommit(ctx, func(context.Context) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, e := range added {
			e.committed = true
		}
	})
	return nil
}

// visible returns the entries up to the first that is not marked as committed.
// Commit hooks of two transactions may run in either order; stopping at the
// first unmarked entry keeps a reader from passing it. l.mu is held.
func (l *Log) visible() []*entry {
	end := slices.IndexFunc(l.entries, func(e *entry) bool { return !e.committed })
	if end < 0 {
		end = len(l.entries)
	}
	return l.entries[:end]
}

// parse reads a position.
func parse(position string) (int64, error) {
	seq, err := strconv.ParseInt(position, 10, 64)
	if err != nil || seq < 0 {
		return 0, fmt.Errorf("memlog: %w: %q", driver.ErrBadPosition, position)
	}
	return seq, nil
}

// after returns the visible entries after the position. l.mu is held.
func (l *Log) after(position string) ([]*entry, error) {
	seq, err := parse(position)
	if err != nil {
		return nil, err
	}
	entries := l.visible()
	i, found := slices.BinarySearchFunc(entries, seq, func(e *entry, seq int64) int {
		return cmp.Compare(e.event.Sequence, seq)
	})
	if found {
		i++
	}
	return entries[i:], nil
}

// Position implements [driver.Log].
func (l *Log) Position(_ context.Context, start driver.Start) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entries := l.visible()
	if start == driver.Earliest {
		return "0", nil
	}
	if len(entries) == len(l.entries) {
		return strconv.FormatInt(l.sequence, 10), nil
	}
	return strconv.FormatInt(l.entries[len(entries)].event.Sequence-1, 10), nil
}

// Read implements [driver.Log].
func (l *Log) Read(_ context.Context, q driver.Query) (driver.Page, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entries, err := l.after(q.Position)
	if err != nil {
		return driver.Page{}, err
	}
	page := driver.Page{Next: q.Position}
	until := int64(math.MaxInt64)
	if q.Until != "" {
		if until, err = parse(q.Until); err != nil {
			return driver.Page{}, err
		}
	}
	for _, e := range entries {
		if p := e.event.Partition(); p < q.First || p > q.Last || e.event.Sequence > until {
			continue
		}
		found := e.event
		page.Events = append(page.Events, &found)
		page.Next = strconv.FormatInt(found.Sequence, 10)
		if q.Marks {
			page.Marks = append(page.Marks, page.Next)
		}
		if len(page.Events) == q.Limit {
			page.More = true
			break
		}
	}
	switch {
	case q.Until != "" && !page.More:
		page.Next = q.Until
	case len(page.Events) == 0 && len(entries) > 0:
		page.Next = strconv.FormatInt(entries[len(entries)-1].event.Sequence, 10)
	}
	return page, nil
}

// Scan implements [driver.Log].
func (l *Log) Scan(_ context.Context, s driver.Scan) (driver.Scanned, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entries, err := l.after(strconv.FormatInt(s.After, 10))
	if err != nil {
		return driver.Scanned{}, err
	}
	found := driver.Scanned{Last: s.After, Done: true}
	for i, e := range entries {
		if len(found.Events) == s.Limit || i == driver.ScanWindow {
			found.Done = false
			break
		}
		found.Last = e.event.Sequence
		if at := e.event.Timestamp.UnixMilli(); at >= s.From && at < s.To {
			one := e.event
			found.Events = append(found.Events, &one)
		}
	}
	return found, nil
}

// Backlog implements [driver.Log].
func (l *Log) Backlog(_ context.Context, q driver.Query) (driver.Backlog, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entries, err := l.after(q.Position)
	if err != nil {
		return driver.Backlog{}, err
	}
	var b driver.Backlog
	for _, e := range entries {
		if p := e.event.Partition(); p < q.First || p > q.Last || b.Events == int64(q.Limit) {
			continue
		}
		if b.Events == 0 || e.at < b.Oldest {
			b.Oldest = e.at
		}
		b.Events++
	}
	return b, nil
}

// Survey implements [driver.Log].
func (l *Log) Survey(_ context.Context, consumer string) (driver.Survey, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []driver.Range
	for _, r := range l.ranges {
		if consumer == "" || r.Consumer == consumer {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b driver.Range) int {
		return cmp.Or(cmp.Compare(a.Consumer, b.Consumer), cmp.Compare(a.First, b.First))
	})
	end := int64(0)
	if entries := l.visible(); len(entries) > 0 {
		end = entries[len(entries)-1].event.Sequence
	}
	return driver.Survey{Ranges: all, Ahead: func(position string) bool {
		seq, err := parse(position)
		return err != nil || seq < end
	}}, nil
}

// put stores or, when r is nil, removes a range, and undoes that on rollback.
// l.mu is held.
func (l *Log) put(ctx context.Context, k key, r *driver.Range) {
	old, had := l.ranges[k]
	if r != nil {
		l.ranges[k] = *r
	} else {
		delete(l.ranges, k)
	}
	storage.OnRollback(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if had {
			l.ranges[k] = old
		} else {
			delete(l.ranges, k)
		}
	})
}

// Insert implements [driver.Log].
func (l *Log) Insert(ctx context.Context, r driver.Range) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := key{r.Consumer, r.First}
	if _, ok := l.ranges[k]; ok {
		return false, nil
	}
	l.put(ctx, k, &r)
	return true, nil
}

// Lock implements [driver.Log]. The transaction itself is the lock.
func (l *Log) Lock(_ context.Context, consumer string, first int) (driver.Range, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.ranges[key{consumer, first}]
	if !ok {
		return driver.Range{}, driver.ErrNoRange
	}
	return r, nil
}

// Save implements [driver.Log].
func (l *Log) Save(ctx context.Context, r driver.Range) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put(ctx, key{r.Consumer, r.First}, &r)
	return nil
}

// Drop implements [driver.Log].
func (l *Log) Drop(ctx context.Context, consumer string) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	dropped := false
	for k := range l.ranges {
		if k.consumer == consumer {
			l.put(ctx, k, nil)
			dropped = true
		}
	}
	return dropped, nil
}

// Clean implements [driver.Log].
func (l *Log) Clean(_ context.Context, c driver.Clean) (driver.Cleaned, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	entries, err := l.after(strconv.FormatInt(c.After, 10))
	if err != nil {
		return driver.Cleaned{}, err
	}
	window := entries[:min(c.Limit, len(entries))]
	done := driver.Cleaned{Last: c.After, Done: true}
	gone := map[*entry]bool{}
	for _, e := range window {
		done.Last = e.event.Sequence
		if e.at >= c.Before {
			continue
		}
		done.Done = len(window) < c.Limit
		if !l.needed(&e.event) {
			gone[e] = true
		}
	}
	done.Removed = len(gone)
	l.entries = slices.DeleteFunc(l.entries, func(e *entry) bool { return gone[e] })
	return done, nil
}

// needed tells whether an enabled range has the event before it. l.mu is held.
func (l *Log) needed(e *event.Event) bool {
	p := e.Partition()
	for _, r := range l.ranges {
		position, _ := strconv.ParseInt(r.Position, 10, 64)
		if r.Enabled && r.First <= p && p <= r.Last && position < e.Sequence {
			return true
		}
	}
	return false
}
