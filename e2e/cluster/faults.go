package cluster

import (
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"syscall"
	"time"

	"github.com/objecthost/objecthost/e2e/receiver"
	"github.com/objecthost/objecthost/storage/lease"
)

const (
	// leaseTTL is the time in which waiting rows are taken over.
	leaseTTL = 10 * time.Second
	// patience bounds the wait for a takeover, that of rows in flight included.
	patience = leaseTTL + timeout + 20*time.Second
)

// fault is one that was done.
type fault struct {
	kind string
	node int // -1 for all
	// start is when it began, healed when the host was let back.
	start, healed time.Time
	// ranges are those that the host held; claims what was in flight on it by
	// the database, by delivery.
	ranges lease.Set
	claims map[string]claim
}

type claim struct {
	node int
	end  time.Time
}

// round does one fault under load, waits until all is drained, and judges.
func (r *runner) round(ctx context.Context, kind string) error {
	r.writers.goOn()
	if err := r.balanced(ctx); err != nil {
		return err
	}
	pause(ctx, between(time.Second, 3*time.Second))
	f := &fault{kind: kind, node: mathrand.IntN(Nodes)}
	do := map[string]func(context.Context, *fault) error{Kill: r.kill, Stop: r.stop, Cut: r.cut, Restart: r.restart}[kind]
	if do == nil {
		return fmt.Errorf("there is no such fault")
	}
	r.faults = append(r.faults, f)
	if err := do(ctx, f); err != nil {
		return err
	}
	pause(ctx, between(time.Second, 2*time.Second))
	r.writers.pause()
	r.drain(ctx)
	if err := r.judge(ctx); err != nil {
		return err
	}
	fmt.Fprintln(r.cfg.Log, r.describe(f))
	return ctx.Err()
}

// balanced waits until the nodes share the ranges evenly.
func (r *runner) balanced(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return r.until(ctx, "the hosts share the partitions", func() (bool, error) {
		all := 0
		for _, n := range r.nodes {
			held, err := r.held(ctx, n)
			if err != nil || held.Len() < lease.Ranges/Nodes {
				return false, err
			}
			all += held.Len()
		}
		return all == lease.Ranges, nil
	})
}

// held are the ranges that a node holds by the database.
func (r *runner) held(ctx context.Context, n *node) (held lease.Set, err error) {
	rows, err := r.db.Read(ctx).QueryContext(ctx, `SELECT range_number FROM sys_lease JOIN sys_node USING (token) WHERE name = $1`, n.name)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var number int
		if err := rows.Scan(&number); err != nil {
			return 0, err
		}
		held |= 1 << number
	}
	return held, rows.Err()
}

// note notes what the faulted node, or all of them, had at that moment.
func (r *runner) note(ctx context.Context, f *fault) error {
	if f.node >= 0 {
		held, err := r.held(ctx, r.nodes[f.node])
		if err != nil {
			return err
		}
		f.ranges = held
	}
	rows, err := r.db.Read(ctx).QueryContext(ctx, `SELECT id, claimed_by, claim_expires_at FROM sys_http_delivery WHERE status = 'in_flight'`)
	if err != nil {
		return err
	}
	defer rows.Close()
	f.claims = make(map[string]claim)
	for rows.Next() {
		var id, name string
		var end int64
		if err := rows.Scan(&id, &name, &end); err != nil {
			return err
		}
		if n := r.names[name]; f.node < 0 || name == r.nodes[f.node].name {
			f.claims[id] = claim{node: n, end: time.UnixMilli(end)}
		}
	}
	return rows.Err()
}

// takenOver waits until others deliver in every range of the faulted node,
// and until nothing is in flight on it any more.
func (r *runner) takenOver(ctx context.Context, f *fault) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	name := r.nodes[f.node].name
	err := r.until(ctx, "the ranges are taken over", func() (bool, error) {
		var claimed int
		if err := r.db.Read(ctx).QueryRowContext(ctx, `SELECT COUNT(*) FROM sys_http_delivery WHERE claimed_by = $1`, name).Scan(&claimed); err != nil || claimed > 0 {
			return false, err
		}
		rows, err := r.deliveries(ctx)
		if err != nil {
			return false, err
		}
		return f.takeover(rows, r.receiver.All()).all == f.ranges, nil
	})
	if ctx.Err() != nil {
		return nil // the judge tells
	}
	return err
}

func (r *runner) kill(ctx context.Context, f *fault) error {
	n := r.nodes[f.node]
	f.start = time.Now()
	n.host.Kill()
	if err := r.note(ctx, f); err != nil {
		return err
	}
	if err := r.takenOver(ctx, f); err != nil {
		return err
	}
	f.healed = time.Now()
	return r.start(ctx, n)
}

func (r *runner) cut(ctx context.Context, f *fault) error {
	f.start = time.Now()
	if err := r.net.cut(ctx, f.node); err != nil {
		return err
	}
	if err := r.note(ctx, f); err != nil {
		return err
	}
	if err := r.takenOver(ctx, f); err != nil {
		return err
	}
	f.healed = time.Now()
	return r.net.mend(ctx, f.node)
}

// restart stops the database, in good order or as a crash, and starts it after
// a while.
func (r *runner) restart(ctx context.Context, f *fault) error {
	how := []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT}[mathrand.IntN(2)]
	f.node, f.start = -1, time.Now()
	if err := r.note(ctx, f); err != nil { // what is claimed before it is down
		return err
	}
	before := f.claims
	if err := r.server.Stop(how); err != nil {
		return err
	}
	pause(ctx, between(0, 5*time.Second))
	if err := r.server.Start(ctx); err != nil {
		return err
	}
	f.healed = time.Now()
	if err := r.until(ctx, "the database answers", func() (bool, error) { return true, r.note(ctx, f) }); err != nil {
		return err
	}
	// What was claimed meanwhile stands in the database now.
	for id, c := range before {
		if _, known := f.claims[id]; !known {
			f.claims[id] = c
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return r.until(ctx, "deliveries go on", func() (bool, error) {
		all := r.receiver.All()
		return len(all) > 0 && all[len(all)-1].At.After(f.healed), nil
	})
}

// stop stops a host that has requests open, and wakes it when one of these is
// in flight at another host: what it does then must not count.
func (r *runner) stop(ctx context.Context, f *fault) error {
	n := r.nodes[f.node]
	held, err := r.stopWithRequests(ctx, f)
	if err != nil {
		return err
	}
	if err := r.note(ctx, f); err != nil {
		return err
	}
	repeat, err := r.awaitRepeat(ctx, f, held)
	if err != nil {
		return err
	}
	f.healed = time.Now()
	if err := n.host.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	if repeat != "" {
		// It has given up the request, and has told what became of its outcome.
		waking, cancel := context.WithTimeout(ctx, timeout/2)
		defer cancel()
		_ = r.until(waking, "the host that woke up has an outcome", func() (bool, error) {
			return strings.Contains(n.host.Output(), "delivery_id="+repeat), nil
		})
	}
	return r.receiver.Release()
}

// stopWithRequests stops the host at a moment when requests of its are open
// that will not be answered, and returns their deliveries.
func (r *runner) stopWithRequests(ctx context.Context, f *fault) (held map[string]bool, err error) {
	for range 50 {
		if err := r.awaitOpen(ctx, f.node); err != nil {
			return nil, err
		}
		f.start = time.Now()
		if err := r.nodes[f.node].host.Signal(syscall.SIGSTOP); err != nil {
			return nil, err
		}
		if err := r.receiver.Hold(); err != nil {
			return nil, err
		}
		held := make(map[string]bool)
		for _, a := range r.receiver.All() {
			if a.Held && a.Node == f.node && !a.Gone && a.At.Before(f.start) {
				held[a.Delivery] = true
			}
		}
		if len(held) > 0 {
			return held, nil
		}
		if err := r.receiver.Release(); err != nil {
			return nil, err
		}
		if err := r.nodes[f.node].host.Signal(syscall.SIGCONT); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the host never had a request open that could be held")
}

// awaitOpen waits for a request of a node that is open and can be held.
func (r *runner) awaitOpen(ctx context.Context, node int) error {
	seen := len(r.receiver.All())
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		arrivals, changed := r.receiver.From(seen)
		for _, a := range arrivals {
			if a.Node == node && a.Path == slow && a.Status == 0 && !a.Gone {
				return nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("no request of host %d came: %w", node, ctx.Err())
		}
	}
}

// awaitRepeat waits until a delivery that is held comes again, from another
// host, and until the takeover; it returns the delivery, "" when none came.
func (r *runner) awaitRepeat(ctx context.Context, f *fault, held map[string]bool) (string, error) {
	seen := len(r.receiver.All())
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		arrivals, changed := r.receiver.From(seen)
		for _, a := range arrivals {
			if held[a.Delivery] && a.Node != f.node {
				return a.Delivery, nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", nil // the judge tells
		}
	}
}

// drain waits until every change has been delivered and every row has ended,
// or for cfg.Settle.
func (r *runner) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Settle)
	defer cancel()
	_ = r.until(ctx, "all is delivered", func() (bool, error) {
		if len(r.missing(r.receiver.All())) > 0 {
			return false, nil
		}
		var open int
		err := r.db.Read(ctx).QueryRowContext(ctx, `SELECT COUNT(*) FROM sys_http_delivery WHERE status <> 'success'`).Scan(&open)
		return open == 0, err
	})
}

// missing are the acknowledged changes that some webhook's receiver has not
// answered with success.
func (r *runner) missing(arrivals []receiver.Arrival) (missing []string) {
	done := make(map[string]bool)
	for _, a := range arrivals {
		if a.Status == 200 {
			done[a.Path+" "+a.Mark] = true
		}
	}
	for mark, c := range r.writers.all() {
		for _, h := range hooks {
			if c.acknowledged && h.wants(c) && !done[h.path+" "+mark] {
				missing = append(missing, h.path+" "+mark)
			}
		}
	}
	return missing
}

// wants tells that a webhook is triggered by a change.
func (h *hook) wants(c change) bool {
	for _, t := range h.triggers {
		if c.object == h.object && strings.HasPrefix(c.action, t) {
			return true
		}
	}
	return false
}
