package storage_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// eachTransactor runs fn on a database of each dialect and on a Memory: the
// rules of hooks are the same.
func eachTransactor(t *testing.T, fn func(t *testing.T, tx storage.Transactor)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		fn(t, storage.NewMemory())
	})
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) { fn(t, db) })
}

// tape records calls in their order.
type tape []string

func (r *tape) hook(name string) func(context.Context) {
	return func(context.Context) { *r = append(*r, name) }
}

func (r *tape) undo(name string) func() {
	return func() { *r = append(*r, name) }
}

func (r *tape) want(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, []string(*r)); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

var errNo = errors.New("no")

func TestAfterCommitRunsOnceInOrder(t *testing.T) {
	t.Parallel()
	eachTransactor(t, func(t *testing.T, tx storage.Transactor) {
		var r tape
		err := tx.InTx(t.Context(), func(ctx context.Context) error {
			storage.AfterCommit(ctx, r.hook("1"))
			storage.OnRollback(ctx, r.undo("undo"))
			err := tx.InTx(ctx, func(ctx context.Context) error {
				storage.AfterCommit(ctx, r.hook("2"))
				return nil
			})
			storage.AfterCommit(ctx, r.hook("3"))
			r.want(t)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		r.want(t, "1", "2", "3")
	})
}

func TestHooksOfARolledBackSavepoint(t *testing.T) {
	t.Parallel()
	eachTransactor(t, func(t *testing.T, tx storage.Transactor) {
		var r tape
		err := tx.InTx(t.Context(), func(ctx context.Context) error {
			storage.AfterCommit(ctx, r.hook("outer"))
			storage.OnRollback(ctx, r.undo("never"))
			err := tx.InTx(ctx, func(ctx context.Context) error {
				storage.OnRollback(ctx, r.undo("undo 1"))
				storage.AfterCommit(ctx, r.hook("forgotten"))
				if err := tx.InTx(ctx, func(ctx context.Context) error {
					storage.OnRollback(ctx, r.undo("undo 2"))
					storage.AfterCommit(ctx, r.hook("forgotten too"))
					return nil
				}); err != nil {
					return err
				}
				storage.OnRollback(ctx, r.undo("undo 3"))
				return errNo
			})
			if err != errNo {
				t.Errorf("nested InTx = %v, want its own error", err)
			}
			r.want(t, "undo 3", "undo 2", "undo 1")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		r.want(t, "undo 3", "undo 2", "undo 1", "outer")
	})
}

func TestHooksOfARollback(t *testing.T) {
	t.Parallel()
	eachTransactor(t, func(t *testing.T, tx storage.Transactor) {
		var r tape
		err := tx.InTx(t.Context(), func(ctx context.Context) error {
			storage.AfterCommit(ctx, r.hook("forgotten"))
			storage.OnRollback(ctx, r.undo("1"))
			storage.OnRollback(ctx, r.undo("2"))
			return errNo
		})
		if err != errNo {
			t.Fatal(err)
		}
		r.want(t, "2", "1")
	})
}

func TestHooksWithoutATransaction(t *testing.T) {
	t.Parallel()
	var r tape
	storage.AfterCommit(t.Context(), r.hook("now"))
	storage.OnRollback(t.Context(), r.undo("never"))
	r.want(t, "now")
	if storage.InTransaction(t.Context()) {
		t.Error("InTransaction without one")
	}
}

// Hooks added after the end follow what became of the transaction.
func TestHooksAfterTheEnd(t *testing.T) {
	t.Parallel()
	eachTransactor(t, func(t *testing.T, tx storage.Transactor) {
		var committed, released, rolledBack context.Context
		if err := tx.InTx(t.Context(), func(ctx context.Context) error {
			committed = ctx
			return tx.InTx(ctx, func(ctx context.Context) error { released = ctx; return nil })
		}); err != nil {
			t.Fatal(err)
		}
		_ = tx.InTx(t.Context(), func(ctx context.Context) error { rolledBack = ctx; return errNo })
		var r tape
		for _, c := range []struct {
			name string
			ctx  context.Context
		}{{"committed", committed}, {"released", released}, {"rolled back", rolledBack}} {
			storage.AfterCommit(c.ctx, r.hook("commit "+c.name))
			storage.OnRollback(c.ctx, r.undo("undo "+c.name))
			if err := tx.InTx(c.ctx, func(context.Context) error { return nil }); !errors.Is(err, storage.ErrTxFinished) {
				t.Errorf("InTx after the end (%s) = %v, want ErrTxFinished", c.name, err)
			}
		}
		r.want(t, "commit committed", "commit released", "undo rolled back")
	})
}

// A released savepoint hands its late hooks to the level above.
func TestHooksOfAReleasedSavepointWhileOpen(t *testing.T) {
	t.Parallel()
	eachTransactor(t, func(t *testing.T, tx storage.Transactor) {
		var r tape
		_ = tx.InTx(t.Context(), func(ctx context.Context) error {
			var late context.Context
			if err := tx.InTx(ctx, func(ctx context.Context) error { late = ctx; return nil }); err != nil {
				return err
			}
			storage.AfterCommit(late, r.hook("forgotten"))
			storage.OnRollback(late, r.undo("undone"))
			return errNo
		})
		r.want(t, "undone")
	})
}

type valueKey struct{}

func TestAfterCommitContext(t *testing.T) {
	t.Parallel()
	eachTransactor(t, func(t *testing.T, tx storage.Transactor) {
		parent, cancel := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "v"))
		ran := false
		err := tx.InTx(parent, func(ctx context.Context) error {
			storage.AfterCommit(ctx, func(ctx context.Context) {
				ran = true
				cancel()
				if storage.InTransaction(ctx) {
					t.Error("the hook's context carries the transaction")
				}
				if ctx.Err() != nil {
					t.Error("the hook's context is cancelled with the caller's")
				}
				if got := ctx.Value(valueKey{}); got != "v" {
					t.Errorf("value = %v, want the caller's", got)
				}
				// No lock is held: another transaction can begin.
				bounded, stop := context.WithTimeout(ctx, 5*time.Second)
				defer stop()
				if err := tx.InTx(bounded, func(context.Context) error { return nil }); err != nil {
					t.Errorf("InTx in a hook = %v", err)
				}
			})
			return nil
		})
		if err != nil || !ran {
			t.Fatalf("InTx = %v, hook ran: %v", err, ran)
		}
	})
}

func TestPanicOfAHook(t *testing.T) {
	t.Parallel()
	eachTransactor(t, func(t *testing.T, tx storage.Transactor) {
		var r tape
		func() {
			defer func() {
				if got := recover(); got != "first" {
					t.Errorf("recovered %v, want the first hook's panic", got)
				}
			}()
			_ = tx.InTx(t.Context(), func(ctx context.Context) error {
				storage.AfterCommit(ctx, func(context.Context) { panic("first") })
				storage.AfterCommit(ctx, r.hook("2"))
				storage.AfterCommit(ctx, func(context.Context) { panic("second") })
				storage.AfterCommit(ctx, r.hook("3"))
				return nil
			})
		}()
		r.want(t, "2", "3")
		if err := tx.InTx(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Errorf("InTx afterwards = %v", err)
		}
	})
}

// A tree of nested transactions, some of which fail, gives the hooks and the
// undoings of a simple model.
func TestHooksProperty(t *testing.T) {
	t.Parallel()
	eachTransactor(t, func(t *testing.T, tx storage.Transactor) {
		rapid.Check(t, func(t *rapid.T) {
			var got tape
			var undone []string // by the model
			n := 0
			var level func(ctx context.Context, depth int) (kept, undo []string, err error)
			level = func(ctx context.Context, depth int) (kept, undo []string, err error) {
				err = tx.InTx(ctx, func(ctx context.Context) error {
					for range rapid.IntRange(0, 3).Draw(t, "steps") {
						n++
						name := fmt.Sprint(n)
						storage.AfterCommit(ctx, got.hook("commit "+name))
						storage.OnRollback(ctx, got.undo("undo "+name))
						kept, undo = append(kept, "commit "+name), append(undo, "undo "+name)
						if depth < 3 && rapid.Bool().Draw(t, "nest") {
							k, u, _ := level(ctx, depth+1)
							kept, undo = append(kept, k...), append(undo, u...)
						}
					}
					if rapid.Bool().Draw(t, "fail") {
						slices.Reverse(undo)
						undone = append(undone, undo...)
						kept, undo = nil, nil
						return errNo
					}
					return nil
				})
				return kept, undo, err
			}
			kept, _, _ := level(context.Background(), 0)
			if diff := cmp.Diff(append(undone, kept...), []string(got)); diff != "" {
				t.Fatalf("calls (-want +got):\n%s", diff)
			}
		})
	})
}
