// Package pgfanout wakes the nodes of a PostgreSQL database by LISTEN and
// NOTIFY. Notifications carry nothing but topics; events are read from the log.
//
// NOTIFY works through any pooler. LISTEN needs a session of its own, so it
// takes a DSN that leads to the server itself.
package pgfanout

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/postgres"
)

// echoTimeout is how long a listener waits to hear itself.
const echoTimeout = 5 * time.Second

// ErrDeaf is returned by Listen when notifications that were sent through the
// database are not heard: the DSN for listening leads to another database, or
// through a pooler.
var ErrDeaf = errors.New("pgfanout: no notification arrives; the DSN for listening must lead to the same database as the host's own, and not through a pooler")

// Fanout implements driver.Fanout. Hosts belong together when their tables are
// in the same schema of the same database.
type Fanout struct {
	db   *storage.DB
	dsn  string
	node string

	mu      sync.Mutex
	channel string
}

var _ driver.Fanout = (*Fanout)(nil)

// New returns the fanout of a node. db is the database of the log, dsn leads to
// it without a pooler; when dsn is empty the node announces only and hears
// nothing.
func New(db *storage.DB, dsn string) *Fanout {
	return &Fanout{db: db, dsn: dsn, node: uuid.NewString()}
}

// channelOf names the channel after the schema that the tables are in. The DSN
// for listening may have another search path.
func (f *Fanout) channelOf(ctx context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.channel != "" {
		return f.channel, nil
	}
	var schema string
	if err := f.db.Read(ctx).QueryRowContext(ctx, `SELECT coalesce(current_schema(), '')`).Scan(&schema); err != nil {
		return "", fmt.Errorf("pgfanout: read the schema: %w", err)
	}
	sum := sha256.Sum256([]byte(schema))
	f.channel = "objecthost_" + hex.EncodeToString(sum[:8])
	return f.channel, nil
}

// notifySQL needs no wait for the disk: what it tells of is committed.
const notifySQL = `SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)`

func (f *Fanout) notify(ctx context.Context, payload string) error {
	channel, err := f.channelOf(ctx)
	if err != nil {
		return err
	}
	if _, err := f.db.Write(ctx).ExecContext(ctx, notifySQL, channel, payload); err != nil {
		return fmt.Errorf("pgfanout: notify: %w", err)
	}
	return nil
}

// Announce implements [driver.Fanout]. The payload is the node and the topics,
// separated by spaces; it stays below the 8000 bytes that the server takes.
func (f *Fanout) Announce(ctx context.Context, topics []string) error {
	return f.notify(ctx, f.node+" "+strings.Join(topics, " "))
}

// Listen implements [driver.Fanout].
func (f *Fanout) Listen(ctx context.Context, wake func(topics []string)) error {
	if f.dsn == "" {
		<-ctx.Done()
		return ctx.Err()
	}
	channel, err := f.channelOf(ctx)
	if err != nil {
		return err
	}
	// The first notification that a listener hears of itself proves that it
	// hears, and that nothing is missed from then on.
	echo, heard := uuid.NewString(), make(chan struct{})
	return postgres.Listen(ctx, f.dsn, channel, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeoutCause(ctx, echoTimeout, ErrDeaf)
		defer cancel()
		if err := f.notify(ctx, echo); err != nil {
			return err
		}
		select {
		case <-heard:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, func(payload string) {
		if payload == echo {
			close(heard)
			wake(nil)
			return
		}
		node, topics, _ := strings.Cut(payload, " ")
		if node != f.node && topics != "" {
			wake(strings.Fields(topics))
		}
	})
}
