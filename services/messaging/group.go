package messaging

import (
	"context"
	"sync"
	"time"

	"github.com/objecthost/objecthost/services/messaging/driver"
)

const (
	// groupTimeout bounds one group commit.
	groupTimeout = 30 * time.Second
	// groupLinger is how long a commit waits at most for as many callers as
	// shared the last one, who are likely to come again.
	groupLinger = time.Millisecond
)

// groupCommitter lets goroutines that enqueue outside a transaction share
// commits. While one commit runs, later calls gather for the next, so that a
// lone caller never waits and many share few commits.
type groupCommitter struct {
	s *Service

	mu      sync.Mutex
	units   []*unit
	running bool
	// want is the number of units that end the wait for more, ready tells that
	// they are there.
	want  int
	ready chan struct{}
}

// unit is the call of one goroutine: its rows commit together or not at all.
type unit struct {
	rows []*driver.Row
	out  []Enqueued
	err  error
	done chan struct{}
}

func newGroupCommitter(s *Service) *groupCommitter {
	return &groupCommitter{s: s, ready: make(chan struct{}, 1)}
}

// submit returns when the rows are committed, or with the error that they
// alone have. When ctx ends first the rows may be committed all the same.
func (g *groupCommitter) submit(ctx context.Context, rows []*driver.Row) ([]Enqueued, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	u := &unit{rows: rows, done: make(chan struct{})}
	g.mu.Lock()
	g.units = append(g.units, u)
	if !g.running {
		g.running = true
		go g.run()
	}
	if len(g.units) == g.want {
		kick(g.ready)
	}
	g.mu.Unlock()
	select {
	case <-u.done:
		return u.out, u.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (g *groupCommitter) run() {
	last := 0
	for {
		if last > 1 {
			g.gather(last)
		}
		batch := g.take()
		if batch == nil {
			return
		}
		last = len(batch)
		ctx, cancel := context.WithTimeout(context.Background(), groupTimeout)
		g.commit(ctx, batch)
		cancel()
	}
}

// gather waits for so many units, no longer than the linger.
func (g *groupCommitter) gather(units int) {
	g.mu.Lock()
	if len(g.units) >= units {
		g.mu.Unlock()
		return
	}
	g.want = units
	select {
	case <-g.ready: // of an earlier wait that ended by its time
	default:
	}
	g.mu.Unlock()
	timer := time.NewTimer(groupLinger)
	defer timer.Stop()
	select {
	case <-g.ready:
	case <-timer.C:
	}
	g.mu.Lock()
	g.want = 0
	g.mu.Unlock()
}

// take removes the next batch of units; nil ends the run.
func (g *groupCommitter) take() []*unit {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.units) == 0 {
		g.running = false
		return nil
	}
	n, rows := 0, 0
	for n < len(g.units) && (n == 0 || rows+len(g.units[n].rows) <= g.s.cfg.BatchSize) {
		rows += len(g.units[n].rows)
		n++
	}
	batch := g.units[:n:n]
	g.units = g.units[n:]
	return batch
}

// commit stores a batch in one transaction. A batch that is refused is split
// until the refused unit stands alone.
func (g *groupCommitter) commit(ctx context.Context, batch []*unit) {
	var rows []*driver.Row
	for _, u := range batch {
		rows = append(rows, u.rows...)
	}
	var out []Enqueued
	err := g.s.cfg.Tx.InTx(ctx, func(ctx context.Context) (err error) {
		out, err = g.s.insert(ctx, rows)
		return err
	})
	if err != nil && len(batch) > 1 {
		half := len(batch) / 2
		g.commit(ctx, batch[:half])
		g.commit(ctx, batch[half:])
		return
	}
	for _, u := range batch {
		if err == nil {
			u.out, out = out[:len(u.rows):len(u.rows)], out[len(u.rows):]
		}
		u.err = err
		close(u.done)
	}
}
