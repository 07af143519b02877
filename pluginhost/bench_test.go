package pluginhost_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/pluginhost"
	"github.com/objecthost/objecthost/pluginhost/hosttest"
	"github.com/objecthost/objecthost/pluginhost/sqlstore"
	"github.com/objecthost/objecthost/pluginsdk"
	"github.com/objecthost/objecthost/services/data"
)

// BenchmarkEvents measures the way of an event from the log to the plugin.
func BenchmarkEvents(b *testing.B) {
	h := start(b, "", nil)
	wantState(b, h, pluginhost.StateReady)
	store := sqlstore.New(h.DB)
	const batch = 500
	run := 0
	for b.Loop() {
		run++
		last := "last" + strconv.Itoa(run)
		for i := range 10 {
			events := make([]*event.Event, batch)
			for j := range events {
				events[j] = &event.Event{Type: event.RecordCreated, Object: "fix_account", RecordID: "r", After: json.RawMessage(`{"name":"counted"}`)}
			}
			if i == 9 {
				events[batch-1].RecordID, events[batch-1].After = last, json.RawMessage(`{"name":"last"}`)
			}
			if err := h.Events.Append(h.Context(), events...); err != nil {
				b.Fatal(err)
			}
		}
		eventually(b, "the last event", func() bool {
			value, _, err := store.Value(b.Context(), "fixture", "last")
			return err == nil && string(value) == last
		})
	}
	b.ReportMetric(float64(run*10*batch)/b.Elapsed().Seconds(), "events/s")
}

// inside is a plugin in the host's process with the hook of the fixture on
// another object.
type inside struct{}

func (inside) Manifest() core.Manifest {
	return core.Manifest{ID: "com.example.inside", Version: "1.0.0"}
}

func (inside) Init(context.Context, core.Context) error { return nil }

func (inside) Contributions() pluginsdk.Contributions {
	return pluginsdk.Contributions{Before: []pluginsdk.BeforeHook{{
		Object: "fix_read", OnError: pluginsdk.FailClosed, Run: func(_ context.Context, w pluginsdk.Write) (pluginsdk.Record, error) {
			return pluginsdk.Record{"checked": w.Operation}, nil
		},
	}}}
}

// BenchmarkBeforeHook measures what it costs a write that its before hook runs
// in another process: writes with the same hook in either place take turns.
func BenchmarkBeforeHook(b *testing.B) {
	h := start(b, "", func(c *hosttest.Config) {
		c.InProcess = func(m *pluginhost.Manager) []core.Plugin {
			p, err := m.InProcess("inside", inside{}, grants())
			if err != nil {
				b.Fatal(err)
			}
			return []core.Plugin{p}
		}
	})
	wantState(b, h, pluginhost.StateReady)
	took := map[string][]time.Duration{}
	write := func(object string) {
		began := time.Now()
		made, err := h.Engine.Create(h.Context(), object, data.Record{"name": "Ada"})
		if err != nil || made.Record["checked"] != "create" {
			b.Fatal(made, err)
		}
		took[object] = append(took[object], time.Since(began))
	}
	for b.Loop() {
		write("fix_read")
		write("fix_open")
	}
	middle := func(object string) float64 {
		slices.Sort(took[object])
		return float64(took[object][len(took[object])/2].Nanoseconds()) / 1e3
	}
	b.ReportMetric(middle("fix_read"), "p50-inside-µs")
	b.ReportMetric(middle("fix_open"), "p50-process-µs")
	b.ReportMetric(middle("fix_open")-middle("fix_read"), "p50-overhead-µs")
}
