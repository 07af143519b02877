package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrTxFinished is returned for any use of a transaction, or of one of its
// savepoints, after its end. It wraps sql.ErrTxDone.
var ErrTxFinished = fmt.Errorf("storage: the transaction of this context has ended: %w", sql.ErrTxDone)

// ErrTxAborted is returned for any use of a transaction's level after one of
// its statements failed, and by InTx when its function returned nil all the
// same. The error wraps the statement's error too.
var ErrTxAborted = errors.New("storage: an earlier statement of this transaction failed, it can only be rolled back")

// ErrNestedOpen is returned for the use of a context while a savepoint that
// was opened from it is still open: what it did would be lost with the
// savepoint. Inside a nested InTx use the context it gave.
var ErrNestedOpen = errors.New("storage: a nested transaction is open, use its context")

// ErrUseInTx is returned by bun's own BeginTx and RunInTx.
var ErrUseInTx = errors.New("storage: transactions are opened by DB.InTx only")

// WriterBusyError tells that SQLite's one writer was not free in time.
type WriterBusyError struct {
	// Holder is what holds the writer: the label of [Named], the function
	// that opened the transaction, or "another process".
	Holder string
	// Waited is how long the caller waited.
	Waited time.Duration
	// Held is how long the holder has had the writer; 0 when unknown.
	Held time.Duration
}

// Error implements error.
func (e *WriterBusyError) Error() string {
	held := ""
	if e.Held > 0 {
		held = fmt.Sprintf(" (for %v)", e.Held.Round(time.Millisecond))
	}
	return fmt.Sprintf("storage: the database's writer was still held by %s%s after %v",
		e.Holder, held, e.Waited.Round(time.Millisecond))
}

// LockedError tells that another host has the database file.
type LockedError struct {
	// Path is the database file.
	Path string
	// PID is the process that holds it; 0 when unknown.
	PID int
}

// Error implements error.
func (e *LockedError) Error() string {
	by := "another process"
	if e.PID != 0 {
		by = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("storage: %s is in use by %s; one host serves a SQLite file at a time", e.Path, by)
}

// CommitUnknownError tells that the connection was lost while the commit was
// under way: the transaction is in the database as a whole or not at all.
// InTx doesn't try again then, and neither commit nor rollback hooks run.
type CommitUnknownError struct{ Err error }

// Error implements error.
func (e *CommitUnknownError) Error() string {
	return "storage: the connection was lost during commit, its outcome is unknown: " + e.Err.Error()
}

// Unwrap returns the connection's error.
func (e *CommitUnknownError) Unwrap() error { return e.Err }

// faults holds one classifier per dialect that was opened, so that errors can
// be classified where no DB is at hand.
var faults sync.Map // Dialect -> func(error) Fault

// FaultOf classifies an error of any dialect that this process has opened.
func FaultOf(err error) Fault {
	var found Fault
	if err == nil {
		return found
	}
	faults.Range(func(_, classify any) bool {
		found = classify.(func(error) Fault)(err)
		return found.Kind == FaultNone
	})
	return found
}

// IsUniqueViolation tells whether err, or an error it wraps, is a violated
// unique constraint, and which one; see [Fault] for its spelling.
func IsUniqueViolation(err error) (constraint string, ok bool) {
	f := FaultOf(err)
	return f.Constraint, f.Kind == FaultUnique
}

// IsBusy tells whether err is a lock that was not to be had in time.
func IsBusy(err error) bool {
	var busy *WriterBusyError
	return errors.As(err, &busy) || FaultOf(err).Kind == FaultBusy
}

// IsConnectionLost tells whether err is a connection that was lost or could
// not be made: the database may answer again later.
func IsConnectionLost(err error) bool { return FaultOf(err).Kind == FaultConnection }

// IsTransient tells whether the same work may succeed when it is done again:
// the transaction lost against another one, a lock was busy, the connection was
// lost, or there is no room at the moment. A *CommitUnknownError is not transient: the work may be done.
func IsTransient(err error) bool {
	var unknown *CommitUnknownError
	if err == nil || errors.As(err, &unknown) || errors.Is(err, context.Canceled) {
		return false
	}
	switch FaultOf(err).Kind {
	case FaultConflict, FaultBusy, FaultConnection, FaultFull:
		return true
	}
	var busy *WriterBusyError
	return errors.As(err, &busy)
}
