package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
	"github.com/objecthost/objecthost/storage/transfer"
)

// schema is the same tables in both dialects.
var schema = map[storage.Dialect]string{
	storage.SQLite: `
CREATE TABLE child (parent TEXT NOT NULL REFERENCES parent (id), n INTEGER NOT NULL, note TEXT, PRIMARY KEY (parent, n));
CREATE TABLE parent (id TEXT PRIMARY KEY NOT NULL, flag INTEGER, amount TEXT COLLATE decimal, ratio REAL, blob BLOB, big BIGINT);
CREATE TABLE numbered (id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL);
CREATE TABLE logged (sequence INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL);
CREATE TABLE seeded (id INTEGER PRIMARY KEY, version BIGINT NOT NULL);
INSERT INTO seeded VALUES (1, 0);
CREATE TABLE leased (id TEXT PRIMARY KEY NOT NULL);
CREATE TABLE sys_migration (id TEXT PRIMARY KEY NOT NULL)`,
	storage.Postgres: `
CREATE TABLE parent (id TEXT COLLATE "C" PRIMARY KEY NOT NULL, flag BOOLEAN, amount NUMERIC, ratio DOUBLE PRECISION, blob BYTEA, big BIGINT);
CREATE TABLE child (parent TEXT COLLATE "C" NOT NULL REFERENCES parent (id), n INTEGER NOT NULL, note TEXT COLLATE "C", PRIMARY KEY (parent, n));
CREATE TABLE numbered (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text TEXT COLLATE "C" NOT NULL);
CREATE SEQUENCE log_sequence;
CREATE TABLE logged (sequence BIGINT PRIMARY KEY, xid XID8 NOT NULL, text TEXT COLLATE "C" NOT NULL);
CREATE TABLE seeded (id BIGINT PRIMARY KEY, version BIGINT NOT NULL);
INSERT INTO seeded VALUES (1, 0);
CREATE TABLE leased (id TEXT COLLATE "C" PRIMARY KEY NOT NULL);
CREATE TABLE sys_migration (id TEXT COLLATE "C" PRIMARY KEY NOT NULL)`,
}

func opened(t *testing.T, dsn func(testing.TB) string) *storage.DB {
	t.Helper()
	db := storagetest.Open(t, dsn(t), storage.Config{})
	for statement := range strings.SplitSeq(schema[db.Dialect()], ";\n") {
		exec(t, db, statement)
	}
	return db
}

func exec(t *testing.T, db *storage.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Write(t.Context()).ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// fill writes rows of all kinds, and numbers of which the last were removed.
func fill(t *testing.T, db *storage.DB) {
	t.Helper()
	postgres := db.Dialect() == storage.Postgres
	flag := func(b bool) any {
		if postgres {
			return b
		}
		return map[bool]int{true: 1}[b]
	}
	for i := range 120 {
		id := fmt.Sprintf("p%03d'\"ä", i)
		amount := fmt.Sprintf("%d.%d", i, i+1)
		if i == 7 {
			amount = "12345678901234567890123456789.123456789"
		}
		amount, err := storage.CanonicalDecimal(amount)
		if err != nil {
			t.Fatal(err)
		}
		cast := ""
		if postgres {
			cast = "::numeric"
		}
		exec(t, db, `INSERT INTO parent (id, flag, amount, ratio, blob, big) VALUES ($1, $2, $3`+cast+`, $4, $5, $6)`,
			id, flag(i%2 == 0), amount, float64(i)/3, []byte{0, byte(i), 255}, int64(1)<<62+int64(i))
		exec(t, db, `INSERT INTO child (parent, n, note) VALUES ($1, 1, $2)`, id, strings.Repeat("x", i*10))
		exec(t, db, `INSERT INTO child (parent, n) VALUES ($1, 2)`, id)
		exec(t, db, `INSERT INTO numbered (text) VALUES ($1)`, id)
		if postgres {
			exec(t, db, `INSERT INTO logged (sequence, xid, text) VALUES (nextval('log_sequence'), pg_current_xact_id(), $1)`, id)
		} else {
			exec(t, db, `INSERT INTO logged (text) VALUES ($1)`, id)
		}
	}
	exec(t, db, `INSERT INTO parent (id) VALUES ('')`)
	exec(t, db, `DELETE FROM numbered WHERE id > 110`)
	exec(t, db, `DELETE FROM logged WHERE sequence > 115`)
	exec(t, db, `UPDATE seeded SET version = 9`)
	exec(t, db, `INSERT INTO leased VALUES ('source')`)
}

// texts are the rows of a query, joined.
func texts(t *testing.T, db *storage.DB, query string) []string {
	t.Helper()
	rows, err := db.Read(t.Context()).QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func config(from, to *storage.DB) transfer.Config {
	return transfer.Config{
		From: from, To: to, Fingerprint: "one", Skip: []string{"leased"}, Seeded: map[string]int64{"seeded": 1}, BatchRows: 50,
		Fill: map[string]string{"logged.xid": "'3'::xid8"}, Sequences: map[string]string{"logged.sequence": "log_sequence"},
	}
}

func eachPair(t *testing.T, test func(t *testing.T, from, to *storage.DB)) {
	t.Parallel()
	kinds := map[string]func(testing.TB) string{"sqlite": storagetest.SQLite, "postgres": storagetest.Postgres}
	for fromName, from := range kinds {
		for toName, to := range kinds {
			t.Run(fromName+" to "+toName, func(t *testing.T) {
				t.Parallel()
				test(t, opened(t, from), opened(t, to))
			})
		}
	}
}

// Killed again and again, the copy goes on and is the same in the end, and
// numbers go on where the source's were.
func TestCopyGoesOn(t *testing.T) {
	eachPair(t, func(t *testing.T, from, to *storage.DB) {
		fill(t, from)
		killed := errors.New("killed")
		var report transfer.Report
		kills := 0
		for done := false; !done; kills++ {
			ctx, kill := context.WithCancelCause(t.Context())
			cfg := config(from, to)
			batches := 0
			cfg.Progress = func(string, int64, bool) {
				if batches++; batches == 2 {
					kill(killed)
				}
			}
			var err error
			report, err = transfer.Copy(ctx, cfg)
			done = err == nil
			if err != nil && context.Cause(ctx) != killed {
				t.Fatal(err)
			}
			if unfinished, err := transfer.Unfinished(t.Context(), to); err != nil || unfinished == done {
				t.Fatalf("unfinished = %v, %v after %v", unfinished, err, done)
			}
			if kills > 100 {
				t.Fatal("the copy does not come to its end")
			}
		}
		if kills < 4 {
			t.Errorf("the copy was killed %d times only", kills)
		}
		counts := map[string]int64{}
		for _, r := range report.Tables {
			counts[r.Table] = r.Rows
		}
		if diff := cmp.Diff(map[string]int64{"parent": 121, "child": 240, "numbered": 110, "logged": 115, "seeded": 1}, counts); diff != "" || report.Rows != 587 {
			t.Errorf("%d rows: %s", report.Rows, diff)
		}
		for _, query := range []string{
			`SELECT id || '|' || COALESCE(CASE WHEN flag THEN 'yes' ELSE 'no' END, '-') || '|' || COALESCE(CAST(amount AS TEXT), '-') || '|' || COALESCE(CAST(big AS TEXT), '-') FROM parent ORDER BY id`,
			`SELECT parent || n || COALESCE(note, '-') FROM child ORDER BY parent, n`,
			`SELECT id || text FROM numbered ORDER BY id`,
			`SELECT sequence || text FROM logged ORDER BY sequence`,
			`SELECT CAST(version AS TEXT) FROM seeded`,
		} {
			if diff := cmp.Diff(texts(t, from, query), texts(t, to, query)); diff != "" {
				t.Errorf("%s (-source +copy):\n%s", query, diff)
			}
		}
		if got := texts(t, to, `SELECT id FROM leased`); len(got) != 0 {
			t.Errorf("the skipped table has %v", got)
		}
		exec(t, to, `INSERT INTO numbered (text) VALUES ('next')`)
		if got := texts(t, to, `SELECT CAST(id AS TEXT) FROM numbered WHERE text = 'next'`); got[0] != "121" {
			t.Errorf("the next number is %s, want 121", got[0])
		}
		next := `INSERT INTO logged (text) VALUES ('next')`
		if to.Dialect() == storage.Postgres {
			next = `INSERT INTO logged (sequence, xid, text) VALUES (nextval('log_sequence'), '4'::xid8, 'next')`
		}
		exec(t, to, next)
		if got := texts(t, to, `SELECT CAST(sequence AS TEXT) FROM logged WHERE text = 'next'`); got[0] != "121" {
			t.Errorf("the next number of the log is %s, want 121", got[0])
		}
	})
}

func TestCopyRefusals(t *testing.T) {
	eachPair(t, func(t *testing.T, from, to *storage.DB) {
		fill(t, from)
		exec(t, to, `INSERT INTO parent (id) VALUES ('mine')`)
		var full *transfer.NotEmptyError
		if _, err := transfer.Copy(t.Context(), config(from, to)); !errors.As(err, &full) || full.Table != "parent" {
			t.Errorf("a target that is not empty: %v", err)
		}
		if unfinished, err := transfer.Unfinished(t.Context(), to); err != nil || unfinished {
			t.Errorf("a refused copy left its mark: %v, %v", unfinished, err)
		}
		exec(t, to, `DELETE FROM parent`)

		// Broken off, then with another source.
		ctx, kill := context.WithCancel(t.Context())
		cfg := config(from, to)
		cfg.Progress = func(string, int64, bool) { kill() }
		if _, err := transfer.Copy(ctx, cfg); err == nil {
			t.Fatal("the copy was not broken off")
		}
		other := config(from, to)
		other.Fingerprint = "two"
		var foreign *transfer.OtherSourceError
		if _, err := transfer.Copy(t.Context(), other); !errors.As(err, &foreign) {
			t.Errorf("another source: %v", err)
		}

		// The source is written to between the copy and the comparison.
		changed := config(from, to)
		changed.Progress = func(table string, _ int64, done bool) {
			if table == "child" && done {
				exec(t, from, `UPDATE child SET note = 'changed' WHERE n = 2 AND parent = (SELECT MIN(parent) FROM child)`)
			}
		}
		var differs *transfer.MismatchError
		if _, err := transfer.Copy(t.Context(), changed); !errors.As(err, &differs) || differs.Table != "child" {
			t.Errorf("a source that changes: %v", err)
		}
		if unfinished, err := transfer.Unfinished(t.Context(), to); err != nil || !unfinished {
			t.Errorf("a copy that differs counts as finished: %v, %v", unfinished, err)
		}
	})
}

func TestTablesThatDiffer(t *testing.T) {
	eachPair(t, func(t *testing.T, from, to *storage.DB) {
		exec(t, from, `ALTER TABLE child ADD COLUMN newer TEXT`)
		exec(t, from, `CREATE TABLE extra (id TEXT PRIMARY KEY NOT NULL)`)
		exec(t, to, `ALTER TABLE parent ADD COLUMN other TEXT`)
		_, err := transfer.Copy(t.Context(), config(from, to))
		for _, want := range []string{"table child: the target has no column newer", "table extra has no counterpart", "table parent: the source has no column other"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		}
	})
}
