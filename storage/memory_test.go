package storage_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/objecthost/objecthost/storage"
)

func TestMemorySerializes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := storage.NewMemory()
		n := 0
		for range 50 {
			go func() {
				_ = m.InTx(t.Context(), func(ctx context.Context) error {
					seen := n
					n = seen + 1
					storage.OnRollback(ctx, func() { n = seen })
					if seen%2 == 0 {
						return nil
					}
					_ = m.InTx(ctx, func(ctx context.Context) error {
						n += 100
						storage.OnRollback(ctx, func() { n -= 100 })
						return errNo
					})
					return nil
				})
			}()
		}
		synctest.Wait()
		if n != 50 {
			t.Errorf("n = %d, want 50", n)
		}
	})
}

func TestMemoryWaitEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := storage.NewMemory()
		hold := make(chan struct{})
		go func() {
			_ = m.InTx(t.Context(), func(context.Context) error { <-hold; return nil })
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() { got <- m.InTx(ctx, func(context.Context) error { return nil }) }()
		synctest.Wait()
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Errorf("InTx = %v, want Canceled", err)
		}
		close(hold)
		if err := m.InTx(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Errorf("InTx afterwards = %v", err)
		}
	})
}

func TestMemoryRollsBackOnCancelAndPanic(t *testing.T) {
	t.Parallel()
	m := storage.NewMemory()
	var r tape
	ctx, cancel := context.WithCancel(t.Context())
	err := m.InTx(ctx, func(ctx context.Context) error {
		storage.OnRollback(ctx, r.undo("cancel"))
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("InTx = %v, want Canceled", err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = m.InTx(t.Context(), func(ctx context.Context) error {
			storage.OnRollback(ctx, r.undo("panic"))
			return m.InTx(ctx, func(ctx context.Context) error {
				storage.OnRollback(ctx, r.undo("inner panic"))
				panic("boom")
			})
		})
	}()
	r.want(t, "cancel", "inner panic", "panic")
}
