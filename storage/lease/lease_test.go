package lease_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/lease"
	"github.com/objecthost/objecthost/storage/storagetest"
)

const ttl = time.Second

func database(t *testing.T) *storage.DB {
	t.Helper()
	db := storagetest.Open(t, storagetest.Postgres(t), storage.Config{})
	if err := db.Migrate(t.Context(), lease.Migrations()); err != nil {
		t.Fatal(err)
	}
	return db
}

func holder(t *testing.T, db *storage.DB, name string, watch ...lease.Watcher) *lease.Holder {
	t.Helper()
	h, err := lease.New(db, lease.Config{Node: name, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range watch {
		h.Watch(w)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return h
}

func stop(t *testing.T, h *lease.Holder) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := h.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// split tells whether the holders hold everything, each range once, in the
// numbers wanted in any order.
func split(holders []*lease.Holder, want ...int) bool {
	var all lease.Set
	total := 0
	var lens []int
	for _, h := range holders {
		s := h.Held().Ranges
		all |= s
		total += s.Len()
		lens = append(lens, s.Len())
	}
	slices.Sort(lens)
	slices.Sort(want)
	return all == lease.All && total == lease.Ranges && slices.Equal(lens, want)
}

func TestOneHoldsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		if err := db.Migrate(t.Context(), lease.Migrations()); err != nil {
			t.Fatal(err)
		}
		h := holder(t, db, "a")
		held := h.Held()
		if held.Ranges != lease.All {
			t.Errorf("holds %d ranges, want all", held.Ranges.Len())
		}
		if (held.Token == "") != (db.Dialect() == storage.SQLite) {
			t.Errorf("token = %q", held.Token)
		}
		stop(t, h)
		if left := h.Held().Ranges; (left == 0) != (db.Dialect() == storage.Postgres) {
			t.Errorf("after the stop it holds %d ranges", left.Len())
		}
	})
}

// TestSharesFollowTheMembers: nodes come and go, and no range is ever held by
// two at once.
func TestSharesFollowTheMembers(t *testing.T) {
	t.Parallel()
	db := database(t)
	var watch guard
	a := holder(t, db, "a", watch.node("a"))
	b := holder(t, db, "b", watch.node("b"))
	eventually(t, "two share", func() bool { return split([]*lease.Holder{a, b}, 8, 8) })
	c := holder(t, db, "c", watch.node("c"))
	eventually(t, "three share", func() bool { return split([]*lease.Holder{a, b, c}, 5, 5, 6) })
	stop(t, b)
	eventually(t, "two share again", func() bool { return split([]*lease.Holder{a, c}, 8, 8) })
	stop(t, a)
	eventually(t, "one has all", func() bool { return split([]*lease.Holder{c}, 16) })
	stop(t, c)
	for _, problem := range watch.problems {
		t.Error(problem)
	}
}

// guard notes what the watchers are told, and ranges that two nodes hold.
type guard struct {
	mu       sync.Mutex
	held     map[string]lease.Set
	problems []string
}

func (g *guard) node(name string) lease.Watcher {
	return func(_ context.Context, held lease.Set) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.held == nil {
			g.held = make(map[string]lease.Set)
		}
		g.held[name] = held
		for other, set := range g.held {
			if other != name && set&held != 0 {
				g.problems = append(g.problems, fmt.Sprintf("%s holds %04x, %s holds %04x", name, held, other, set))
			}
		}
	}
}

// TestReleaseWaitsForTheWatcher: a range is given to another only when its
// holder has finished with it.
func TestReleaseWaitsForTheWatcher(t *testing.T) {
	t.Parallel()
	db := database(t)
	asked, finish := make(chan lease.Set, 10), make(chan struct{})
	a := holder(t, db, "a", func(ctx context.Context, held lease.Set) {
		if held == lease.All || held == 0 {
			return
		}
		asked <- held
		select {
		case <-finish:
		case <-ctx.Done():
		}
	})
	var b *lease.Holder
	eventually(t, "a has all", func() bool { return a.Held().Ranges == lease.All })
	b = holder(t, db, "b")
	if kept := <-asked; kept.Len() != 8 {
		t.Errorf("a keeps %d ranges, want 8", kept.Len())
	}
	if n := b.Held().Ranges.Len(); n != 0 {
		t.Errorf("b holds %d ranges that a has not finished with", n)
	}
	close(finish)
	eventually(t, "b has its share", func() bool { return b.Held().Ranges.Len() == 8 })
	stop(t, a)
	stop(t, b)
}

// TestPausedNodeLosesItsRanges: a node that does not renew its lease holds
// nothing by its own clock before others take over by the database's, and a
// statement that is fenced by its token then finds nothing.
func TestPausedNodeLosesItsRanges(t *testing.T) {
	t.Parallel()
	dsn := storagetest.Postgres(t)
	db := storagetest.Open(t, dsn, storage.Config{})
	if err := db.Migrate(t.Context(), lease.Migrations()); err != nil {
		t.Fatal(err)
	}
	proxy, through := storagetest.ProxyDSN(t, dsn)
	cut := storagetest.Open(t, through, storage.Config{})
	a := holder(t, cut, "a")
	old := a.Held()
	if old.Ranges != lease.All {
		t.Fatal("a does not hold everything")
	}
	proxy.Cut()
	b, err := lease.New(db, lease.Config{Node: "b", TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	overlap := false
	b.Watch(func(_ context.Context, held lease.Set) { overlap = overlap || held != 0 && a.Held().Ranges != 0 })
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b takes over", func() bool { return b.Held().Ranges == lease.All })
	if overlap {
		t.Error("b took ranges that a still believed to hold")
	}
	var live int
	if err := db.Read(t.Context()).QueryRowContext(t.Context(), `SELECT COUNT(*) FROM sys_node WHERE token = $1`, old.Token).Scan(&live); err != nil || live != 0 {
		t.Errorf("the token of a is still there: %d, %v", live, err)
	}
	proxy.Restore()
	eventually(t, "a comes back under a new token", func() bool { return split([]*lease.Holder{a, b}, 8, 8) })
	if token := a.Held().Token; token == old.Token {
		t.Error("a came back under its old token")
	}
	stop(t, a)
	stop(t, b)
}

// TestClaimHoldsOffTheTakeover: a transaction that has checked the token keeps
// the ranges from being taken until it ends.
func TestClaimHoldsOffTheTakeover(t *testing.T) {
	t.Parallel()
	dsn := storagetest.Postgres(t)
	db := storagetest.Open(t, dsn, storage.Config{})
	if err := db.Migrate(t.Context(), lease.Migrations()); err != nil {
		t.Fatal(err)
	}
	proxy, through := storagetest.ProxyDSN(t, dsn)
	a := holder(t, storagetest.Open(t, through, storage.Config{}), "a")
	token := a.Held().Token
	tookOver := false
	err := db.InTx(t.Context(), func(ctx context.Context) error {
		var found string
		if err := db.Write(ctx).QueryRowContext(ctx, `SELECT token FROM sys_node WHERE token = $1 FOR KEY SHARE`, token).Scan(&found); err != nil {
			return err
		}
		proxy.Cut()
		b, err := lease.New(db, lease.Config{Node: "b", TTL: ttl})
		if err != nil {
			return err
		}
		b.Watch(func(_ context.Context, held lease.Set) { tookOver = tookOver || held != 0 })
		t.Cleanup(func() { stop(t, b) })
		starting, cancel := context.WithTimeout(ctx, 2*ttl)
		defer cancel()
		if err := b.Start(context.WithoutCancel(t.Context())); err != nil {
			return err
		}
		<-starting.Done() // well past the lease of a
		if b.Held().Ranges != 0 {
			t.Error("the ranges were taken from under an open transaction")
		}
		t.Cleanup(func() {
			eventually(t, "b takes over after the commit", func() bool { return b.Held().Ranges == lease.All })
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestSet(t *testing.T) {
	t.Parallel()
	s := lease.Set(1<<0 | 1<<15)
	for partition, want := range map[int]bool{0: true, 15: true, 16: false, 239: false, 240: true, 255: true, -1: false, 256: false} {
		if got := s.Has(partition); got != want {
			t.Errorf("Has(%d) = %v, want %v", partition, got, want)
		}
	}
	if p := s.Partitions(); len(p) != 32 || p[0] != 0 || p[31] != 255 {
		t.Errorf("partitions = %v", p)
	}
	if n := len(lease.All.Partitions()); n != 256 {
		t.Errorf("all are %d partitions", n)
	}
}
