// Package postgres is storage's driver for PostgreSQL, through pgx. It keeps
// no session state and, where a pooler may share the session, names no
// statements, so that it works behind one in transaction mode.
package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/schema"

	"github.com/objecthost/objecthost/storage"
)

// Driver implements storage.Driver on one pool.
type Driver struct {
	pool *sql.DB
	path *path
}

var _ storage.Driver = (*Driver)(nil)

// Open connects to the database of a postgres:// DSN. Parameters that pgx
// doesn't know, such as search_path, are sent to the server. Without an sslmode
// a connection to this machine is not encrypted unless the server asks for it.
//
// An error for which storage.IsConnectionLost is true means that the server
// isn't there yet. No error holds the DSN's password.
func Open(ctx context.Context, dsn string, cfg storage.Config) (*storage.DB, error) {
	cfg, err := cfg.WithDefaults(storage.Postgres)
	if err != nil {
		return nil, err
	}
	pc, err := pgx.ParseConfig(withoutNeedlessTLS(dsn))
	if err != nil {
		return nil, fmt.Errorf("storage: parse the Postgres DSN: %w", err)
	}
	pc.DefaultQueryExecMode = pgx.QueryExecModeExec
	pc.StatementCacheCapacity, pc.DescriptionCacheCapacity = hotStatements, 0
	if pc.ConnectTimeout == 0 {
		pc.ConnectTimeout = cfg.ConnectTimeout
	}
	if pc.RuntimeParams["application_name"] == "" {
		pc.RuntimeParams["application_name"] = "objecthost"
	}
	lost := new(losses)
	pc.DialFunc = lost.watch(pc.DialFunc)
	way := new(path)
	d := &Driver{path: way, pool: stdlib.OpenDB(*pc, stdlib.OptionShouldPing(lost.shouldPing), stdlib.OptionAfterConnect(way.probe))}
	d.pool.SetMaxOpenConns(cfg.MaxConns)
	d.pool.SetMaxIdleConns(cfg.MaxConns)
	d.pool.SetConnMaxIdleTime(cfg.ConnMaxIdle)
	d.pool.SetConnMaxLifetime(time.Hour)
	db := storage.New(d, cfg)
	if err := d.pool.PingContext(ctx); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("storage: connect to Postgres: %w", err)
	}
	return db, nil
}

// hotStatements is the number of prepared statements that a connection keeps.
const hotStatements = 64

// Hot has a statement prepared once per connection, unless a pooler stands in
// between. See [storage.DB.Hot].
func (d *Driver) Hot(args []any) []any {
	if !d.Direct() {
		return args
	}
	return append([]any{pgx.QueryExecModeCacheStatement}, args...)
}

// Direct tells whether connections lead to the server itself, and not to a
// pooler that may give each transaction another session.
func (d *Driver) Direct() bool { return !d.path.pooled.Load() }

// Dialect implements storage.Driver.
func (d *Driver) Dialect() storage.Dialect { return storage.Postgres }

// Pools implements storage.Driver.
func (d *Driver) Pools() (writer, readers *sql.DB) { return d.pool, d.pool }

// SingleWriter implements storage.Driver.
func (d *Driver) SingleWriter() bool { return false }

// Bun implements storage.Driver.
func (d *Driver) Bun() schema.Dialect { return pgdialect.New() }

// NowSQL implements storage.Driver.
func (d *Driver) NowSQL() string {
	return "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
}

// ExecScript implements storage.Driver. The simple protocol takes several
// statements at once.
func (d *Driver) ExecScript(ctx context.Context, q storage.Querier, script string) error {
	_, err := q.ExecContext(ctx, script, pgx.QueryExecModeSimpleProtocol)
	return err
}

// lockClass is the first half of the advisory lock's key; the second is the
// schema, so that hosts of different schemas don't wait for each other.
const lockClass = 0x6f626a68 // "objh"

// LockSchema implements storage.Driver. The lock belongs to the transaction,
// not to the session, which a pooler may share.
func (d *Driver) LockSchema(ctx context.Context, q storage.Querier) error {
	if _, err := q.ExecContext(ctx, "SET LOCAL statement_timeout = 0"); err != nil {
		return err
	}
	_, err := q.ExecContext(ctx,
		"SELECT pg_advisory_xact_lock($1::int4, hashtext(coalesce(current_schema(), '')))", lockClass)
	return err
}

// Settings implements storage.Driver.
func (d *Driver) Settings(ctx context.Context) (storage.Settings, error) {
	s := storage.Settings{Dialect: storage.Postgres}
	err := d.pool.QueryRowContext(ctx, `SELECT current_setting('server_version'),
		current_setting('synchronous_commit'), current_setting('fsync'),
		current_setting('full_page_writes'), current_setting('server_encoding')`).
		Scan(&s.Version, &s.SynchronousCommit, &s.Fsync, &s.FullPageWrites, &s.Encoding)
	return s, err
}

// Lock implements storage.Driver: any number of hosts may serve.
func (d *Driver) Lock(context.Context) (release func() error, err error) {
	return func() error { return nil }, nil
}

// Tidy implements storage.Driver.
func (d *Driver) Tidy(context.Context) {}

// Close implements storage.Driver.
func (d *Driver) Close() error { return d.pool.Close() }

// Fault implements storage.Driver.
func (d *Driver) Fault(err error) storage.Fault {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return faultOf(pg)
	}
	var connect *pgconn.ConnectError
	var network net.Error
	switch {
	case errors.As(err, &connect), errors.Is(err, errPooledNow), errors.Is(err, driver.ErrBadConn), errors.Is(err, pgconn.ErrConnClosed),
		errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return storage.Fault{Kind: storage.FaultConnection}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return storage.Fault{}
	case errors.As(err, &network), pgconn.SafeToRetry(err):
		return storage.Fault{Kind: storage.FaultConnection}
	}
	return storage.Fault{}
}

// faultOf classifies by SQLSTATE,
// https://www.postgresql.org/docs/current/errcodes-appendix.html.
func faultOf(pg *pgconn.PgError) storage.Fault {
	switch pg.Code {
	case "23505": // unique_violation
		return storage.Fault{Kind: storage.FaultUnique, Constraint: pg.ConstraintName}
	case "40001", "40P01": // serialization_failure, deadlock_detected
		return storage.Fault{Kind: storage.FaultConflict}
	case "53100", "53200": // disk_full, out_of_memory
		return storage.Fault{Kind: storage.FaultFull}
	case "55P03": // lock_not_available
		return storage.Fault{Kind: storage.FaultBusy}
	case "57P01", "57P02", "57P03", "57P05", // shutdown, crash, starting, idle session
		"53300", "25P03": // too many connections, idle in transaction
		return storage.Fault{Kind: storage.FaultConnection}
	}
	if strings.HasPrefix(pg.Code, "08") {
		return storage.Fault{Kind: storage.FaultConnection}
	}
	return storage.Fault{}
}
