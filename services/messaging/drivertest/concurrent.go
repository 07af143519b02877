package drivertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/services/messaging/memstore"
	"github.com/objecthost/objecthost/storage"
)

func sortedIDs(rows []*driver.Row) []string {
	out := ids(rows)
	slices.Sort(out)
	return out
}

func testConcurrentInserts(t *testing.T, b *bench) {
	a := b.target(t, "a")
	const callers = 50
	rows := make([]*driver.Row, callers)
	for i := range rows {
		rows[i] = b.row(a)
		rows[i].DedupKey = "same"
	}
	got := make([]driver.Inserted, callers)
	var group sync.WaitGroup
	for i := range rows {
		group.Add(1)
		go func() {
			defer group.Done()
			out, err := b.Insert(b.ctx, rows[i:i+1], driver.Terms{Hold: hold})
			if err != nil {
				t.Error(err)
				return
			}
			got[i] = out[0]
		}()
	}
	group.Wait()
	fresh := 0
	for _, g := range got {
		if g.New {
			fresh++
		}
		equal(t, "id", g.ID, got[0].ID)
	}
	equal(t, "new rows", fresh, 1)
}

func testConcurrentClaims(t *testing.T, b *bench) {
	a := b.target(t, "a")
	var rows []*driver.Row
	for range 200 {
		rows = append(rows, b.row(a))
	}
	b.insert(t, rows...)
	var mu sync.Mutex
	seen := make(map[string]int)
	var group sync.WaitGroup
	for worker := range 4 {
		group.Add(1)
		go func() {
			defer group.Done()
			for n := 0; ; n++ {
				got, err := b.Claim(b.ctx, driver.ClaimRequest{
					Node: "node", Token: fmt.Sprintf("t-%d-%d", worker, n), Hold: hold, Wants: []driver.Want{{TargetID: a.ID, First: 7, Retry: 1}},
				})
				if err != nil {
					t.Error(err)
					return
				}
				if len(got) == 0 {
					return
				}
				mu.Lock()
				for _, r := range got {
					seen[r.ID]++
				}
				mu.Unlock()
			}
		}()
	}
	group.Wait()
	equal(t, "claimed rows", len(seen), len(rows))
	for id, n := range seen {
		if n != 1 {
			t.Errorf("row %s was claimed %d times", id, n)
		}
	}
}

// testModel runs random operations against the store and against memstore and
// compares every row after every step.
func testModel(t *testing.T, b *bench) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(rt, t, b)
		rt.Repeat(map[string]func(*rapid.T){
			"insert": m.insert, "claim": m.claim, "outcome": m.outcome, "expire": m.expire, "edit": m.edit,
			"target": m.setTarget, "sweep": m.sweep, "rollback": m.rollback, "": m.compare,
		})
	})
}

type model struct {
	t       *testing.T
	real    *bench
	ideal   *bench
	targets []*driver.Target
	rows    []string
	tokens  []string
	n       int
}

func newModel(rt *rapid.T, t *testing.T, b *bench) *model {
	tx := storage.NewMemory()
	m := &model{t: t, real: &bench{Store: b.Store, tx: b.tx, ctx: b.ctx, n: b.n}, ideal: &bench{Store: memstore.New(tx, nil), tx: tx, ctx: b.ctx}}
	run := rapid.Uint64().Draw(rt, "run")
	for i := range 3 {
		target := driver.Target{Source: "test", Key: fmt.Sprintf("%d-%d-%d", run, b.n, i), State: driver.TargetActive}
		m.targets = append(m.targets, &target)
		m.put(&target)
	}
	b.n += 1000 // rows of later runs get other ids
	return m
}

// put writes a target to both; they number targets differently.
func (m *model) put(target *driver.Target) {
	m.real.put(m.t, target)
	twin := *target
	m.ideal.put(m.t, &twin)
}

// idealID is the number of a target in the model, as b sees it.
func (m *model) idealID(b *bench, target *driver.Target) int64 {
	got, err := b.Targets(b.ctx, nil, []driver.TargetKey{{Source: "test", Key: target.Key}})
	if err != nil || len(got) != 1 {
		m.t.Fatal(got, err)
	}
	return got[0].ID
}

func (m *model) pickTarget(rt *rapid.T) *driver.Target {
	return rapid.SampledFrom(m.targets).Draw(rt, "target")
}

func (m *model) insertInto(rt *rapid.T, real, ideal *bench) {
	target := m.pickTarget(rt)
	row := m.real.row(target)
	row.OrderKey = rapid.Int64Range(0, 2).Draw(rt, "key")
	row.BlockOnRetry = row.OrderKey == 2
	if rapid.Bool().Draw(rt, "claimed") {
		row.Status, row.ClaimToken, row.ClaimedBy = driver.InFlight, "insert-"+row.ID, "node"
		m.tokens = append(m.tokens, row.ClaimToken)
	}
	if row.OrderKey != 0 {
		row.OrderKey += target.ID * 10
	}
	m.rows = append(m.rows, row.ID)
	twin := *row
	twin.TargetID = m.idealID(ideal, target)
	equal(rt, "inserted", real.insert(m.t, row), ideal.insert(m.t, &twin))
}

func (m *model) insert(rt *rapid.T) { m.insertInto(rt, m.real, m.ideal) }

func (m *model) claim(rt *rapid.T) {
	target := m.pickTarget(rt)
	m.n++
	token := fmt.Sprintf("claim-%d-%d", m.real.n, m.n)
	m.tokens = append(m.tokens, token)
	first, retry := rapid.IntRange(1, 3).Draw(rt, "first"), rapid.IntRange(1, 3).Draw(rt, "retry")
	equal(rt, "claimed", sortedIDs(m.real.claim(m.t, token, driver.Want{TargetID: target.ID, First: first, Retry: retry})),
		sortedIDs(m.ideal.claim(m.t, token, driver.Want{TargetID: m.idealID(m.ideal, target), First: first, Retry: retry})))
}

func (m *model) outcome(rt *rapid.T) {
	if len(m.rows) == 0 || len(m.tokens) == 0 {
		rt.Skip()
	}
	o := driver.Outcome{
		ID: rapid.SampledFrom(m.rows).Draw(rt, "row"), Token: rapid.SampledFrom(m.tokens).Draw(rt, "token"),
		Status:   rapid.SampledFrom([]driver.Status{driver.Pending, driver.Success, driver.Failed, driver.Dead}).Draw(rt, "status"),
		Attempts: rapid.IntRange(0, 9).Draw(rt, "attempts"), ResponseCode: rapid.SampledFrom([]int{0, 200, 500}).Draw(rt, "code"),
	}
	if row := m.ideal.get(m.t, o.ID); row != nil && rapid.Bool().Draw(rt, "current") {
		o.Token = row.ClaimToken
	}
	if o.Status == driver.Pending {
		o.Released = rapid.Bool().Draw(rt, "released")
		o.RetryIn = rapid.SampledFrom([]time.Duration{-time.Minute, time.Hour}).Draw(rt, "retry")
	}
	equal(rt, "applied", m.real.record(m.t, o), m.ideal.record(m.t, o))
}

func (m *model) expire(*rapid.T) {
	for _, b := range []*bench{m.real, m.ideal} {
		if _, _, err := b.Expire(b.ctx, true, 3, 1000); err != nil {
			m.t.Fatal(err)
		}
	}
}

func (m *model) edit(rt *rapid.T) {
	if len(m.rows) == 0 {
		rt.Skip()
	}
	e := driver.Edit{ID: rapid.SampledFrom(m.rows).Draw(rt, "row"), From: []driver.Status{driver.Pending}, Status: driver.Failed, Error: "cancelled"}
	if rapid.Bool().Draw(rt, "redeliver") {
		e = driver.Edit{ID: e.ID, From: []driver.Status{driver.Success, driver.Failed, driver.Dead}, Redeliver: true}
	}
	_, real, err := m.real.Edit(m.real.ctx, e)
	if err != nil {
		m.t.Fatal(err)
	}
	_, ideal, err := m.ideal.Edit(m.ideal.ctx, e)
	if err != nil {
		m.t.Fatal(err)
	}
	equal(rt, "applied", real, ideal)
}

func (m *model) setTarget(rt *rapid.T) {
	target := m.pickTarget(rt)
	target.State = rapid.SampledFrom([]driver.TargetState{driver.TargetActive, driver.TargetActive, driver.TargetHeld, driver.TargetGone}).Draw(rt, "state")
	m.put(target)
}

func (m *model) sweep(rt *rapid.T) {
	real, err := m.real.Sweep(m.real.ctx, 1000)
	if err != nil {
		m.t.Fatal(err)
	}
	ideal, err := m.ideal.Sweep(m.ideal.ctx, 1000)
	if err != nil {
		m.t.Fatal(err)
	}
	// The store holds rows of earlier runs, which the model does not know.
	real = slices.DeleteFunc(real, func(r *driver.Row) bool { return !slices.Contains(m.rows, r.ID) })
	equal(rt, "swept", sortedIDs(real), sortedIDs(ideal))
}

// rollback inserts a row in a transaction that does not commit.
func (m *model) rollback(rt *rapid.T) {
	undo := fmt.Errorf("undo")
	_ = m.real.tx.InTx(m.real.ctx, func(ctx context.Context) error {
		return m.ideal.tx.InTx(ctx, func(ctx context.Context) error {
			m.insertInto(rt, &bench{Store: m.real.Store, ctx: ctx}, &bench{Store: m.ideal.Store, ctx: ctx})
			return undo
		})
	})
}

// compare is run after every step.
func (m *model) compare(rt *rapid.T) {
	for _, id := range m.rows {
		real, ideal := m.real.get(m.t, id), m.ideal.get(m.t, id)
		if (real == nil) != (ideal == nil) {
			rt.Fatalf("row %s: in the store %v, in the model %v", id, real != nil, ideal != nil)
		}
		if real == nil {
			continue
		}
		equal(rt, "row "+id, timeless(real), timeless(ideal))
	}
}

// timeless is a row without clock readings, of which only the presence counts,
// and without the store's own numbers.
func timeless(r *driver.Row) driver.Row {
	c := *r
	for _, at := range []*int64{&c.ClaimedAt, &c.ClaimExpiresAt, &c.NextRetryAt, &c.LastAttemptAt, &c.FinishedAt, &c.CreatedAt, &c.UpdatedAt} {
		if *at != 0 {
			*at = 1
		}
	}
	c.TargetID = 0
	return c
}
