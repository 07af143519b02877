package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// txn is one transaction of the database. Statements hold mu for reading, the
// begin and the end of a level hold it for writing, so that a goroutine that
// outlives its transaction never writes into the next level.
type txn struct {
	db         *DB
	tx         *sql.Tx
	mu         sync.RWMutex
	savepoints int
}

// scope is one level of a txn: a Querier that ends with its level.
type scope struct {
	*level
	txn       *txn
	parent    *scope
	savepoint string // empty for the outermost level

	failMu sync.Mutex
	failed error // of the first statement that failed
}

var _ Querier = (*scope)(nil)

// scopeKey is the context key for the scope of one database.
type scopeKey struct{ db *DB }

func (db *DB) scope(ctx context.Context) *scope {
	s, _ := ctx.Value(scopeKey{db}).(*scope)
	return s
}

// with returns ctx with the scope as the current one.
func (s *scope) with(ctx context.Context) context.Context {
	return withLevel(context.WithValue(ctx, scopeKey{s.txn.db}, s), s.level)
}

// InTx calls fn with a context that carries a transaction, commits when fn
// returns nil, and rolls back when it returns an error, panics, or ctx ends.
// The package's documentation has the rules. The error is fn's own, or wraps
// what the database said.
func (db *DB) InTx(ctx context.Context, fn func(ctx context.Context) error) error {
	if s := db.scope(ctx); s != nil {
		return s.nested(ctx, fn)
	}
	for attempt := 1; ; attempt++ {
		err := db.attempt(ctx, fn)
		if err == nil || attempt >= db.cfg.TxAttempts || !retryable(err) {
			return unmarked(err)
		}
		if !sleep(ctx, backoff(attempt)) {
			return unmarked(err)
		}
	}
}

// lostError marks an error of fn whose transaction lost against another one,
// also when fn hid the database's error in its own.
type lostError struct {
	error
	cause error
}

func retryable(err error) bool {
	var busy *WriterBusyError
	if lost, ok := err.(lostError); ok && IsTransient(lost.cause) {
		return true
	}
	// A wait for the writer that ended was long enough: its bound is the
	// caller's as well. Room is not made in milliseconds.
	return IsTransient(unmarked(err)) && !errors.As(err, &busy) && FaultOf(unmarked(err)).Kind != FaultFull
}

func unmarked(err error) error {
	if lost, ok := err.(lostError); ok {
		return lost.error
	}
	return err
}

// backoff is full jitter over 4 ms · 4^(attempt-1), capped at 500 ms.
func backoff(attempt int) time.Duration {
	limit := min(4*time.Millisecond<<(2*min(attempt-1, 8)), 500*time.Millisecond)
	return time.Millisecond + rand.N(limit)
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// attempt runs fn in one transaction and the hooks after it.
func (db *DB) attempt(ctx context.Context, fn func(context.Context) error) error {
	tx, release, err := db.begin(ctx)
	if err != nil {
		return err
	}
	s := &scope{level: newLevel(nil, ctx), txn: &txn{db: db, tx: tx}}
	returned := false
	defer func() {
		if !returned { // fn panicked or ended its goroutine
			s.rollback(release)
		}
	}()
	err = fn(s.with(ctx))
	returned = true
	if err == nil {
		err = s.finishable(ctx)
	}
	if err != nil {
		s.rollback(release)
		return lostError{err, s.failure()}
	}
	return s.commitOutermost(release)
}

// finishable tells why a level whose function returned nil can't be kept.
func (s *scope) finishable(ctx context.Context) error {
	if failed := s.failure(); failed != nil {
		return aborted(failed)
	}
	return ended(ctx)
}

// ended is the error of a context that has ended, with its cause.
func ended(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != err {
		return fmt.Errorf("storage: rolled back: %w: %w", err, cause)
	}
	return fmt.Errorf("storage: rolled back: %w", err)
}

func (s *scope) commitOutermost(release func()) error {
	s.txn.mu.Lock()
	err := s.txn.tx.Commit()
	state := levelCommitted
	if err != nil {
		state = levelRolledBack
		if FaultOf(err).Kind == FaultConnection {
			state, err = levelUnknown, &CommitUnknownError{Err: err}
		}
	}
	commit, undo := s.end(state)
	s.txn.mu.Unlock()
	if err == nil {
		s.txn.db.driver.Tidy(context.WithoutCancel(s.base))
	}
	release()
	if err != nil {
		runAll(undo)
		return fmt.Errorf("storage: commit: %w", err)
	}
	runCommit(s.base, commit)
	return nil
}

// rollback ends the outermost level. Its error is of no use: the connection
// is lost then, and the server rolls back by itself.
func (s *scope) rollback(release func()) {
	s.txn.mu.Lock()
	_ = s.txn.tx.Rollback()
	_, undo := s.end(levelRolledBack)
	s.txn.mu.Unlock()
	release()
	runAll(undo)
}

// begin opens a transaction on the writer. The wait for a connection and for
// SQLite's writer ends with ctx; the transaction itself doesn't: InTx ends it
// when fn has returned, never while fn may still run.
func (db *DB) begin(ctx context.Context) (tx *sql.Tx, release func(), err error) {
	release = func() {}
	if db.queue == nil {
		tx, err = beginTx(ctx, db.writer)
		if err != nil {
			return nil, nil, fmt.Errorf("storage: begin: %w", err)
		}
		return tx, release, nil
	}
	release, err = db.queue.acquire(ctx, func(ctx context.Context) (err error) {
		tx, err = beginTx(ctx, db.writer)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("storage: begin: %w", err)
	}
	return tx, release, nil
}

// beginTx begins a transaction that outlives ctx.
func beginTx(ctx context.Context, pool *sql.DB) (*sql.Tx, error) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	tx, err := pool.BeginTx(own, nil)
	switch stopped := stop(); {
	case err != nil:
		cancel()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	case !stopped:
		_ = tx.Rollback()
		return nil, ctx.Err()
	}
	// cancel is left uncalled on purpose: it would roll back. own is not a
	// child of ctx, so nothing is kept alive by it.
	return tx, nil //nolint:govet
}

// nested runs fn in a savepoint.
func (s *scope) nested(ctx context.Context, fn func(context.Context) error) error {
	child, err := s.savepointOpen(ctx)
	if err != nil {
		return err
	}
	returned := false
	defer func() {
		if !returned {
			child.rollbackSavepoint()
		}
	}()
	err = fn(child.with(ctx))
	returned = true
	if err == nil {
		err = child.finishable(ctx)
	}
	if err != nil {
		child.rollbackSavepoint()
		return err
	}
	return child.releaseSavepoint(ctx)
}

func (s *scope) savepointOpen(ctx context.Context) (*scope, error) {
	s.txn.mu.Lock()
	defer s.txn.mu.Unlock()
	if err := s.usable(); err != nil {
		return nil, err
	}
	s.txn.savepoints++
	child := &scope{
		level:     newLevel(s.level, nil),
		txn:       s.txn,
		parent:    s,
		savepoint: fmt.Sprintf("sp%d", s.txn.savepoints),
	}
	if _, err := s.txn.tx.ExecContext(ctx, "SAVEPOINT "+child.savepoint); err != nil {
		return nil, fmt.Errorf("storage: open savepoint: %w", s.fail(err))
	}
	return child, s.open(child.level)
}

func (s *scope) releaseSavepoint(ctx context.Context) error {
	s.txn.mu.Lock()
	_, err := s.txn.tx.ExecContext(context.WithoutCancel(ctx), "RELEASE SAVEPOINT "+s.savepoint)
	state := levelReleased
	if err != nil {
		state = levelRolledBack
		err = fmt.Errorf("storage: release savepoint: %w", s.parent.fail(err))
	}
	_, undo := s.end(state)
	s.txn.mu.Unlock()
	runAll(undo)
	return err
}

// rollbackSavepoint undoes the level. When that fails the whole transaction is
// gone, on SQLite because some errors roll it back, and so are the levels above.
func (s *scope) rollbackSavepoint() {
	s.txn.mu.Lock()
	_, err := s.txn.tx.ExecContext(context.WithoutCancel(s.base),
		"ROLLBACK TO SAVEPOINT "+s.savepoint)
	if err == nil {
		_, err = s.txn.tx.ExecContext(context.WithoutCancel(s.base),
			"RELEASE SAVEPOINT "+s.savepoint)
	}
	if err != nil {
		cause := s.failure()
		if cause == nil {
			cause = err
		}
		for p := s.parent; p != nil; p = p.parent {
			_ = p.fail(cause)
		}
	}
	_, undo := s.end(levelRolledBack)
	s.txn.mu.Unlock()
	runAll(undo)
}

// usable tells whether a statement may run; txn.mu is held.
func (s *scope) usable() error {
	if err := s.check(); err != nil {
		return err
	}
	if failed := s.failure(); failed != nil {
		return aborted(failed)
	}
	return nil
}

func aborted(cause error) error { return fmt.Errorf("%w: %w", ErrTxAborted, cause) }

func (s *scope) failure() error {
	s.failMu.Lock()
	defer s.failMu.Unlock()
	return s.failed
}

// fail marks the level as failed and returns err, in which the end of the
// transaction behind our back is named as such.
func (s *scope) fail(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return ErrTxFinished
	}
	s.failMu.Lock()
	defer s.failMu.Unlock()
	if s.failed == nil {
		s.failed = err
	}
	return err
}

// ExecContext implements Querier.
func (s *scope) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	s.txn.mu.RLock()
	defer s.txn.mu.RUnlock()
	if err := s.usable(); err != nil {
		return nil, err
	}
	res, err := s.txn.tx.ExecContext(ctx, query, args...)
	if err != nil {
		return nil, s.fail(err)
	}
	return res, nil
}

// QueryContext implements Querier.
func (s *scope) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s.txn.mu.RLock()
	defer s.txn.mu.RUnlock()
	if err := s.usable(); err != nil {
		return nil, err
	}
	rows, err := s.txn.tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, s.fail(err)
	}
	return rows, nil
}

// QueryRowContext implements Querier.
func (s *scope) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	s.txn.mu.RLock()
	defer s.txn.mu.RUnlock()
	if err := s.usable(); err != nil {
		return failedRow(err)
	}
	row := s.txn.tx.QueryRowContext(ctx, query, args...)
	if err := row.Err(); err != nil {
		if err := s.fail(err); errors.Is(err, ErrTxFinished) {
			return failedRow(err)
		}
	}
	return row
}
