package realtime

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime/driver"
)

const lastPartition = event.Partitions - 1

// Handler handles a batch, in the log's order. ctx carries the transaction in
// which the consumer's position moves: what the handler writes with it commits
// with the position, or not at all. When the handler returns an error or
// panics, the transaction is rolled back and the events come again. The events
// belong to the handler.
type Handler func(ctx context.Context, events []*event.Event) error

// Consume registers a durable consumer. It is called before Start, by plugins
// in their Init. A name is registered once; see [ErrConsumerRegistered].
func (s *Service) Consume(cfg ConsumerConfig, h Handler) error {
	c, err := s.newConsumer(cfg, h)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != stateNew {
		return ErrStarted
	}
	return s.register(c)
}

// Join is Consume at any time before Stop, for consumers that come and go while
// the service runs. A name that is new to the log begins at the position of now.
func (s *Service) Join(ctx context.Context, cfg ConsumerConfig, h Handler) error {
	c, err := s.newConsumer(cfg, h)
	if err != nil {
		return err
	}
	s.mu.Lock()
	state := s.state
	s.mu.Unlock()
	if state == stateStarted {
		if err := s.prepare(ctx, c.cfg); err != nil {
			return fmt.Errorf("prepare consumer %s: %w", c.cfg.Name, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.state == stateStopped:
		return ErrStopped
	case s.state != state: // started meanwhile, without a position for this one
		return ErrStarted
	}
	if err := s.register(c); err != nil || state == stateNew {
		return err
	}
	c.start()
	return nil
}

// Leave takes a consumer out of this process and waits, within ctx, for the end
// of its work; a batch under way is rolled back. Its position stays, see
// [Service.Drop]. See [ErrUnknownConsumer].
func (s *Service) Leave(ctx context.Context, name string) error {
	s.mu.Lock()
	c := s.consumers[name]
	if c != nil {
		delete(s.consumers, name)
		s.order = slices.DeleteFunc(slices.Clone(s.order), func(o *consumer) bool { return o == c })
	}
	s.mu.Unlock()
	if c == nil {
		return ErrUnknownConsumer
	}
	if c.cancel == nil { // never started
		return nil
	}
	c.cancel()
	select {
	case <-c.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Service) newConsumer(cfg ConsumerConfig, h Handler) (*consumer, error) {
	if h == nil {
		return nil, &ConfigError{"Handler", "set"}
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &consumer{
		s: s, cfg: cfg, handler: h, rescan: make(chan struct{}, 1), ended: make(chan struct{}), workers: map[int]*worker{},
	}, nil
}

// register takes a consumer on. The caller holds the lock.
func (s *Service) register(c *consumer) error {
	if s.consumers[c.cfg.Name] != nil {
		return ErrConsumerRegistered
	}
	s.consumers[c.cfg.Name] = c
	s.order = append(slices.Clip(s.order), c)
	return nil
}

// consumer is a registered consumer: a supervisor that knows its ranges, and a
// worker for each of them.
type consumer struct {
	s       *Service
	cfg     ConsumerConfig
	handler Handler
	rescan  chan struct{}

	cancel context.CancelFunc // set by start
	ended  chan struct{}      // closed when all work has ended
	work   sync.WaitGroup     // of the workers, which supervise adds

	mu      sync.Mutex
	workers map[int]*worker // by first partition
}

// start begins to consume. The caller holds the service's lock, which keeps the
// service from being stopped meanwhile.
func (c *consumer) start() {
	ctx, cancel := context.WithCancel(c.s.run)
	c.cancel = cancel
	c.s.work.Go(func() {
		defer close(c.ended)
		defer cancel()
		c.supervise(ctx)
		c.work.Wait()
	})
}

// supervise reads the consumer's ranges at intervals, which adapt to how much
// the polls find, and gives each to its worker to look into.
func (c *consumer) supervise(ctx context.Context) {
	interval, failing := c.s.cfg.PollInterval, false
	for {
		ranges, err := c.s.log.Ranges(ctx, c.cfg.Name)
		switch {
		case err != nil && ctx.Err() == nil:
			if !failing {
				c.s.cfg.Logger.ErrorContext(ctx, "consumer can't read its ranges", slog.String("consumer", c.cfg.Name), slog.Any("error", err))
			}
		case c.adopt(ctx, ranges):
			interval = c.s.cfg.PollInterval / 10
		default:
			interval = min(2*interval, c.s.cfg.PollInterval)
		}
		failing = err != nil
		if !c.s.wait(ctx, jitter(interval), c.rescan) {
			return
		}
	}
}

// adopt starts workers for new ranges and makes all look. It tells whether a
// worker has found events since the last time without being woken.
func (c *consumer) adopt(ctx context.Context, ranges []driver.Range) (found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range ranges {
		w := c.workers[r.First]
		if w == nil {
			w = &worker{c: c, first: r.First, signal: make(chan struct{}, 1), retry: make(chan struct{}, 1), isolation: isolation{cfg: c.cfg}}
			c.workers[r.First] = w
			c.work.Go(func() {
				w.run(ctx)
				c.mu.Lock()
				defer c.mu.Unlock()
				delete(c.workers, w.first)
			})
		}
		found = w.look(r) || found
	}
	return found
}

// wake makes the workers look into the log; certain tells that events were
// committed just now.
func (c *consumer) wake(certain bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.workers {
		w.woken.Store(true)
		if certain {
			w.certain.Store(true)
		}
		poke(w.signal)
	}
}

// reread makes the supervisor read the ranges and the workers end their pauses.
func (c *consumer) reread() {
	poke(c.rescan)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.workers {
		poke(w.retry)
	}
}

// StuckEvent is an event that a consumer can't get past.
type StuckEvent struct {
	Consumer string
	// First is the first partition of the range that is stuck.
	First    int
	EventID  string
	Sequence int64
	// Attempts counts how often the event was tried alone.
	Attempts int
	Error    string
	Since    time.Time
}

// Stuck lists the events at which the consumers of this process are stuck,
// without asking the database.
func (s *Service) Stuck() []StuckEvent {
	s.mu.Lock()
	consumers := s.order
	s.mu.Unlock()
	var all []StuckEvent
	for _, c := range consumers {
		c.mu.Lock()
		for _, w := range c.workers {
			if f := w.failure.Load(); f != nil {
				all = append(all, stuckEvent(c.cfg.Name, w.first, f))
			}
		}
		c.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b StuckEvent) int {
		return cmp.Or(cmp.Compare(a.Consumer, b.Consumer), cmp.Compare(a.First, b.First))
	})
	return all
}

func stuckEvent(consumer string, first int, f *driver.Failure) StuckEvent {
	return StuckEvent{
		Consumer: consumer, First: first, EventID: f.EventID, Sequence: f.Sequence,
		Attempts: f.Attempts, Error: f.Error, Since: time.UnixMilli(f.Since).UTC(),
	}
}
