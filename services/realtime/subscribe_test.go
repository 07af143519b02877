package realtime_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime"
)

func subscribe(t *testing.T, s *realtime.Service, filter realtime.Filter, in *inbox) (cancel func()) {
	t.Helper()
	cancel, err := s.Subscribe(filter, func(_ context.Context, e *event.Event) { in.add([]*event.Event{e}) })
	if err != nil {
		t.Fatal(err)
	}
	return cancel
}

func TestSubscribe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, realtime.Config{MaxSubscriptions: 5})
		var everything, account, updated, early inbox
		cancelEarly := subscribe(t, m.Service, realtime.Filter{}, &early)
		start(t, m.Service)
		m.append("before")
		synctest.Wait()
		subscribe(t, m.Service, realtime.Filter{}, &everything)
		subscribe(t, m.Service, realtime.Filter{Object: "crm_account"}, &account)
		subscribe(t, m.Service, realtime.Filter{Object: "crm_account", Types: []string{event.RecordUpdated, event.RecordDeleted}}, &updated)
		cancel := subscribe(t, m.Service, realtime.Filter{}, &inbox{})
		if _, err := m.Subscribe(realtime.Filter{}, func(context.Context, *event.Event) {}); !errors.Is(err, realtime.ErrTooManySubscriptions) {
			t.Fatalf("one too many: %v", err)
		}
		cancel()
		cancel()
		other := subscribe(t, m.Service, realtime.Filter{}, &inbox{})
		other()
		err := m.Append(t.Context(),
			&event.Event{ID: "1", Type: event.RecordCreated, Object: "crm_account", RecordID: "a"},
			&event.Event{ID: "2", Type: event.RecordUpdated, Object: "crm_account", RecordID: "a"},
			&event.Event{ID: "3", Type: event.RecordUpdated, Object: "crm_contact", RecordID: "a"},
			&event.Event{ID: "4", Type: "plugin.thing"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		equal(t, "from before the start", []string{"before", "1", "2", "3", "4"}, early.take())
		equal(t, "everything", []string{"1", "2", "3", "4"}, everything.take())
		equal(t, "object", []string{"1", "2"}, account.take())
		equal(t, "object and types", []string{"2"}, updated.take())
		cancelEarly()
		m.append("after")
		synctest.Wait()
		equal(t, "cancelled", 0, len(early.take()))
	})
}

func TestSlowSubscriberLosesEventsAndIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, realtime.Config{QueueSize: 3})
		var got []string
		gate := make(chan struct{})
		_, err := m.Subscribe(realtime.Filter{OnLost: func(n int) { got = append(got, fmt.Sprint("lost ", n)) }},
			func(_ context.Context, e *event.Event) { <-gate; got = append(got, e.ID) })
		if err != nil {
			t.Fatal(err)
		}
		start(t, m.Service)
		m.append("0")
		synctest.Wait() // its handler has it and waits
		m.append("1", "2", "3", "4", "5", "6")
		synctest.Wait()
		gate <- struct{}{}
		gate <- struct{}{}
		synctest.Wait()
		m.append("7")
		synctest.Wait()
		close(gate)
		synctest.Wait()
		m.append("8")
		synctest.Wait()
		equal(t, "events", []string{"0", "1", "2", "3", "lost 3", "7", "8"}, got)
	})
}

func TestSubscriberPanicsAndCancelsItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, in := newMemory(t, realtime.Config{}), &inbox{}
		var cancel func()
		cancel, err := m.Subscribe(realtime.Filter{}, func(_ context.Context, e *event.Event) {
			in.add([]*event.Event{e})
			if e.ID == "b" {
				cancel()
			}
			panic("boom")
		})
		if err != nil {
			t.Fatal(err)
		}
		start(t, m.Service)
		m.append("a", "b", "c")
		synctest.Wait()
		equal(t, "events", []string{"a", "b"}, in.take())
	})
}
