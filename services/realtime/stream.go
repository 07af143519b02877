package realtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime/driver"
)

// ErrTooSlow is returned by Stream to a reader that fell behind and did not
// catch up in time. It may come back with the cursor of the last item that it
// got.
var ErrTooSlow = errors.New("realtime: the stream's reader is too slow")

// errBehind ends the part of a stream that is fed by the tail: it goes on from
// the log.
var errBehind = errors.New("behind")

// Reset tells why a stream could not go on where its reader was.
type Reset string

// The reasons. An expired cursor is older than the log's retention, so events
// after it may be gone; an unknown one is not the log's, or of a database that
// was restored from another one.
const (
	ResetExpired Reset = "expired"
	ResetUnknown Reset = "unknown"
)

// StreamConfig chooses the events of a stream.
type StreamConfig struct {
	// Objects and Types are those of the events; empty for all.
	Objects, Types []string
	// After is the cursor to go on from; empty begins with what is committed
	// from now on.
	After string
	// QueueSize is how many events wait in memory for a reader that is slow;
	// what is more is read from the log again. Default 1024.
	QueueSize int
	// Patience is how long a reader that fell behind may take to catch up.
	// Default 10 s.
	Patience time.Duration
	// Heartbeat is the time after which a quiet stream gives a cursor. From 10
	// ms, default 15 s.
	Heartbeat time.Duration
}

// StreamItem is one thing that a stream gives.
type StreamItem struct {
	// Event is nil for a heartbeat and for a reset.
	Event *event.Event
	// Reset is set once, before everything else, when After was not usable:
	// the stream begins with what is committed from now on.
	Reset Reset
	// Cursor is where to go on after this item. It holds no character that a
	// header may not have.
	Cursor string
}

// Stream gives send every matching event after a cursor, each once and in the
// log's order, first from the log and then as they are committed, on any node;
// in between it gives heartbeats, the first as soon as it is up to date. It
// returns when ctx ends, with send's error, with [ErrTooSlow], or with
// [ErrStopped] when the service stops. See [Service.Subscribe] for who may see
// what: nothing here asks.
func (s *Service) Stream(ctx context.Context, cfg StreamConfig, send func(StreamItem) error) error {
	cfg.QueueSize = or(cfg.QueueSize, 1024)
	cfg.Patience = or(cfg.Patience, 10*time.Second)
	cfg.Heartbeat = or(cfg.Heartbeat, 15*time.Second)
	switch {
	case cfg.QueueSize < 1:
		return &ConfigError{"QueueSize", "at least 1"}
	case cfg.Patience < 0:
		return &ConfigError{"Patience", "positive"}
	case cfg.Heartbeat < 10*time.Millisecond:
		return &ConfigError{"Heartbeat", "at least 10ms"}
	}
	st := &stream{cfg: cfg, s: s, send: send}
	var reset Reset
	if cfg.After != "" {
		st.position, reset = st.parseCursor(cfg.After)
	}
	for {
		err := st.round(ctx, reset)
		if !errors.Is(err, errBehind) {
			return err
		}
		if reset = ""; st.deadline.IsZero() {
			st.deadline = time.Now().Add(cfg.Patience)
		}
	}
}

// round joins the tail, gives what the log has until there, and then what the
// tail offers.
func (st *stream) round(ctx context.Context, reset Reset) error {
	st.queue, st.slow, st.once = make(chan queued, st.cfg.QueueSize), make(chan struct{}), new(sync.Once)
	j, err := st.s.tail.join(st)
	if err != nil {
		return err
	}
	defer st.s.tail.leave(j)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-st.s.stop:
		return ErrStopped
	case begin := <-j.at:
		if err := st.catchUp(ctx, begin, reset); err != nil {
			return err
		}
	}
	return st.live(ctx)
}

// stream is a receiver of the tail with a queue of its own.
type stream struct {
	cfg   StreamConfig
	s     *Service
	send  func(StreamItem) error
	queue chan queued
	once  *sync.Once
	slow  chan struct{} // closed when the queue was full

	position string    // after what was given, "" before anything was
	deadline time.Time // to have caught up, zero while the reader is in time
}

type queued struct {
	event *event.Event
	mark  string
}

func (st *stream) objects() []string { return st.cfg.Objects }

func (st *stream) wantsMarks() bool { return true }

func (st *stream) matches(e *event.Event) bool {
	return len(st.cfg.Types) == 0 || slices.Contains(st.cfg.Types, e.Type)
}

func (st *stream) offer(_ context.Context, e *event.Event, mark string) {
	select {
	case st.queue <- queued{e, mark}:
	default:
		st.once.Do(func() { close(st.slow) })
	}
}

// cursor is a position and when it was taken, for the log's retention.
func (st *stream) cursor(position string) string {
	return strconv.FormatInt(st.s.now(), 10) + "." + position
}

// parseCursor returns the position of a cursor, or why it can't be used.
func (st *stream) parseCursor(cursor string) (position string, reset Reset) {
	at, position, ok := strings.Cut(cursor, ".")
	taken, err := strconv.ParseInt(at, 10, 64)
	switch {
	case !ok || err != nil || position == "":
		return "", ResetUnknown
	case taken < st.s.now()-st.s.cfg.Retention.Milliseconds():
		return "", ResetExpired
	}
	return position, ""
}

// catchUp gives what is in the log after the reader's position, up to where
// the tail's offers begin.
func (st *stream) catchUp(ctx context.Context, begin string, reset Reset) error {
	if st.position == "" { // nothing to go on from
		st.position = begin
		return st.send(StreamItem{Reset: reset, Cursor: st.cursor(begin)})
	}
	for first := true; ; first = false {
		page, err := st.s.log.Read(ctx, driver.Query{
			Position: st.position, Last: lastPartition, Limit: tailBatch, Until: begin, Marks: true,
		})
		switch {
		case first && (errors.Is(err, driver.ErrBadPosition) || errors.Is(err, driver.ErrForeignPosition)):
			st.position = begin
			return st.send(StreamItem{Reset: ResetUnknown, Cursor: st.cursor(begin)})
		case err != nil:
			return fmt.Errorf("read the log: %w", err)
		}
		for i, e := range page.Events {
			if !st.wants(e) {
				continue
			}
			if err := st.give(ctx, e, page.Marks[i]); err != nil {
				return err
			}
		}
		if st.position = page.Next; !page.More {
			return st.send(StreamItem{Cursor: st.cursor(st.position)})
		}
	}
}

func (st *stream) wants(e *event.Event) bool {
	return st.matches(e) && (len(st.cfg.Objects) == 0 || slices.Contains(st.cfg.Objects, e.Object))
}

// give sends one event unless the stream is to end.
func (st *stream) give(ctx context.Context, e *event.Event, mark string) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case st.s.stopping():
		return ErrStopped
	case !st.deadline.IsZero() && time.Now().After(st.deadline):
		return ErrTooSlow
	}
	if err := st.send(StreamItem{Event: e, Cursor: st.cursor(mark)}); err != nil {
		return err
	}
	st.position = mark
	return nil
}

// live gives what the tail offers, until that was too much for the queue.
func (st *stream) live(ctx context.Context) error {
	beat := time.NewTicker(st.cfg.Heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-st.slow:
			return errBehind
		default:
		}
		st.deadline = time.Time{}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-st.s.stop:
			return ErrStopped
		case <-st.slow:
			return errBehind
		case q := <-st.queue:
			if err := st.give(ctx, q.event, q.mark); err != nil {
				return err
			}
		case <-beat.C:
			if at := st.upToDate(); at != "" {
				if err := st.send(StreamItem{Cursor: st.cursor(at)}); err != nil {
					return err
				}
				st.position = at
			}
		}
	}
}

// upToDate returns the tail's position when everything before it was given.
func (st *stream) upToDate() string {
	t := st.s.tail
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-st.slow:
		return ""
	default:
	}
	if len(st.queue) > 0 {
		return ""
	}
	return t.position
}
