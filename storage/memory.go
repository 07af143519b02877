package storage

import "context"

// Memory opens transactions for stores that live in memory: one at a time,
// with the hooks and savepoints of a database. Stores put the undoing of each
// change into [OnRollback]; the functions run before the next transaction
// begins. It is safe for concurrent use; stores that change together share one.
type Memory struct {
	slot chan struct{} // holds a value while no transaction is open
}

// NewMemory returns a Memory.
func NewMemory() *Memory {
	m := &Memory{slot: make(chan struct{}, 1)}
	m.slot <- struct{}{}
	return m
}

// memoryKey is the context key for the level of one Memory.
type memoryKey struct{ m *Memory }

// InTx implements [Transactor] by the rules of [DB.InTx]. Nothing is retried.
func (m *Memory) InTx(ctx context.Context, fn func(ctx context.Context) error) error {
	parent, nested := ctx.Value(memoryKey{m}).(*level)
	l := newLevel(parent, ctx)
	release := func() {}
	if nested {
		if err := parent.open(l); err != nil {
			return err
		}
	} else {
		select {
		case <-m.slot:
		case <-ctx.Done():
			return ctx.Err()
		}
		release = func() { m.slot <- struct{}{} }
	}
	kept := false
	defer func() {
		if !kept {
			defer release()
			_, undo := l.end(levelRolledBack)
			runAll(undo)
		}
	}()
	if err := fn(withLevel(context.WithValue(ctx, memoryKey{m}, l), l)); err != nil {
		return err
	}
	if err := ended(ctx); err != nil {
		return err
	}
	kept = true
	if nested {
		l.end(levelReleased)
		return nil
	}
	commit, _ := l.end(levelCommitted)
	release()
	runCommit(ctx, commit)
	return nil
}
