package postgres

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// path is what is known about the way to the server. On a connection that
// leads to the server itself the process that answers is the one that was
// named when the connection began, while a pooler makes a number up for its
// clients, also when it has one session only. Every new connection is asked:
// one DSN may name several servers, of which some are poolers.
type path struct {
	// known is set once a connection was asked, pooled when one was a pooler's.
	known, pooled atomic.Bool
}

// errPooledNow fails the one connection that is the first to meet a pooler
// after others met none: what it was opened for may be a named statement.
var errPooledNow = errors.New("storage: a pooler stands before the database now")

// probe is called for every new connection.
func (p *path) probe(ctx context.Context, c *pgx.Conn) error {
	if p.pooled.Load() {
		return nil
	}
	var pid uint32
	if err := c.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		return err
	}
	direct := pid == c.PgConn().PID()
	known := p.known.Swap(true)
	if direct {
		return nil
	}
	p.pooled.Store(true)
	if known {
		return errPooledNow
	}
	return nil
}
