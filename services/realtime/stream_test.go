package realtime_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/storage"
)

var errCut = errors.New("cut")

// A reader that is cut off again and again, and comes back with its cursor on
// either of two nodes, gets every event of many writers once, each record's in
// order, although transactions commit out of order.
func TestStreamsResumeExactly(t *testing.T) {
	t.Parallel()
	onEachDialect(t, func(t *testing.T, db *storage.DB) {
		const writers, each = 8, 40
		nodes := make([]*realtime.Service, 2)
		for i := range nodes {
			// No fanout: the nodes differ in how far they have read.
			nodes[i] = newSQL(t, db, realtime.Config{PollInterval: 100 * time.Millisecond})
			start(t, nodes[i])
		}
		cursor := firstCursor(t, nodes[0])
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for i := range each {
					err := db.InTx(t.Context(), func(ctx context.Context) error {
						for part := range 2 {
							name := fmt.Sprintf("%d-%d-%d", w, i, part)
							if err := nodes[w%2].Append(ctx, &event.Event{ID: name, Type: event.RecordCreated, Object: "o", RecordID: fmt.Sprint(w)}); err != nil {
								return err
							}
						}
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		seen := map[string]int{}
		last := map[string]string{}
		cuts := 0
		for total := writers * each * 2; len(seen) < total; cuts++ {
			left := cuts%7 + 1
			if cuts > 60 {
				left = 50
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			err := nodes[cuts%2].Stream(ctx, realtime.StreamConfig{After: cursor, Heartbeat: 20 * time.Millisecond}, func(item realtime.StreamItem) error {
				cursor = item.Cursor
				if item.Reset != "" {
					t.Errorf("reset %s", item.Reset)
				}
				if e := item.Event; e != nil {
					seen[e.ID]++
					var before, now [3]int
					_, _ = fmt.Sscanf(last[e.RecordID], "%d-%d-%d", &before[0], &before[1], &before[2])
					_, _ = fmt.Sscanf(e.ID, "%d-%d-%d", &now[0], &now[1], &now[2])
					if last[e.RecordID] != "" && now[1]*2+now[2] != before[1]*2+before[2]+1 {
						t.Errorf("%s came after %s", e.ID, last[e.RecordID])
					}
					last[e.RecordID] = e.ID
				}
				if left--; left == 0 || len(seen) == total {
					return errCut
				}
				return nil
			})
			cancel()
			if !errors.Is(err, errCut) {
				t.Fatalf("Stream = %v after %d of %d", err, len(seen), total)
			}
		}
		wg.Wait()
		for id, n := range seen {
			if n != 1 {
				t.Errorf("%s came %d times", id, n)
			}
		}
	})
}

// firstCursor is where the log ends now.
func firstCursor(t *testing.T, s *realtime.Service) string {
	t.Helper()
	var cursor string
	err := s.Stream(t.Context(), realtime.StreamConfig{}, func(item realtime.StreamItem) error {
		cursor = item.Cursor
		return errCut
	})
	if !errors.Is(err, errCut) || cursor == "" {
		t.Fatalf("Stream = %v, cursor %q", err, cursor)
	}
	return cursor
}

// collector runs a stream in the background.
type collector struct {
	mu    sync.Mutex
	items []realtime.StreamItem
	done  chan error
	stop  context.CancelFunc
}

func stream(t *testing.T, s *realtime.Service, cfg realtime.StreamConfig, each func(realtime.StreamItem)) *collector {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	c := &collector{done: make(chan error, 1), stop: cancel}
	go func() {
		c.done <- s.Stream(ctx, cfg, func(item realtime.StreamItem) error {
			c.mu.Lock()
			c.items = append(c.items, item)
			c.mu.Unlock()
			if each != nil {
				each(item)
			}
			return nil
		})
	}()
	return c
}

// take returns what came since the last call, as texts.
func (c *collector) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []string{}
	for _, item := range c.items {
		switch {
		case item.Event != nil:
			out = append(out, item.Event.ID)
		case item.Reset != "":
			out = append(out, "reset "+string(item.Reset))
		default:
			out = append(out, "beat")
		}
	}
	c.items = nil
	return out
}

func (c *collector) cursor() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.items[len(c.items)-1].Cursor
}

func TestStreamFiltersAndBeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, realtime.Config{})
		start(t, m.Service)
		write := func(events ...*event.Event) {
			t.Helper()
			if err := m.Append(t.Context(), events...); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		all := stream(t, m.Service, realtime.StreamConfig{}, nil)
		some := stream(t, m.Service, realtime.StreamConfig{Objects: []string{"a", "b"}, Types: []string{event.RecordUpdated}, Heartbeat: time.Second}, nil)
		synctest.Wait()
		equal(t, "at once", []string{"beat"}, all.take())
		some.take()
		write(&event.Event{ID: "1", Type: event.RecordUpdated, Object: "a"}, &event.Event{ID: "2", Type: event.RecordCreated, Object: "a"},
			&event.Event{ID: "3", Type: event.RecordUpdated, Object: "b"}, &event.Event{ID: "4", Type: event.RecordUpdated, Object: "c"}, &event.Event{ID: "5", Type: "plugin.thing"})
		equal(t, "all", []string{"1", "2", "3", "4", "5"}, all.take())
		equal(t, "some", []string{"1", "3"}, some.take())
		time.Sleep(time.Second) // virtual time
		synctest.Wait()
		beat := some.cursor()
		equal(t, "quiet", []string{"beat"}, some.take())
		// The heartbeat is past what the filter left out.
		rest := stream(t, m.Service, realtime.StreamConfig{After: beat}, nil)
		synctest.Wait()
		equal(t, "after the heartbeat", []string{"beat"}, rest.take())
		write(&event.Event{ID: "6", Type: event.RecordUpdated, Object: "a"})
		equal(t, "rest", []string{"6"}, rest.take())
		rest.stop()
		if err := <-rest.done; !errors.Is(err, context.Canceled) {
			t.Errorf("Stream = %v", err)
		}
	})
}

func TestStreamResets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, realtime.Config{Retention: time.Hour})
		start(t, m.Service)
		old := firstCursor(t, m.Service)
		m.append("a")
		for after, want := range map[string]string{"x": "unknown", "9.1": "expired", strings.Replace(old, ".", ".x", 1): "unknown", "99999999999999.": "unknown"} {
			c := stream(t, m.Service, realtime.StreamConfig{After: after}, nil)
			synctest.Wait()
			equal(t, "after "+after, []string{"reset " + want}, c.take())
			c.stop()
		}
		c := stream(t, m.Service, realtime.StreamConfig{After: old}, nil)
		synctest.Wait()
		equal(t, "in time", []string{"a", "beat"}, c.take())
		time.Sleep(time.Hour + time.Second) // virtual time
		late := stream(t, m.Service, realtime.StreamConfig{After: old}, nil)
		synctest.Wait()
		equal(t, "too late", []string{"reset expired"}, late.take())
		m.append("b")
		synctest.Wait()
		equal(t, "after a reset", []string{"b"}, late.take())
	})
}

func TestSlowStreamsAreCutAndResume(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, realtime.Config{})
		start(t, m.Service)
		var blocked chan struct{}
		c := stream(t, m.Service, realtime.StreamConfig{QueueSize: 2, Patience: 2 * time.Second}, func(item realtime.StreamItem) {
			if item.Event != nil {
				<-blocked
			}
		})
		synctest.Wait()
		c.take()
		// A burst is no reason to cut: it is read from the log.
		blocked = make(chan struct{})
		m.append("1")
		synctest.Wait()
		m.append("2", "3", "4", "5", "6")
		synctest.Wait()
		close(blocked)
		synctest.Wait()
		equal(t, "a burst", []string{"1", "2", "3", "4", "5", "6", "beat"}, c.take())

		// Falling behind and then taking a second for each event is.
		blocked = make(chan struct{})
		m.append("a")
		synctest.Wait()
		m.append("b", "c", "d", "e", "f", "g", "h")
		synctest.Wait()
		var reader sync.WaitGroup
		reader.Go(func() {
			for range 8 {
				time.Sleep(time.Second) // virtual time
				select {
				case blocked <- struct{}{}:
				default:
				}
			}
		})
		defer reader.Wait()
		if err := <-c.done; !errors.Is(err, realtime.ErrTooSlow) {
			t.Fatalf("Stream = %v", err)
		}
		cursor := c.cursor()
		got := c.take()
		again := stream(t, m.Service, realtime.StreamConfig{After: cursor}, nil)
		synctest.Wait()
		if len(got) >= 8 {
			t.Errorf("cut after %v", got)
		}
		equal(t, "altogether", []string{"a", "b", "c", "d", "e", "f", "g", "h", "beat"}, append(got, again.take()...))
	})
}

func TestStreamsEndWithTheService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, realtime.Config{MaxSubscriptions: 1})
		start(t, m.Service)
		c := stream(t, m.Service, realtime.StreamConfig{}, nil)
		synctest.Wait()
		if err := m.Stream(t.Context(), realtime.StreamConfig{}, nil); !errors.Is(err, realtime.ErrTooManySubscriptions) {
			t.Errorf("one too many: %v", err)
		}
		if err := m.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-c.done; !errors.Is(err, realtime.ErrStopped) {
			t.Errorf("Stream = %v", err)
		}
		if err := m.Stream(t.Context(), realtime.StreamConfig{}, nil); !errors.Is(err, realtime.ErrStopped) {
			t.Errorf("after the stop: %v", err)
		}
	})
}
