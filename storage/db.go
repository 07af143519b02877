package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/uptrace/bun"
)

// Transactor opens transactions. [*DB] and [*Memory] implement it.
type Transactor interface {
	InTx(ctx context.Context, fn func(ctx context.Context) error) error
}

var (
	_ Transactor = (*DB)(nil)
	_ Transactor = (*Memory)(nil)
)

// DB is an open database. It is safe for concurrent use. Package dsn opens one.
type DB struct {
	driver    Driver
	cfg       Config
	writer    *sql.DB
	readers   *sql.DB
	bunWriter *bun.DB
	bunReader *bun.DB
	queue     *writerQueue // nil where the database has many writers

	close    sync.Once
	closeErr error
}

// New makes a DB of an open driver, which it closes in [DB.Close]. cfg has
// its defaults set.
func New(driver Driver, cfg Config) *DB {
	db := &DB{driver: driver, cfg: cfg}
	db.writer, db.readers = driver.Pools()
	db.bunWriter = bun.NewDB(db.writer, driver.Bun())
	db.bunReader = db.bunWriter
	if db.readers != db.writer {
		db.bunReader = bun.NewDB(db.readers, driver.Bun())
	}
	if driver.SingleWriter() {
		db.queue = newWriterQueue(cfg.WriterWait)
	}
	faults.Store(driver.Dialect(), driver.Fault)
	return db
}

// Dialect names the SQL that the database speaks.
func (db *DB) Dialect() Dialect { return db.driver.Dialect() }

// File is the path of a SQLite database's file, also of a temporary one; it is
// empty on Postgres.
func (db *DB) File() string {
	if f, ok := db.driver.(interface{ Path() string }); ok {
		return f.Path()
	}
	return ""
}

// Close closes the database. Work that is under way fails. It may be called
// more than once.
func (db *DB) Close() error {
	db.close.Do(func() { db.closeErr = db.driver.Close() })
	return db.closeErr
}

// Ping tells whether the database answers.
func (db *DB) Ping(ctx context.Context) error {
	var one int
	if err := db.readers.QueryRowContext(ctx, "SELECT 1").Scan(&one); err != nil {
		return fmt.Errorf("storage: ping: %w", err)
	}
	return nil
}

// Stats returns the numbers of the pools that write and that read; they are
// the same where one pool does both.
func (db *DB) Stats() (writer, readers sql.DBStats) {
	return db.writer.Stats(), db.readers.Stats()
}

// Settings reads back the settings that durability rests on.
func (db *DB) Settings(ctx context.Context) (Settings, error) {
	s, err := db.driver.Settings(ctx)
	if err != nil {
		return Settings{}, fmt.Errorf("storage: read settings: %w", err)
	}
	return s, nil
}

// Lock takes the lock that a host holds while it serves, so that a SQLite file
// has one host. It doesn't wait: when another process, or another DB in this
// one, has the lock, the error is a *LockedError. Programs that only open the
// database don't need it. On Postgres, which takes many hosts, it does nothing.
// release may be called more than once; [DB.Close] doesn't call it.
func (db *DB) Lock(ctx context.Context) (release func() error, err error) {
	give, err := db.driver.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return sync.OnceValue(give), nil
}

// Hot marks the arguments of a statement that runs often and whose text is
// constant: the database then plans it once per connection where it can. Use
// it as db.Write(ctx).QueryContext(ctx, text, db.Hot(args...)...).
func (db *DB) Hot(args ...any) []any {
	if hot, ok := db.driver.(interface{ Hot(args []any) []any }); ok {
		return hot.Hot(args)
	}
	return args
}

// Direct tells that connections lead to the database itself. It is false where
// a pooler, such as PgBouncer, stands before a Postgres server: then sessions
// are shared, and nothing may be left in them or expected of them.
func (db *DB) Direct() bool {
	d, ok := db.driver.(interface{ Direct() bool })
	return !ok || d.Direct()
}

// NowSQL is an SQL expression for the database's clock in milliseconds since
// 1970, a whole number. It moves on inside a transaction.
func (db *DB) NowSQL() string { return db.driver.NowSQL() }

// BoundedSQL is an SQL condition that always holds, and ends the transaction when
// this process leaves it idle for so long, a whole number of seconds. A transaction that locks what other
// processes need has it, once, in its first statement: a process that is stopped
// or cut off in the middle would keep the locks for as long as its connection
// lives, which may be hours. SQLite needs no such thing, where a process has the
// file for itself.
func (db *DB) BoundedSQL(idle time.Duration) string {
	if db.Dialect() != Postgres {
		return "TRUE"
	}
	// As a sub-select it is run once, and not for each row.
	return fmt.Sprintf("(SELECT set_config('idle_in_transaction_session_timeout', '%ds', true) IS NOT NULL)", idle/time.Second)
}

// NowMillis reads the database's clock in milliseconds since 1970.
func (db *DB) NowMillis(ctx context.Context) (int64, error) {
	var now int64
	if err := db.Read(ctx).QueryRowContext(ctx, "SELECT "+db.NowSQL()).Scan(&now); err != nil {
		return 0, fmt.Errorf("storage: read the clock: %w", err)
	}
	return now, nil
}

// Read returns what to read with: the transaction of ctx when it carries one
// of this database, else the pool of readers.
func (db *DB) Read(ctx context.Context) Querier {
	if s := db.scope(ctx); s != nil {
		return s
	}
	return db.readers
}

// Write returns what to write with: the transaction of ctx when it carries one
// of this database, else the writer, where each statement is a transaction of
// its own. Rows of a query on SQLite's writer hold it until they are closed.
func (db *DB) Write(ctx context.Context) Querier {
	if s := db.scope(ctx); s != nil {
		return s
	}
	if db.queue != nil {
		return queuedWriter{db}
	}
	return db.writer
}

// Bun returns bun on the transaction of ctx when it carries one of this
// database, else on the writer. Its BeginTx and RunInTx return ErrUseInTx.
func (db *DB) Bun(ctx context.Context) bun.IDB {
	return session{db: db.bunWriter, conn: db.Write(ctx)}
}

// BunRead is like Bun with the readers instead of the writer.
func (db *DB) BunRead(ctx context.Context) bun.IDB {
	return session{db: db.bunReader, conn: db.Read(ctx)}
}

// failedRow gives a *sql.Row that holds an error, which database/sql has no
// constructor for: the row of a pool that fails to connect with that error.
func failedRow(err error) *sql.Row {
	return failing.QueryRowContext(context.WithValue(context.Background(), failKey{}, err), "")
}

type failKey struct{}

var errNoFailure = errors.New("storage: no error given")

var failing = sql.OpenDB(failConnector{})
