package auth

import (
	"context"
	"fmt"
	"net/netip"
	"time"
)

// How often a password may be guessed. Attempts are counted in the database,
// so that all nodes count together; one that succeeds ends the count of its
// email address. What is counted is whether there was an attempt, before it is
// looked at: guesses at the same time do not pass for one.
const (
	// maxPerEmail is how many attempts an email address has in a window,
	// whether anybody has that address or not.
	maxPerEmail = 10
	// maxPerIP is how many attempts a client's address has in a window; for
	// IPv6 its /64 network.
	maxPerIP       = 300
	attemptWindow  = 15 * time.Minute
	attemptByEmail = "email:"
	attemptByIP    = "ip:"
)

// ThrottledError tells a client that it tries too often.
type ThrottledError struct {
	// After is how long it has to wait.
	After time.Duration
}

func (e *ThrottledError) Error() string {
	return fmt.Sprintf("auth: too many attempts, wait %s", e.After.Round(time.Second))
}

// attempt counts an attempt to sign in and refuses it with a *[ThrottledError]
// when there were too many.
func (s *Service) attempt(ctx context.Context, email, ip string) error {
	if err := s.hit(ctx, emailKey(email), maxPerEmail); err != nil {
		return err
	}
	return s.attemptFrom(ctx, ip)
}

// attemptFrom is attempt for what is bound to no email address.
func (s *Service) attemptFrom(ctx context.Context, ip string) error {
	return s.hit(ctx, attemptByIP+network(ip), maxPerIP)
}

func (s *Service) hit(ctx context.Context, key string, most int) error {
	now := s.cfg.Now()
	hits, ends, err := s.dir.Hit(ctx, key, attemptWindow, now)
	if err != nil {
		return fmt.Errorf("auth: count attempts: %w", err)
	}
	if hits > most {
		return &ThrottledError{After: ends.Sub(now)}
	}
	return nil
}

// emailKey is hashed: the table need not hold what somebody has typed, which
// may have been a password.
func emailKey(email string) string { return attemptByEmail + hashSecret(email) }

// network is the part of a client's address that one client has to itself.
func network(ip string) string {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return "unknown"
	}
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		if prefix, err := addr.Prefix(64); err == nil {
			return prefix.String()
		}
	}
	return addr.String()
}
