package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// writeTimeout is how long a caller waits for a host, and how long it then
	// leaves it alone, as a load balancer does.
	writeTimeout = 2 * time.Second
	// account writers make a change each accountEvery; one writer makes a ticket
	// each ticketEvery.
	accountWriters = 2
	accountEvery   = 100 * time.Millisecond
	ticketEvery    = 160 * time.Millisecond
	// records is how many records a writer changes in turn.
	records = 12
)

// change is a write of a record as its writer knows it.
type change struct {
	object, action string
	acknowledged   bool
}

// writers change records through the hosts in turn, at a steady rate. Every
// change has a mark of its own.
type writers struct {
	nodes []*node

	mu      sync.Mutex
	changes map[string]*change // by mark
	paused  chan struct{}      // closed to go on, nil while running
	writing sync.RWMutex       // held while a write is under way
	group   sync.WaitGroup
	next    atomic.Int64
}

func newWriters(nodes []*node) *writers {
	w := &writers{nodes: nodes, changes: make(map[string]*change)}
	return w
}

// run makes changes until ctx ends.
func (w *writers) run(ctx context.Context) {
	for n := range accountWriters {
		w.group.Go(func() { w.accounts(ctx, n) })
	}
	w.group.Go(func() { w.tickets(ctx) })
}

// accounts creates records and changes them, each many times.
func (w *writers) accounts(ctx context.Context, writer int) {
	var ids []string
	tick := time.NewTicker(accountEvery)
	defer tick.Stop()
	for n := 0; w.await(ctx, tick.C); n++ {
		mark := fmt.Sprintf("a%d-%d", writer, n)
		if len(ids) < records || rand.IntN(3) == 0 {
			if id, ok := w.write(ctx, "account", "", mark); ok {
				if len(ids) == records {
					ids = ids[1:]
				}
				ids = append(ids, id)
			}
			continue
		}
		i := rand.IntN(len(ids))
		if _, ok := w.write(ctx, "account", ids[i], mark); !ok {
			// Whether it is changed is not known, and it may be locked.
			ids = append(ids[:i], ids[i+1:]...)
		}
	}
}

// tickets creates records one after the other, so that their events have one
// order.
func (w *writers) tickets(ctx context.Context) {
	tick := time.NewTicker(ticketEvery)
	defer tick.Stop()
	for n := 0; w.await(ctx, tick.C); n++ {
		w.write(ctx, "ticket", "", fmt.Sprintf("t-%d", n))
	}
}

// await waits for the next turn; false when ctx has ended.
func (w *writers) await(ctx context.Context, tick <-chan time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-tick:
	}
	w.mu.Lock()
	paused := w.paused
	w.mu.Unlock()
	if paused == nil {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-paused:
		return true
	}
}

// pause stops writing until goOn, and returns when no write is under way.
func (w *writers) pause() {
	w.mu.Lock()
	if w.paused == nil {
		w.paused = make(chan struct{})
	}
	w.mu.Unlock()
	w.writing.Lock()
	defer w.writing.Unlock()
}

func (w *writers) goOn() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paused != nil {
		close(w.paused)
		w.paused = nil
	}
}

// write creates a record, or changes the one with id. A call without an answer
// is no promise.
func (w *writers) write(ctx context.Context, object, id, mark string) (string, bool) {
	w.writing.RLock()
	defer w.writing.RUnlock()
	w.mu.Lock()
	paused := w.paused != nil
	w.mu.Unlock()
	n := w.pick()
	if n == nil || paused {
		return "", false
	}
	c := &change{object: object, action: "created"}
	method, path, want := http.MethodPost, "/data/"+object, http.StatusCreated
	body := map[string]any{"name": mark, "mark": mark}
	if id != "" {
		c.action, method, path, want = "updated", http.MethodPatch, path+"/"+id, http.StatusOK
		delete(body, "name")
	}
	w.mu.Lock()
	w.changes[mark] = c
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	status, answer, err := n.api().Call(ctx, method, path, body)
	if err != nil || status != want {
		n.avoid(writeTimeout)
		return "", false
	}
	var made struct{ ID string }
	if err := json.Unmarshal(answer, &made); err != nil {
		return "", false
	}
	w.mu.Lock()
	c.acknowledged = true
	w.mu.Unlock()
	return made.ID, true
}

// pick is the next host in turn that is not avoided, nil when all are.
func (w *writers) pick() *node {
	for range w.nodes {
		n := w.nodes[int(w.next.Add(1))%len(w.nodes)]
		if !n.avoided() {
			return n
		}
	}
	return nil
}

// all is a copy of the changes.
func (w *writers) all() map[string]change {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make(map[string]change, len(w.changes))
	for mark, c := range w.changes {
		out[mark] = *c
	}
	return out
}
