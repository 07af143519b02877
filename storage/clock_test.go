package storage_test

import (
	"context"
	"testing"
	"time"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// The database's clock is a whole number of milliseconds and moves on inside a
// transaction.
func TestClock(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		now, err := db.NowMillis(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(time.UnixMilli(now)); d < -time.Second || d > 5*time.Second {
			t.Errorf("the clock is %v away", d)
		}
		err = db.InTx(t.Context(), func(ctx context.Context) error {
			first, err := db.NowMillis(ctx)
			if err != nil {
				return err
			}
			for {
				next, err := db.NowMillis(ctx)
				if err != nil {
					return err
				}
				if next < first {
					t.Errorf("the clock went from %d to %d", first, next)
				}
				if next > first {
					return nil
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		typ := "typeof(" + db.NowSQL() + ")"
		want := "integer"
		if db.Dialect() == storage.Postgres {
			typ, want = "pg_typeof("+db.NowSQL()+")::text", "bigint"
		}
		var got string
		if err := db.Read(t.Context()).QueryRowContext(t.Context(), "SELECT "+typ).Scan(&got); err != nil || got != want {
			t.Errorf("type = %q, %v; want %q", got, err, want)
		}
	})
}
