package realtime

import (
	"context"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/objecthost/objecthost/core/event"
)

// Filter chooses the events of a subscription.
type Filter struct {
	// Object is the object of the events; empty for every one.
	Object string
	// Types are the types of the events; empty for every one.
	Types []string
	// OnLost is called, between two calls of the handler, with the number of
	// events that were dropped at this place because the queue was full; nil
	// for nothing. The service logs it in any case.
	OnLost func(lost int)
}

// Subscribe calls h for every matching event that is committed from now on, on
// any node, one after the other in the log's order. Events that were committed
// just before may come too. h runs on a goroutine of its own; ctx ends when the
// service was stopped. All subscribers get the same event and must not change
// it. A panic of h is logged and costs the event.
//
// Up to Config.QueueSize events wait for h; when it falls behind further, new
// events are dropped until there is room (see Filter.OnLost).
//
// cancel may be called at any time, also by h itself and more than once. After
// it returned no call of h begins; one that has begun is not waited for.
//
// A plugin that must not lose events is a consumer instead. Nothing here looks
// at who may read an event: a subscriber that shows events to users has to ask
// for each of them.
func (s *Service) Subscribe(filter Filter, h func(ctx context.Context, e *event.Event)) (cancel func(), err error) {
	if h == nil {
		return nil, &ConfigError{"Handler", "set"}
	}
	sub := &subscription{t: s.tail, filter: filter, handler: h}
	sub.filter.Types = slices.Clone(filter.Types)
	if err := s.tail.add(sub); err != nil {
		return nil, err
	}
	return sub.cancel, nil
}

// subscription has a queue and, only while there is something in it, a
// goroutine, so that idle ones cost little.
type subscription struct {
	t       *tail
	filter  Filter
	handler func(ctx context.Context, e *event.Event)

	mu      sync.Mutex
	queue   []item
	running bool
	closed  bool
}

// item is an event, or a number of events that were lost at its place.
type item struct {
	event *event.Event
	lost  int
}

func (s *subscription) objects() []string {
	if s.filter.Object == "" {
		return nil
	}
	return []string{s.filter.Object}
}

func (s *subscription) wantsMarks() bool { return false }

func (s *subscription) matches(e *event.Event) bool {
	return len(s.filter.Types) == 0 || slices.Contains(s.filter.Types, e.Type)
}

// offer queues the event, or notes that it is lost.
func (s *subscription) offer(ctx context.Context, e *event.Event, _ string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	switch last := len(s.queue) - 1; {
	case len(s.queue) < s.t.s.cfg.QueueSize:
		s.queue = append(s.queue, item{event: e})
	case s.queue[last].lost > 0:
		s.queue[last].lost++
	default:
		// One place above the size, for the mark.
		s.queue = append(s.queue, item{lost: 1})
		s.t.s.cfg.Logger.WarnContext(ctx, "subscriber is too slow, events are dropped",
			slog.String("object", s.filter.Object), slog.Int64("first_sequence", e.Sequence))
	}
	if !s.running {
		s.running = true
		s.t.handlers.Go(func() { s.drain(ctx) })
	}
}

// drain calls the handler until the queue is empty.
func (s *subscription) drain(ctx context.Context) {
	for {
		s.mu.Lock()
		if len(s.queue) == 0 || s.closed || ctx.Err() != nil {
			s.running, s.queue = false, nil
			s.mu.Unlock()
			return
		}
		next := s.queue[0]
		s.queue = s.queue[1:]
		s.mu.Unlock()
		s.call(ctx, next)
	}
}

func (s *subscription) call(ctx context.Context, next item) {
	defer func() {
		if v := recover(); v != nil {
			s.t.s.cfg.Logger.ErrorContext(ctx, "subscriber panicked", slog.String("object", s.filter.Object),
				slog.Any("error", &PanicError{Value: v}), slog.String("stack", string(debug.Stack())))
		}
	}()
	switch {
	case next.event != nil:
		s.handler(ctx, next.event)
	case s.filter.OnLost != nil:
		s.filter.OnLost(next.lost)
	}
}

func (s *subscription) cancel() {
	s.mu.Lock()
	closed := s.closed
	s.closed, s.queue = true, nil
	s.mu.Unlock()
	if !closed {
		s.t.remove(s)
	}
}
