package storage_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/dsn"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// set makes a set with the same files for both dialects; up and down
// alternate.
func set(files ...string) storage.Migrations {
	dir := fstest.MapFS{}
	for i := 0; i < len(files); i += 2 {
		name := fmt.Sprintf("%04d_change_thing", i/2+1)
		for _, dialect := range []string{"sqlite", "postgres"} {
			dir[dialect+"/"+name+".tx.up.sql"] = &fstest.MapFile{Data: []byte(files[i])}
			dir[dialect+"/"+name+".tx.down.sql"] = &fstest.MapFile{Data: []byte(files[i+1])}
		}
	}
	return storage.Migrations{Name: "things", FS: dir}
}

const (
	up1   = "CREATE TABLE n (k TEXT PRIMARY KEY, v BIGINT);\n-- a comment; with 'quotes\nINSERT INTO n VALUES ('a;b', 1);\n"
	down1 = "DROP TABLE n;"
	up2   = "ALTER TABLE n ADD COLUMN w BIGINT;\nUPDATE n SET w = v + 1;"
	down2 = "ALTER TABLE n DROP COLUMN w;"
)

func applied(t *testing.T, db *storage.DB) string {
	t.Helper()
	rows, err := db.Read(t.Context()).QueryContext(t.Context(),
		"SELECT set_name, id, name, length(checksum), applied_at FROM sys_migration ORDER BY set_name, id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	now, err := db.NowMillis(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for rows.Next() {
		var set, name string
		var id, length, at int64
		if err := rows.Scan(&set, &id, &name, &length, &at); err != nil {
			t.Fatal(err)
		}
		if at > now || at < now-60_000 {
			t.Errorf("applied_at = %d, now is %d", at, now)
		}
		all = append(all, fmt.Sprintf("%s/%d_%s:%d", set, id, name, length))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

func TestMigrateUpAndDown(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		both := set(up1, down1, up2, down2)
		if err := db.Migrate(t.Context(), set(up1, down1)); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time there is nothing to do
			if err := db.Migrate(t.Context(), both); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := applied(t, db), "things/1_change_thing:64 things/2_change_thing:64"; got != want {
			t.Errorf("applied = %q, want %q", got, want)
		}
		var k string
		var w int
		if err := db.Read(t.Context()).QueryRowContext(t.Context(), "SELECT k, w FROM n").Scan(&k, &w); err != nil || k != "a;b" || w != 2 {
			t.Errorf("row = %q, %d, %v; want a;b, 2", k, w, err)
		}
		if err := db.MigrateDown(t.Context(), both, 1); err != nil {
			t.Fatal(err)
		}
		if got, want := applied(t, db), "things/1_change_thing:64"; got != want {
			t.Errorf("applied = %q, want %q", got, want)
		}
		if err := db.MigrateDown(t.Context(), both, 0); err != nil {
			t.Fatal(err)
		}
		if got := applied(t, db); got != "" {
			t.Errorf("applied = %q, want none", got)
		}
		if err := db.Migrate(t.Context(), both); err != nil {
			t.Errorf("up again = %v", err)
		}
	})
}

func TestMigrationThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		bad := set(up1, down1, "CREATE TABLE half (a BIGINT); INSERT INTO half VALUES (1); INSERT INTO nowhere VALUES (1); CREATE TABLE rest (a BIGINT);", "DROP TABLE half;")
		err := db.Migrate(t.Context(), bad)
		var failed *storage.MigrationError
		if !errors.As(err, &failed) || failed.Set != "things" || failed.ID != 2 || failed.Name != "change_thing" {
			t.Fatalf("Migrate = %v, want a MigrationError of things/2", err)
		}
		if got, want := applied(t, db), "things/1_change_thing:64"; got != want {
			t.Errorf("applied = %q, want %q", got, want)
		}
		if _, err := db.Read(t.Context()).QueryContext(t.Context(), "SELECT * FROM half"); err == nil { //nolint:sqlclosecheck,rowserrcheck // there are no rows
			t.Error("the table of the failed migration is there")
		}
		if err := db.Migrate(t.Context(), set(up1, down1, up2, down2)); err != nil {
			t.Errorf("Migrate with the file put right = %v", err)
		}
	})
}

func TestMigrateRefusesAChangedFile(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		if err := db.Migrate(t.Context(), set(up1, down1)); err != nil {
			t.Fatal(err)
		}
		err := db.Migrate(t.Context(), set(up1+" ", down1, up2, down2))
		var changed *storage.ChecksumError
		if !errors.As(err, &changed) || changed.ID != 1 || changed.Applied == changed.Present {
			t.Errorf("Migrate = %v, want a ChecksumError of 1", err)
		}
		if got, want := applied(t, db), "things/1_change_thing:64"; got != want {
			t.Errorf("applied = %q, want %q", got, want)
		}
		if err := db.Migrate(t.Context(), set(strings.ReplaceAll(up1, "\n", "\r\n"), down1)); err != nil {
			t.Errorf("with a Windows checkout's line ends = %v", err)
		}
	})
}

func TestMigrateRefusesANewerSchema(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		if err := db.Migrate(t.Context(), set(up1, down1, up2, down2)); err != nil {
			t.Fatal(err)
		}
		fresh := storage.Migrations{Name: "another", FS: set("CREATE TABLE fresh (a BIGINT);", "DROP TABLE fresh;").FS}
		err := db.Migrate(t.Context(), fresh, set(up1, down1))
		var tooNew *storage.SchemaTooNewError
		if !errors.As(err, &tooNew) || tooNew.Set != "things" || tooNew.ID != 2 {
			t.Errorf("Migrate = %v, want a SchemaTooNewError of things/2", err)
		}
		if got, want := applied(t, db), "things/1_change_thing:64 things/2_change_thing:64"; got != want {
			t.Errorf("applied = %q, want %q: nothing may be applied before the check", got, want)
		}
	})
}

// Hosts that start at the same time apply each file once.
func TestMigrateConcurrently(t *testing.T) {
	t.Parallel()
	storagetest.EachDialectDSN(t, func(t *testing.T, name string) {
		var files []string
		for i := range 6 {
			files = append(files, fmt.Sprintf("CREATE TABLE t%d (a BIGINT); INSERT INTO t%d VALUES (1);", i, i), fmt.Sprintf("DROP TABLE t%d;", i))
		}
		var wg sync.WaitGroup
		start := make(chan struct{})
		for range 8 {
			wg.Go(func() {
				<-start
				db, err := dsn.Open(context.Background(), name, storage.Config{MaxConns: 2})
				if err != nil {
					t.Errorf("Open = %v", err)
					return
				}
				defer func() { _ = db.Close() }()
				if err := db.Migrate(context.Background(), set(files...)); err != nil {
					t.Errorf("Migrate = %v", err)
				}
			})
		}
		close(start)
		wg.Wait()
		db := storagetest.Open(t, name, storage.Config{})
		if got := len(strings.Fields(applied(t, db))); got != 6 {
			t.Errorf("%d migrations are applied, want 6", got)
		}
		for i := range 6 {
			var n int
			err := db.Read(t.Context()).QueryRowContext(t.Context(), fmt.Sprintf("SELECT count(*) FROM t%d", i)).Scan(&n)
			if err != nil || n != 1 {
				t.Errorf("t%d has %d rows, %v; want 1", i, n, err)
			}
		}
	})
}

func TestMigrationsOfADialect(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		scripts := map[storage.Dialect]string{
			storage.Postgres: `CREATE FUNCTION twice(i int) RETURNS int LANGUAGE plpgsql AS $fn$ BEGIN /* a; b */ RETURN i * 2; END; $fn$;
				CREATE TABLE r AS SELECT twice(21) AS v;`,
			storage.SQLite: `CREATE TABLE r (v BIGINT); CREATE TABLE s (v BIGINT);
				CREATE TRIGGER tr AFTER INSERT ON s BEGIN INSERT INTO r VALUES (new.v); UPDATE r SET v = v * 2; END;
				INSERT INTO s VALUES (21);`,
		}
		script := scripts[db.Dialect()]
		if err := db.Migrate(t.Context(), set(script, "DROP TABLE r;")); err != nil {
			t.Fatal(err)
		}
		var v int
		if err := db.Read(t.Context()).QueryRowContext(t.Context(), "SELECT v FROM r").Scan(&v); err != nil || v != 42 {
			t.Errorf("v = %d, %v; want 42", v, err)
		}
	})
}

func TestMigrateRefusesBadSets(t *testing.T) {
	t.Parallel()
	file := &fstest.MapFile{Data: []byte("SELECT 1;")}
	empty := &fstest.MapFile{Data: []byte(" \n")}
	db := storagetest.Open(t, storagetest.SQLite(t), storage.Config{})
	for name, c := range map[string]struct {
		fs   fstest.MapFS
		want string
	}{
		"no down": {fstest.MapFS{"sqlite/0001_a.tx.up.sql": file}, "needs both an up and a down file"},
		"empty":   {fstest.MapFS{"sqlite/0001_a.tx.up.sql": empty, "sqlite/0001_a.tx.down.sql": file}, "needs both an up and a down file"},
		"name":    {fstest.MapFS{"sqlite/1_a.tx.up.sql": file}, "is not named NNNN_verb_noun"},
		"no tx":   {fstest.MapFS{"sqlite/0001_a.up.sql": file}, "is not named NNNN_verb_noun"},
		"twice":   {fstest.MapFS{"sqlite/0001_a.tx.up.sql": file, "sqlite/0001_b.tx.down.sql": file}, "has two migrations 0001"},
		"folder":  {fstest.MapFS{"postgres/0001_a.tx.up.sql": file}, "read migrations of things"},
	} {
		err := db.Migrate(t.Context(), storage.Migrations{Name: "things", FS: c.fs})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Migrate = %v, want %q in it", name, err, c.want)
		}
	}
	if err := db.Migrate(t.Context(), storage.Migrations{FS: fstest.MapFS{}}); err == nil {
		t.Error("a set without a name was taken")
	}
	var none fs.FS = fstest.MapFS{}
	if err := db.MigrateDown(t.Context(), storage.Migrations{Name: "things", FS: none}, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("MigrateDown without files = %v, want ErrNotExist", err)
	}
}
