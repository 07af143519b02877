// Package sqlite is storage's driver for SQLite files: one connection that
// writes, several that read beside it, WAL, and full durability.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"

	"github.com/objecthost/objecthost/storage"
)

// Memory is the path of a private temporary database that Close removes.
const Memory = ":memory:"

// Driver implements storage.Driver on one file.
type Driver struct {
	walLimit  int64         // bytes
	tidyEvery time.Duration // the least time between two cuts of the WAL
	path      string
	tempDir   string // set for Memory
	writer    *sql.DB
	readers   *sql.DB

	tidyMu sync.Mutex
	tidied time.Time
}

var _ storage.Driver = (*Driver)(nil)

// Open opens the file at path, creating it when it doesn't exist. Memory gives
// a private temporary file: a real in-memory database can't have a writer and
// readers with the file's locking.
func Open(ctx context.Context, path string, cfg storage.Config) (*storage.DB, error) {
	return openWith(ctx, path, cfg, walLimit, time.Second)
}

func openWith(ctx context.Context, path string, cfg storage.Config, walLimit int64, tidyEvery time.Duration) (*storage.DB, error) {
	cfg, err := cfg.WithDefaults(storage.SQLite)
	if err != nil {
		return nil, err
	}
	d := &Driver{path: path, walLimit: walLimit, tidyEvery: tidyEvery}
	switch path {
	case "":
		return nil, errors.New("storage: the SQLite DSN names no file")
	case Memory:
		if d.tempDir, err = os.MkdirTemp("", "objecthost-"); err != nil {
			return nil, fmt.Errorf("storage: make a temporary database: %w", err)
		}
		d.path = filepath.Join(d.tempDir, "memory.db")
	default:
		if d.path, err = filepath.Abs(path); err != nil {
			return nil, fmt.Errorf("storage: open %s: %w", path, err)
		}
	}
	if err := d.open(ctx, cfg); err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("storage: open %s: %w", path, err)
	}
	return storage.New(d, cfg), nil
}

func (d *Driver) open(ctx context.Context, cfg storage.Config) (err error) {
	registerDecimal()
	d.writer = sql.OpenDB(connector{d.dsn(cfg, false)})
	d.writer.SetMaxOpenConns(1)
	d.writer.SetMaxIdleConns(1)
	d.readers = sql.OpenDB(connector{d.dsn(cfg, true)})
	d.readers.SetMaxOpenConns(cfg.MaxConns)
	d.readers.SetMaxIdleConns(cfg.MaxConns)
	d.readers.SetConnMaxIdleTime(cfg.ConnMaxIdle)
	return d.settle(ctx, cfg)
}

// pageSize is the size in bytes of the pages of a new file. Rows of the outbox
// have one to two kilobytes and are written three times: with SQLite's 4096
// bytes the same work takes about a sixth more of the processor.
const pageSize = 8192

// settle creates the file and makes the first connections. The writer comes
// before the readers: it turns on WAL. SQLite does not wait for others that do
// the same at the same time.
func (d *Driver) settle(ctx context.Context, cfg storage.Config) error {
	const pause = 5 * time.Millisecond
	for until := time.Now().Add(cfg.WriterWait); ; {
		err := d.create(ctx, cfg)
		for _, pool := range []*sql.DB{d.writer, d.readers} {
			if err == nil {
				err = pool.PingContext(ctx)
			}
		}
		if err == nil || d.Fault(err).Kind != storage.FaultBusy || time.Now().After(until) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// create gives a file that is not there or empty its page size, which it keeps:
// the size cannot be changed any more in WAL mode.
func (d *Driver) create(ctx context.Context, cfg storage.Config) error {
	if file, err := os.Stat(d.path); err == nil && file.Size() > 0 {
		return nil
	}
	u := url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(d.path), RawQuery: fmt.Sprintf("_pragma=busy_timeout(%d)", cfg.WriterWait.Milliseconds())}
	file := sql.OpenDB(connector{u.String()})
	file.SetMaxOpenConns(1) // the page size is the connection's until the file is written
	_, err := file.ExecContext(ctx, fmt.Sprintf("PRAGMA page_size = %d; BEGIN IMMEDIATE; COMMIT", pageSize))
	return errors.Join(err, file.Close())
}

// walLimit is the size in bytes above which the WAL is cut, and that it keeps
// when it starts anew.
const walLimit = 16 << 20

// dsn gives the connection's pragmas. The driver runs busy_timeout first and
// the others in alphabetical order.
func (d *Driver) dsn(cfg storage.Config, readOnly bool) string {
	pragmas := []string{
		fmt.Sprintf("busy_timeout(%d)", cfg.WriterWait.Milliseconds()),
		"foreign_keys(1)",
		fmt.Sprintf("journal_size_limit(%d)", d.walLimit),
		"mmap_size(0)", // pages of the file would count as memory once per connection
		"synchronous(FULL)",
		"temp_store(MEMORY)",
	}
	q := url.Values{}
	if readOnly {
		pragmas = append(pragmas, "cache_size(-4000)", "query_only(1)")
	} else {
		pragmas = append(pragmas, "cache_size(-16000)", "journal_mode(WAL)", "wal_autocheckpoint(2000)")
		q.Set("_txlock", "immediate")
	}
	q["_pragma"] = pragmas
	u := url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(d.path), RawQuery: q.Encode()}
	return u.String()
}

// Path is the database's file.
func (d *Driver) Path() string { return d.path }

// Dialect implements storage.Driver.
func (d *Driver) Dialect() storage.Dialect { return storage.SQLite }

// Pools implements storage.Driver.
func (d *Driver) Pools() (writer, readers *sql.DB) { return d.writer, d.readers }

// SingleWriter implements storage.Driver.
func (d *Driver) SingleWriter() bool { return true }

// Bun implements storage.Driver.
func (d *Driver) Bun() schema.Dialect { return sqlitedialect.New() }

// NowSQL implements storage.Driver. SQLite's clock is a whole number of
// milliseconds inside; rounding undoes the way through a floating point number.
func (d *Driver) NowSQL() string { return "CAST(round(unixepoch('subsec') * 1000) AS INTEGER)" }

// ExecScript implements storage.Driver. The driver runs all statements.
func (d *Driver) ExecScript(ctx context.Context, q storage.Querier, script string) error {
	_, err := q.ExecContext(ctx, script)
	return err
}

// LockSchema implements storage.Driver. The transaction holds the write lock.
func (d *Driver) LockSchema(context.Context, storage.Querier) error { return nil }

// Settings implements storage.Driver.
func (d *Driver) Settings(ctx context.Context) (storage.Settings, error) {
	s := storage.Settings{Dialect: storage.SQLite}
	conn, err := d.writer.Conn(ctx)
	if err != nil {
		return s, err
	}
	defer func() { _ = conn.Close() }()
	var synchronous, foreignKeys int
	for query, dest := range map[string]any{
		"SELECT sqlite_version()": &s.Version,
		"PRAGMA journal_mode":     &s.JournalMode,
		"PRAGMA synchronous":      &synchronous,
		"PRAGMA foreign_keys":     &foreignKeys,
		"PRAGMA encoding":         &s.Encoding,
	} {
		if err := conn.QueryRowContext(ctx, query).Scan(dest); err != nil {
			return s, err
		}
	}
	s.ForeignKeys = foreignKeys == 1
	if words := []string{"off", "normal", "full", "extra"}; synchronous >= 0 && synchronous < len(words) {
		s.Synchronous = words[synchronous]
	}
	return s, nil
}

// Tidy implements storage.Driver. SQLite's own checkpoints stop where a reader
// reads, and the WAL starts anew only in a moment without one; with readers
// that overlap it would grow for ever. So a WAL above its limit is cut with a
// checkpoint that waits for the readers, at most once a second and not long.
func (d *Driver) Tidy(ctx context.Context) {
	info, err := os.Stat(d.path + "-wal")
	if err != nil || info.Size() <= d.walLimit {
		return
	}
	d.tidyMu.Lock()
	defer d.tidyMu.Unlock()
	if time.Since(d.tidied) < d.tidyEvery {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 250*time.Millisecond)
	defer cancel()
	// Busy is no error here: the next commit after a second tries again.
	_, _ = d.writer.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	d.tidied = time.Now()
}

// Close implements storage.Driver. The WAL is moved into the file.
func (d *Driver) Close() error {
	var errs []error
	if d.readers != nil {
		errs = append(errs, d.readers.Close())
	}
	if d.writer != nil {
		// A reader of another process may keep the WAL; the data is safe there.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _ = d.writer.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
		errs = append(errs, d.writer.Close())
	}
	if d.tempDir != "" {
		errs = append(errs, os.RemoveAll(d.tempDir))
	}
	return errors.Join(errs...)
}

// SQLite's result codes, https://sqlite.org/rescode.html. The low byte is the
// primary code.
const (
	codeBusy             = 5
	codeLocked           = 6
	codeFull             = 13 // SQLITE_FULL
	codeConstraintPK     = 19 | 6<<8
	codeConstraintUnique = 19 | 8<<8
	codeConstraintRowID  = 19 | 10<<8
)

// Fault implements storage.Driver.
func (d *Driver) Fault(err error) storage.Fault {
	var coded interface {
		error
		Code() int
	}
	if !errors.As(err, &coded) {
		return storage.Fault{}
	}
	switch code := coded.Code(); {
	case code == codeConstraintPK, code == codeConstraintUnique, code == codeConstraintRowID:
		return storage.Fault{Kind: storage.FaultUnique, Constraint: constraint(coded.Error())}
	case code&0xff == codeBusy, code&0xff == codeLocked:
		return storage.Fault{Kind: storage.FaultBusy}
	case code&0xff == codeFull:
		return storage.Fault{Kind: storage.FaultFull}
	}
	return storage.Fault{}
}

// constraint takes the columns or the index out of SQLite's message:
// "… UNIQUE constraint failed: t.a, t.b (2067)" or "… failed: index 'i' (2067)".
func constraint(message string) string {
	_, rest, ok := strings.Cut(message, "UNIQUE constraint failed: ")
	if !ok {
		return ""
	}
	if i := strings.LastIndex(rest, " ("); i >= 0 {
		rest = rest[:i]
	}
	if index, ok := strings.CutPrefix(rest, "index '"); ok {
		return strings.TrimSuffix(index, "'")
	}
	return rest
}
