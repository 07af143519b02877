package storage

import (
	"context"
	"slices"
	"sync"
)

// levelState is the life of a level:
//
//	open ──► released ──► (its parent's state)   a savepoint that was kept
//	     ├─► committed                           the outermost level only
//	     ├─► rolledBack
//	     └─► unknown                             a commit without an answer
type levelState int

const (
	levelOpen levelState = iota
	levelReleased
	levelCommitted
	levelRolledBack
	levelUnknown
)

// level is one level of a transaction, the transaction itself or a savepoint
// in it, as far as the hooks are concerned.
type level struct {
	parent *level
	// base is the context that the outermost level was opened with.
	base context.Context
	// mu is shared by all levels of a transaction.
	mu     *sync.Mutex
	state  levelState
	child  *level // the savepoint that is open in this level
	commit []func(context.Context)
	undo   []func()
	// unsure runs when the commit had no answer.
	unsure []func()
	// foreign marks a transaction that the host program began and ends itself.
	foreign bool
}

func newLevel(parent *level, base context.Context) *level {
	if parent == nil {
		return &level{base: base, mu: new(sync.Mutex)}
	}
	return &level{parent: parent, base: parent.base, mu: parent.mu, foreign: parent.foreign}
}

// check tells whether the level can be used.
func (l *level) check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.state != levelOpen:
		return ErrTxFinished
	case l.child != nil:
		return ErrNestedOpen
	}
	return nil
}

func (l *level) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state != levelOpen
}

// open makes child the level's open savepoint.
func (l *level) open(child *level) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.state != levelOpen:
		return ErrTxFinished
	case l.child != nil:
		return ErrNestedOpen
	}
	l.child = child
	return nil
}

// end moves the level to its final state and returns the hooks to run now:
// commit hooks in the order they were added, undo functions in reverse, or the
// functions for a commit without an answer in place of these.
func (l *level) end(state levelState) (commit []func(context.Context), undo []func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = state
	if l.parent != nil {
		l.parent.child = nil
	}
	switch state {
	case levelReleased:
		l.parent.commit = append(l.parent.commit, l.commit...)
		l.parent.undo = append(l.parent.undo, l.undo...)
		l.parent.unsure = append(l.parent.unsure, l.unsure...)
	case levelCommitted:
		commit = l.commit
	case levelRolledBack:
		undo = l.undo
		slices.Reverse(undo)
	case levelUnknown:
		undo = l.unsure
	}
	l.commit, l.undo, l.unsure = nil, nil, nil
	return commit, undo
}

// settled returns the nearest level whose state is not released, locked.
func (l *level) settled() *level {
	l.mu.Lock()
	for l.state == levelReleased {
		l = l.parent
	}
	return l
}

type currentKey struct{}

func withLevel(ctx context.Context, l *level) context.Context {
	return context.WithValue(ctx, currentKey{}, l)
}

func currentLevel(ctx context.Context) *level {
	l, _ := ctx.Value(currentKey{}).(*level)
	return l
}

// InTransaction tells whether ctx carries an open transaction.
func InTransaction(ctx context.Context) bool {
	l := currentLevel(ctx)
	if l == nil {
		return false
	}
	return !l.ended()
}

// Foreign tells whether ctx carries a transaction that joined by [DB.WithTx]:
// its end is known only when, and if, the host program reports it.
func Foreign(ctx context.Context) bool {
	l := currentLevel(ctx)
	return l != nil && l.foreign
}

// AfterCommit calls fn once when the outermost transaction of ctx has
// committed, in the order of the calls, without any lock held. fn's context
// has the values of the context that the transaction was opened with, doesn't
// carry the transaction, and isn't cancelled with it. fn is forgotten when the
// transaction, a retried attempt or the savepoint it was added in rolls back.
// Without a transaction in ctx fn is called at once.
//
// A panic of one function doesn't keep the others from running; InTx passes
// the first one on when all have run.
func AfterCommit(ctx context.Context, fn func(ctx context.Context)) {
	l := currentLevel(ctx)
	if l == nil {
		fn(ctx)
		return
	}
	l = l.settled()
	state := l.state
	if state == levelOpen {
		l.commit = append(l.commit, fn)
	}
	l.mu.Unlock()
	if state == levelCommitted {
		fn(context.WithoutCancel(l.base))
	}
}

// OnRollback calls fn when the transaction of ctx, or the savepoint that it is
// called in, rolls back; the last one added runs first. Memory stores undo
// their changes with it. Without a transaction in ctx it does nothing.
func OnRollback(ctx context.Context, fn func()) {
	onEnd(ctx, levelRolledBack, func(l *level) *[]func() { return &l.undo }, fn)
}

// OnCommitUnknown calls fn when the connection is lost while the outermost
// transaction of ctx commits, so that nobody can tell whether it has: neither
// the functions of [AfterCommit] nor those of [OnRollback] are called then. fn
// is forgotten with a savepoint that rolls back. Without a transaction in ctx it
// does nothing.
func OnCommitUnknown(ctx context.Context, fn func()) {
	onEnd(ctx, levelUnknown, func(l *level) *[]func() { return &l.unsure }, fn)
}

// onEnd adds fn to a list of the transaction of ctx, or calls it when the
// transaction has already come to the end that the list is for.
func onEnd(ctx context.Context, end levelState, list func(*level) *[]func(), fn func()) {
	l := currentLevel(ctx)
	if l == nil {
		return
	}
	l = l.settled()
	state := l.state
	if state == levelOpen {
		*list(l) = append(*list(l), fn)
	}
	l.mu.Unlock()
	if state == end {
		fn()
	}
}

// runCommit runs commit hooks for a transaction opened with base.
func runCommit(base context.Context, hooks []func(context.Context)) {
	ctx := context.WithoutCancel(base)
	calls := make([]func(), len(hooks))
	for i, fn := range hooks {
		calls[i] = func() { fn(ctx) }
	}
	runAll(calls)
}

// runAll calls every function, also after one that panics; the first panic's
// value is panicked with in the end.
func runAll(calls []func()) {
	var first any
	for _, fn := range calls {
		func() {
			defer func() {
				if r := recover(); r != nil && first == nil {
					first = r
				}
			}()
			fn()
		}()
	}
	if first != nil {
		panic(first)
	}
}
