package storagetest_test

import (
	"database/sql"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

func TestEachDialectGivesEmptyDatabases(t *testing.T) {
	seen := make(chan string, 2)
	t.Run("all", func(t *testing.T) {
		for range 2 {
			storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
				if _, err := db.Write(t.Context()).ExecContext(t.Context(), "CREATE TABLE t (a BIGINT)"); err != nil {
					t.Errorf("the database isn't empty: %v", err)
				}
				if !strings.Contains(t.Name(), "/"+string(db.Dialect())) {
					t.Errorf("%s runs on %s", t.Name(), db.Dialect())
				}
			})
		}
		storagetest.EachDialectDSN(t, func(_ *testing.T, dsn string) {
			dialect, _, _ := strings.Cut(dsn, ":")
			seen <- dialect
		})
	})
	if len(seen) != 2 {
		t.Errorf("ran on %d dialects, want both", len(seen))
	}
}

func TestPostgresSchemaIsDropped(t *testing.T) {
	var schema string
	t.Run("test", func(t *testing.T) {
		db := storagetest.Open(t, storagetest.Postgres(t), storage.Config{})
		if err := db.Read(t.Context()).QueryRowContext(t.Context(), "SELECT current_schema()").Scan(&schema); err != nil {
			t.Fatal(err)
		}
	})
	db := storagetest.Open(t, storagetest.Postgres(t), storage.Config{})
	var found string
	err := db.Read(t.Context()).QueryRowContext(t.Context(), "SELECT nspname FROM pg_namespace WHERE nspname = $1", schema).Scan(&found)
	if !strings.HasPrefix(schema, "test_") || !errors.Is(err, sql.ErrNoRows) {
		t.Errorf("schema %q after its test: %v, want no rows", schema, err)
	}
}

func TestProxyCutsStallsAndRestores(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() { // an echo server
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	proxy := storagetest.NewProxy(t, server.Addr().String())
	echo := func() (net.Conn, error) {
		c, err := net.Dial("tcp", proxy.Addr())
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := c.Write([]byte("x")); err != nil {
			return nil, err
		}
		_, err = io.ReadFull(c, make([]byte, 1))
		return c, err
	}
	c, err := echo()
	if err != nil {
		t.Fatalf("through the proxy: %v", err)
	}
	if n := proxy.Conns(); n != 1 {
		t.Errorf("Conns = %d, want 1", n)
	}
	proxy.Cut()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still there after the cut")
	}
	if _, err := echo(); err == nil {
		t.Error("a new connection got through while cut")
	}
	proxy.Restore()
	if c, err = echo(); err != nil {
		t.Fatalf("after Restore: %v", err)
	}
	proxy.Stall()
	if _, err := c.Write([]byte("y")); err != nil {
		t.Fatalf("write while stalled: %v", err)
	}
	if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 1)
	if _, err := c.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read while stalled: %v, want a timeout", err)
	}
	proxy.Restore()
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, got); err != nil || got[0] != 'y' {
		t.Errorf("after the stall came %q, %v", got, err)
	}
}
