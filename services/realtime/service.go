package realtime

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/lease"
)

// ServiceKey is the key of the service.
var ServiceKey = core.NewKey[*Service]("realtime")

// Service is the event log with its consumers and subscribers. Append and the
// operators' methods work before Start and after Stop too. It is safe for
// concurrent use.
type Service struct {
	tx  storage.Transactor
	log driver.Log
	cfg Config

	tail      *tail
	announced announcements

	mu        sync.Mutex
	state     state
	consumers map[string]*consumer
	order     []*consumer
	lagged    map[string]bool
	heard     map[string][]func(details []string) // by name of their topics

	stop   chan struct{}      // closed when no new work is to begin
	run    context.Context    // of all work, from Start on
	cancel context.CancelFunc // ends the work that is under way
	work   sync.WaitGroup
	leased atomic.Bool

	rescan chan struct{} // survey the log now
	polled atomic.Bool   // a survey led to events since the last one
}

type state int

const (
	stateNew state = iota
	stateStarted
	stateStopped
)

// New makes a service on a log. Transactions of callers and of the service
// come from tx: the database that a SQL log keeps its tables in, the memory that
// a memory log takes part in.
func New(tx storage.Transactor, log driver.Log, cfg Config) (*Service, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Service{
		tx: tx, log: log, cfg: cfg,
		announced: announcements{signal: make(chan struct{}, 1), topics: map[string]struct{}{}},
		consumers: map[string]*consumer{},
		lagged:    map[string]bool{},
		heard:     map[string][]func([]string){},
		stop:      make(chan struct{}),
		rescan:    make(chan struct{}, 1),
	}
	s.tail = newTail(s)
	return s, nil
}

// Prepare stores the starting position of consumers whose names are new, so
// that they get all that is committed from now on, also when Start is called
// much later. Start does it for those that were not prepared.
func (s *Service) Prepare(ctx context.Context) error {
	if err := s.log.Verify(ctx); err != nil {
		return fmt.Errorf("verify the log: %w", err)
	}
	s.mu.Lock()
	consumers := s.order
	s.mu.Unlock()
	for _, c := range consumers {
		if err := s.prepare(ctx, c.cfg); err != nil {
			return fmt.Errorf("prepare consumer %s: %w", c.cfg.Name, err)
		}
	}
	return nil
}

func (s *Service) prepare(ctx context.Context, cfg ConsumerConfig) error {
	known, err := s.log.Survey(ctx, cfg.Name)
	if err != nil || len(known.Ranges) > 0 {
		return err
	}
	position, err := s.log.Position(ctx, cfg.Start)
	if err != nil {
		return err
	}
	return s.tx.InTx(ctx, func(ctx context.Context) error {
		_, err := s.log.Insert(ctx, driver.Range{
			Consumer: cfg.Name, Last: lastPartition, Position: position, Enabled: true, UpdatedAt: s.now(),
		})
		return err
	})
}

// Start begins to consume and to serve subscribers, and returns. ctx bounds
// the start only. A second Start does nothing.
func (s *Service) Start(ctx context.Context) error {
	s.mu.Lock()
	state := s.state
	s.mu.Unlock()
	switch state {
	case stateStarted:
		return nil
	case stateStopped:
		return ErrStopped
	}
	if err := s.Prepare(ctx); err != nil {
		return err
	}
	if s.cfg.Leases != nil && s.leased.CompareAndSwap(false, true) {
		s.cfg.Leases.Watch(func(context.Context, lease.Set) { s.Wake() })
		if err := s.cfg.Leases.Start(ctx); err != nil {
			return err
		}
	}
	if err := s.tail.open(ctx); err != nil {
		return fmt.Errorf("start the subscriptions: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != stateNew {
		if s.state == stateStopped {
			return ErrStopped
		}
		return nil
	}
	s.state = stateStarted
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.run, s.cancel = run, cancel
	for _, c := range s.order {
		c.start()
	}
	s.work.Go(func() { s.surveyLoop(run) })
	s.work.Go(func() { s.tail.run(run) })
	s.work.Go(func() { s.every(run, s.cfg.CleanInterval, s.clean) })
	s.work.Go(func() { s.every(run, s.cfg.MonitorInterval, s.monitor) })
	if s.cfg.Fanout != nil {
		s.work.Go(func() { s.announceLoop(run) })
		s.work.Go(func() { s.listenLoop(run) })
	}
	return nil
}

// errStillRunning is returned by Stop when handlers ignored the end of their
// context.
var errStillRunning = errors.New("realtime: handlers were still running at the end of the time to stop")

// Stop begins no new batches and waits for those under way. When ctx ends, their
// contexts are cancelled, so that they roll back and are handled after the next
// start. It may be called more than once.
func (s *Service) Stop(ctx context.Context) error {
	err := s.halt(ctx)
	if s.leased.CompareAndSwap(true, false) {
		err = errors.Join(err, s.cfg.Leases.Stop(ctx))
	}
	return err
}

// serves tells whether this process consumes ranges that begin at a partition.
// A batch that began before the lease was lost is kept apart from that of the
// next holder by the lock on its range.
func (s *Service) serves(partition int) bool {
	return s.cfg.Leases == nil || s.cfg.Leases.Held().Ranges.Has(partition)
}

func (s *Service) halt(ctx context.Context) error {
	s.mu.Lock()
	if s.state != stateStopped {
		s.state = stateStopped
		close(s.stop)
	}
	cancel := s.cancel
	s.mu.Unlock()
	s.tail.close()
	if cancel == nil {
		return nil
	}
	defer cancel()
	done := make(chan struct{})
	go func() { s.work.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	cancel()
	// Handlers that honour their context are done in no time.
	grace := time.NewTimer(time.Second)
	defer grace.Stop()
	select {
	case <-done:
		return nil
	case <-grace.C:
		return errStillRunning
	}
}

// Wake makes consumers and subscribers look into the log now. It returns at
// once and may be called at any time.
func (s *Service) Wake() { s.wake(false) }

func (s *Service) wake(certain bool) {
	s.mu.Lock()
	consumers := s.order
	s.mu.Unlock()
	for _, c := range consumers {
		c.wake(certain)
	}
	s.tail.wake()
}

// committed runs after the commit of a transaction that appended.
func (s *Service) committed() {
	s.wake(true)
	s.announced.add(topicEvents)
}

// poke leaves a signal in a channel that holds one.
func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (s *Service) now() int64 { return s.cfg.Clock().UnixMilli() }

// wait waits for d, a signal, or the stop, and tells whether to go on.
func (s *Service) wait(ctx context.Context, d time.Duration, signal <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-s.stop:
		return false
	case <-ctx.Done():
		return false
	case <-signal:
	case <-t.C:
	}
	return !s.stopping()
}

func (s *Service) stopping() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// every calls fn after each interval until the stop.
func (s *Service) every(ctx context.Context, interval time.Duration, fn func(context.Context)) {
	for s.wait(ctx, jitter(interval), nil) {
		fn(ctx)
	}
}
