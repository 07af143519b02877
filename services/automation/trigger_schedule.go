package automation

import (
	"context"
	"strconv"
	"time"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/automation/sqlstore"
)

// fire starts the flows whose time has come.
func (s *Service) fire(ctx context.Context) {
	failing := false
	for {
		err := s.tick(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			s.log.ErrorContext(ctx, "schedules cannot be looked at", "error", err)
		}
		failing = err != nil
		if !s.idle(ctx, s.cfg.PollInterval, nil) {
			return
		}
	}
}

// tick brings the stored schedules in line with the flows and fires those that
// are due by the database's clock.
func (s *Service) tick(ctx context.Context) error {
	if err := s.flows.refresh(ctx, staleAfter); err != nil {
		return err
	}
	flows := s.flows.bound(func(b *binding) bool { return b.schedule != nil })
	stored, err := s.store.Schedules(ctx)
	if err != nil || len(flows) == 0 && len(stored) == 0 {
		return err
	}
	ms, err := s.store.Now(ctx)
	if err != nil {
		return err
	}
	now := time.UnixMilli(ms)
	byName := map[string]sqlstore.Schedule{}
	for _, c := range stored {
		byName[c.FlowName] = c
	}
	for _, fl := range flows {
		c, ok := byName[fl.def.Name]
		delete(byName, fl.def.Name)
		if !ok || c.Source != fl.binding.schedule.source {
			c = sqlstore.Schedule{FlowName: fl.def.Name, Source: fl.binding.schedule.source, NextAt: millisOf(fl.binding.schedule.next(now))}
			if err := s.store.PutSchedule(ctx, &c); err != nil {
				return err
			}
			continue
		}
		if c.NextAt != 0 && c.NextAt <= ms {
			if err := s.fireOne(ctx, fl, c, now); err != nil {
				return err
			}
		}
	}
	for name := range byName {
		if err := s.store.DropSchedule(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func millisOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// fireOne adds the run of a time that has come, unless another node has. Times
// that passed while no node was up are made up for by one run.
func (s *Service) fireOne(ctx context.Context, fl *flow, c sqlstore.Schedule, now time.Time) error {
	next := fl.binding.schedule.next(now)
	if interval := fl.binding.schedule.interval; interval > 0 {
		// The beat goes on from the time that was due, without drifting.
		due := time.UnixMilli(c.NextAt)
		next = due.Add(interval * (now.Sub(due)/interval + 1))
	}
	err := s.db.InTx(ctx, func(ctx context.Context) error {
		mine, err := s.store.Advance(ctx, c, millisOf(next))
		if err != nil || !mine {
			return err
		}
		at := time.UnixMilli(c.NextAt).UTC().Format("2006-01-02T15:04:05.000Z")
		tr := &trigger{Type: triggerSchedule, Event: triggerSchedule, Params: map[string]any{"scheduledAt": at}, Principal: identity.Principal{}}
		row := s.newRow(fl, tr)
		row.DedupKey = fl.def.Name + ":schedule:" + strconv.FormatInt(c.NextAt, 10)
		keep, err := s.admit(ctx, fl, tr, row)
		if err != nil || !keep {
			return err
		}
		_, err = s.store.Insert(ctx, row)
		return err
	})
	if err == nil {
		s.poke()
	}
	return err
}
