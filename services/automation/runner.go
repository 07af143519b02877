package automation

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/objecthost/objecthost/services/automation/sqlstore"
)

// claimAhead is how many runs per worker are claimed at once, so that a claim
// serves many runs.
const claimAhead = 4

// claimedRun is a run that waits for a worker, counted among those that Stop
// waits for until end is called.
type claimedRun struct {
	row *sqlstore.Run
	end func()
}

// dispatch claims runs that are due and hands them to the workers.
func (s *Service) dispatch(ctx context.Context) {
	queue := make(chan claimedRun, claimAhead*s.cfg.Workers)
	defer close(queue)
	for range s.cfg.Workers {
		s.loops.Go(func() {
			for c := range queue {
				s.work(ctx, c)
			}
		})
	}
	failing := false
	for {
		room := cap(queue) - len(queue)
		if room < cap(queue)/2 {
			room = 0 // the workers have enough to do; they say when not
		}
		claimed, err := s.claim(ctx, room)
		if err != nil && ctx.Err() == nil && !failing {
			s.log.ErrorContext(ctx, "runs cannot be claimed", "error", err)
		}
		failing = err != nil
		for i := range claimed {
			end, err := s.begin()
			if err != nil { // Stop came in between
				_ = s.store.Release(context.WithoutCancel(ctx), claimed[i].ID, claimed[i].ClaimToken)
				continue
			}
			queue <- claimedRun{&claimed[i], end}
		}
		if !s.idle(ctx, s.cfg.PollInterval, s.wake) {
			return
		}
	}
}

// work executes one claimed run, or gives it back when the service stops.
func (s *Service) work(ctx context.Context, c claimedRun) {
	defer s.poke()
	defer c.end()
	if s.draining() {
		if err := s.store.Release(context.WithoutCancel(ctx), c.row.ID, c.row.ClaimToken); err != nil {
			s.log.WarnContext(ctx, "run could not be given back, its claim has to run out", "run_id", c.row.ID, "error", err)
		}
		return
	}
	s.execute(ctx, c.row)
}

// claim takes runs when there are any.
func (s *Service) claim(ctx context.Context, limit int) ([]sqlstore.Run, error) {
	if limit <= 0 || s.draining() {
		return nil, nil
	}
	due, err := s.store.AnyDue(ctx)
	if err != nil || !due {
		return nil, err
	}
	return s.store.Claim(ctx, s.node, newToken(), s.cfg.Lease, limit)
}

// idle waits for a signal or some time; false when the service stops.
func (s *Service) idle(ctx context.Context, d time.Duration, signal <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-signal:
	case <-s.stop:
		return false
	case <-ctx.Done():
		return false
	}
	return true
}

// execute goes on with a claimed run. A failed run was logged where it failed.
func (s *Service) execute(ctx context.Context, row *sqlstore.Run) {
	defer func() {
		if v := recover(); v != nil {
			s.log.ErrorContext(ctx, "flow engine panicked", "run_id", row.ID, "panic", v, "stack", string(debug.Stack()))
		}
	}()
	_, err := s.proceed(ctx, row, nil)
	var failed *FailedError
	if err != nil && !errors.As(err, &failed) && !errors.Is(err, errStopped) {
		s.log.WarnContext(ctx, "run interrupted, it goes on later", "run_id", row.ID, "flow", row.FlowName, "error", err)
	}
}

// renew keeps the claims of this node for as long as it executes runs.
func (s *Service) renew(ctx context.Context) {
	for s.idleUntilHalt(ctx, s.cfg.Lease/3) {
		if s.busy.Load() == 0 {
			continue
		}
		if err := s.store.Renew(ctx, s.node, s.cfg.Lease); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "claims on runs could not be renewed", "error", err)
		}
	}
}

// idleUntilHalt is idle for work that goes on while runs drain.
func (s *Service) idleUntilHalt(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Bounds of the clean-up.
const (
	cleanInterval = 10 * time.Minute
	cleanBatch    = 500
	// noteAge is how long notes about changes stay that no event took: longer
	// than the event log keeps events by default.
	noteAge = 8 * 24 * time.Hour
)

// clean deletes what is past its retention, in small batches.
func (s *Service) clean(ctx context.Context) {
	for s.idle(ctx, cleanInterval, nil) {
		if err := s.Clean(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "runs could not be cleaned up", "error", err)
		}
	}
}

// Clean deletes the runs that ended longer ago than the retention. The service
// does so by itself every ten minutes.
func (s *Service) Clean(ctx context.Context) error {
	now, err := s.store.Now(ctx)
	if err != nil {
		return err
	}
	for {
		n, err := s.store.Clean(ctx, now-s.cfg.Retention.Milliseconds(), cleanBatch)
		if err != nil {
			return err
		}
		if n < cleanBatch {
			return s.store.ForgetOlder(ctx, now-noteAge.Milliseconds())
		}
	}
}
