package realtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/storage"
)

// Skip moves a consumer past an event without handling it. The event has to be
// the next one of a range, as one at which the consumer is stuck is; otherwise
// the error is a *[NotNextError]. It waits for a batch that is under way and
// joins the transaction of ctx.
func (s *Service) Skip(ctx context.Context, consumer, eventID string) error {
	next := []string{}
	skipped := false
	err := s.eachRange(ctx, consumer, func(ctx context.Context, r driver.Range) error {
		if skipped {
			return nil
		}
		page, err := s.log.Read(ctx, driver.Query{Position: r.Position, First: r.First, Last: r.Last, Limit: 1})
		if err != nil || len(page.Events) == 0 {
			return err
		}
		if page.Events[0].ID != eventID {
			next = append(next, page.Events[0].ID)
			return nil
		}
		skipped = true
		r.Position, r.Failure = page.Next, nil
		return s.save(ctx, r)
	})
	if err != nil {
		return fmt.Errorf("skip event %s: %w", eventID, err)
	}
	if !skipped {
		return &NotNextError{Consumer: consumer, EventID: eventID, Next: next}
	}
	s.cfg.Logger.WarnContext(ctx, "event was skipped by hand", slog.String("consumer", consumer), slog.String("event", eventID))
	return nil
}

// SkipToEnd moves a consumer past everything that is committed now, without
// handling it. It is how a lagged consumer is given up on. It joins the
// transaction of ctx.
func (s *Service) SkipToEnd(ctx context.Context, consumer string) error {
	err := s.eachRange(ctx, consumer, func(ctx context.Context, r driver.Range) error {
		// Taken with the range locked: an earlier one might be before it.
		position, err := s.log.Position(ctx, driver.Latest)
		if err != nil {
			return err
		}
		r.Position, r.Failure = position, nil
		return s.save(ctx, r)
	})
	if err != nil {
		return fmt.Errorf("skip to the end: %w", err)
	}
	s.cfg.Logger.WarnContext(ctx, "all waiting events were skipped by hand", slog.String("consumer", consumer))
	return nil
}

// SetEnabled switches a consumer off or on. One that is off handles nothing and
// no longer holds back retention: events that are removed meanwhile are lost to
// it. It joins the transaction of ctx.
func (s *Service) SetEnabled(ctx context.Context, consumer string, enabled bool) error {
	err := s.eachRange(ctx, consumer, func(ctx context.Context, r driver.Range) error {
		if r.Enabled == enabled {
			return nil
		}
		r.Enabled = enabled
		return s.save(ctx, r)
	})
	if err != nil {
		return fmt.Errorf("switch consumer: %w", err)
	}
	return nil
}

// Split makes two ranges of the one that holds the partition and begins before
// it: the second begins with the partition, both have the same position. Ranges
// are consumed side by side. It joins the transaction of ctx. See [ErrBadSplit].
func (s *Service) Split(ctx context.Context, consumer string, partition int) error {
	done := false
	err := s.eachRange(ctx, consumer, func(ctx context.Context, r driver.Range) error {
		if r.First >= partition || partition > r.Last {
			return nil
		}
		done = true
		second := r
		second.First, second.Failure, second.UpdatedAt = partition, nil, s.now()
		r.Last, r.Failure = partition-1, nil
		if err := s.save(ctx, r); err != nil {
			return err
		}
		_, err := s.log.Insert(ctx, second)
		return err
	})
	if err == nil && !done {
		return ErrBadSplit
	}
	if err != nil {
		return fmt.Errorf("split consumer: %w", err)
	}
	return nil
}

// Drop removes a consumer that is not registered in this process, and its
// position. It joins the transaction of ctx. See [ErrConsumerRegistered] and
// [ErrUnknownConsumer].
func (s *Service) Drop(ctx context.Context, consumer string) error {
	s.mu.Lock()
	registered := s.consumers[consumer] != nil
	s.mu.Unlock()
	if registered {
		return ErrConsumerRegistered
	}
	known, err := s.log.Drop(ctx, consumer)
	if err != nil {
		return fmt.Errorf("drop consumer: %w", err)
	}
	if !known {
		return ErrUnknownConsumer
	}
	return nil
}

// eachRange calls fn with every range of the consumer, locked, in one
// transaction; ranges are locked in the order of their partitions, by everyone.
// After the commit the consumer reads its ranges anew.
func (s *Service) eachRange(ctx context.Context, consumer string, fn func(ctx context.Context, r driver.Range) error) error {
	return s.tx.InTx(ctx, func(ctx context.Context) error {
		survey, err := s.log.Survey(ctx, consumer)
		if err != nil {
			return err
		}
		if len(survey.Ranges) == 0 {
			return ErrUnknownConsumer
		}
		for _, r := range survey.Ranges {
			locked, err := s.log.Lock(ctx, consumer, r.First)
			if errors.Is(err, driver.ErrNoRange) {
				continue // dropped meanwhile
			}
			if err != nil {
				return err
			}
			if err := fn(ctx, locked); err != nil {
				return err
			}
		}
		storage.AfterCommit(ctx, func(context.Context) {
			s.mu.Lock()
			c := s.consumers[consumer]
			s.mu.Unlock()
			if c != nil {
				c.reread()
			}
		})
		return nil
	})
}

func (s *Service) save(ctx context.Context, r driver.Range) error {
	r.UpdatedAt = s.now()
	return s.log.Save(ctx, r)
}

// printable makes an error's text fit for a column: PostgreSQL takes neither
// NUL nor what is not UTF-8.
func printable(text string) string {
	const limit = 2000
	if len(text) > limit {
		text = text[:limit]
	}
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD")
}
