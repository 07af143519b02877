package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/services/messaging/messagingtest"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// watched counts the calls of a store and fails what a test asks it to.
type watched struct {
	driver.Store
	block   func(driver.ClaimRequest) error
	claims  atomic.Int64
	inserts atomic.Int64
	refuse  func([]*driver.Row) error
	spoil   func([]driver.Outcome) error
}

func (w *watched) Claim(ctx context.Context, req driver.ClaimRequest) ([]*driver.Row, error) {
	if w.block != nil {
		if err := w.block(req); err != nil {
			return nil, err
		}
	}
	rows, err := w.Store.Claim(ctx, req)
	if len(rows) > 0 {
		w.claims.Add(1)
	}
	return rows, err
}

func (w *watched) Insert(ctx context.Context, rows []*driver.Row, terms driver.Terms) ([]driver.Inserted, error) {
	w.inserts.Add(1)
	if w.refuse != nil {
		if err := w.refuse(rows); err != nil {
			return nil, err
		}
	}
	return w.Store.Insert(ctx, rows, terms)
}

func (w *watched) Record(ctx context.Context, outcomes []driver.Outcome, touches []driver.Touch) ([]bool, error) {
	if w.spoil != nil {
		if err := w.spoil(outcomes); err != nil {
			return nil, err
		}
	}
	return w.Store.Record(ctx, outcomes, touches)
}

func watch(w *watched) func(*messaging.Config) {
	return func(c *messaging.Config) { w.Store = c.Store; c.Store = w }
}

// events collects what is appended to the log.
type events struct {
	mu  sync.Mutex
	all []*event.Event
}

func (e *events) Append(_ context.Context, list ...*event.Event) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, list...)
	return nil
}

func (e *events) types() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for _, one := range e.all {
		out = append(out, one.Type)
	}
	return out
}

func (b *bundle) enqueue(t *testing.T, reqs ...messaging.Request) []messaging.Enqueued {
	t.Helper()
	out, err := b.EnqueueBatch(t.Context(), reqs)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (b *bundle) delivery(t *testing.T, id string) messaging.Delivery {
	t.Helper()
	d, err := b.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// warm delivers one row of a target, so that the dispatcher knows it and has
// nothing to claim for it.
func (b *bundle) warm(t *testing.T, req messaging.Request) {
	t.Helper()
	req.URL, req.OrderingKey = b.url("/warm"), ""
	b.enqueue(t, req)
	b.waitAttempt(t)
	b.enqueue(t, req)
	b.waitAttempt(t)
}

func (b *bundle) target(t *testing.T, edit func(*messaging.Target)) {
	t.Helper()
	target := messaging.Target{Source: messaging.SourceWebhook, Key: "hook"}
	edit(&target)
	if err := b.PutTarget(t.Context(), target); err != nil {
		t.Fatal(err)
	}
}

func (b *bundle) arrivals(path string) int {
	n := 0
	for _, r := range b.receiver.Requests() {
		if r.Path == path {
			n++
		}
	}
	return n
}

// eventually waits for a condition on state that nothing signals.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func TestAFreeSenderNeedsNoClaim(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		w := new(watched)
		b := setup(t, db, watch(w))
		b.warm(t, b.request("/in"))
		before := w.claims.Load()
		var got messaging.Enqueued
		err := db.InTx(t.Context(), func(ctx context.Context) (err error) {
			err = db.InTx(ctx, func(ctx context.Context) (err error) {
				got, err = b.Enqueue(ctx, b.request("/in"))
				return err
			})
			if n := b.arrivals("/in"); n != 0 {
				t.Errorf("sent before the outermost commit")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if d := b.waitAttempt(t); d.ID != got.ID || d.Status != messaging.StatusSuccess {
			t.Errorf("delivery = %+v", d)
		}
		if n := w.claims.Load() - before; n != 0 {
			t.Errorf("%d claims were made for a row whose sender was free", n)
		}
	})
}

func TestARollbackFreesTheSlot(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db, func(c *messaging.Config) { c.MaxInFlight, c.MaxSlow = 1, 1 })
		b.warm(t, b.request("/in"))
		boom := errors.New("boom")
		for range 3 {
			err := db.InTx(t.Context(), func(ctx context.Context) error {
				if _, err := b.Enqueue(ctx, b.request("/lost")); err != nil {
					return err
				}
				return boom
			})
			if !errors.Is(err, boom) {
				t.Fatal(err)
			}
		}
		b.enqueue(t, b.request("/in"))
		b.waitAttempt(t)
		if b.arrivals("/lost") != 0 || b.arrivals("/in") != 1 {
			t.Errorf("arrivals: lost %d, in %d, want 0 and 1", b.arrivals("/lost"), b.arrivals("/in"))
		}
	})
}

func TestAKnownDedupKeyIsNotSentAgain(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		b.warm(t, b.request("/in"))
		req := b.request("/in")
		req.DedupKey = "once"
		first := b.enqueue(t, req, req)
		b.waitAttempt(t)
		second := b.enqueue(t, req)
		if first[0].ID != first[1].ID || first[0].ID != second[0].ID || !first[0].New || first[1].New || second[0].New {
			t.Errorf("enqueued = %+v %+v", first, second)
		}
		b.enqueue(t, b.request("/last"))
		b.waitAttempt(t)
		if n := b.arrivals("/in"); n != 1 {
			t.Errorf("sent %d times, want once", n)
		}
	})
}

func TestFirstAttemptsOfOneKeyKeepTheirOrder(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		const n = 150
		for i := range n {
			req := b.request(fmt.Sprintf("/%03d", i))
			req.OrderingKey, req.OrderSeq = "key", int64(1000+i)
			other := b.request("/other")
			other.OrderingKey = fmt.Sprintf("key-%d", i)
			b.enqueue(t, req, other)
		}
		for range 2 * n {
			b.waitAttempt(t)
		}
		var got []string
		for _, r := range b.receiver.Requests() {
			if r.Path != "/other" {
				got = append(got, r.Path)
			}
		}
		if !slices.IsSorted(got) || len(got) != n {
			t.Errorf("%d arrivals in the order %v", len(got), got)
		}
	})
}

func TestBlockOnRetryHoldsItsKey(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		b.receiver.Handle("/1", messagingtest.Status(503, ""), messagingtest.Status(200, ""))
		var reqs []messaging.Request
		for i := range 3 {
			req := b.request(fmt.Sprintf("/%d", i+1))
			req.OrderingKey, req.OrderSeq, req.BlockOnRetry = "key", int64(i+1), true
			reqs = append(reqs, req)
		}
		free := b.request("/free")
		free.OrderingKey, free.OrderSeq, free.BlockOnRetry = "other", 1, true
		b.enqueue(t, append(reqs, free)...)
		for range 5 {
			b.waitAttempt(t)
		}
		var got []string
		for _, r := range b.receiver.Requests() {
			if r.Path != "/free" {
				got = append(got, r.Path)
			}
		}
		if want := []string{"/1", "/1", "/2", "/3"}; !slices.Equal(got, want) {
			t.Errorf("arrivals = %v, want %v", got, want)
		}
	})
}

func TestCase_CFG_01_PausedAndDeletedTargets(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		log := new(events)
		b := setup(t, db, func(c *messaging.Config) { c.Events = log })
		b.target(t, func(target *messaging.Target) { target.State, target.Reason = messaging.TargetHeld, "paused" })
		held := b.enqueue(t, b.request("/held"))[0]
		other := b.request("/other")
		other.RefID = "another"
		b.enqueue(t, other)
		b.waitAttempt(t)
		if d := b.delivery(t, held.ID); d.Status != messaging.StatusPending || d.Attempts != 0 || b.arrivals("/held") != 0 {
			t.Errorf("while paused: %+v, %d arrivals", d, b.arrivals("/held"))
		}
		b.target(t, func(*messaging.Target) {})
		if d := b.waitAttempt(t); d.ID != held.ID || d.Status != messaging.StatusSuccess {
			t.Errorf("after the resume: %+v", d)
		}
		b.target(t, func(target *messaging.Target) { target.State = messaging.TargetHeld })
		gone := b.enqueue(t, b.request("/gone"))[0]
		b.target(t, func(target *messaging.Target) { target.State, target.Reason = messaging.TargetGone, "webhook deleted" })
		eventually(t, "the row of the deleted target fails", func() bool { return b.delivery(t, gone.ID).Status == messaging.StatusFailed })
		if d := b.delivery(t, gone.ID); d.Error != "webhook deleted" || d.Attempts != 0 || d.FinishedAt.IsZero() || b.arrivals("/gone") != 0 {
			t.Errorf("after the delete: %+v", d)
		}
		eventually(t, "a delivery.finished event", func() bool { return slices.Contains(log.types(), event.DeliveryFinished) })
		var ineligible *messaging.NotEligibleError
		if _, err := b.Redeliver(t.Context(), gone.ID, messaging.RedeliverOptions{}); !errors.As(err, &ineligible) {
			t.Errorf("redeliver after the delete = %v", err)
		}
	})
}

func TestCase_CFG_01_DeletedWhileInFlight(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		b.receiver.Handle("/slow", messagingtest.Hang(messagingtest.Status(200, "done")))
		b.target(t, func(*messaging.Target) {})
		d := b.enqueue(t, b.request("/slow"))[0]
		if _, err := b.receiver.WaitFor(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		b.target(t, func(target *messaging.Target) { target.State = messaging.TargetGone })
		b.receiver.Release()
		if got := b.waitAttempt(t); got.ID != d.ID || got.Status != messaging.StatusSuccess || got.ResponseBody != "done" {
			t.Errorf("the answer of a request in flight at the delete: %+v", got)
		}
	})
}

func TestCase_CFG_04_RotationReachesWaitingRows(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		old, fresh := []byte("old secret"), []byte("new secret")
		b.target(t, func(target *messaging.Target) { target.Secret, target.State = old, messaging.TargetHeld })
		for range 10 {
			b.enqueue(t, b.request("/in"))
		}
		b.target(t, func(target *messaging.Target) {
			target.Secret, target.PreviousSecret, target.PreviousUntil = fresh, old, time.Now().Add(time.Hour)
		})
		for range 10 {
			if d := b.waitAttempt(t); d.Status != messaging.StatusSuccess {
				t.Errorf("delivery = %+v", d)
			}
		}
		for _, r := range b.receiver.Requests() {
			for _, secret := range [][]byte{old, fresh} {
				if err := messaging.VerifySignature(secret, r.Body, r.Header); err != nil {
					t.Errorf("secret %q: %v", secret, err)
				}
			}
			r.Header.Del("X-Objectstack-Signature-Previous")
			if messaging.VerifySignature(old, r.Body, r.Header) == nil {
				t.Error("the main signature is still the old secret's")
			}
		}
	})
}

func TestCase_CFG_06_ParkedRowsAreNeverSentUnsigned(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		secret := []byte("the secret")
		b.target(t, func(target *messaging.Target) { target.Unreadable = "key lost" })
		d := b.enqueue(t, b.request("/in"))[0]
		eventually(t, "the row is parked", func() bool { return b.delivery(t, d.ID).Status == messaging.StatusDead })
		got := b.delivery(t, d.ID)
		if got.Attempts != 0 || got.Signature != "" || got.Error != "signing secret is set but cannot be read" || b.arrivals("/in") != 0 {
			t.Errorf("parked row = %+v, %d arrivals", got, b.arrivals("/in"))
		}
		if _, err := b.Redeliver(t.Context(), d.ID, messaging.RedeliverOptions{}); !errors.Is(err, messaging.ErrNeverSent) {
			t.Errorf("redeliver of an unreadable row = %v, want ErrNeverSent", err)
		}
		b.target(t, func(target *messaging.Target) { target.Secret = secret })
		if _, err := b.Redeliver(t.Context(), d.ID, messaging.RedeliverOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := b.waitAttempt(t); got.ID != d.ID || got.Status != messaging.StatusSuccess {
			t.Errorf("delivery = %+v", got)
		}
		r := b.receiver.Requests()[0]
		if err := messaging.VerifySignature(secret, r.Body, r.Header); err != nil {
			t.Error(err)
		}
	})
}

func TestGoneEndpointSwitchesItsTargetOff(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		log := new(events)
		b := setup(t, db, func(c *messaging.Config) { c.Events = log })
		b.target(t, func(target *messaging.Target) { target.MaxConcurrency = 1 })
		b.receiver.Handle("/in", messagingtest.Status(410, "gone"))
		var reqs []messaging.Request
		for i := range 5 {
			req := b.request("/in")
			req.OrderingKey, req.OrderSeq = "key", int64(i+1)
			reqs = append(reqs, req)
		}
		got := b.enqueue(t, reqs...)
		first := b.waitAttempt(t)
		if first.ID != got[0].ID || first.Status != messaging.StatusDead || first.Error != "HTTP 410" || first.Attempts != 1 {
			t.Errorf("delivery = %+v", first)
		}
		eventually(t, "the target is held", func() bool {
			target, err := b.Target(t.Context(), messaging.SourceWebhook, "hook", "")
			return err == nil && target.State == messaging.TargetHeld && target.Reason == "the receiver answered 410 Gone"
		})
		if !slices.Contains(log.types(), messaging.EventTargetHeld) || !slices.Contains(log.types(), event.DeliveryFinished) {
			t.Errorf("events = %v", log.types())
		}
		eventually(t, "the other rows wait", func() bool {
			for _, e := range got[2:] {
				if b.delivery(t, e.ID).Status != messaging.StatusPending {
					return false
				}
			}
			return true
		})
		if n := b.arrivals("/in"); n > 2 {
			t.Errorf("%d requests after a 410, want at most the one that was on its way", n)
		}
	})
}

func TestCase_SHT_01_StopSavesAnswersAndGivesTheRestBack(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		b.receiver.Handle("/soon", messagingtest.Delay(400*time.Millisecond, messagingtest.Status(200, "")))
		b.receiver.Handle("/hang", messagingtest.Hang(messagingtest.Status(200, "")))
		var soon, hang []string
		for i := range 10 {
			one, other := b.request("/soon"), b.request("/hang")
			other.RefID = fmt.Sprintf("hang-%d", i%2)
			got := b.enqueue(t, one, other)
			soon, hang = append(soon, got[0].ID), append(hang, got[1].ID)
		}
		if _, err := b.receiver.WaitFor(t.Context(), 20); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		if err := b.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the stop took %s of a grace time of 3 s", took)
		}
		for _, id := range soon {
			if d := b.delivery(t, id); d.Status != messaging.StatusSuccess || d.Attempts != 1 {
				t.Errorf("answered delivery = %+v", d)
			}
		}
		for _, id := range hang {
			if d := b.delivery(t, id); d.Status != messaging.StatusPending || d.Attempts != 0 || d.CrashCount != 0 || !d.NextRetryAt.IsZero() {
				t.Errorf("unanswered delivery = %+v", d)
			}
		}
		b.receiver.Release()
		again := setup(t, db, func(c *messaging.Config) {
			c.OnAttempt = func(d messaging.Delivery, _ messaging.Attempt) { b.attempts <- d }
		})
		_ = again
		finished := make(map[string]int)
		for range 20 {
			d := b.waitAttempt(t)
			finished[d.ID]++
			if slices.Contains(hang, d.ID) && (d.Status != messaging.StatusSuccess || d.Attempts != 1) {
				t.Errorf("delivery after the restart = %+v", d)
			}
		}
		if len(finished) != 20 {
			t.Errorf("%d deliveries had an attempt, want 20", len(finished))
		}
	})
}

func TestARowThatCrashesItsHostIsSentAlone(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		b.receiver.Handle("/slow", messagingtest.Hang(messagingtest.Status(200, "")))
		b.target(t, func(target *messaging.Target) { target.State = messaging.TargetHeld })
		suspect := b.enqueue(t, b.request("/suspect"))[0]
		if _, err := db.Write(t.Context()).ExecContext(t.Context(), `UPDATE sys_http_delivery SET crash_count = 3`); err != nil {
			t.Fatal(err)
		}
		slow, other := b.request("/slow"), b.request("/other")
		slow.RefID, other.RefID = "slow", "other"
		b.enqueue(t, slow)
		if _, err := b.receiver.WaitFor(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		b.target(t, func(*messaging.Target) {})
		eventually(t, "the suspect is claimed", func() bool { return b.delivery(t, suspect.ID).Status == messaging.StatusInFlight })
		b.enqueue(t, other)
		if b.arrivals("/suspect") != 0 || b.arrivals("/other") != 0 {
			t.Error("something was sent while the suspect waits to be alone")
		}
		b.receiver.Release()
		for range 3 {
			b.waitAttempt(t)
		}
		if d := b.delivery(t, suspect.ID); d.Status != messaging.StatusSuccess || d.CrashCount != 0 {
			t.Errorf("suspect = %+v", d)
		}
		var order []string
		for _, r := range b.receiver.Requests() {
			order = append(order, r.Path)
		}
		if want := []string{"/slow", "/suspect", "/other"}; !slices.Equal(order, want) {
			t.Errorf("arrivals = %v, want %v", order, want)
		}
	})
}

func TestCase_CON_04_DatabaseGoneForAWhile(t *testing.T) {
	t.Parallel()
	t.Run("postgres", databaseGoneForAWhile)
}

func databaseGoneForAWhile(t *testing.T) {
	t.Parallel()
	proxy, dsn := storagetest.ProxyDSN(t, storagetest.Postgres(t))
	db := storagetest.Open(t, dsn, storage.Config{})
	b := setup(t, db, func(c *messaging.Config) {
		c.QueueWait, c.ClaimMargin, c.PollInterval = 200*time.Millisecond, time.Second, 100*time.Millisecond
	})
	b.receiver.Handle("/in", messagingtest.Hang(messagingtest.Status(200, "ok")))
	var reqs []messaging.Request
	for i := range 8 {
		req := b.request("/in")
		req.RefID, req.Timeout = fmt.Sprintf("hook-%d", i), 30*time.Second
		reqs = append(reqs, req)
	}
	b.enqueue(t, reqs...)
	if _, err := b.receiver.WaitFor(t.Context(), 8); err != nil {
		t.Fatal(err)
	}
	proxy.Cut()
	b.receiver.Release() // the answers come while there is nowhere to save them
	eventually(t, "the outage is noticed", func() bool { return b.CheckHealth(t.Context()) != nil })
	proxy.Restore()
	for range 8 {
		if d := b.waitAttempt(t); d.Status != messaging.StatusSuccess || d.Attempts != 1 || d.CrashCount != 0 {
			t.Errorf("delivery = %+v", d)
		}
	}
	if n := b.arrivals("/in"); n != 8 {
		t.Errorf("the receiver got %d requests, want 8", n)
	}
	eventually(t, "the service is healthy again", func() bool { return b.CheckHealth(t.Context()) == nil })
}

func TestABadRowInAGroupCommitHurtsOnlyItself(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		refused := errors.New("refused by the database")
		w := &watched{refuse: func(rows []*driver.Row) error {
			for _, r := range rows {
				if r.Label == "bad" {
					return refused
				}
			}
			return nil
		}}
		b := setup(t, db, watch(w))
		const callers = 40
		results := make([]error, callers)
		var group sync.WaitGroup
		for i := range results {
			group.Add(1)
			go func() {
				defer group.Done()
				req := b.request("/in")
				if i == 17 {
					req.Label = "bad"
				}
				_, results[i] = b.Enqueue(t.Context(), req)
			}()
		}
		group.Wait()
		for i, err := range results {
			if i == 17 && !errors.Is(err, refused) || i != 17 && err != nil {
				t.Errorf("caller %d got %v", i, err)
			}
		}
		for range callers - 1 {
			b.waitAttempt(t)
		}
	})
}

func TestABadRowInAClaimHurtsOnlyItsTarget(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		var bad atomic.Int64
		w := &watched{block: func(req driver.ClaimRequest) error {
			for _, want := range req.Wants {
				if want.TargetID == bad.Load() {
					return errors.New("refused by the database")
				}
			}
			return nil
		}}
		b := setup(t, db, watch(w), func(c *messaging.Config) { c.PollInterval = 50 * time.Millisecond })
		var reqs []messaging.Request
		for i := range 21 {
			req := b.request("/in")
			req.RefID = fmt.Sprintf("hook-%d", i)
			reqs = append(reqs, req)
		}
		b.holdAll(t, reqs)
		b.enqueue(t, reqs...)
		var number int64
		if err := db.Read(t.Context()).QueryRowContext(t.Context(), `SELECT number FROM sys_http_target WHERE target_key = 'hook-7'`).Scan(&number); err != nil {
			t.Fatal(err)
		}
		bad.Store(number)
		b.resumeAll(t, reqs)
		for range 20 {
			if d := b.waitAttempt(t); d.RefID == "hook-7" || d.Status != messaging.StatusSuccess {
				t.Errorf("delivery = %+v", d)
			}
		}
		bad.Store(0) // the row was mended
		if d := b.waitAttempt(t); d.RefID != "hook-7" || d.Attempts != 1 || d.CrashCount != 0 {
			t.Errorf("delivery = %+v", d)
		}
	})
}

// holdAll and resumeAll change the targets of requests.
func (b *bundle) holdAll(t *testing.T, reqs []messaging.Request) {
	t.Helper()
	b.targets(t, reqs, messaging.TargetHeld)
}
func (b *bundle) resumeAll(t *testing.T, reqs []messaging.Request) {
	t.Helper()
	b.targets(t, reqs, messaging.TargetActive)
}

func (b *bundle) targets(t *testing.T, reqs []messaging.Request, state messaging.TargetState) {
	t.Helper()
	err := b.db.InTx(t.Context(), func(ctx context.Context) error {
		for _, r := range reqs {
			if err := b.PutTarget(ctx, messaging.Target{Source: r.Source, Key: r.RefID, State: state}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestABadOutcomeInABatchHurtsOnlyItself(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		w := &watched{spoil: func(outcomes []driver.Outcome) error {
			for _, o := range outcomes {
				if o.ResponseBody == "poison" {
					return errors.New("refused by the database")
				}
			}
			return nil
		}}
		b := setup(t, db, watch(w))
		b.receiver.Handle("/poison", messagingtest.Status(200, "poison"))
		var reqs []messaging.Request
		for i := range 30 {
			req := b.request("/in")
			if i == 11 {
				req = b.request("/poison")
			}
			reqs = append(reqs, req)
		}
		got := b.enqueue(t, reqs...)
		for range reqs {
			if d := b.waitAttempt(t); d.Status != messaging.StatusSuccess || d.Attempts != 1 {
				t.Errorf("delivery = %+v", d)
			}
		}
		if d := b.delivery(t, got[11].ID); d.Status != messaging.StatusSuccess || d.ResponseCode != 200 || d.ResponseBody != "" {
			t.Errorf("the delivery whose answer cannot be stored = %+v", d)
		}
		if n := b.arrivals("/poison"); n != 1 {
			t.Errorf("sent %d times, want once", n)
		}
	})
}

func TestCase_FAI_01_AHangingReceiverCostsItsOwnSlots(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db, func(c *messaging.Config) { c.MaxInFlight = 8 })
		b.receiver.Handle("/hang", messagingtest.Hang(messagingtest.Status(200, "")))
		var reqs []messaging.Request
		for range 200 {
			req := b.request("/hang")
			req.RefID = "hanging"
			reqs = append(reqs, req)
		}
		b.enqueue(t, reqs...)
		reqs = reqs[:0]
		for i := range 190 {
			req := b.request("/fine")
			req.RefID = fmt.Sprintf("healthy-%d", i%19)
			reqs = append(reqs, req)
		}
		b.enqueue(t, reqs...)
		for range 190 {
			if d := b.waitAttempt(t); d.Status != messaging.StatusSuccess || d.RefID == "hanging" {
				t.Fatalf("delivery = %+v", d)
			}
		}
		if n := b.arrivals("/hang"); n > 64 {
			t.Errorf("%d requests hang, want at most the target's cap of 64", n)
		}
	})
}

func TestRateLimitDelaysWithoutSpendingAttempts(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		b.target(t, func(target *messaging.Target) { target.RatePerSecond, target.RateBurst = 20, 2 })
		var reqs []messaging.Request
		for range 10 {
			reqs = append(reqs, b.request("/in"))
		}
		b.enqueue(t, reqs...)
		for range reqs {
			if d := b.waitAttempt(t); d.Attempts != 1 {
				t.Errorf("delivery = %+v", d)
			}
		}
		requests := b.receiver.Requests()
		// Two at once, then one every 50 ms.
		if took := requests[9].At.Sub(requests[0].At); took < 380*time.Millisecond {
			t.Errorf("ten requests came within %s, want at least 400 ms at 20 per second after a burst of 2", took)
		}
	})
}

func TestRetryAfterIsAFloor(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		b.receiver.Handle("/in", messagingtest.Status(429, "", "Retry-After: 300"))
		b.enqueue(t, b.request("/in"))
		d := b.waitAttempt(t)
		d = b.delivery(t, d.ID)
		if wait := d.NextRetryAt.Sub(d.LastAttemptAt); d.Status != messaging.StatusPending || wait < 300*time.Second || wait > 305*time.Second {
			t.Errorf("the retry waits %s, want 300 s: %+v", wait, d)
		}
	})
}

func TestRedeliverSendsTheSameBytesAgain(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		b.receiver.Handle("/in", messagingtest.Status(400, "no"), messagingtest.Status(200, "ok"))
		req := b.request("/in")
		req.Payload = []byte(`{"z":1.10,"a":"<&> Ñ 😀"}`)
		d := b.enqueue(t, req)[0]
		if got := b.waitAttempt(t); got.Status != messaging.StatusDead || got.Error != "HTTP 400" || got.Attempts != 1 {
			t.Fatalf("delivery = %+v", got)
		}
		got, err := b.Redeliver(t.Context(), d.ID, messaging.RedeliverOptions{})
		if err != nil || got.ID != d.ID || got.Status != messaging.StatusPending || got.Attempts != 0 || got.Round != 1 {
			t.Fatalf("redeliver = %+v, %v", got, err)
		}
		if got := b.waitAttempt(t); got.Status != messaging.StatusSuccess || got.Attempts != 1 || got.Error != "" {
			t.Errorf("delivery = %+v", got)
		}
		requests := b.receiver.Requests()
		for _, r := range requests {
			if string(r.Body) != string(req.Payload) || r.Header.Get("X-Objectstack-Delivery") != d.ID || r.Header.Get("X-Objectstack-Attempt") != "1" {
				t.Errorf("request = %q %v", r.Body, r.Header)
			}
		}
		attempts, err := b.Attempts(t.Context(), d.ID)
		if err != nil || len(attempts) != 2 || attempts[0].Round != 0 || attempts[1].Round != 1 {
			t.Errorf("attempts = %+v, %v", attempts, err)
		}
		if _, err := b.Redeliver(t.Context(), "00000000-0000-7000-8000-000000000000", messaging.RedeliverOptions{}); !errors.Is(err, messaging.ErrNotFound) {
			t.Errorf("redeliver of an unknown id = %v", err)
		}
		if _, err := b.Redeliver(t.Context(), d.ID, messaging.RedeliverOptions{Scoped: true, OrganizationID: "other"}); !errors.Is(err, messaging.ErrNotFound) {
			t.Errorf("redeliver by another organization = %v", err)
		}
	})
}

func TestCase_BOD_11_BigPayloadsAreReadWhenTheyAreSent(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		b.target(t, func(target *messaging.Target) { target.State = messaging.TargetHeld })
		req := b.request("/in")
		req.Payload = []byte(`"` + string(slices.Repeat([]byte("é"), driver.MaxClaimedPayload)) + `"`)
		b.enqueue(t, req)
		b.target(t, func(*messaging.Target) {})
		if d := b.waitAttempt(t); d.Status != messaging.StatusSuccess {
			t.Fatalf("delivery = %+v", d)
		}
		if got := b.receiver.Requests()[0].Body; string(got) != string(req.Payload) {
			t.Errorf("the receiver got %d bytes, want %d", len(got), len(req.Payload))
		}
	})
}

func TestFiveDaysWithoutASuccessSwitchTheTargetOff(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		log := new(events)
		b := setup(t, db, func(c *messaging.Config) { c.Events = log })
		b.receiver.Handle("/in", messagingtest.Status(500, ""), messagingtest.Status(500, ""), messagingtest.Status(200, ""))
		b.target(t, func(*messaging.Target) {})
		age := func(days int64) {
			t.Helper()
			if _, err := db.Write(t.Context()).ExecContext(t.Context(), `UPDATE sys_http_target SET failing_since = $1`, time.Now().UnixMilli()-days*86_400_000); err != nil {
				t.Fatal(err)
			}
		}
		state := func() messaging.TargetState {
			t.Helper()
			target, err := b.Target(t.Context(), messaging.SourceWebhook, "hook", "")
			if err != nil {
				t.Fatal(err)
			}
			return target.State
		}
		age(4)
		b.enqueue(t, b.request("/in"))
		b.waitAttempt(t)
		if state() != messaging.TargetActive {
			t.Error("switched off after four days")
		}
		age(6)
		b.target(t, func(*messaging.Target) {}) // the dispatcher reads the target again
		b.enqueue(t, b.request("/in"))
		b.waitAttempt(t)
		eventually(t, "the target is held", func() bool { return state() == messaging.TargetHeld })
		if !slices.Contains(log.types(), messaging.EventTargetHeld) {
			t.Errorf("events = %v", log.types())
		}
	})
}

func TestAFullDatabaseLosesNothing(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.SQLite(t), storage.Config{})
	b := setup(t, db)
	b.receiver.Handle("/in", messagingtest.Hang(messagingtest.Status(200, string(slices.Repeat([]byte("x"), 16<<10)))))
	ids := b.enqueue(t, b.request("/in"), b.request("/in"), b.request("/in"))
	if _, err := b.receiver.WaitFor(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	limit := func(pages string) {
		t.Helper()
		var now int64
		if err := db.Write(t.Context()).QueryRowContext(t.Context(), `PRAGMA max_page_count = `+pages).Scan(&now); err != nil {
			t.Fatal(err)
		}
	}
	limit("1") // SQLite takes it for the present number of pages
	b.receiver.Release()
	eventually(t, "the lack of room is noticed", func() bool { return b.CheckHealth(t.Context()) != nil })
	for _, d := range ids {
		if got := b.delivery(t, d.ID); got.Status != messaging.StatusInFlight {
			t.Errorf("delivery = %+v, want it in flight until its outcome is saved", got)
		}
	}
	limit("1000000")
	for range ids {
		if d := b.waitAttempt(t); d.Status != messaging.StatusSuccess || d.Attempts != 1 || d.CrashCount != 0 {
			t.Errorf("delivery = %+v", d)
		}
	}
	if n := b.arrivals("/in"); n != 3 {
		t.Errorf("the receiver got %d requests, want 3", n)
	}
}

// sleepySealer takes its time with the first secret that it opens, as a process
// does that is stopped meanwhile.
type sleepySealer struct {
	plainSealer
	once  *sync.Once
	sleep time.Duration
}

func (s sleepySealer) Open(sealed string, aad []byte) ([]byte, error) {
	s.once.Do(func() { time.Sleep(s.sleep) })
	return s.plainSealer.Open(sealed, aad)
}

// A process that is stopped between the look at a row's claim and the request
// begins none once its time is over: it could come after the claim's end, when
// another process has sent the row.
func TestNoRequestBeginsAfterTheTimeOfItsClaim(t *testing.T) {
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db, func(cfg *messaging.Config) {
			cfg.QueueWait = 100 * time.Millisecond
			cfg.Sealer = sleepySealer{once: new(sync.Once), sleep: 1300 * time.Millisecond}
		})
		req := b.request("/in")
		req.Timeout, req.Secret = time.Second, []byte("s3cret")
		id := b.enqueue(t, req)[0].ID
		if d := b.finished(t, id); d.Status != messaging.StatusSuccess {
			t.Errorf("the delivery ended as %s, want success", d.Status)
		}
		if got := b.receiver.Requests(); len(got) != 1 || got[0].Header.Get("X-Objectstack-Attempt") != "2" {
			t.Errorf("%d requests arrived, want the one of attempt 2", len(got))
		}
	})
}

// The database is lost while a row that could be sent at once is committed: its
// slot and its ordering key are free again.
func TestALostCommitHoldsNothingBack(t *testing.T) {
	t.Parallel()
	proxy, through := storagetest.ProxyDSN(t, storagetest.Postgres(t))
	b := setup(t, storagetest.Open(t, through, storage.Config{}))
	b.target(t, func(target *messaging.Target) { target.MaxConcurrency = 1 })
	req := b.request("/in")
	req.OrderingKey = "key"
	first := b.enqueue(t, req)[0].ID
	b.finished(t, first)
	err := b.db.InTx(t.Context(), func(ctx context.Context) error {
		_, err := b.Enqueue(ctx, req)
		proxy.Cut()
		proxy.Restore()
		return err
	})
	var unknown *storage.CommitUnknownError
	if !errors.As(err, &unknown) {
		t.Fatalf("InTx = %v, want a CommitUnknownError", err)
	}
	later := b.enqueue(t, req)[0].ID
	b.finished(t, later)
	for _, r := range b.receiver.Requests() {
		if id := r.Header.Get("X-Objectstack-Delivery"); id != first && id != later {
			t.Errorf("delivery %s was sent, which was rolled back", id)
		}
	}
}

func TestABusySenderNeedsNoClaimEither(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		w := new(watched)
		b := setup(t, db, watch(w), func(c *messaging.Config) { c.MaxInFlight, c.MaxSlow = 1, 0 })
		b.warm(t, b.request("/in"))
		b.receiver.Handle("/busy", messagingtest.Hang(messagingtest.Status(200, "")))
		before := w.claims.Load()
		b.enqueue(t, b.request("/busy"))
		waiting := b.enqueue(t, b.request("/in"), b.request("/in"))
		for _, e := range waiting {
			if d := b.delivery(t, e.ID); d.Status != messaging.StatusInFlight {
				t.Errorf("delivery = %+v, want it claimed in its own transaction", d)
			}
		}
		b.receiver.Release()
		for range 3 {
			b.waitAttempt(t)
		}
		if n := w.claims.Load() - before; n != 0 {
			t.Errorf("%d claims were made for rows that had a place in the queue", n)
		}
	})
}

func TestAnOpenTransactionHoldsNobodyBack(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Postgres(t), storage.Config{})
	b := setup(t, db, func(c *messaging.Config) { c.MaxInFlight, c.MaxSlow, c.SlowAfter = 2, 1, 5*time.Millisecond })
	b.warm(t, b.request("/in"))
	err := db.InTx(t.Context(), func(ctx context.Context) error {
		var reqs []messaging.Request
		for range 4 {
			reqs = append(reqs, b.request("/late"))
		}
		if _, err := b.EnqueueBatch(ctx, reqs); err != nil {
			return err
		}
		for range 4 {
			b.enqueue(t, b.request("/in"))
			b.waitAttempt(t)
		}
		if n := b.arrivals("/late"); n != 0 {
			t.Errorf("%d rows were sent before their commit", n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		b.waitAttempt(t)
	}
	if n := b.arrivals("/late"); n != 4 {
		t.Errorf("%d rows were sent after their commit, want 4", n)
	}
}

// Claims stop while many outcomes wait for a slow store, and go on when they
// are saved, without a look at the store. However many batches are saved at
// once, OnAttempt is called by one goroutine at a time.
func TestASlowStoreSetsThePace(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		const rows, enough = 80, 9
		w, calls := new(watched), atomic.Int64{}
		var b *bundle
		w.spoil = func([]driver.Outcome) error {
			if len(b.receiver.Requests()) < enough {
				return context.DeadlineExceeded
			}
			return nil
		}
		b = setup(t, db, watch(w), func(c *messaging.Config) {
			c.BatchSize, c.PollInterval = 4, 10*time.Minute
			report := c.OnAttempt
			c.OnAttempt = func(d messaging.Delivery, a messaging.Attempt) {
				if n := calls.Add(1); n != 1 {
					t.Errorf("%d calls of OnAttempt at once", n)
				}
				report(d, a)
				calls.Add(-1)
			}
		})
		reqs := make([]messaging.Request, rows)
		for i := range reqs {
			reqs[i] = b.request("/in")
		}
		b.enqueue(t, reqs...)
		for range rows {
			b.waitAttempt(t)
		}
		b.sentOnce(t, rows)
	})
}
