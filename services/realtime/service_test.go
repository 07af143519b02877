package realtime_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/services/realtime/memfanout"
	"github.com/objecthost/objecthost/services/realtime/memlog"
	"github.com/objecthost/objecthost/storage"
)

// memory is a service on a memory log, for tests in a synctest bubble.
type memory struct {
	t   *testing.T
	tx  *storage.Memory
	log *memlog.Log
	*realtime.Service
}

func newMemory(t *testing.T, cfg realtime.Config) *memory {
	t.Helper()
	m := &memory{t: t, tx: storage.NewMemory(), log: memlog.New()}
	m.Service = m.join(cfg)
	return m
}

// join makes one more service on the same log.
func (m *memory) join(cfg realtime.Config) *realtime.Service {
	m.t.Helper()
	s, err := realtime.New(m.tx, m.log, cfg)
	if err != nil {
		m.t.Fatal(err)
	}
	return s
}

func start(t *testing.T, s *realtime.Service) {
	t.Helper()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

func (m *memory) append(names ...string) {
	m.t.Helper()
	if err := m.Append(m.t.Context(), events(names...)...); err != nil {
		m.t.Fatal(err)
	}
}

func events(names ...string) []*event.Event {
	var all []*event.Event
	for _, n := range names {
		all = append(all, &event.Event{ID: n, Type: event.RecordCreated, Object: "o", RecordID: n})
	}
	return all
}

// inbox collects the events of handlers.
type inbox struct {
	mu      sync.Mutex
	ids     []string
	batches [][]string
}

func (b *inbox) add(events []*event.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ids []string
	for _, e := range events {
		ids = append(ids, e.ID)
	}
	b.ids = append(b.ids, ids...)
	b.batches = append(b.batches, ids)
}

func (b *inbox) handle(_ context.Context, events []*event.Event) error { b.add(events); return nil }

func (b *inbox) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := b.ids
	b.ids, b.batches = nil, nil
	return ids
}

func equal(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateErrors()); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

func consume(t *testing.T, s *realtime.Service, cfg realtime.ConsumerConfig, h realtime.Handler) {
	t.Helper()
	cfg.Name = "c"
	if err := s.Consume(cfg, h); err != nil {
		t.Fatal(err)
	}
}

func TestCommitWakesConsumersAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, in := newMemory(t, realtime.Config{}), &inbox{}
		m.append("before")
		consume(t, m.Service, realtime.ConsumerConfig{BatchSize: 2}, in.handle)
		start(t, m.Service)
		synctest.Wait()
		began := time.Now()
		m.append("a", "b", "c")
		err := m.tx.InTx(t.Context(), func(ctx context.Context) error {
			if err := m.Append(ctx, events("d")...); err != nil {
				return err
			}
			return m.Append(ctx, events("e")...)
		})
		if err != nil {
			t.Fatal(err)
		}
		_ = m.tx.InTx(t.Context(), func(ctx context.Context) error {
			return errors.Join(m.Append(ctx, events("rolled back")...), errors.New("undo"))
		})
		synctest.Wait()
		equal(t, "events", []string{"a", "b", "c", "d", "e"}, in.take())
		equal(t, "time it took", time.Duration(0), time.Since(began))
	})
}

func TestConsumerStartsEarliest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, in := newMemory(t, realtime.Config{}), &inbox{}
		m.append("before")
		consume(t, m.Service, realtime.ConsumerConfig{Start: realtime.FromEarliest}, in.handle)
		start(t, m.Service)
		synctest.Wait()
		equal(t, "events", []string{"before"}, in.take())
	})
}

// Another service appends without a fanout: the poll finds it, and looks more
// often while it finds something.
func TestPollIsAdaptive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, in := newMemory(t, realtime.Config{PollInterval: 10 * time.Second}), &inbox{}
		other := m.join(realtime.Config{})
		var at []time.Time
		consume(t, m.Service, realtime.ConsumerConfig{}, func(ctx context.Context, e []*event.Event) error {
			at = append(at, time.Now())
			return in.handle(ctx, e)
		})
		start(t, m.Service)
		synctest.Wait()
		began := time.Now()
		for _, name := range []string{"a", "b"} {
			if err := other.Append(t.Context(), events(name)...); err != nil {
				t.Fatal(err)
			}
			time.Sleep(13 * time.Second) // virtual time
			synctest.Wait()
		}
		equal(t, "events", []string{"a", "b"}, in.take())
		if first := at[0].Sub(began); first < 8*time.Second || first > 12*time.Second {
			t.Errorf("the first poll came after %v", first)
		}
	})
}

func TestFanoutWakesOtherNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var hub memfanout.Hub
		m, in := newMemory(t, realtime.Config{Fanout: hub.Join()}), &inbox{}
		other := m.join(realtime.Config{Fanout: hub.Join()})
		consume(t, other, realtime.ConsumerConfig{}, in.handle)
		seen := &inbox{}
		subscribe(t, other, realtime.Filter{}, seen)
		start(t, m.Service)
		start(t, other)
		synctest.Wait()
		began := time.Now()
		m.append("a")
		synctest.Wait()
		equal(t, "events", []string{"a"}, in.take())
		equal(t, "subscribed", []string{"a"}, seen.take())
		equal(t, "time it took", time.Duration(0), time.Since(began))
	})
}

func TestPoisonousEventIsIsolated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, in := newMemory(t, realtime.Config{}), &inbox{}
		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprint("e", i))
		}
		var calls atomic.Int64
		consume(t, m.Service, realtime.ConsumerConfig{BatchSize: 100}, func(_ context.Context, events []*event.Event) error {
			calls.Add(1)
			for _, e := range events {
				if e.ID == "e42" {
					panic("no \x00 luck")
				}
			}
			in.add(events)
			return nil
		})
		start(t, m.Service)
		m.append(names...)
		time.Sleep(time.Minute) // virtual time
		synctest.Wait()
		equal(t, "events before it", names[:42], in.take())
		stuck := m.Stuck()
		if len(stuck) != 1 || stuck[0].EventID != "e42" || stuck[0].Error != "handler panicked: no  luck" || stuck[0].Attempts < 5 {
			t.Fatalf("stuck %+v", stuck)
		}
		status := statusOf(t, m.Service)
		equal(t, "state", realtime.StateStuck, status.State)
		equal(t, "recorded", "e42", status.Ranges[0].Stuck.EventID)
		equal(t, "lag", int64(58), status.LagEvents)
		before := calls.Load()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if tries := calls.Load() - before; tries < 15 || tries > 27 {
			t.Errorf("%d tries in 10 minutes", tries)
		}

		var next *realtime.NotNextError
		if err := m.Skip(t.Context(), "c", "e43"); !errors.As(err, &next) || !cmp.Equal(next.Next, []string{"e42"}) {
			t.Fatalf("skip of another event: %v", err)
		}
		if err := m.Skip(t.Context(), "c", "e42"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		equal(t, "events after it", names[43:], in.take())
		equal(t, "stuck after the skip", 0, len(m.Stuck()))
		equal(t, "state after the skip", realtime.StateActive, statusOf(t, m.Service).State)
	})
}

func statusOf(t *testing.T, s *realtime.Service) realtime.ConsumerStatus {
	t.Helper()
	all, err := s.Consumers(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("consumers %v, %v", all, err)
	}
	return all[0]
}

func TestFailingBatchIsRetriedWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, realtime.Config{})
		in, tries := &inbox{}, &inbox{}
		fail := 2
		consume(t, m.Service, realtime.ConsumerConfig{}, func(ctx context.Context, e []*event.Event) error {
			tries.add(e)
			if fail--; fail >= 0 {
				return errors.New("not yet")
			}
			return in.handle(ctx, e)
		})
		start(t, m.Service)
		m.append("a", "b", "c")
		time.Sleep(time.Second) // virtual time
		synctest.Wait()
		equal(t, "batches", [][]string{{"a", "b", "c"}, {"a", "b", "c"}, {"a", "b", "c"}}, tries.batches)
		equal(t, "handled", []string{"a", "b", "c"}, in.take())
	})
}

func TestSplitDisableDrop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, in := newMemory(t, realtime.Config{}), &inbox{}
		consume(t, m.Service, realtime.ConsumerConfig{}, in.handle)
		start(t, m.Service)
		m.append("a")
		synctest.Wait()
		for _, p := range []int{0, 256} {
			if err := m.Split(t.Context(), "c", p); !errors.Is(err, realtime.ErrBadSplit) {
				t.Fatalf("split at %d: %v", p, err)
			}
		}
		for _, p := range []int{100, 200} {
			if err := m.Split(t.Context(), "c", p); err != nil {
				t.Fatal(err)
			}
		}
		var bounds [][2]int
		for _, r := range statusOf(t, m.Service).Ranges {
			bounds = append(bounds, [2]int{r.First, r.Last})
		}
		equal(t, "ranges", [][2]int{{0, 99}, {100, 199}, {200, 255}}, bounds)
		in.take()
		var names []string
		for i := range 50 {
			names = append(names, fmt.Sprint("r", i))
		}
		synctest.Wait()
		m.append(names...)
		synctest.Wait()
		got := map[string]int{}
		for _, id := range in.take() {
			got[id]++
		}
		for _, n := range names {
			if got[n] != 1 {
				t.Errorf("%s was handled %d times", n, got[n])
			}
		}

		if err := m.SetEnabled(t.Context(), "c", false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		m.append("while off")
		time.Sleep(time.Minute)
		equal(t, "handled while off", 0, len(in.take()))
		equal(t, "state", realtime.StateDisabled, statusOf(t, m.Service).State)
		if err := m.SetEnabled(t.Context(), "c", true); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		equal(t, "handled when on again", []string{"while off"}, in.take())

		equal(t, "drop of a registered one", realtime.ErrConsumerRegistered, m.Drop(t.Context(), "c"))
		other := m.join(realtime.Config{})
		equal(t, "state on a node without it", realtime.StateUnknown, statusOf(t, other).State)
		if err := other.Drop(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		equal(t, "second drop", realtime.ErrUnknownConsumer, other.Drop(t.Context(), "c"))
	})
}

func TestRetentionAndLag(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lagged []string
		m := newMemory(t, realtime.Config{OnLagged: func(_ context.Context, c realtime.ConsumerStatus) { lagged = append(lagged, c.Name) }})
		broken := true
		consume(t, m.Service, realtime.ConsumerConfig{}, func(context.Context, []*event.Event) error {
			if broken {
				return errors.New("down")
			}
			return nil
		})
		start(t, m.Service)
		m.append("a", "b")
		time.Sleep(23 * time.Hour)
		equal(t, "lagged after 23 h", 0, len(m.Lagged()))
		time.Sleep(9 * 24 * time.Hour)
		synctest.Wait()
		equal(t, "lagged", []string{"c"}, m.Lagged())
		equal(t, "hook calls", []string{"c"}, lagged)
		equal(t, "kept for it", int64(2), statusOf(t, m.Service).LagEvents)
		if err := m.SkipToEnd(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		broken = false
		time.Sleep(time.Hour)
		synctest.Wait()
		equal(t, "lagged after the skip", 0, len(m.Lagged()))
		page, err := m.log.Read(t.Context(), driver.Query{Position: "0", Last: 255, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "events left", 0, len(page.Events))
	})
}

func TestStopWaitsForTheBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, in := newMemory(t, realtime.Config{}), &inbox{}
		consume(t, m.Service, realtime.ConsumerConfig{BatchSize: 1}, func(ctx context.Context, e []*event.Event) error {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return ctx.Err()
			}
			return in.handle(ctx, e)
		})
		start(t, m.Service)
		m.append("a", "b")
		synctest.Wait()
		if err := m.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		equal(t, "handled", []string{"a"}, in.take())
		equal(t, "start after stop", realtime.ErrStopped, m.Start(t.Context()))

		second := m.join(realtime.Config{})
		consume(t, second, realtime.ConsumerConfig{}, func(ctx context.Context, e []*event.Event) error {
			in.add(e)
			<-ctx.Done()
			return ctx.Err()
		})
		if err := second.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := second.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		equal(t, "started", []string{"b"}, in.take())
		equal(t, "not handled", int64(1), statusOf(t, second).LagEvents)
	})
}

func TestRegistrationErrors(t *testing.T) {
	t.Parallel()
	m := newMemory(t, realtime.Config{})
	h := (&inbox{}).handle
	var bad *realtime.ConfigError
	for field, cfg := range map[string]realtime.ConsumerConfig{
		"Name": {Name: "Bad"}, "BatchSize": {Name: "a", BatchSize: 10_001}, "EventAttempts": {Name: "a", EventAttempts: -1},
		"MaxBackoff": {Name: "a", MinBackoff: time.Second, MaxBackoff: time.Millisecond},
	} {
		if err := m.Consume(cfg, h); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := realtime.New(m.tx, m.log, realtime.Config{MaxLag: time.Hour, Retention: time.Minute}); !errors.As(err, &bad) || bad.Field != "MaxLag" {
		t.Error(err)
	}
	consume(t, m.Service, realtime.ConsumerConfig{}, h)
	equal(t, "twice", realtime.ErrConsumerRegistered, m.Consume(realtime.ConsumerConfig{Name: "c"}, h))
	start(t, m.Service)
	equal(t, "after start", realtime.ErrStarted, m.Consume(realtime.ConsumerConfig{Name: "d"}, h))
}
