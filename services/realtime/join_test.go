package realtime_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/objecthost/objecthost/services/realtime"
)

// TestJoinAndLeave: a consumer that comes while the service runs gets what is
// committed from then on, and goes on at its position when it comes again.
func TestJoinAndLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(t, realtime.Config{})
		start(t, m.Service)
		m.append("before")
		var in inbox
		cfg := realtime.ConsumerConfig{Name: "late"}
		if err := m.Join(t.Context(), cfg, in.handle); err != nil {
			t.Fatal(err)
		}
		if err := m.Join(t.Context(), cfg, in.handle); !errors.Is(err, realtime.ErrConsumerRegistered) {
			t.Errorf("a second time = %v", err)
		}
		m.append("one")
		synctest.Wait()
		if err := m.Leave(t.Context(), "late"); err != nil {
			t.Fatal(err)
		}
		if err := m.Leave(t.Context(), "late"); !errors.Is(err, realtime.ErrUnknownConsumer) {
			t.Errorf("leave a second time = %v", err)
		}
		m.append("two")
		synctest.Wait()
		equal(t, "events until it left", []string{"one"}, in.take())
		if err := m.Join(t.Context(), cfg, in.handle); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		equal(t, "events after it came again", []string{"two"}, in.take())
		if err := m.Leave(t.Context(), "late"); err != nil {
			t.Fatal(err)
		}
		if err := m.Drop(t.Context(), "late"); err != nil {
			t.Errorf("drop = %v", err)
		}
	})
}
