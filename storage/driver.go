package storage

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun/schema"
)

// Dialect names the SQL that a database speaks.
type Dialect string

// The dialects.
const (
	SQLite   Dialect = "sqlite"
	Postgres Dialect = "postgres"
)

// Querier runs statements. *sql.DB, *sql.Conn and *sql.Tx implement it.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Driver is one dialect's part of a [DB]. Packages postgres and sqlite
// implement it; everything else uses DB. Its methods are safe for concurrent
// use and return the database's errors unwrapped.
type Driver interface {
	// Dialect names the dialect.
	Dialect() Dialect
	// Pools returns the pool that writes and the pool that only reads. They
	// may be the same. A transaction begun on the writer pool holds the
	// write lock at once where the dialect has one.
	Pools() (writer, readers *sql.DB)
	// SingleWriter tells that the writer pool has one connection for which
	// the DB keeps a queue.
	SingleWriter() bool
	// Bun returns a new value of bun's dialect.
	Bun() schema.Dialect
	// Fault classifies an error, through wrapping. An error of another
	// dialect is FaultNone.
	Fault(err error) Fault
	// NowSQL is an expression for the clock's time, not the transaction's,
	// in milliseconds since 1970.
	NowSQL() string
	// ExecScript runs a script of several statements on q.
	ExecScript(ctx context.Context, q Querier, script string) error
	// LockSchema keeps other processes from migrating the same schema until
	// the transaction of q ends.
	LockSchema(ctx context.Context, q Querier) error
	// Settings reads the settings that durability rests on.
	Settings(ctx context.Context) (Settings, error)
	// Lock takes the lock that admits one host. See [DB.Lock].
	Lock(ctx context.Context) (release func() error, err error)
	// Tidy is called after a commit while the writer is still held.
	Tidy(ctx context.Context)
	// Close closes both pools and removes what was temporary.
	Close() error
}

// FaultKind is what kind of trouble a database reported.
type FaultKind int

// The kinds of faults.
const (
	// FaultNone is any error that is none of the others.
	FaultNone FaultKind = iota
	// FaultUnique is a violated unique constraint or primary key.
	FaultUnique
	// FaultConflict is a transaction that lost against another one: a
	// serialization failure or a deadlock. It was rolled back.
	FaultConflict
	// FaultBusy is a lock that was not to be had in time.
	FaultBusy
	// FaultConnection is a connection that was lost or not to be had.
	FaultConnection
	// FaultFull is a disk, file or quota without room.
	FaultFull
)

// Fault is a classified error.
type Fault struct {
	Kind FaultKind
	// Constraint names the violated constraint for FaultUnique: on Postgres
	// its name, on SQLite the columns ("t.a, t.b") or the index's name when
	// the index is over an expression.
	Constraint string
}

// Settings are what the database says about itself. Fields that the dialect
// does not have are empty.
type Settings struct {
	Dialect Dialect
	// Version is the server's or the library's version.
	Version string
	// SQLite: pragma values in words and numbers as SQLite gives them.
	JournalMode string // wal
	Synchronous string // off, normal, full or extra
	ForeignKeys bool
	// Postgres: on or off, and synchronous_commit's further values.
	SynchronousCommit string
	Fsync             string
	FullPageWrites    string
	// Encoding is the character set: UTF-8 or UTF8.
	Encoding string
}
