package realtime

import (
	"context"
	"log/slog"
)

// surveyLoop looks at intervals whether anything was added to the log, which is
// one look for all consumers and subscribers of the process, and wakes those
// that may find something. The intervals adapt to how much that leads to.
func (s *Service) surveyLoop(ctx context.Context) {
	interval, failing := s.cfg.PollInterval, false
	for {
		err := s.survey(ctx)
		switch {
		case err != nil:
			if !failing && ctx.Err() == nil {
				s.cfg.Logger.ErrorContext(ctx, "the log can't be looked at, waiting for the database", slog.Any("error", err))
			}
		case s.polled.Swap(false):
			interval = s.cfg.PollInterval / 10
		default:
			interval = min(2*interval, s.cfg.PollInterval)
		}
		failing = err != nil
		if !s.wait(ctx, jitter(interval), s.rescan) {
			return
		}
	}
}

func (s *Service) survey(ctx context.Context) error {
	survey, err := s.log.Survey(ctx, "")
	if err != nil {
		return err
	}
	s.mu.Lock()
	consumers := s.order
	s.mu.Unlock()
	for _, c := range consumers {
		c.inform(survey)
	}
	s.tail.look(survey.Ahead)
	return nil
}
