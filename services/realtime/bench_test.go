package realtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/services/realtime/sqllog"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

func onEachDialectBench(b *testing.B, fn func(b *testing.B, db *storage.DB, s *realtime.Service)) {
	for name, dsn := range map[string]func(testing.TB) string{"sqlite": storagetest.SQLite, "postgres": storagetest.Postgres} {
		b.Run(name, func(b *testing.B) {
			db := database(b, dsn(b))
			fn(b, db, newSQL(b, db, realtime.Config{}))
		})
	}
}

func manyEvents(n int) []*event.Event {
	all := make([]*event.Event, n)
	for i := range all {
		all[i] = &event.Event{Type: event.RecordUpdated, Object: "crm_account", RecordID: fmt.Sprint("r", i),
			Changes: json.RawMessage(`{"amount":12.50}`), After: json.RawMessage(`{"id":"r","name":"Ada Lovelace","amount":12.50,"active":true}`)}
	}
	return all
}

// BenchmarkAppend reports events per second for transactions of 1 and of 500
// events, and for 16 writers side by side.
func BenchmarkAppend(b *testing.B) {
	onEachDialectBench(b, func(b *testing.B, _ *storage.DB, s *realtime.Service) {
		for _, size := range []int{1, 500} {
			b.Run(fmt.Sprint("batch=", size), func(b *testing.B) {
				all := manyEvents(size)
				for b.Loop() {
					if err := s.Append(b.Context(), all...); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "events/s")
			})
		}
		b.Run("writers=16", func(b *testing.B) {
			var wg sync.WaitGroup
			for range 16 {
				wg.Go(func() {
					all := manyEvents(1)
					for range b.N {
						if err := s.Append(context.WithoutCancel(b.Context()), all...); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N*16)/b.Elapsed().Seconds(), "events/s")
		})
	})
}

// BenchmarkConsume reports events per second through batches of 500 whose
// handler does nothing.
func BenchmarkConsume(b *testing.B) {
	onEachDialectBench(b, func(b *testing.B, db *storage.DB, s *realtime.Service) {
		const batch = 500
		log := sqllog.New(db, nil)
		position, err := log.Position(b.Context(), driver.Latest)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := log.Insert(b.Context(), driver.Range{Consumer: "c", Last: 255, Position: position, Enabled: true}); err != nil {
			b.Fatal(err)
		}
		for range b.N {
			if err := s.Append(b.Context(), manyEvents(batch)...); err != nil {
				b.Fatal(err)
			}
		}
		b.ResetTimer()
		read := 0
		for read < b.N*batch {
			err := db.InTx(b.Context(), func(ctx context.Context) error {
				r, err := log.Lock(ctx, "c", 0)
				if err != nil {
					return err
				}
				page, err := log.Read(ctx, driver.Query{Position: r.Position, Last: 255, Limit: batch})
				if err != nil {
					return err
				}
				read += len(page.Events)
				r.Position = page.Next
				return log.Save(ctx, r)
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(read)/b.Elapsed().Seconds(), "events/s")
	})
}
