package realtime

import (
	"context"
	"log/slog"
	"time"
)

// announceTimeout bounds one announcement.
const announceTimeout = 5 * time.Second

// announceLoop tells other nodes about commits. Commits that happen during an
// announcement share the next one.
func (s *Service) announceLoop(ctx context.Context) {
	failing := false
	for {
		select {
		case <-s.stop:
			return
		case <-s.announce:
		}
		call, cancel := context.WithTimeout(ctx, announceTimeout)
		err := s.cfg.Fanout.Announce(call)
		cancel()
		if err != nil && !failing {
			s.cfg.Logger.WarnContext(ctx, "other nodes can't be woken, they poll", slog.Any("error", err))
		}
		failing = err != nil
	}
}

// listenLoop is woken by other nodes.
func (s *Service) listenLoop(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	limits := ConsumerConfig{}.withDefaults()
	for failures := 1; ; failures++ {
		began := time.Now()
		err := s.cfg.Fanout.Listen(ctx, s.Wake)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > limits.MaxBackoff {
			failures = 1
		}
		s.cfg.Logger.WarnContext(ctx, "wake-ups of other nodes are lost, polling", slog.Any("error", err))
		if !s.wait(ctx, jitter(backoff(limits, failures)), nil) {
			return
		}
		s.Wake()
	}
}
