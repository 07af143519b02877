package proc

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/dsn"
)

// Server is the DSN of the PostgreSQL server for tests: HOST_TEST_POSTGRES, or
// the one on this machine.
func Server() string {
	if server := os.Getenv("HOST_TEST_POSTGRES"); server != "" {
		return server
	}
	return "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable"
}

// Schema makes a schema on a server, whose name begins with prefix, and
// returns the DSN that leads into it. drop removes it with all it holds.
func Schema(ctx context.Context, server, prefix string) (inside string, drop func() error, err error) {
	admin, err := dsn.Open(ctx, server, storage.Config{MaxConns: 1})
	if err != nil {
		return "", nil, err
	}
	u, err := url.Parse(server)
	if err != nil {
		return "", nil, errors.Join(err, admin.Close())
	}
	name := fmt.Sprintf("%s_%d", prefix, time.Now().UnixNano())
	if _, err := admin.Write(ctx).ExecContext(ctx, "CREATE SCHEMA "+name); err != nil {
		return "", nil, errors.Join(err, admin.Close())
	}
	query := u.Query()
	query.Set("search_path", name)
	u.RawQuery = query.Encode()
	return u.String(), func() error {
		_, err := admin.Write(context.WithoutCancel(ctx)).ExecContext(context.WithoutCancel(ctx), "DROP SCHEMA "+name+" CASCADE")
		return errors.Join(err, admin.Close())
	}, nil
}
