package dsn_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/dsn"
	"github.com/objecthost/objecthost/storage/storagetest"
)

func TestOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	for name, want := range map[string]storage.Dialect{
		"sqlite:" + path:        storage.SQLite,
		"sqlite://" + path:      storage.SQLite,
		"sqlite::memory:":       storage.SQLite,
		storagetest.Postgres(t): storage.Postgres,
	} {
		db, err := dsn.Open(t.Context(), name, storage.Config{})
		if err != nil {
			t.Errorf("Open(%q) = %v", name, err)
			continue
		}
		if db.Dialect() != want {
			t.Errorf("Open(%q) speaks %s, want %s", name, db.Dialect(), want)
		}
		if err := db.Ping(t.Context()); err != nil {
			t.Errorf("Ping = %v", err)
		}
		if err := db.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
		if err := db.Ping(t.Context()); err == nil {
			t.Error("Ping after Close")
		}
	}
	for _, name := range []string{"", "mysql://h/db", "/a.db", "file:a.db"} {
		if _, err := dsn.Open(t.Context(), name, storage.Config{}); !errors.Is(err, dsn.ErrUnknown) {
			t.Errorf("Open(%q) = %v, want ErrUnknown", name, err)
		}
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"sqlite:data/a.db":                     "sqlite:data/a.db",
		"postgres://u@h/db":                    "postgres://u@h/db",
		"postgres://u:p%40ss@h:1/db":           "postgres://u:xxxxx@h:1/db",
		"postgres://h/db?user=u&password=pass": "postgres://h/db?password=xxxxx&user=u",
		"postgresql://h/db?sslpassword=pass":   "postgresql://h/db?sslpassword=xxxxx",
		"postgres://u:pass@%zz/db":             "postgres://(unreadable)",
	} {
		if got := dsn.Redact(in); got != want {
			t.Errorf("Redact(%q) = %q, want %q", in, got, want)
		}
	}
}
