package auth

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/auth/driver"
	"github.com/objecthost/objecthost/storage"
)

// kindSetup is the kind of the pending value that makes the first administrator.
const kindSetup = "setup"

// ErrSetupClosed is returned for a wrong or used setup token, and when there are
// users already.
var ErrSetupClosed = errors.New("auth: the first administrator cannot be made with this token")

// Administrator is the user that a host makes by itself.
type Administrator struct{ Email, Password string }

// EnsureAdministrator makes the user, as owner of the default organization,
// unless there is one with the email address, who is left as it is. It reports
// whether it did.
func (s *Service) EnsureAdministrator(ctx context.Context, a Administrator) (made bool, err error) {
	ctx = identity.With(ctx, identity.System())
	in := NewUser{Email: a.Email, Password: a.Password, EmailVerified: true, Roles: []string{RoleOwner}}
	if a.Password == "" {
		return false, &InvalidError{Field: "password", Reason: "is required for the administrator"}
	}
	hash, err := s.settleUser(ctx, &in)
	if err != nil {
		return false, err
	}
	err = s.dir.InTx(ctx, func(ctx context.Context) error {
		made = false
		if _, err := s.dir.AnyUser(ctx); err != nil { // which makes hosts take turns
			return err
		}
		_, err := s.dir.UserByEmail(ctx, in.Email)
		if !errors.Is(err, driver.ErrNotFound) {
			return err
		}
		made = true
		_, err = s.insertUser(ctx, in, hash)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("auth: make the administrator: %w", err)
	}
	return made, nil
}

// EnsureSetupToken makes the token that [Service.Bootstrap] takes when there is
// neither a user nor such a token yet, and reports whether it did. The caller
// shows it once: only its hash is stored.
func (s *Service) EnsureSetupToken(ctx context.Context) (token string, made bool, err error) {
	if s.dir == nil {
		return "", false, nil
	}
	token = newLongID()
	err = s.dir.InTx(ctx, func(ctx context.Context) error {
		made = false
		users, err := s.dir.AnyUser(ctx)
		if err != nil || users {
			return err
		}
		pending, err := s.dir.AnyPending(ctx, kindSetup)
		if err != nil || pending {
			return err
		}
		made = true
		return s.dir.Put(ctx, driver.Pending{Hash: hashSecret(token), Kind: kindSetup})
	})
	if err != nil {
		return "", false, fmt.Errorf("auth: make setup token: %w", err)
	}
	if !made {
		token = ""
	}
	return token, made, nil
}

// Bootstrap makes the first user, as owner of the default organization, and
// signs it in. The token works once, and only while there is no user. Errors are
// [ErrSetupClosed], *[InvalidError] and *[ThrottledError].
func (s *Service) Bootstrap(ctx context.Context, token string, in NewUser, from Client) (SignedIn, error) {
	if s.dir == nil {
		return SignedIn{}, ErrNoUsers
	}
	if err := s.attemptFrom(ctx, from.IP); err != nil {
		return SignedIn{}, err
	}
	// A password is hashed only where the token may still be good.
	if users, err := s.HasUsers(ctx); err != nil {
		return SignedIn{}, err
	} else if users {
		return SignedIn{}, ErrSetupClosed
	}
	in.OrganizationID, in.Roles, in.EmailVerified = "", []string{RoleOwner}, true
	if err := checkPassword(in.Password); err != nil {
		return SignedIn{}, err
	}
	hash, err := s.settleUser(ctx, &in)
	if err != nil {
		return SignedIn{}, err
	}
	var signed SignedIn
	err = s.dir.InTx(ctx, func(ctx context.Context) error {
		users, err := s.dir.AnyUser(ctx)
		if err != nil {
			return err
		}
		if users {
			return ErrSetupClosed
		}
		if _, err := s.dir.Take(ctx, kindSetup, hashSecret(token), s.cfg.Now()); errors.Is(err, driver.ErrNotFound) {
			return ErrSetupClosed
		} else if err != nil {
			return err
		}
		user, err := s.insertUser(ctx, in, hash)
		if err != nil {
			return err
		}
		signed, err = s.begin(ctx, user, from, "setup")
		return err
	})
	return signed, err
}

// HasUsers reports whether somebody can sign in.
func (s *Service) HasUsers(ctx context.Context) (bool, error) {
	if s.dir == nil {
		return false, nil
	}
	users, err := s.dir.AnyUser(ctx)
	if err != nil {
		return false, fmt.Errorf("auth: look for users: %w", err)
	}
	return users, nil
}

// Clean removes sessions, counts and pending sign-ins that have ended.
func (s *Service) Clean(ctx context.Context) error {
	if s.dir == nil {
		return nil
	}
	if err := s.dir.Clean(ctx, s.cfg.Now()); err != nil {
		return fmt.Errorf("auth: clean up: %w", err)
	}
	return nil
}

// noteSession remembers that a session is in use and its end is to be put off.
func (s *Service) noteSession(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewed[id] = millis(s.cfg.Now())
}

// FlushSessions puts the ends of sessions off that were used since the last
// call.
func (s *Service) FlushSessions(ctx context.Context) error {
	s.mu.Lock()
	renewed := s.renewed
	s.renewed = map[string]time.Time{}
	s.mu.Unlock()
	for id, at := range renewed {
		err := s.dir.Extend(ctx, id, at, at.Add(sessionAge))
		if err != nil && !errors.Is(err, driver.ErrNotFound) {
			return fmt.Errorf("auth: put off the end of a session: %w", err)
		}
	}
	if len(renewed) > 0 {
		storage.AfterCommit(ctx, func(context.Context) { s.sessions.forget() })
	}
	return nil
}
