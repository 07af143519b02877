package seal_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/dsn"
	"github.com/objecthost/objecthost/storage/seal"
	"github.com/objecthost/objecthost/storage/storagetest"
)

func ensure(t *testing.T, db *storage.DB, src seal.Source) seal.Ensured {
	t.Helper()
	got, err := seal.Ensure(t.Context(), db, src)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestEnsureMakesOneKeyAndFindsItAgain(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		src := seal.Source{File: filepath.Join(t.TempDir(), "host.key")}
		first := ensure(t, db, src)
		if !first.Created || first.File != src.File {
			t.Fatalf("first start = %+v, want a key made in %s", first, src.File)
		}
		if first.EveryNode != (db.Dialect() == storage.Postgres) {
			t.Errorf("EveryNode = %v on %s", first.EveryNode, db.Dialect())
		}
		if notice := first.Notice(); !strings.Contains(notice, src.File) || !strings.Contains(notice, first.Keyring.KeyID()) {
			t.Errorf("Notice = %q, want the file and the key's id in it", notice)
		}
		sealed, err := first.Keyring.Seal([]byte("x"), []byte("a"))
		if err != nil {
			t.Fatal(err)
		}
		second := ensure(t, db, src)
		if second.Created || second.Notice() != "" {
			t.Fatalf("second start = %+v, want nothing made", second)
		}
		if got, err := second.Keyring.Open(sealed, []byte("a")); err != nil || string(got) != "x" {
			t.Fatalf("Open after a restart = %q, %v", got, err)
		}
	})
}

func TestEnsureRefusesAnotherKey(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		first := ensure(t, db, seal.Source{File: filepath.Join(t.TempDir(), "host.key")})
		other, err := seal.Generate()
		if err != nil {
			t.Fatal(err)
		}
		text, err := other.Export()
		if err != nil {
			t.Fatal(err)
		}
		_, err = seal.Ensure(t.Context(), db, seal.Source{Value: text})
		var wrong *seal.WrongKeyError
		if !errors.As(err, &wrong) || wrong.Recorded != first.Keyring.KeyID() || wrong.Given != other.KeyID() {
			t.Fatalf("Ensure = %v, want a WrongKeyError with %s and %s", err, first.Keyring.KeyID(), other.KeyID())
		}
		for _, id := range []string{wrong.Recorded, wrong.Given} {
			if !strings.Contains(err.Error(), id) {
				t.Errorf("%q doesn't name key %s", err, id)
			}
		}
		if strings.Contains(err.Error(), text) {
			t.Error("the error holds the key")
		}
	})
}

// A key with the recorded id and other bytes is found out by the check value.
func TestEnsureRefusesAnotherKeyOfTheSameID(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		src := seal.Source{File: filepath.Join(t.TempDir(), "host.key")}
		first := ensure(t, db, src)
		other, err := seal.Generate()
		if err != nil {
			t.Fatal(err)
		}
		check, err := other.Seal([]byte("objecthost"), []byte("sys_keyring:"+first.Keyring.KeyID()))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Write(t.Context()).ExecContext(t.Context(), "UPDATE sys_keyring SET check_value = $1", check); err != nil {
			t.Fatal(err)
		}
		_, err = seal.Ensure(t.Context(), db, src)
		var wrong *seal.WrongKeyError
		if !errors.As(err, &wrong) || wrong.Recorded != wrong.Given {
			t.Fatalf("Ensure = %v, want a WrongKeyError of one id", err)
		}
	})
}

func TestEnsureMissingKey(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		src := seal.Source{File: filepath.Join(t.TempDir(), "host.key")}
		first := ensure(t, db, src)
		if err := os.Remove(src.File); err != nil {
			t.Fatal(err)
		}
		_, err := seal.Ensure(t.Context(), db, src)
		var missing *seal.MissingKeyError
		if !errors.As(err, &missing) || missing.Recorded != first.Keyring.KeyID() || missing.File != src.File {
			t.Fatalf("Ensure = %v, want a MissingKeyError for %s", err, first.Keyring.KeyID())
		}
		if _, err := os.Stat(src.File); !errors.Is(err, os.ErrNotExist) {
			t.Fatal("a new key was made although the database has one recorded")
		}
	})
}

func TestEnsureRotation(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		dir := t.TempDir()
		old := seal.Source{File: filepath.Join(dir, "old.key")}
		src := seal.Source{File: filepath.Join(dir, "host.key")}
		first := ensure(t, db, old)
		both, id, err := first.Keyring.Add()
		if err != nil {
			t.Fatal(err)
		}
		if err := both.WriteFile(src.File); err != nil {
			t.Fatal(err)
		}
		ensure(t, db, src)
		ensure(t, db, old) // a node without the new key may still run
		promoted, err := both.Promote(id)
		if err != nil {
			t.Fatal(err)
		}
		if err := promoted.WriteFile(src.File); err != nil {
			t.Fatal(err)
		}
		if got := ensure(t, db, src); got.Keyring.KeyID() != id {
			t.Fatalf("primary key = %s, want %s", got.Keyring.KeyID(), id)
		}
		var wrong *seal.WrongKeyError
		if _, err := seal.Ensure(t.Context(), db, old); !errors.As(err, &wrong) || wrong.Recorded != id {
			t.Fatalf("a node without the promoted key: %v, want a WrongKeyError for %s", err, id)
		}
		// A node that knows both keys and still seals with the old one may run,
		// and doesn't make it the recorded one again.
		if err := both.WriteFile(old.File); err != nil {
			t.Fatal(err)
		}
		ensure(t, db, old)
		if _, err := seal.Ensure(t.Context(), db, seal.Source{Value: export(t, first.Keyring)}); !errors.As(err, &wrong) {
			t.Fatalf("the old key alone: %v, want a WrongKeyError", err)
		}
	})
}

func export(t *testing.T, k *seal.Keyring) string {
	t.Helper()
	text, err := k.Export()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestEnsureSources(t *testing.T) {
	k, err := seal.Generate()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("STORAGE_TEST_KEY", export(t, k)+"\n")
	db := storagetest.Open(t, storagetest.SQLite(t), storage.Config{})
	file := filepath.Join(t.TempDir(), "host.key")
	got := ensure(t, db, seal.Source{Env: "STORAGE_TEST_KEY", File: file})
	if got.Keyring.KeyID() != k.KeyID() || got.File != "" || got.Created {
		t.Fatalf("Ensure = %+v, want the variable's key", got)
	}
	t.Setenv("STORAGE_TEST_KEY", "ohk1.garbage-secret")
	_, err = seal.Ensure(t.Context(), db, seal.Source{Env: "STORAGE_TEST_KEY"})
	if !errors.Is(err, seal.ErrInvalidKeyring) || strings.Contains(err.Error(), "garbage") {
		t.Fatalf("Ensure = %v, want ErrInvalidKeyring without the text", err)
	}
	t.Setenv("STORAGE_TEST_KEY", "")
	pg := storagetest.Open(t, storagetest.Postgres(t), storage.Config{})
	if _, err := seal.Ensure(t.Context(), pg, seal.Source{Env: "STORAGE_TEST_KEY"}); !errors.Is(err, seal.ErrNoSource) {
		t.Fatalf("Ensure on Postgres without a file = %v, want ErrNoSource", err)
	}
}

func TestEnsureDefaultsToTheDatabasesFile(t *testing.T) {
	t.Parallel()
	name := storagetest.SQLite(t)
	got := ensure(t, storagetest.Open(t, name, storage.Config{}), seal.Source{})
	path, _ := dsn.SQLitePath(name)
	if got.File != path+".key" || got.EveryNode {
		t.Fatalf("Ensure = %+v, want the key in %s.key", got, path)
	}
	if info, err := os.Stat(got.File); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("key file: %v, want mode 0600", err)
	}
	memory := storagetest.Open(t, "sqlite::memory:", storage.Config{})
	got = ensure(t, memory, seal.Source{})
	if err := memory.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(got.File); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the key of a temporary database is left behind: %v", err)
	}
}

// Nodes that share a key file and start at once end with one key.
func TestEnsureConcurrentStart(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, name string) {
		src := seal.Source{File: filepath.Join(t.TempDir(), "host.key")}
		const nodes = 6
		ids, errs := make([]string, nodes), make([]error, nodes)
		made := make([]bool, nodes)
		var wg sync.WaitGroup
		for i := range nodes {
			wg.Go(func() {
				db, err := dsn.Open(context.Background(), name, storage.Config{MaxConns: 2})
				if err != nil {
					errs[i] = err
					return
				}
				defer func() { _ = db.Close() }()
				got, err := seal.Ensure(context.Background(), db, src)
				if errs[i] = err; err == nil {
					ids[i], made[i] = got.Keyring.KeyID(), got.Created
				}
			})
		}
		wg.Wait()
		count := 0
		for i := range nodes {
			if errs[i] != nil {
				t.Fatalf("node %d: %v", i, errs[i])
			}
			if ids[i] != ids[0] {
				t.Errorf("node %d has key %s, node 0 %s", i, ids[i], ids[0])
			}
			if made[i] {
				count++
			}
		}
		if count != 1 {
			t.Errorf("%d nodes made a key, want 1", count)
		}
	})
}
