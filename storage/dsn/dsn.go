// Package dsn opens a database by its DSN. It is the one package that names
// both drivers.
package dsn

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/postgres"
	"github.com/objecthost/objecthost/storage/sqlite"
)

// ErrUnknown is returned for a DSN of no known form.
var ErrUnknown = errors.New("storage: unknown DSN; use sqlite:<path>, sqlite::memory: or postgres://user@host/database")

// Open opens the database that dsn names:
//
//	sqlite:data/host.db           a file, created when it doesn't exist
//	sqlite:///var/lib/host.db     the same, absolute
//	sqlite::memory:               a private temporary database
//	postgres://user@host:5432/db  a server; also postgresql://
//
// The caller closes the DB.
func Open(ctx context.Context, dsn string, cfg storage.Config) (*storage.DB, error) {
	if path, ok := SQLitePath(dsn); ok {
		return sqlite.Open(ctx, path, cfg)
	}
	if isPostgres(dsn) {
		return postgres.Open(ctx, dsn, cfg)
	}
	return nil, ErrUnknown
}

// SQLitePath returns the path that a SQLite DSN names.
func SQLitePath(dsn string) (path string, ok bool) {
	path, ok = strings.CutPrefix(dsn, "sqlite:")
	if !ok {
		return "", false
	}
	return strings.TrimPrefix(path, "//"), true
}

func isPostgres(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// Redact returns dsn for logs: without passwords.
func Redact(dsn string) string {
	if !isPostgres(dsn) {
		return dsn
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "postgres://(unreadable)"
	}
	q := u.Query()
	for _, secret := range []string{"password", "sslpassword"} {
		if q.Has(secret) {
			q.Set(secret, "xxxxx")
		}
	}
	u.RawQuery = q.Encode()
	return u.Redacted()
}
