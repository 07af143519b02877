package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	webhookstore "github.com/objecthost/objecthost/plugins/webhooks/sqlstore"
	authstore "github.com/objecthost/objecthost/services/auth/sqlstore"
	automationstore "github.com/objecthost/objecthost/services/automation/sqlstore"
	messagingstore "github.com/objecthost/objecthost/services/messaging/sqlstore"
	"github.com/objecthost/objecthost/services/realtime/sqllog"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/dsn"
	"github.com/objecthost/objecthost/storage/lease"
	"github.com/objecthost/objecthost/storage/seal"
)

// cleanLimit bounds what is done after the context has ended.
const cleanLimit = time.Minute

// database is a fresh, migrated database that is gone after close.
type database struct {
	*storage.DB
	// dsn opens it once more.
	dsn string
	// observer has connections of its own, on Postgres: what it does is not
	// counted. Nil on SQLite.
	observer *storage.DB
	// application is the name of the measured connections on Postgres.
	application string
	drop        func() error
}

// openDatabase makes a database where name says; see [Config].
func openDatabase(ctx context.Context, name string) (_ *database, err error) {
	d := &database{drop: func() error { return nil }}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if strings.HasPrefix(name, "postgres://") || strings.HasPrefix(name, "postgresql://") {
		err = d.makeSchema(ctx, name)
	} else {
		err = d.makeFile(name)
	}
	if err != nil {
		return nil, err
	}
	if d.DB, err = dsn.Open(ctx, d.dsn, storage.Config{}); err != nil {
		return nil, err
	}
	err = d.Migrate(ctx, seal.Migrations(), lease.Migrations(), sqllog.Migrations(), messagingstore.Migrations(), authstore.Migrations(), webhookstore.Migrations(),
		automationstore.Migrations())
	if err != nil {
		return nil, fmt.Errorf("migrate the database: %w", err)
	}
	return d, nil
}

// makeFile names a SQLite file that does not exist yet.
func (d *database) makeFile(name string) error {
	if name == "" {
		dir, err := os.MkdirTemp("", "objecthost-bench-")
		if err != nil {
			return fmt.Errorf("make a temporary folder: %w", err)
		}
		d.dsn = "sqlite:" + filepath.Join(dir, "bench.db")
		d.drop = func() error { return os.RemoveAll(dir) }
		return nil
	}
	path, ok := dsn.SQLitePath(name)
	if !ok || path == "" || path == ":memory:" || strings.Contains(path, "?") {
		return &Error{"db", "must be sqlite:PATH or postgres://…"}
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		return &Error{"db", path + " exists; name a file that the bench may make and remove"}
	}
	d.dsn = name
	d.drop = func() error {
		var errs []error
		for _, suffix := range []string{"", "-wal", "-shm", "-journal", ".key", ".lock"} {
			if err := os.Remove(path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	}
	return nil
}

// makeSchema makes a schema in a PostgreSQL database.
func (d *database) makeSchema(ctx context.Context, name string) error {
	u, err := url.Parse(name)
	if err != nil {
		return &Error{"db", "is no DSN such as postgres://user@host/database"}
	}
	if d.observer, err = dsn.Open(ctx, name, storage.Config{MaxConns: 1}); err != nil {
		return err
	}
	// The process number tells whose schema it is, should one ever be left.
	schema := fmt.Sprintf("objecthost_bench_%d_%s", os.Getpid(), strings.ToLower(rand.Text()[:8]))
	if _, err := d.observer.Write(ctx).ExecContext(ctx, "CREATE SCHEMA "+schema); err != nil {
		return fmt.Errorf("make a schema: %w", err)
	}
	d.application = schema
	q := u.Query()
	q.Set("search_path", schema)
	q.Set("application_name", schema)
	u.RawQuery = q.Encode()
	d.dsn = u.String()
	d.drop = func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanLimit)
		defer cancel()
		if _, err := d.observer.Write(ctx).ExecContext(ctx, "DROP SCHEMA "+schema+" CASCADE"); err != nil {
			return fmt.Errorf("drop schema %s: %w", schema, err)
		}
		return nil
	}
	return nil
}

func (d *database) close() error {
	var errs []error
	if d.DB != nil {
		errs = append(errs, d.DB.Close())
	}
	errs = append(errs, d.drop())
	if d.observer != nil {
		errs = append(errs, d.observer.Close())
	}
	return errors.Join(errs...)
}

// sql spells a query with ? placeholders for the dialect.
func (d *database) sql(query string) string {
	if d.Dialect() != storage.Postgres {
		return query
	}
	var out strings.Builder
	n := 0
	for _, r := range query {
		if r != '?' {
			out.WriteRune(r)
			continue
		}
		n++
		fmt.Fprintf(&out, "$%d", n)
	}
	return out.String()
}

// count reads one number.
func (d *database) count(ctx context.Context, query string, args ...any) (n int, err error) {
	err = d.Read(ctx).QueryRowContext(ctx, d.sql(query), args...).Scan(&n)
	if err != nil {
		err = fmt.Errorf("count rows: %w", err)
	}
	return n, err
}
