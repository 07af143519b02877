package realtime

import (
	"cmp"
	"context"
	"fmt"
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
		s: s, cfg: cfg, handler: h, surveys: make(chan driver.Survey, 1), ended: make(chan struct{}), workers: map[int]*worker{},
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
	surveys chan driver.Survey // the latest, until supervise has it

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
	poke(c.s.rescan)
}

// supervise takes the surveys of the log, and has the workers look into it where
// something may be.
func (c *consumer) supervise(ctx context.Context) {
	for {
		select {
		case <-c.s.stop:
			return
		case <-ctx.Done():
			return
		case survey := <-c.surveys:
			c.adopt(ctx, survey)
		}
	}
}

// inform leaves a survey for supervise. One goroutine calls it.
func (c *consumer) inform(survey driver.Survey) {
	select {
	case <-c.surveys: // an older one
	default:
	}
	c.surveys <- survey
}

// adopt starts workers for new ranges and makes those look that may find something.
func (c *consumer) adopt(ctx context.Context, survey driver.Survey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range survey.Ranges {
		if r.Consumer != c.cfg.Name {
			continue
		}
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
		w.look(r, survey.Ahead)
	}
}

// upToDate tells whether this process knows that a range has nothing to do.
func (c *consumer) upToDate(r driver.Range, ahead func(position string) bool) bool {
	c.mu.Lock()
	w := c.workers[r.First]
	c.mu.Unlock()
	return w != nil && w.upToDate(r, ahead)
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

// reread has the ranges read, and makes the workers end their pauses.
func (c *consumer) reread() {
	poke(c.s.rescan)
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
