package postgres

import (
	"context"
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

// shouldPing asks for a ping before a pooled connection is used when it was
// idle for a second, as pgx does by itself, or was last used before a loss.
func (l *losses) shouldPing(_ context.Context, p stdlib.ShouldPingParams) bool {
	lastUse := time.Now().Add(-p.IdleDuration)
	return p.IdleDuration > time.Second || lastUse.UnixNano() <= l.last.Load()
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
