package storage_test

import (
	"context"
	"errors"
	"testing"

	"github.com/uptrace/bun"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

type row struct {
	bun.BaseModel `bun:"table:n"`

	K string `bun:"k,pk"`
	V int64  `bun:"v"`
}

func TestBunPicksTheTransaction(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		newTable(t, db)
		ctx := t.Context()
		if _, err := db.Bun(ctx).NewInsert().Model(&row{K: "a", V: 1}).Exec(ctx); err != nil {
			t.Fatal(err)
		}
		err := db.InTx(ctx, func(ctx context.Context) error {
			if _, err := db.Bun(ctx).NewInsert().Model(&[]row{{K: "b", V: 2}, {K: "c", V: 3}}).Exec(ctx); err != nil {
				return err
			}
			if _, err := db.Bun(ctx).NewUpdate().Model(&row{K: "a", V: 9}).WherePK().Exec(ctx); err != nil {
				return err
			}
			var got []row
			if err := db.BunRead(ctx).NewSelect().Model(&got).Order("k").Scan(ctx); err != nil {
				return err
			}
			if len(got) != 3 || got[0].V != 9 || got[2].K != "c" {
				t.Errorf("inside: %v", got)
			}
			return errNo
		})
		if err != errNo {
			t.Fatal(err)
		}
		var got []row
		if err := db.BunRead(ctx).NewSelect().Model(&got).Scan(ctx); err != nil {
			t.Fatal(err)
		}
		if len(got) != 1 || got[0].K != "a" || got[0].V != 1 {
			t.Errorf("after the rollback: %v, want a=1 alone", got)
		}
		res, err := db.Bun(ctx).ExecContext(ctx, "UPDATE n SET v = ? WHERE k IN (?)", 5, bun.List([]string{"a", "x"}))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := res.RowsAffected(); err != nil || n != 1 {
			t.Errorf("rows affected = %d, %v; want 1", n, err)
		}
		var v int
		if err := db.BunRead(ctx).QueryRowContext(ctx, "SELECT v FROM n WHERE k = ?", "a").Scan(&v); err != nil || v != 5 {
			t.Errorf("v = %d, %v; want 5", v, err)
		}
	})
}

func TestBunOpensNoTransactions(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		if _, err := db.Bun(t.Context()).BeginTx(t.Context(), nil); !errors.Is(err, storage.ErrUseInTx) {
			t.Errorf("BeginTx = %v, want ErrUseInTx", err)
		}
		err := db.Bun(t.Context()).RunInTx(t.Context(), nil, func(context.Context, bun.Tx) error {
			t.Error("fn was called")
			return nil
		})
		if !errors.Is(err, storage.ErrUseInTx) {
			t.Errorf("RunInTx = %v, want ErrUseInTx", err)
		}
	})
}

// Placeholders are $1, $2 on both dialects, in any order and more than once.
func TestNumberedPlaceholders(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		var got string
		err := db.Read(t.Context()).QueryRowContext(t.Context(),
			"SELECT CAST($2 AS TEXT) || CAST($1 AS TEXT) || CAST($2 AS TEXT)", "a", "b").Scan(&got)
		if err != nil || got != "bab" {
			t.Errorf("got %q, %v; want bab", got, err)
		}
	})
}

// Slices are arrays on Postgres.
func TestArrayArguments(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Postgres(t), storage.Config{})
	var got string
	err := db.Read(t.Context()).QueryRowContext(t.Context(),
		`SELECT string_agg(i || s || convert_from(b, 'UTF8'), ',' ORDER BY i)
		 FROM unnest($1::bigint[], $2::text[], $3::bytea[]) AS u(i, s, b)`,
		[]int64{2, 1}, []string{"b", `a"{,`}, [][]byte{[]byte("y"), []byte("x")}).Scan(&got)
	if want := `1a"{,x,2by`; err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}
