package messaging_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"golang.org/x/time/rate"

	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/messaging/messagingtest"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

func TestCase_FAI_06_AnImportHoldsUpNobody(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		const imported, interactive = 4000, 20
		b := setup(t, db)
		reqs := make([]messaging.Request, imported)
		for i := range reqs {
			reqs[i] = b.request("/import")
			reqs[i].RefID, reqs[i].OrderingKey = "import", fmt.Sprint("account", i)
		}
		b.enqueue(t, reqs...)
		one := b.request("/one")
		one.RefID = "interactive"
		waiting := imported
		for n := range interactive {
			before := b.arrivals("/import")
			id := b.enqueue(t, one)[0].ID
			for d := b.waitAttempt(t); d.ID != id; d = b.waitAttempt(t) {
				waiting--
			}
			ones, imports := 0, 0
			for _, r := range b.receiver.Requests() {
				if r.Path == "/import" {
					imports++
				} else if ones++; ones > n {
					break
				}
			}
			if imports-before > imported/4 {
				t.Errorf("%d rows of the import were sent between a single row's enqueue and its request", imports-before)
			}
		}
		for range waiting {
			b.waitAttempt(t)
		}
		b.sentOnce(t, imported+interactive)
	})
}

// A receiver comes back and takes so many requests per second, while 429 is its
// answer to all others.
func TestCase_FAI_07_AReceiverComesBackWithALimit(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		const rows, perSecond = 120, 100
		b := setup(t, db)
		// Eight attempts as by the schedule, within seconds in place of a day.
		b.target(t, func(target *messaging.Target) {
			target.Retry = &messaging.RetryPolicy{MaxRetries: 7, InitialDelayMs: 200, MaxDelayMs: 1000, Strategy: "fixed"}
		})
		var up atomic.Bool
		limit := rate.NewLimiter(perSecond, 5)
		well, away, busy := messagingtest.Status(200, ""), messagingtest.Status(503, ""), messagingtest.Status(429, "")
		b.receiver.Handle("/limited", func(e *messagingtest.Exchange) {
			switch {
			case !up.Load():
				away(e)
			case limit.Allow():
				well(e)
			default:
				busy(e)
			}
		})
		reqs := make([]messaging.Request, rows)
		for i := range reqs {
			reqs[i] = b.request("/limited")
		}
		b.enqueue(t, reqs...)
		b.waitAttempt(t)
		up.Store(true)
		healthy := b.request("/in")
		healthy.RefID = "healthy"
		ended, most := map[string]int{}, 0
		for ended["hook"] < rows {
			if ended["healthy"] < 20 {
				b.enqueue(t, healthy)
			}
			d := b.waitAttempt(t)
			switch d.Status {
			case messaging.StatusSuccess:
				ended[d.RefID]++
				most = max(most, d.Attempts)
			case messaging.StatusPending:
			default:
				t.Fatalf("delivery = %+v", d)
			}
		}
		if most > 5 {
			t.Errorf("a row took %d attempts of its 8", most)
		}
		if ended["healthy"] < 20 {
			t.Errorf("%d rows of the healthy receiver ended meanwhile, want 20", ended["healthy"])
		}
	})
}
