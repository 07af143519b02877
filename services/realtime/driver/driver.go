// Package driver holds the two interfaces that the realtime service stands on:
// [Log], where events and the positions of their consumers are kept, and
// [Fanout], which tells the other nodes that something was committed.
// Package drivertest has the suite that every Log passes.
package driver

import (
	"context"
	"errors"

	"github.com/objecthost/objecthost/core/event"
)

// ErrNoRange is returned by [Log.Lock] when the consumer has no range that
// begins at the partition.
var ErrNoRange = errors.New("no such range")

// ErrBadPosition is wrapped by what Read returns for a text that is no position.
var ErrBadPosition = errors.New("not a position")

// ErrForeignPosition is returned by [Log.Read] outside of a transaction for a
// position that can't be of this database, because it was restored from another
// one. [Log.Lock] repairs stored positions; others have to be taken anew.
var ErrForeignPosition = errors.New("position is of another database")

// Log keeps events and positions. Every method works in the transaction that
// ctx carries, if any. Errors are the database's own.
//
// A position is a text that only the Log understands. It stands for the set of
// events before it. A transaction that commits late, after events with higher
// sequences were read, is after every position that was given out before its
// commit, so that reading on from there finds its events.
type Log interface {
	// Verify repairs what a copy from another database server needs. The
	// service calls it before it uses positions.
	Verify(ctx context.Context) error
	// Append stores the events, in ctx's transaction, and sets their
	// Sequence. Sequences grow in the order of the arguments. at is the time of
	// appending in epoch milliseconds, from which retention counts.
	Append(ctx context.Context, events []*event.Event, at int64) error
	// Position returns the position before all events that the log holds, or
	// after all that are committed now.
	Position(ctx context.Context, start Start) (string, error)
	// Read returns events after a position, ordered by sequence, at most
	// q.Limit. It never writes to the log. Inside a transaction it reads what
	// is committed now, not what was committed when the transaction began.
	Read(ctx context.Context, q Query) (Page, error)
	// Scan looks at a bounded number of events that the log still holds, by
	// sequence and not by position: what commits meanwhile may be left out.
	Scan(ctx context.Context, s Scan) (Scanned, error)
	// Backlog tells how much is after a position. q.Limit caps the counting.
	Backlog(ctx context.Context, q Query) (Backlog, error)
	// Survey returns the ranges of one consumer, or of all when consumer is
	// empty, by name and first partition, and how far the log goes. It is cheap:
	// one statement on SQL, and one more where events were added since the last.
	Survey(ctx context.Context, consumer string) (Survey, error)
	// Insert adds a range, unless the consumer has one with the same first
	// partition; inserted tells which.
	Insert(ctx context.Context, r Range) (inserted bool, err error)
	// Lock returns a range and keeps others from locking it until ctx's
	// transaction ends. It waits for others. See [ErrNoRange].
	Lock(ctx context.Context, consumer string, first int) (Range, error)
	// Save writes all fields of a range that the transaction has locked.
	Save(ctx context.Context, r Range) error
	// Drop removes all ranges of a consumer and tells whether there were any.
	Drop(ctx context.Context, consumer string) (bool, error)
	// Clean removes old events that every enabled range which holds their
	// partition has behind it.
	Clean(ctx context.Context, c Clean) (Cleaned, error)
}

// Start is where a new consumer begins.
type Start int

const (
	// Latest is after everything that is committed now.
	Latest Start = iota
	// Earliest is before everything that the log holds.
	Earliest
)

// Range is a range of partitions of one consumer, with its own position.
// Consumer and First identify it.
type Range struct {
	Consumer string
	// First and Last are partitions, both included.
	First, Last int
	Position    string
	// Enabled ranges are consumed, and hold back Clean.
	Enabled bool
	// Failure is the event at the position that can't be handled, nil for none.
	Failure *Failure
	// UpdatedAt is when the range was saved, in epoch milliseconds.
	UpdatedAt int64
}

// Survey is what [Log.Survey] found.
type Survey struct {
	Ranges []Range
	// Ahead tells whether something may be after a position. When it is false,
	// Read from there would have found nothing at the moment of the survey, for
	// any range of partitions. It is safe for concurrent use.
	Ahead func(position string) bool
}

// Failure is the event that a range is stuck at.
type Failure struct {
	EventID  string
	Sequence int64
	// Attempts counts the times that the event was handled alone.
	Attempts int
	// Error is the text of the last error.
	Error string
	// Since is when the range became stuck, in epoch milliseconds.
	Since int64
}

// Query asks for events of the partitions First to Last after Position.
type Query struct {
	Position    string
	First, Last int
	Limit       int
	// Until, for Read, is a position that the Log gave out as the end of a page
	// that was not full, or as [Latest]: events after it are left out. When the
	// page is not full, Next is Until.
	Until string
	// Marks, for Read, asks for Page.Marks.
	Marks bool
}

// Page is what [Log.Read] found.
type Page struct {
	Events []*event.Event
	// Marks are the positions after each of the events.
	Marks []string
	// Next is the position after Events.
	Next string
	// More tells that the page is full: reading on may find something at once.
	More bool
	// Stale tells, for a page without events, that Next should be saved all
	// the same, because reading from the old position has become expensive.
	Stale bool
}

// Scan asks for events above the sequence After whose Timestamp is at least
// From and below To, in epoch milliseconds, at most Limit of them.
type Scan struct {
	After, From, To int64
	Limit           int
}

// Scanned is what [Log.Scan] found.
type Scanned struct {
	Events []*event.Event
	// Last is the sequence up to which it looked, After for the next call.
	Last int64
	// Done tells that the log has no events above Last.
	Done bool
}

// ScanWindow is how many sequences one Scan looks at most at.
const ScanWindow = 10_000

// Backlog is what a consumer has not handled.
type Backlog struct {
	// Events is their number, not more than the query's limit.
	Events int64
	// Oldest is the earliest time at which one of them was appended, in epoch
	// milliseconds; 0 when there is none.
	Oldest int64
}

// Clean asks to look at the Limit events after the sequence After and to
// remove those that were appended before the time Before and are behind all
// enabled consumers.
type Clean struct {
	Before, After int64
	Limit         int
}

// Cleaned is what [Log.Clean] did.
type Cleaned struct {
	Removed int
	// Last is the sequence up to which it looked, After for the next call.
	Last int64
	// Done tells that no older events follow.
	Done bool
}

// Fanout carries wake-ups between the nodes that share a log. A lost wake-up
// costs time, never an event: nodes look into the log by themselves as well.
// Implementations are safe for concurrent use.
type Fanout interface {
	// Announce tells the other nodes what was committed. Topics are 1 to 100
	// characters of a-z, A-Z, 0-9, _, ., - and :, at most [MaxTopics] of them.
	// The service coalesces: it calls it from one goroutine, and once for all
	// that was committed while the last call ran.
	Announce(ctx context.Context, topics []string) error
	// Listen calls wake with the topics that other nodes announce until ctx
	// ends or the transport is lost, and returns why. Without topics wake
	// stands for all of them: something may have been missed. That is how each
	// Listen begins, once it hears everything from then on. The service calls it
	// again, with growing pauses, after it returned. wake returns at once.
	Listen(ctx context.Context, wake func(topics []string)) error
}

// MaxTopics is how many topics one announcement has at most.
const MaxTopics = 64
