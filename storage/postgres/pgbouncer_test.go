package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"testing"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// Behind a pooler that has one session nothing is prepared by name, although
// every answer comes from the same process.
func TestPoolerOfOneSession(t *testing.T) {
	t.Parallel()
	direct := storagetest.Postgres(t)
	db := storagetest.Open(t, storagetest.PgBouncer(t, direct, 1), storage.Config{MaxConns: 4})
	if db.Direct() {
		t.Error("a pooler is taken for the server itself")
	}
	if !storagetest.Open(t, direct, storage.Config{}).Direct() {
		t.Error("the server itself is taken for a pooler")
	}
	for range 3 {
		var n int
		if err := db.Read(t.Context()).QueryRowContext(t.Context(), "SELECT $1::int + 1", db.Hot(1)...).Scan(&n); err != nil || n != 2 {
			t.Fatalf("n = %d, %v", n, err)
		}
	}
	var named int
	if err := db.Read(t.Context()).QueryRowContext(t.Context(), "SELECT count(*) FROM pg_prepared_statements").Scan(&named); err != nil || named != 0 {
		t.Errorf("%d named statements, %v; want none", named, err)
	}
}

// Hot statements of many clients work whatever session a transaction gets.
func TestHotBehindAPooler(t *testing.T) {
	t.Parallel()
	name := storagetest.PgBouncer(t, storagetest.Postgres(t), 3)
	var wg sync.WaitGroup
	for range 4 {
		db := storagetest.Open(t, name, storage.Config{MaxConns: 4})
		for range 4 {
			wg.Go(func() {
				for i := range 25 {
					err := db.InTx(t.Context(), func(ctx context.Context) error {
						var n int
						if err := db.Read(ctx).QueryRowContext(ctx, "SELECT $1::int + 1", db.Hot(i)...).Scan(&n); err != nil || n != i+1 {
							return fmt.Errorf("n = %d for %d: %w", n, i, err)
						}
						return nil
					})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
}

// A DSN that names a server and, for when it is gone, a pooler: statements are
// named on the way to the server only.
func TestServerReplacedByAPooler(t *testing.T) {
	t.Parallel()
	server := storagetest.Postgres(t)
	pooled, err := url.Parse(storagetest.PgBouncer(t, server, 2))
	if err != nil {
		t.Fatal(err)
	}
	proxy, name := storagetest.ProxyDSN(t, server)
	both, err := url.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	both.Host += "," + pooled.Host
	db := storagetest.Open(t, both.String(), storage.Config{MaxConns: 2})
	ask := func() error {
		var n int
		return db.Read(t.Context()).QueryRowContext(t.Context(), "SELECT $1::int + 1", db.Hot(1)...).Scan(&n)
	}
	if err := ask(); err != nil || !db.Direct() {
		t.Fatalf("direct = %v, %v", db.Direct(), err)
	}
	proxy.Cut()
	for range 10 {
		// The idle connections are lost, and the first new one is refused.
		if err = ask(); err != nil && !storage.IsConnectionLost(err) {
			t.Fatalf("error = %v, want a lost connection", err)
		}
		if err == nil {
			break
		}
	}
	if err != nil || db.Direct() {
		t.Fatalf("direct = %v behind the pooler, %v", db.Direct(), err)
	}
	var named int
	if err := db.Read(t.Context()).QueryRowContext(t.Context(), "SELECT count(*) FROM pg_prepared_statements").Scan(&named); err != nil || named != 0 {
		t.Errorf("%d named statements, %v; want none", named, err)
	}
}
