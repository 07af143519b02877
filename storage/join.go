package storage

import (
	"context"
	"database/sql"
)

// Joined is a transaction that a host program began itself and shares with
// this module by [DB.WithTx].
type Joined struct{ scope *scope }

// WithTx returns a context that carries tx, a transaction that the caller has
// begun on the same database and ends itself. InTx inside it is a savepoint.
// The caller reports the end with one call of Committed or RolledBack, after
// which the context gives ErrTxFinished; a call that never comes leaves the
// hooks without effect.
//
// On SQLite tx holds the writer of its own pool, so inside it the returned
// context must be used: a write without it waits for the file's lock.
func (db *DB) WithTx(ctx context.Context, tx *sql.Tx) (context.Context, *Joined) {
	s := &scope{level: newLevel(nil, ctx), txn: &txn{db: db, tx: tx}}
	s.level.foreign = true
	return s.with(ctx), &Joined{s}
}

// Committed tells that the transaction has committed and runs what was added
// by AfterCommit. Only the first call of Committed and RolledBack counts.
func (j *Joined) Committed() { j.end(levelCommitted) }

// RolledBack tells that the transaction was rolled back and runs what was
// added by OnRollback.
func (j *Joined) RolledBack() { j.end(levelRolledBack) }

func (j *Joined) end(state levelState) {
	s := j.scope
	s.txn.mu.Lock()
	if s.ended() {
		s.txn.mu.Unlock()
		return
	}
	commit, undo := s.end(state)
	s.txn.mu.Unlock()
	runCommit(s.base, commit)
	runAll(undo)
}
