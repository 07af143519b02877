package realtime

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime/driver"
)

// tail reads the end of the log for the subscribers of this process. Reading,
// instead of passing on what Append was given, has three gains: subscribers see
// the log's order, although commit hooks of different transactions run in any
// order; they see other nodes' events; and nothing but a wake-up has to travel.
type tail struct {
	s        *Service
	signal   chan struct{}
	handlers sync.WaitGroup

	mu       sync.Mutex
	byObject map[string]map[*subscription]struct{} // "" holds those for every object
	count    int
	closed   bool
	// position is empty while nobody is subscribed; then nothing is read.
	position string
	opened   bool
}

const (
	tailBatch = 500
	// tailOpenTimeout bounds the look at the log's end in Subscribe.
	tailOpenTimeout = 10 * time.Second
)

func newTail(s *Service) *tail {
	return &tail{s: s, signal: make(chan struct{}, 1), byObject: map[string]map[*subscription]struct{}{}}
}

func (t *tail) wake() { poke(t.signal) }

// open takes the position for those who subscribed before the start.
func (t *tail) open(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.opened = true
	if t.count == 0 || t.position != "" {
		return nil
	}
	var err error
	t.position, err = t.s.log.Position(ctx, driver.Latest)
	return err
}

func (t *tail) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

func (t *tail) add(sub *subscription) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return ErrStopped
	case t.count >= t.s.cfg.MaxSubscriptions:
		return ErrTooManySubscriptions
	}
	if t.opened && t.position == "" {
		ctx, cancel := context.WithTimeout(context.Background(), tailOpenTimeout)
		defer cancel()
		position, err := t.s.log.Position(ctx, driver.Latest)
		if err != nil {
			return err
		}
		t.position = position
	}
	subs := t.byObject[sub.filter.Object]
	if subs == nil {
		subs = map[*subscription]struct{}{}
		t.byObject[sub.filter.Object] = subs
	}
	subs[sub] = struct{}{}
	t.count++
	return nil
}

func (t *tail) remove(sub *subscription) {
	t.mu.Lock()
	defer t.mu.Unlock()
	subs := t.byObject[sub.filter.Object]
	delete(subs, sub)
	if len(subs) == 0 {
		delete(t.byObject, sub.filter.Object)
	}
	if t.count--; t.count == 0 {
		t.position = ""
	}
}

// run serves the subscribers until the stop, then lets handlers finish. Without
// wake-ups it looks ten times as often while it finds something, as consumers do.
func (t *tail) run(ctx context.Context) {
	defer t.handlers.Wait()
	limits := ConsumerConfig{}.withDefaults()
	pause, failures := t.s.cfg.PollInterval, 0
	for t.s.wait(ctx, jitter(pause), t.signal) {
		found, err := t.read(ctx)
		switch {
		case found && err == nil:
			pause, failures = t.s.cfg.PollInterval/10, 0
		case err == nil:
			pause, failures = min(2*pause, t.s.cfg.PollInterval), 0
		case ctx.Err() == nil:
			failures++
			pause = backoff(limits, failures)
			if failures == 1 {
				t.s.cfg.Logger.ErrorContext(ctx, "subscribers can't be served, waiting for the database", slog.Any("error", err))
			}
		}
	}
}

// read passes on all that is new and tells whether there was something.
func (t *tail) read(ctx context.Context) (found bool, err error) {
	for !t.s.stopping() {
		t.mu.Lock()
		position := t.position
		t.mu.Unlock()
		if position == "" {
			return found, nil
		}
		page, err := t.s.log.Read(ctx, driver.Query{Position: position, Last: lastPartition, Limit: tailBatch})
		if errors.Is(err, driver.ErrForeignPosition) {
			page.Next, err = t.s.log.Position(ctx, driver.Latest)
			t.s.cfg.Logger.WarnContext(ctx, "the database was replaced, subscribers go on at its end")
		}
		if err != nil {
			return found, err
		}
		t.pass(ctx, position, page)
		found = found || len(page.Events) > 0
		if !page.More {
			break
		}
	}
	return found, nil
}

// pass moves the position and offers the events, unless all subscribers that
// the page was read for have left meanwhile.
func (t *tail) pass(ctx context.Context, position string, page driver.Page) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.position != position {
		return
	}
	t.position = page.Next
	for _, e := range page.Events {
		t.offer(ctx, e.Object, e)
		if e.Object != "" {
			t.offer(ctx, "", e)
		}
	}
}

func (t *tail) offer(ctx context.Context, object string, e *event.Event) {
	for sub := range t.byObject[object] {
		if sub.matches(e) {
			sub.offer(ctx, e)
		}
	}
}
