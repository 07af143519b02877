package messaging_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/messaging/messagingtest"
	"github.com/objecthost/objecthost/services/messaging/sqlstore"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/lease"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// hub carries announcements between the nodes of one process.
type hub struct {
	mu    sync.Mutex
	nodes []*hubNode
}

type hubNode struct {
	hub *hub
	mu  sync.Mutex
	fns map[string][]func([]string)
}

func (h *hub) join() *hubNode {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := &hubNode{hub: h, fns: make(map[string][]func([]string))}
	h.nodes = append(h.nodes, n)
	return n
}

func (n *hubNode) Announce(ctx context.Context, name, detail string) error {
	storage.AfterCommit(ctx, func(context.Context) {
		n.hub.mu.Lock()
		nodes := n.hub.nodes
		n.hub.mu.Unlock()
		for _, other := range nodes {
			if other != n {
				other.hear(name, detail)
			}
		}
	})
	return nil
}

func (n *hubNode) OnAnnounce(name string, fn func([]string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fns[name] = append(n.fns[name], fn)
}

func (n *hubNode) hear(name, detail string) {
	n.mu.Lock()
	fns := n.fns[name]
	n.mu.Unlock()
	for _, fn := range fns {
		fn([]string{detail})
	}
}

// node is one host of a cluster.
type node struct {
	*messaging.Service
	leases *lease.Holder
	sent   atomic.Int64
}

// cluster is some hosts on one database, and a receiver.
type cluster struct {
	bundle
	hub hub
	dsn string
}

const clusterTTL = 2 * time.Second

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{dsn: storagetest.Postgres(t)}
	c.db = storagetest.Open(t, c.dsn, storage.Config{})
	if err := c.db.Migrate(t.Context(), lease.Migrations(), sqlstore.Migrations()); err != nil {
		t.Fatal(err)
	}
	c.receiver = messagingtest.New(t)
	return c
}

// start adds a node that reaches the database by dsn.
func (c *cluster) start(t *testing.T, dsn string) *node {
	t.Helper()
	db := storagetest.Open(t, dsn, storage.Config{})
	name := fmt.Sprintf("node-%d", len(c.hub.nodes)+1)
	log := slog.New(slog.NewTextHandler(t.Output(), nil)).With("node", name)
	leases, err := lease.New(db, lease.Config{Node: name, TTL: clusterTTL, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	allow, err := messaging.ParseEgressAllow([]string{"127.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{leases: leases}
	cfg := messaging.Config{
		Store: sqlstore.New(db), Tx: db, Sealer: plainSealer{}, Logger: log, Node: name, Leases: leases, Nodes: c.hub.join(),
		Sender:       messaging.SenderConfig{Egress: messaging.EgressConfig{Allow: allow}},
		OnAttempt:    func(messaging.Delivery, messaging.Attempt) { n.sent.Add(1) },
		PollInterval: 200 * time.Millisecond, QueueWait: time.Second, ClaimMargin: time.Second,
	}
	if n.Service, err = messaging.New(cfg); err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.halt(t) })
	if c.Service == nil {
		c.Service = n.Service
	}
	return n
}

func (n *node) halt(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// settle waits until the nodes hold everything in equal shares.
func settle(t *testing.T, nodes ...*node) {
	t.Helper()
	eventually(t, "the nodes share the partitions", func() bool {
		var all lease.Set
		for _, n := range nodes {
			held := n.leases.Held().Ranges
			if held.Len() < lease.Ranges/len(nodes) {
				return false
			}
			all |= held
		}
		return all == lease.All
	})
}

// unfinished is the number of rows that have not ended.
func (c *cluster) unfinished(t *testing.T) int64 {
	return c.number(t, `SELECT COUNT(*) FROM sys_http_delivery WHERE finished_at IS NULL`)
}

func (c *cluster) drained(t *testing.T) {
	t.Helper()
	eventually(t, "every row has ended", func() bool { return c.unfinished(t) == 0 })
}

// TestClusterSharesTheWork: rows that one node enqueued are sent by all, each
// once, and soon.
func TestClusterSharesTheWork(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	nodes := []*node{c.start(t, c.dsn), c.start(t, c.dsn), c.start(t, c.dsn)}
	settle(t, nodes...)
	var reqs []messaging.Request
	for i := range 300 {
		req := c.request("/in")
		req.RefID, req.OrderingKey = fmt.Sprintf("hook-%d", i%5), fmt.Sprintf("record-%d", i)
		reqs = append(reqs, req)
	}
	c.enqueue(t, reqs...)
	c.drained(t)
	c.sentOnce(t, 300)
	for i, n := range nodes {
		if n.sent.Load() == 0 {
			t.Errorf("node %d sent nothing", i+1)
		}
	}
}

// TestClusterKeepsCapsAndRates: what is set for a target holds for the nodes
// together, as its receiver sees it.
func TestClusterKeepsCapsAndRates(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	settle(t, c.start(t, c.dsn), c.start(t, c.dsn), c.start(t, c.dsn))
	type watch struct {
		mu        sync.Mutex
		now, most int
	}
	var few, many watch
	counting := func(w *watch) messagingtest.Answer {
		return func(e *messagingtest.Exchange) {
			w.mu.Lock()
			w.now++
			w.most = max(w.most, w.now)
			w.mu.Unlock()
			messagingtest.Delay(20*time.Millisecond, func(e *messagingtest.Exchange) {
				w.mu.Lock()
				w.now--
				w.mu.Unlock()
				messagingtest.Status(200, "")(e)
			})(e)
		}
	}
	c.receiver.Handle("/few", counting(&few))
	c.receiver.Handle("/many", counting(&many))
	for _, target := range []messaging.Target{
		{Key: "few", MaxConcurrency: 2}, {Key: "many", MaxConcurrency: 20}, {Key: "rate", RatePerSecond: 40, RateBurst: 5},
	} {
		target.Source = messaging.SourceWebhook
		if err := c.PutTarget(t.Context(), target); err != nil {
			t.Fatal(err)
		}
	}
	var reqs []messaging.Request
	for i := range 120 {
		for _, key := range []string{"few", "many", "rate"} {
			if key == "rate" && i >= 80 {
				continue
			}
			req := c.request("/" + key)
			req.RefID, req.OrderingKey = key, strconv.Itoa(i)
			reqs = append(reqs, req)
		}
	}
	began := time.Now()
	c.enqueue(t, reqs...)
	c.drained(t)
	c.sentOnce(t, len(reqs))
	if few.most > 2 {
		t.Errorf("%d requests at once, want at most 2", few.most)
	}
	if many.most > 20 {
		t.Errorf("%d requests at once, want at most 20", many.most)
	}
	var at []time.Time
	for _, r := range c.receiver.Requests() {
		if r.Path == "/rate" {
			at = append(at, r.At)
		}
	}
	if took := at[len(at)-1].Sub(began); took < time.Duration(80-5)*time.Second/40-100*time.Millisecond {
		t.Errorf("80 requests at 40 a second with a burst of 5 took %s", took)
	}
}

// TestClusterKeepsOrderAcrossRebalances: while nodes come and go, the first
// attempts of each ordering key leave in the order of their events, also those
// of a target that fails now and then; a blocking key's attempts all do.
func TestClusterKeepsOrderAcrossRebalances(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	first := c.start(t, c.dsn)
	fails := make(map[string]bool)
	var mu sync.Mutex
	c.receiver.Handle("/in", func(e *messagingtest.Exchange) {
		id := e.Request.Header.Get("X-Objectstack-Delivery")
		mu.Lock()
		again := fails[id]
		fails[id] = true
		mu.Unlock()
		code := 200
		if !again && e.Request.Body[len(e.Request.Body)-2] == '7' {
			code = 503
		}
		messagingtest.Status(code, "")(e)
	})
	retry := &messaging.RetryPolicy{MaxRetries: 5, InitialDelayMs: 100, MaxDelayMs: 1000, Strategy: "fixed"}
	for _, key := range []string{"free", "blocking"} {
		if err := c.PutTarget(t.Context(), messaging.Target{Source: messaging.SourceWebhook, Key: key, Retry: retry}); err != nil {
			t.Fatal(err)
		}
	}
	const keys, each = 12, 40
	n := 0
	write := func(until int) {
		for ; n < until; n++ {
			var reqs []messaging.Request
			for k := range keys {
				req := c.request("/in")
				req.RefID, req.BlockOnRetry = "free", k%2 == 1
				if req.BlockOnRetry {
					req.RefID = "blocking"
				}
				req.OrderingKey = fmt.Sprintf("key-%d", k)
				req.Payload = fmt.Appendf(nil, `{"key":%d,"n":%d}`, k, n)
				reqs = append(reqs, req)
			}
			if _, err := c.EnqueueBatch(t.Context(), reqs); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(each / 4)
	second := c.start(t, c.dsn)
	write(each / 2)
	third := c.start(t, c.dsn)
	settle(t, first, second, third)
	write(3 * each / 4)
	second.halt(t)
	write(each)
	settle(t, first, third)
	c.drained(t)
	c.sentOnce(t, keys*each*11/10)
	last := make(map[int]int)
	for _, r := range c.receiver.Requests() {
		var body struct{ Key, N int }
		if err := json.Unmarshal(r.Body, &body); err != nil {
			t.Fatal(err)
		}
		blocking := body.Key%2 == 1
		if r.Header.Get("X-Objectstack-Attempt") != "1" && !blocking {
			continue
		}
		if was, ok := last[body.Key]; ok && body.N < was {
			t.Errorf("key %d: row %d was sent after row %d", body.Key, body.N, was)
		}
		last[body.Key] = body.N
	}
	if got := c.number(t, `SELECT COUNT(*) FROM sys_http_delivery WHERE status = 'success'`); got != keys*each {
		t.Errorf("%d rows succeeded, want %d", got, keys*each)
	}
}

// TestClusterTakesOverFromACutNode: a node that loses the database sends
// nothing more of what it did not have in flight, another takes over within
// a lease, and the late outcomes of the first change nothing.
func TestClusterTakesOverFromACutNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	healthy := c.start(t, c.dsn)
	proxy, through := storagetest.ProxyDSN(t, c.dsn)
	cut := c.start(t, through)
	settle(t, healthy, cut)
	proxy.Cut()
	var reqs []messaging.Request
	for i := range 100 {
		req := c.request("/in")
		req.OrderingKey = strconv.Itoa(i)
		reqs = append(reqs, req)
	}
	c.enqueue(t, reqs...)
	c.drained(t)
	c.sentOnce(t, 100)
	if n := healthy.leases.Held().Ranges.Len(); n != lease.Ranges {
		t.Errorf("the healthy node holds %d ranges, want all", n)
	}
	proxy.Restore()
	settle(t, healthy, cut)
	c.enqueue(t, func() (more []messaging.Request) {
		for i := range 100 {
			req := c.request("/in")
			req.OrderingKey = "again-" + strconv.Itoa(i)
			more = append(more, req)
		}
		return more
	}()...)
	c.drained(t)
	c.sentOnce(t, 200)
}
