package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// losses notices when a connection breaks. When one does, the server or the
// network went away and the idle ones are most likely dead too: each is then
// pinged before its next use, so that an outage doesn't cost one failed
// transaction per pooled connection.
type losses struct{ last atomic.Int64 } // UnixNano

// watch wraps a dial function.
func (l *losses) watch(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &watchedConn{Conn: c, losses: l}, nil
	}
}

// pingAfter is how long a connection may be idle and still be used without a
// ping: a server that vanished without a word shows in nothing else. It is longer
// than most pauses of what an idle host does, so that one costs few pings.
// unseenAfter is that time where it doesn't show that the server has closed a
// connection; it is pgx's own.
const (
	pingAfter   = 30 * time.Second
	unseenAfter = time.Second
)

// shouldPing asks for a ping before a pooled connection is used when something
// arrived on it meanwhile, most likely its end, when it was idle for long, or
// when it was last used before a loss.
func (l *losses) shouldPing(_ context.Context, p stdlib.ShouldPingParams) bool {
	return l.doubts(p.Conn.PgConn().Conn(), p.IdleDuration)
}

func (l *losses) doubts(c net.Conn, idle time.Duration) bool {
	if idle > pingAfter || time.Now().Add(-idle).UnixNano() <= l.last.Load() {
		return true
	}
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	if watched, ok := c.(*watchedConn); ok {
		c = watched.Conn
	}
	nothing, known := silent(c)
	if !known {
		return idle > unseenAfter
	}
	return !nothing
}

func (l *losses) note(err error) {
	// Deadlines and the pool's own closing are no losses.
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed) {
		l.last.Store(time.Now().UnixNano())
	}
}

// watchedConn tells losses about its errors.
type watchedConn struct {
	net.Conn
	losses *losses
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.losses.note(err)
	return n, err
}

func (c *watchedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.losses.note(err)
	return n, err
}
