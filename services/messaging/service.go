package messaging

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/services/messaging/driver"
)

// ServiceKey is the key under which the plugin registers its [*Service].
var ServiceKey = core.NewKey[*Service]("messaging")

// Service is the outbox. It is safe for concurrent use. Enqueueing works from
// New on; sending begins with Start.
type Service struct {
	cfg      Config
	log      *slog.Logger
	sender   *Sender
	dispatch *dispatcher
	group    *groupCommitter
	jobs     *jobRunner
	leased   atomic.Bool

	mu      sync.Mutex
	targets map[driver.TargetKey]int64 // ids of committed targets
}

// New returns a service that is not started yet.
func New(cfg Config) (*Service, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	sender, err := NewSender(cfg.Sender)
	if err != nil {
		return nil, fmt.Errorf("messaging: %w", err)
	}
	s := &Service{
		cfg: cfg, log: cfg.Logger, sender: sender,
		targets: make(map[driver.TargetKey]int64),
	}
	s.dispatch = newDispatcher(s)
	s.group = newGroupCommitter(s)
	s.jobs = newJobRunner(s)
	return s, nil
}

// Start begins to send. It returns an error when the store does not answer.
func (s *Service) Start(ctx context.Context) error {
	if s.cfg.Leases != nil && s.leased.CompareAndSwap(false, true) {
		if err := s.cfg.Leases.Start(ctx); err != nil {
			return err
		}
	}
	if err := s.dispatch.start(ctx); err != nil {
		return err
	}
	s.jobs.start(ctx)
	return nil
}

// Stop takes no more claims, lets requests in flight finish until ctx ends,
// saves what was answered and gives the rest back as pending. It is safe to
// call twice and without Start.
func (s *Service) Stop(ctx context.Context) error {
	s.jobs.stop()
	err := s.dispatch.stop(ctx)
	s.sender.Close()
	if s.leased.CompareAndSwap(true, false) {
		err = errors.Join(err, s.cfg.Leases.Stop(ctx))
	}
	return err
}

// Sender is the guarded transport of the outbox, for requests that are not
// deliveries: inline flow nodes, tests, plugins.
func (s *Service) Sender() *Sender { return s.sender }

// CheckHealth reports whether the dispatcher reaches its store.
func (s *Service) CheckHealth(context.Context) error { return s.dispatch.health() }

// Get returns a delivery. It returns [ErrNotFound] for an unknown id.
func (s *Service) Get(ctx context.Context, id string) (Delivery, error) {
	row, err := s.cfg.Store.Get(ctx, id)
	if err != nil {
		return Delivery{}, fmt.Errorf("get delivery: %w", err)
	}
	if row == nil {
		return Delivery{}, ErrNotFound
	}
	return deliveryOf(row), nil
}

// Attempts returns the attempts of a delivery, oldest first.
func (s *Service) Attempts(ctx context.Context, id string) ([]driver.Attempt, error) {
	attempts, err := s.cfg.Store.Attempts(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("get attempts: %w", err)
	}
	return attempts, nil
}
