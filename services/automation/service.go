package automation

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/services/automation/sqlstore"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/storage"
)

// ServiceKey is the key under which the plugin registers its *Service.
var ServiceKey = core.NewKey[*Service]("automation")

// Service keeps flows and runs them. It is safe for concurrent use. Flows may
// be registered and run by hand from New on; triggers, timers and the recovery
// of runs work between Start and Stop.
type Service struct {
	cfg    Config
	db     *storage.DB
	store  *sqlstore.Store
	engine *data.Engine
	outbox *messaging.Service
	log    *slog.Logger
	nodes  registry
	flows  catalogue
	ring   ring
	// node names this process in claims.
	node string

	wake chan struct{}
	busy atomic.Int64

	mu      sync.Mutex
	started bool
	stop    chan struct{} // closed by Stop: take on no more
	running context.Context
	halt    context.CancelCauseFunc // ends what runs
	loops   sync.WaitGroup
	runs    sync.WaitGroup
}

// New returns a service on the database that the data service and the outbox
// keep their tables in, on which [sqlstore.Migrations] have run before anything
// else is called. It hooks itself into the writes of engine.
func New(db *storage.DB, engine *data.Engine, outbox *messaging.Service, cfg Config) (*Service, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Service{
		cfg: cfg, db: db, store: sqlstore.New(db), engine: engine, outbox: outbox, log: cfg.Logger,
		node: uuid.NewString(), wake: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	s.running, s.halt = context.WithCancelCause(context.Background())
	s.flows.s = s
	for _, types := range [][]NodeType{logicTypes(), containerTypes(), s.dataTypes(), s.outboundTypes()} {
		for _, t := range types {
			t.source = "builtin"
			if err := s.nodes.add(t); err != nil {
				return nil, err
			}
		}
	}
	engine.BeforeWrite("", s.beforeWrite)
	engine.WithinWrite("", s.withinWrite)
	return s, nil
}

// Migrations are the migrations of the service's own tables.
func Migrations() storage.Migrations { return sqlstore.Migrations() }

// Start begins to execute runs and to fire schedules. It may be called more
// than once.
func (s *Service) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.draining() {
		return nil
	}
	if s.cfg.Exclusive {
		if err := s.store.Abandon(ctx); err != nil {
			return err
		}
	}
	s.started = true
	for _, loop := range []func(context.Context){s.dispatch, s.renew, s.fire, s.clean} {
		s.loops.Go(func() { loop(s.running) })
	}
	return nil
}

// Stop takes on no more runs and lets those that are executed come to their
// next step or end. What is not there at the end of ctx is cut off; it goes on
// from where it was saved. Stop may be called more than once, and without Start.
func (s *Service) Stop(ctx context.Context) error {
	s.mu.Lock()
	if !s.draining() {
		close(s.stop)
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.runs.Wait()
		s.halt(errStopped)
		s.loops.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	s.halt(errStopped)
	<-done // every wait of a run ends with its context
	return nil
}

// draining reports whether Stop was called.
func (s *Service) draining() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// begin counts a run among those that Stop waits for. It fails when the service
// stops.
func (s *Service) begin() (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining() {
		return nil, errStopped
	}
	s.runs.Add(1)
	s.busy.Add(1)
	return func() {
		s.busy.Add(-1)
		s.runs.Done()
	}, nil
}

// poke makes the dispatcher look for runs.
func (s *Service) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// CheckHealth reports whether the flows can be read.
func (s *Service) CheckHealth(ctx context.Context) error {
	if _, err := s.store.Revision(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
