package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/sqlite"
)

func open(t *testing.T, path string) *storage.DB {
	t.Helper()
	return opened(t)(sqlite.Open(context.Background(), path, storage.Config{}))
}

// walLimit is the limit of the WAL in the tests that go beyond it.
const walLimit = 256 << 10

func openLimited(t *testing.T) *storage.DB {
	t.Helper()
	return opened(t)(sqlite.OpenLimited(context.Background(), filepath.Join(t.TempDir(), "a.db"), storage.Config{}, walLimit, time.Millisecond))
}

func opened(t *testing.T) func(*storage.DB, error) *storage.DB {
	return func(db *storage.DB, err error) *storage.DB {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
}

func run(t *testing.T, db *storage.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Write(t.Context()).ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	db := open(t, filepath.Join(t.TempDir(), "a.db"))
	got, err := db.Settings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(got.Version, "3.") {
		t.Errorf("Version = %q", got.Version)
	}
	got.Version = ""
	want := storage.Settings{Dialect: storage.SQLite, JournalMode: "wal", Synchronous: "full", ForeignKeys: true, Encoding: "UTF-8"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Settings (-want +got):\n%s", diff)
	}
}

// Every connection has the pragmas, those that read as well.
func TestPragmas(t *testing.T) {
	t.Parallel()
	db := open(t, filepath.Join(t.TempDir(), "a.db"))
	for pragma, want := range map[string][2]string{ // writer, readers
		"busy_timeout":       {"10000", "10000"},
		"journal_mode":       {"wal", "wal"},
		"synchronous":        {"2", "2"},
		"foreign_keys":       {"1", "1"},
		"wal_autocheckpoint": {"2000", "1000"},
		"page_size":          {"8192", "8192"},
		"journal_size_limit": {"16777216", "16777216"},
		"cache_size":         {"-16000", "-4000"},
		"mmap_size":          {"0", "0"},
		"query_only":         {"0", "1"},
		"temp_store":         {"2", "2"},
	} {
		for i, q := range []storage.Querier{db.Write(t.Context()), db.Read(t.Context())} {
			var got string
			if err := q.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != want[i] {
				t.Errorf("%s of pool %d = %q, %v; want %q", pragma, i, got, err, want[i])
			}
		}
	}
}

func TestForeignKeysAreEnforced(t *testing.T) {
	t.Parallel()
	db := open(t, filepath.Join(t.TempDir(), "a.db"))
	run(t, db, "CREATE TABLE p (id INTEGER PRIMARY KEY); CREATE TABLE c (p INTEGER REFERENCES p(id))")
	if _, err := db.Write(t.Context()).ExecContext(t.Context(), "INSERT INTO c VALUES (1)"); err == nil {
		t.Error("a child without its parent was taken")
	}
}

func TestPathsOfAnyName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a b.db", "100%.db", "q?x=1.db", "h#1.db", "ünal.db", "a&b=c.db"} {
		path := filepath.Join(t.TempDir(), name)
		db := open(t, path)
		run(t, db, "CREATE TABLE t (a)")
		if db.File() != path {
			t.Errorf("File = %q, want %q", db.File(), path)
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := sqlite.Open(t.Context(), "", storage.Config{}); err == nil {
		t.Error("an empty path was taken")
	}
	if _, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "no", "such", "a.db"), storage.Config{}); err == nil {
		t.Error("a file in a folder that doesn't exist was opened")
	}
}

func TestMemoryIsPrivateAndTemporary(t *testing.T) {
	t.Parallel()
	a, b := open(t, sqlite.Memory), open(t, sqlite.Memory)
	run(t, a, "CREATE TABLE t (a)")
	run(t, b, "CREATE TABLE t (a)") // another database
	run(t, a, "INSERT INTO t VALUES (1)")
	var n int
	if err := a.Read(t.Context()).QueryRowContext(t.Context(), "SELECT count(*) FROM t").Scan(&n); err != nil || n != 1 {
		t.Errorf("readers see %d rows, %v; want 1", n, err)
	}
	dir := filepath.Dir(a.File())
	for range 2 {
		if err := a.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary folder is left: %v", err)
	}
	if _, err := os.Stat(b.File()); err != nil {
		t.Errorf("the other database is gone: %v", err)
	}
}

func TestCloseMovesTheWALIntoTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	db := open(t, path)
	run(t, db, "CREATE TABLE t (a)")
	if info, err := os.Stat(path + "-wal"); err != nil || info.Size() == 0 {
		t.Fatalf("there is no WAL before Close: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + "-wal"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the WAL is left: %v", err)
	}
}

func walSize(t *testing.T, db *storage.DB) int64 {
	t.Helper()
	info, err := os.Stat(db.File() + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// A reader that stays open lets the WAL grow; once it ends the WAL is cut
// (DBS-03).
func TestWALIsBoundedAfterAReader(t *testing.T) {
	t.Parallel()
	db := openLimited(t)
	run(t, db, "CREATE TABLE t (id INTEGER PRIMARY KEY, a BLOB)")
	run(t, db, "INSERT INTO t VALUES (1, zeroblob(10)), (2, zeroblob(10)), (3, zeroblob(10))")
	rows, err := db.Read(t.Context()).QueryContext(t.Context(), "SELECT a FROM t")
	if err != nil || !rows.Next() {
		t.Fatal(err)
	}
	defer rows.Close()
	for range 6 {
		run(t, db, "UPDATE t SET a = randomblob(64 << 10) WHERE id = 1")
	}
	if got := walSize(t, db); got <= walLimit {
		t.Fatalf("the WAL has %d bytes, the test needs more than %d", got, walLimit)
	}
	if err := rows.Close(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for walSize(t, db) > walLimit {
		if time.Now().After(deadline) {
			t.Fatalf("the WAL still has %d bytes", walSize(t, db))
		}
		run(t, db, "UPDATE t SET a = randomblob(10) WHERE id = 2") // commits cut it, at most once a second
	}
}

// Readers that overlap, so that there is no moment without one, don't let the
// WAL grow for ever.
func TestWALIsBoundedUnderOverlappingReaders(t *testing.T) {
	t.Parallel()
	db := openLimited(t)
	run(t, db, "CREATE TABLE t (id INTEGER PRIMARY KEY, a BLOB)")
	run(t, db, "INSERT INTO t VALUES (1, zeroblob(10)), (2, zeroblob(10)), (3, zeroblob(10))")
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	turn := make(chan struct{}, 1)
	turn <- struct{}{}
	for range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				// The next reader begins before this one ends.
				<-turn
				rows, err := db.Read(ctx).QueryContext(ctx, "SELECT id FROM t")
				turn <- struct{}{}
				if err != nil {
					return
				}
				for range 3 {
					rows.Next()
				}
				_ = rows.Close()
			}
		})
	}
	var largest int64
	for range 20 {
		run(t, db, "UPDATE t SET a = randomblob(64 << 10) WHERE id = 1")
		largest = max(largest, walSize(t, db))
	}
	stop()
	readers.Wait()
	if largest > 4*walLimit {
		t.Errorf("the WAL grew to %d KiB", largest>>10)
	}
}

func TestLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	first, second := open(t, path), open(t, path)
	release, err := first.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = second.Lock(t.Context())
	var locked *storage.LockedError
	if !errors.As(err, &locked) || locked.Path != path || locked.PID != os.Getpid() {
		t.Fatalf("second Lock = %v, want a LockedError with %s and %d", err, path, os.Getpid())
	}
	want := fmt.Sprintf("storage: %s is in use by process %d; one host serves a SQLite file at a time", path, os.Getpid())
	if err.Error() != want {
		t.Errorf("sentence = %q, want %q", err, want)
	}
	run(t, second, "CREATE TABLE t (a)") // whoever only opens works
	for range 2 {
		if err := release(); err != nil {
			t.Errorf("release = %v", err)
		}
	}
	again, err := second.Lock(t.Context())
	if err != nil {
		t.Fatalf("Lock after the release = %v", err)
	}
	_ = again()
}

// The system takes the lock back from a process that was killed.
func TestLockOfAKilledProcess(t *testing.T) {
	if path := os.Getenv("SQLITE_TEST_LOCK"); path != "" {
		holdLock(path)
		return
	}
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	cmd := exec.Command(os.Args[0], "-test.run=^TestLockOfAKilledProcess$")
	cmd.Env = append(os.Environ(), "SQLITE_TEST_LOCK="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatalf("the process says %q, %v", line, err)
	}
	db := open(t, path)
	_, err = db.Lock(t.Context())
	var locked *storage.LockedError
	if !errors.As(err, &locked) || locked.PID != cmd.Process.Pid {
		t.Fatalf("Lock = %v, want a LockedError of process %d", err, cmd.Process.Pid)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	release, err := db.Lock(t.Context())
	if err != nil {
		t.Fatalf("Lock after the kill = %v", err)
	}
	_ = release()
}

// holdLock is the killed process.
func holdLock(path string) {
	db, err := sqlite.Open(context.Background(), path, storage.Config{})
	if err == nil {
		_, err = db.Lock(context.Background())
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("locked")
	select {}
}
