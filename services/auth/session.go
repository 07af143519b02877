package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/auth/driver"
	"github.com/objecthost/objecthost/storage"
)

const (
	// sessionAge is how long a session lasts from its last renewal, which
	// comes with its first use a day after the one before.
	sessionAge   = 7 * 24 * time.Hour
	sessionRenew = 24 * time.Hour
	// longID is the length of users' ids and of session tokens: 190 random bits.
	longID = 32
	// signingValue is the name of the secret that session tokens are signed
	// with. It saves the database look-ups for noise and opens nothing.
	signingValue = "session-signing"
)

// ErrNoUsers is returned by everything about users when the store keeps API
// keys only.
var ErrNoUsers = errors.New("auth: this host has API keys only")

// ErrInvalidLogin is returned for a sign-in that is refused: an unknown email
// address, a wrong password, a disabled user. Callers learn no more than that.
var ErrInvalidLogin = errors.New("auth: invalid email or password")

// ErrSessionNotFound is returned for a session that the user does not have.
var ErrSessionNotFound = errors.New("auth: session not found")

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// newLongID returns 32 characters of A-Z a-z 0-9. Bytes past a multiple of 62
// are thrown away, so that all are equally likely.
func newLongID() string {
	out := make([]byte, 0, longID)
	var raw [64]byte
	for {
		_, _ = rand.Read(raw[:]) // never fails
		for _, b := range raw {
			if b < 248 {
				if out = append(out, base62[b%62]); len(out) == longID {
					return string(out)
				}
			}
		}
	}
}

// Client is where a request came from.
type Client struct{ IP, UserAgent string }

// SignedIn is a fresh session at the one moment when its token can be read.
type SignedIn struct {
	// Token is the session's, Signed the same with its signature, as cookies
	// carry it.
	Token, Signed string
	User          driver.User
	Session       driver.Session
}

// String leaves the token out, so that no log shows it.
func (s SignedIn) String() string { return "session " + s.Session.ID }

// GoString is the same for %#v.
func (s SignedIn) GoString() string { return s.String() }

// SignIn begins a session for the user with the email address and the password.
// It takes as long for an unknown address as for a wrong password. Errors are
// [ErrInvalidLogin], *[ThrottledError] and [ErrNoUsers].
func (s *Service) SignIn(ctx context.Context, email, password string, from Client) (SignedIn, error) {
	if s.dir == nil {
		return SignedIn{}, ErrNoUsers
	}
	email = normalEmail(email)
	if err := s.attempt(ctx, email, from.IP); err != nil {
		return SignedIn{}, err
	}
	user, err := s.dir.UserByEmail(ctx, email)
	if err != nil && !errors.Is(err, driver.ErrNotFound) {
		return SignedIn{}, fmt.Errorf("auth: look up user: %w", err)
	}
	account, err := s.dir.Account(ctx, providerPassword, user.ID)
	if err != nil && !errors.Is(err, driver.ErrNotFound) {
		return SignedIn{}, fmt.Errorf("auth: look up account: %w", err)
	}
	match, outdated, err := s.hasher.compare(ctx, account.PasswordHash, password)
	switch {
	case err != nil:
		return SignedIn{}, err
	case !match || !user.DisabledAt.IsZero():
		return SignedIn{}, ErrInvalidLogin
	}
	if outdated {
		if account.PasswordHash, err = s.hasher.hash(ctx, password); err != nil {
			return SignedIn{}, err
		}
		account.UpdatedAt = millis(s.cfg.Now())
	}
	var in SignedIn
	err = s.dir.InTx(ctx, func(ctx context.Context) error {
		if outdated {
			if err := s.dir.PutAccount(ctx, account); err != nil {
				return err
			}
		}
		if err := s.dir.Forget(ctx, emailKey(email)); err != nil {
			return err
		}
		in, err = s.begin(ctx, user, from, "password")
		return err
	})
	if err != nil {
		return SignedIn{}, fmt.Errorf("auth: begin session: %w", err)
	}
	return in, nil
}

// begin stores a session in the transaction of ctx. It acts in the default
// organization when the user is a member there, else in the oldest one.
func (s *Service) begin(ctx context.Context, user driver.User, from Client, how string) (SignedIn, error) {
	token := newLongID()
	signed, err := s.sign(ctx, token)
	if err != nil {
		return SignedIn{}, err
	}
	now := millis(s.cfg.Now())
	session := driver.Session{
		ID: newLongID(), UserID: user.ID, TokenHash: hashSecret(token), IP: clip(from.IP, 64), UserAgent: clip(from.UserAgent, 256),
		CreatedAt: now, UpdatedAt: now, ExpiresAt: now.Add(sessionAge),
	}
	belongs, err := s.dir.OrganizationsOf(ctx, user.ID)
	if err != nil {
		return SignedIn{}, err
	}
	if len(belongs) > 0 {
		session.OrganizationID = internalOrganization(belongs[0].ID)
	}
	if err := s.dir.InsertSession(ctx, session); err != nil {
		return SignedIn{}, err
	}
	entry := driver.Entry{
		OrganizationID: session.OrganizationID, UserID: user.ID, Action: "session.begin",
		TargetType: "session", TargetID: session.ID, IP: session.IP, Detail: `{"method":"` + how + `"}`,
	}
	if err := s.record(ctx, entry); err != nil {
		return SignedIn{}, err
	}
	return SignedIn{Token: token, Signed: signed, User: user, Session: session}, nil
}

// clip bounds a client's text and leaves out what is not text.
func clip(text string, most int) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}

// internalOrganization turns the name of the default organization into the
// empty id that it has everywhere else; publicOrganization turns it back.
func internalOrganization(id string) string {
	if id == identity.DefaultOrganization {
		return ""
	}
	return id
}

func publicOrganization(id string) string {
	if id == "" {
		return identity.DefaultOrganization
	}
	return id
}

// sign adds the signature to a session's token.
func (s *Service) sign(ctx context.Context, token string) (string, error) {
	key, err := s.signingKey(ctx)
	if err != nil {
		return "", err
	}
	return token + "." + signature(key, token), nil
}

func signature(key []byte, token string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(token))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// signingKey is made once for a database.
func (s *Service) signingKey(ctx context.Context) ([]byte, error) {
	s.mu.Lock()
	key := s.signing
	s.mu.Unlock()
	if key != nil {
		return key, nil
	}
	value, err := s.dir.Value(ctx, signingValue, newLongID()+newLongID())
	if err != nil {
		return nil, fmt.Errorf("auth: read signing key: %w", err)
	}
	if storage.InTransaction(ctx) {
		return []byte(value), nil // which may yet be rolled back
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signing = []byte(value)
	return s.signing, nil
}

// tokenOf checks the form of a credential, and the signature of one that has
// one, and returns the session's token.
func (s *Service) tokenOf(ctx context.Context, credential string) (string, error) {
	token, mac, signed := strings.Cut(credential, ".")
	if len(token) != longID || strings.Trim(token, base62) != "" {
		return "", ErrInvalidCredentials
	}
	if !signed {
		return token, nil
	}
	key, err := s.signingKey(ctx)
	if err != nil {
		return "", err
	}
	if !hmac.Equal([]byte(mac), []byte(signature(key, token))) {
		return "", ErrInvalidCredentials
	}
	return token, nil
}

// authenticateSession tells whose session a credential is.
func (s *Service) authenticateSession(ctx context.Context, credential string) (driver.Session, error) {
	if s.dir == nil {
		return driver.Session{}, ErrInvalidCredentials
	}
	token, err := s.tokenOf(ctx, credential)
	if err != nil {
		return driver.Session{}, err
	}
	hash := hashSecret(token)
	session, err := s.liveSession(s.sessions.load(hash, s.cfg.Now(), func() (driver.Session, error) {
		return s.dir.SessionByHash(ctx, hash)
	}))
	if err != nil {
		return driver.Session{}, err
	}
	// A disabled user has no sessions, but one may be kept here a moment longer.
	if _, err := s.grantOf(ctx, session.UserID, session.OrganizationID); err != nil {
		return driver.Session{}, err
	}
	if s.cfg.Now().Sub(session.UpdatedAt) >= sessionRenew {
		s.noteSession(session.ID)
	}
	return session, nil
}

func (s *Service) sessionByID(ctx context.Context, id string) (driver.Session, error) {
	if s.dir == nil {
		return driver.Session{}, ErrInvalidCredentials
	}
	return s.liveSession(s.sessions.load("id:"+id, s.cfg.Now(), func() (driver.Session, error) {
		return s.dir.SessionByID(ctx, id)
	}))
}

// liveSession is ErrInvalidCredentials for a session that is not there or has
// expired.
func (s *Service) liveSession(session driver.Session, err error) (driver.Session, error) {
	switch {
	case errors.Is(err, driver.ErrNotFound) || err == nil && !s.cfg.Now().Before(session.ExpiresAt):
		return driver.Session{}, ErrInvalidCredentials
	case err != nil:
		return driver.Session{}, fmt.Errorf("auth: look up session: %w", err)
	}
	return session, nil
}

// SignOut ends the session of the principal in ctx; a principal without one
// changes nothing.
func (s *Service) SignOut(ctx context.Context) error {
	caller := identity.From(ctx)
	if caller.SessionID == "" || s.dir == nil {
		return nil
	}
	err := s.EndSession(ctx, caller.SessionID)
	if errors.Is(err, ErrSessionNotFound) {
		return nil
	}
	return err
}

// EndSession ends a session of the principal's user. [ErrSessionNotFound] for
// one that the user does not have.
func (s *Service) EndSession(ctx context.Context, id string) error {
	caller := identity.From(ctx)
	err := s.dir.InTx(ctx, func(ctx context.Context) error {
		if err := s.dir.EndSession(ctx, caller.UserID, id); err != nil {
			return err
		}
		return s.note(ctx, "session.end", "session", id, nil)
	})
	switch {
	case errors.Is(err, driver.ErrNotFound):
		return ErrSessionNotFound
	case err != nil:
		return fmt.Errorf("auth: end session: %w", err)
	}
	storage.AfterCommit(ctx, func(context.Context) { s.sessions.forget() })
	return nil
}

// EndSessions ends all sessions of the principal's user, or all but the present
// one.
func (s *Service) EndSessions(ctx context.Context, keepThis bool) error {
	caller := identity.From(ctx)
	except := ""
	if keepThis {
		except = caller.SessionID
	}
	err := s.dir.InTx(ctx, func(ctx context.Context) error { return s.endSessions(ctx, caller.UserID, except) })
	if err != nil {
		return fmt.Errorf("auth: end sessions: %w", err)
	}
	return nil
}

// endSessions ends sessions in the transaction of ctx.
func (s *Service) endSessions(ctx context.Context, userID, except string) error {
	ended, err := s.dir.EndSessions(ctx, userID, except)
	if err != nil {
		return err
	}
	for _, id := range ended {
		if err := s.note(ctx, "session.end", "session", id, nil); err != nil {
			return err
		}
	}
	storage.AfterCommit(ctx, func(context.Context) { s.sessions.forget() })
	return nil
}

// Sessions returns the sessions of the principal's user, oldest first.
func (s *Service) Sessions(ctx context.Context) ([]driver.Session, error) {
	list, err := s.dir.SessionsOf(ctx, identity.From(ctx).UserID, s.cfg.Now())
	if err != nil {
		return nil, fmt.Errorf("auth: list sessions: %w", err)
	}
	return list, nil
}
