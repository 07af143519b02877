package auth

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// noteUse remembers that a key was used. Nothing is written here: a request
// must not wait for the database's writer only to leave a date.
func (s *Service) noteUse(id string) {
	now := millis(s.cfg.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[id] = now
}

// FlushUse writes the times of last use that have gathered since the last call.
// What could not be written is kept for the next one.
func (s *Service) FlushUse(ctx context.Context) error {
	s.mu.Lock()
	used := s.used
	s.used = map[string]time.Time{}
	s.mu.Unlock()
	if len(used) == 0 {
		return nil
	}
	err := s.store.Touch(ctx, used)
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, at := range used {
		if at.After(s.used[id]) {
			s.used[id] = at
		}
	}
	return fmt.Errorf("auth: write last use: %w", err)
}

// flushLoop writes last uses at every interval until ctx ends.
func (s *Service) flushLoop(ctx context.Context) {
	ticker := time.NewTicker(s.cfg.TouchInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := s.FlushUse(ctx); err != nil && ctx.Err() == nil {
				s.cfg.Logger.WarnContext(ctx, "last use of API keys not written", "error", err)
			}
			if err := errors.Join(s.FlushSessions(ctx), s.Clean(ctx)); err != nil && ctx.Err() == nil {
				s.cfg.Logger.WarnContext(ctx, "sessions not looked after", "error", err)
			}
		}
	}
}
