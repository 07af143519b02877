package messaging

import (
	"context"
	"net/http"
	"os"
	"sync"
	"time"
)

// wireKey is what connections are kept by.
type wireKey struct {
	scheme, addr string
}

// wirePool makes exchanges over connections that it keeps, within the limits of
// maxIdlePerHost, maxIdle and idleTimeout. It is safe for concurrent use.
type wirePool struct {
	guard *guard

	mu sync.Mutex
	// idle holds each destination's connections in the order in which they came
	// back; the last is taken first, so that those in excess grow old.
	idle map[wireKey][]*wireConn
	// oldest and newest are the ends of the list of all idle connections.
	oldest, newest *wireConn
	count          int
	// reaper runs while armed, and then when the oldest has been idle too long.
	reaper *time.Timer
	armed  bool
	closed bool
}

func newWirePool(g *guard) *wirePool {
	return &wirePool{guard: g, idle: make(map[wireKey][]*wireConn)}
}

// roundTrip sends a request over a kept connection or over a new one, and once
// more over a new one where the kept one turns out to be closed. The body of the
// answer must be closed.
func (p *wirePool) roundTrip(ctx context.Context, x *wireRequest) (*http.Response, error) {
	x.pool = p
	if err := inTime(ctx, x.rec); err != nil {
		return nil, err
	}
	c := p.take(wireKey{x.req.URL.Scheme, x.dest.addr})
	kept := c != nil
	if !kept {
		var err error
		if c, err = p.dial(ctx, x); err != nil {
			return nil, err
		}
	}
	x.rec.connection(c.remote, kept)
	resp, err := c.roundTrip(ctx, x, false)
	if err == nil || inTime(ctx, x.rec) != nil || !x.rec.stale() {
		return resp, err
	}
	x.rec.reset()
	if c, err = p.dial(ctx, x); err != nil {
		return nil, err
	}
	x.rec.connection(c.remote, false)
	return c.roundTrip(ctx, x, true)
}

// inTime returns why an exchange may not begin.
func inTime(ctx context.Context, rec *recorder) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !time.Now().Before(rec.deadline) {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// dial opens a connection through the guard, which finds the recorder in the
// context.
func (p *wirePool) dial(ctx context.Context, x *wireRequest) (*wireConn, error) {
	ctx = context.WithValue(ctx, recorderKey{}, x.rec)
	open := p.guard.DialContext
	if x.req.URL.Scheme == "https" {
		open = p.guard.DialTLSContext
	}
	conn, err := open(ctx, "tcp", x.dest.addr)
	if err != nil {
		return nil, err
	}
	return newWireConn(conn, wireKey{x.req.URL.Scheme, x.dest.addr}), nil
}

// take returns an idle connection that can be used, nil when there is none.
func (p *wirePool) take(key wireKey) *wireConn {
	for {
		p.mu.Lock()
		conns := p.idle[key]
		if len(conns) == 0 {
			p.mu.Unlock()
			return nil
		}
		c := conns[len(conns)-1]
		p.removeLocked(c, len(conns)-1)
		p.mu.Unlock()
		if c.fresh() {
			return c
		}
		c.close()
	}
}

// put keeps a connection, or closes one: that which would be too many for its
// destination, or the one that has been idle for the longest time.
func (p *wirePool) put(c *wireConn) {
	if over := p.keep(c); over != nil {
		over.close()
	}
}

// keep returns the connection to close instead, if any.
func (p *wirePool) keep(c *wireConn) (over *wireConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle[c.key]) >= maxIdlePerHost {
		return c
	}
	if p.count >= maxIdle {
		over = p.oldest
		p.removeLocked(over, 0) // the oldest of all is the first of its destination
	}
	c.ctx, c.idleSince = nil, time.Now()
	p.idle[c.key] = append(p.idle[c.key], c)
	if c.prev = p.newest; c.prev != nil {
		c.prev.next = c
	} else {
		p.oldest = c
	}
	p.newest = c
	p.count++
	p.armLocked(idleTimeout)
	return over
}

// removeLocked takes the connection at index i of its destination out.
func (p *wirePool) removeLocked(c *wireConn, i int) {
	conns := p.idle[c.key]
	copy(conns[i:], conns[i+1:])
	conns[len(conns)-1] = nil
	if conns = conns[:len(conns)-1]; len(conns) == 0 {
		delete(p.idle, c.key)
	} else {
		p.idle[c.key] = conns
	}
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		p.oldest = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		p.newest = c.prev
	}
	c.prev, c.next = nil, nil
	p.count--
}

// armLocked has the reaper run in a while, unless it is going to anyway.
func (p *wirePool) armLocked(in time.Duration) {
	switch {
	case p.armed:
		return
	case p.reaper == nil:
		p.reaper = time.AfterFunc(in, p.reap)
	default:
		p.reaper.Reset(in)
	}
	p.armed = true
}

// reap closes what has been idle for too long.
func (p *wirePool) reap() {
	p.mu.Lock()
	p.armed = false
	var old []*wireConn
	for p.oldest != nil {
		if left := idleTimeout - time.Since(p.oldest.idleSince); left > 0 {
			p.armLocked(left)
			break
		}
		old = append(old, p.oldest)
		p.removeLocked(p.oldest, 0)
	}
	p.mu.Unlock()
	for _, c := range old {
		c.close()
	}
}

// CloseIdleConnections closes the connections that no request uses.
func (p *wirePool) CloseIdleConnections() {
	p.mu.Lock()
	var all []*wireConn
	for p.oldest != nil {
		all = append(all, p.oldest)
		p.removeLocked(p.oldest, 0)
	}
	p.mu.Unlock()
	for _, c := range all {
		c.close()
	}
}

// close closes idle connections, and from now on those that come back.
func (p *wirePool) close() {
	p.mu.Lock()
	p.closed = true
	if p.reaper != nil {
		p.reaper.Stop()
	}
	p.mu.Unlock()
	p.CloseIdleConnections()
}
