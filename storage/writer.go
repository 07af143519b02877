package storage

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

type nameKey struct{}

// Named returns a context whose transactions and writes show what as the
// holder in a *WriterBusyError, instead of the function that opened them.
func Named(ctx context.Context, what string) context.Context {
	return context.WithValue(ctx, nameKey{}, what)
}

// writerQueue admits one holder at a time to SQLite's writer, first come first
// served, each waiting a bounded time.
type writerQueue struct {
	slot chan struct{} // holds a value while the writer is free
	wait time.Duration

	waiting atomic.Int64

	mu     sync.Mutex
	holder holder
	rows   *holder // whose rows may keep the connection after its turn
}

// holder is who has the writer. The function's name is looked up only when an
// error needs it.
type holder struct {
	name  string
	pcs   [24]uintptr
	n     int
	since time.Time
}

func newHolder(ctx context.Context) holder {
	h := holder{since: time.Now()}
	h.name, _ = ctx.Value(nameKey{}).(string)
	if h.name == "" {
		h.n = runtime.Callers(3, h.pcs[:])
	}
	return h
}

// String returns the label or the first function outside of this package.
func (h *holder) String() string {
	if h.name != "" || h.n == 0 {
		return h.name
	}
	frames := runtime.CallersFrames(h.pcs[:h.n])
	for {
		f, more := frames.Next()
		if !ownFunction(f) || !more {
			return f.Function
		}
	}
}

// ownFunction tells whether the frame only passes on what others do: this
// package without its tests, database/sql and bun.
func ownFunction(f runtime.Frame) bool {
	if strings.HasSuffix(f.File, "_test.go") {
		return false
	}
	for _, prefix := range []string{
		"github.com/objecthost/objecthost/storage.", "github.com/uptrace/bun.", "database/sql.", "runtime.",
	} {
		if strings.HasPrefix(f.Function, prefix) {
			return true
		}
	}
	return false
}

// Waiting is the number of callers that wait for SQLite's writer now; 0 on
// Postgres.
func (db *DB) Waiting() int {
	if db.queue == nil {
		return 0
	}
	return int(db.queue.waiting.Load())
}

func newWriterQueue(wait time.Duration) *writerQueue {
	q := &writerQueue{slot: make(chan struct{}, 1), wait: wait}
	q.slot <- struct{}{}
	return q
}

// acquire waits for the writer and calls use, which takes the connection, with
// a context that ends when the wait is over. release gives the turn away and
// is nil when there is an error.
func (q *writerQueue) acquire(ctx context.Context, use func(context.Context) error) (release func(), err error) {
	me := newHolder(ctx)
	start := me.since
	timer := time.NewTimer(q.wait)
	defer timer.Stop()
	select {
	case <-q.slot:
	default:
		q.waiting.Add(1)
		defer q.waiting.Add(-1)
		select {
		case <-q.slot:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
			return nil, q.busy(start)
		}
	}
	wctx, cancel := context.WithTimeout(ctx, time.Until(start.Add(q.wait)))
	defer cancel()
	err = use(wctx)
	if err != nil {
		q.slot <- struct{}{}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if errors.Is(err, context.DeadlineExceeded) || FaultOf(err).Kind == FaultBusy {
			return nil, q.busyOutside(start)
		}
		return nil, err
	}
	me.since = time.Now()
	q.mu.Lock()
	q.holder, q.rows = me, nil
	q.mu.Unlock()
	return func() { q.slot <- struct{}{} }, nil
}

// keep notes that rows of the holder may keep the connection after its turn.
func (q *writerQueue) keep() {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := q.holder
	q.rows = &h
}

func (q *writerQueue) busy(start time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return &WriterBusyError{Holder: q.holder.String(), Waited: time.Since(start), Held: time.Since(q.holder.since)}
}

// busyOutside explains a wait that ended although it was the caller's turn.
func (q *writerQueue) busyOutside(start time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := &WriterBusyError{Holder: "another process", Waited: time.Since(start)}
	if q.rows != nil {
		e.Holder, e.Held = "open rows of "+q.rows.String(), time.Since(q.rows.since)
	}
	return e
}

// queuedWriter runs single statements on SQLite's writer, each in its turn.
type queuedWriter struct{ db *DB }

var _ Querier = queuedWriter{}

// turn takes the writer and makes sure that its connection is free.
func (w queuedWriter) turn(ctx context.Context) (release func(), err error) {
	return w.db.queue.acquire(ctx, func(ctx context.Context) error {
		conn, err := w.db.writer.Conn(ctx)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// waited explains a statement that found the file locked by another process.
func (w queuedWriter) waited(start time.Time, err error) error {
	if FaultOf(err).Kind == FaultBusy {
		return w.db.queue.busyOutside(start)
	}
	return err
}

func (w queuedWriter) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	release, err := w.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	start := time.Now()
	res, err := w.db.writer.ExecContext(ctx, query, args...)
	if err != nil {
		return nil, w.waited(start, err)
	}
	w.db.driver.Tidy(context.WithoutCancel(ctx))
	return res, nil
}

func (w queuedWriter) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	release, err := w.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	start := time.Now()
	rows, err := w.db.writer.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, w.waited(start, err)
	}
	w.db.queue.keep()
	return rows, nil
}

func (w queuedWriter) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	release, err := w.turn(ctx)
	if err != nil {
		return failedRow(err)
	}
	defer release()
	start := time.Now()
	row := w.db.writer.QueryRowContext(ctx, query, args...)
	if err := row.Err(); err != nil && FaultOf(err).Kind == FaultBusy {
		return failedRow(w.waited(start, err))
	}
	w.db.queue.keep()
	return row
}
