package realtime

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/objecthost/objecthost/services/realtime/driver"
)

// ConsumerState is what a consumer is up to, the first that applies.
type ConsumerState string

// The states. An unknown consumer is in the log but not registered in this
// process, because its plugin was removed or runs on other nodes only; it holds
// back retention until it is switched off or dropped. A lagged consumer's oldest
// unhandled event is older than Config.MaxLag.
const (
	StateDisabled ConsumerState = "disabled"
	StateUnknown  ConsumerState = "unknown"
	StateStuck    ConsumerState = "stuck"
	StateLagged   ConsumerState = "lagged"
	StateActive   ConsumerState = "active"
)

// ConsumerStatus is a consumer as an operator sees it.
type ConsumerStatus struct {
	Name  string
	State ConsumerState
	// LagEvents is how many committed events it has not handled, counted up to
	// MaxCountedLag per range.
	LagEvents int64
	// Lag is the age of the oldest of them, 0 when there is none.
	Lag    time.Duration
	Ranges []RangeStatus
}

// MaxCountedLag is how far a range's unhandled events are counted.
const MaxCountedLag = 100_000

// RangeStatus is one range of a consumer.
type RangeStatus struct {
	// First and Last are the partitions of the range, both included.
	First, Last int
	// Position is opaque; it changes when the range moves.
	Position  string
	LagEvents int64
	Lag       time.Duration
	// Stuck is the event that the range can't get past, nil for none.
	Stuck     *StuckEvent
	UpdatedAt time.Time
}

// Consumers lists the consumers that the log knows, by name.
func (s *Service) Consumers(ctx context.Context) ([]ConsumerStatus, error) {
	survey, err := s.log.Survey(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("list consumers: %w", err)
	}
	byName := map[string]*ConsumerStatus{}
	for _, r := range survey.Ranges {
		c := byName[r.Consumer]
		if c == nil {
			c = &ConsumerStatus{Name: r.Consumer, State: StateActive}
			byName[r.Consumer] = c
		}
		if err := s.addRange(ctx, c, r, survey.Ahead); err != nil {
			return nil, fmt.Errorf("list consumers: lag of %s: %w", r.Consumer, err)
		}
	}
	all := make([]ConsumerStatus, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		all = append(all, *byName[name])
	}
	return all, nil
}

// addRange adds a range to the status of its consumer.
func (s *Service) addRange(ctx context.Context, c *ConsumerStatus, r driver.Range, ahead func(position string) bool) error {
	s.mu.Lock()
	consumer := s.consumers[r.Consumer]
	s.mu.Unlock()
	var b driver.Backlog
	if consumer == nil || !consumer.upToDate(r, ahead) {
		var err error
		if b, err = s.log.Backlog(ctx, driver.Query{Position: r.Position, First: r.First, Last: r.Last, Limit: MaxCountedLag}); err != nil {
			return err
		}
	}
	status := RangeStatus{
		First: r.First, Last: r.Last, Position: r.Position, LagEvents: b.Events, UpdatedAt: time.UnixMilli(r.UpdatedAt).UTC(),
	}
	if b.Events > 0 {
		status.Lag = max(0, time.Duration(s.now()-b.Oldest)*time.Millisecond)
	}
	if r.Failure != nil {
		stuck := stuckEvent(r.Consumer, r.First, r.Failure)
		status.Stuck = &stuck
	}
	c.Ranges = append(c.Ranges, status)
	c.LagEvents += status.LagEvents
	c.Lag = max(c.Lag, status.Lag)

	switch {
	case !r.Enabled:
		c.State = StateDisabled
	case c.State == StateDisabled:
	case consumer == nil:
		c.State = StateUnknown
	case status.Stuck != nil:
		c.State = StateStuck
	case status.Lag > s.cfg.MaxLag && c.State == StateActive:
		c.State = StateLagged
	}
	return nil
}

// Lagged lists the consumers that were lagged when the monitor last looked, for
// a warning beside the readiness of the host.
func (s *Service) Lagged() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.lagged))
}

// monitor reports consumers that became lagged, each once until it has caught up.
func (s *Service) monitor(ctx context.Context) {
	all, err := s.Consumers(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.cfg.Logger.WarnContext(ctx, "the lag of consumers can't be read", slog.Any("error", err))
		}
		return
	}
	lagged := map[string]bool{}
	for _, c := range all {
		if c.Lag <= s.cfg.MaxLag || c.State == StateDisabled {
			continue
		}
		lagged[c.Name] = true
		s.mu.Lock()
		known := s.lagged[c.Name]
		s.mu.Unlock()
		if known {
			continue
		}
		s.cfg.Logger.ErrorContext(ctx, "consumer is lagged, its events are kept until it handles or skips them",
			slog.String("consumer", c.Name), slog.String("state", string(c.State)), slog.Duration("lag", c.Lag), slog.Int64("events", c.LagEvents))
		if s.cfg.OnLagged != nil {
			s.cfg.OnLagged(ctx, c)
		}
	}
	s.mu.Lock()
	s.lagged = lagged
	s.mu.Unlock()
}

// clean is one round of retention.
func (s *Service) clean(ctx context.Context) {
	request := driver.Clean{Before: s.cfg.Clock().Add(-s.cfg.Retention).UnixMilli(), Limit: s.cfg.CleanBatch}
	removed := 0
	for !s.stopping() {
		done, err := s.log.Clean(ctx, request)
		if err != nil {
			if ctx.Err() == nil {
				s.cfg.Logger.WarnContext(ctx, "old events can't be removed", slog.Any("error", err))
			}
			break
		}
		removed += done.Removed
		if done.Done {
			break
		}
		request.After = done.Last
	}
	if removed > 0 {
		s.cfg.Logger.InfoContext(ctx, "old events were removed", slog.Int("events", removed))
	}
}
