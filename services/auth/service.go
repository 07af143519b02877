package auth

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/auth/driver"
)

// ServiceKey is the service's name in the kernel.
var ServiceKey = core.NewKey[*Service]("auth")

// Service authenticates callers and answers what they may do. It is safe for
// concurrent use.
type Service struct {
	store driver.Store
	cfg   Config
	cache *cache

	// dir keeps users, nil for a store of API keys only.
	dir      driver.Directory
	hasher   *hasher
	sessions *recent[driver.Session] // by hash, and by id behind "id:"
	grants   *recent[grant]
	several  *recent[bool]
	// hostPermissions reach over organizations. Set before the first request.
	hostPermissions map[string]bool
	providers       map[string]*provider

	mu      sync.Mutex
	used    map[string]time.Time // last use of keys, not yet written
	renewed map[string]time.Time // sessions whose end is to be put off
	signing []byte
}

var (
	_ identity.Authorizer = (*Service)(nil)
	_ identity.Auditor    = (*Service)(nil)
)

// New returns a service over store. The caller closes the store. A store that is
// a driver.Directory as well has users, sessions and organizations; with others
// the service knows API keys only.
func New(store driver.Store, cfg Config) (*Service, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Service{
		store: store, cfg: cfg, cache: newCache(cfg.CacheTTL), used: map[string]time.Time{}, renewed: map[string]time.Time{},
		hasher: newHasher(), sessions: newRecent[driver.Session](cfg.CacheTTL), grants: newRecent[grant](cfg.CacheTTL),
		several: newRecent[bool](cfg.CacheTTL), hostPermissions: map[string]bool{},
		providers: map[string]*provider{},
	}
	s.dir, _ = store.(driver.Directory)
	for _, p := range cfg.Providers {
		ready, err := newProvider(p)
		if err != nil {
			return nil, err
		}
		if s.providers[p.ID] != nil {
			return nil, fmt.Errorf("auth: provider %q is given twice", p.ID)
		}
		s.providers[p.ID] = ready
	}
	return s, nil
}

// Authenticate tells who sent the request: the anonymous principal when it
// carries no credentials, [ErrInvalidCredentials] when it carries wrong ones,
// [ErrOrigin] for a cookie that another site's page sent along, and another
// error when the store cannot be asked. X-API-Key counts before Authorization,
// and that before a cookie.
func (s *Service) Authenticate(r *http.Request) (identity.Principal, error) {
	c := credentialsOf(r)
	switch {
	case c.secret == "" && !c.given:
		return identity.Principal{}, nil
	case c.cookie:
		if err := s.checkCookieOrigin(r); err != nil {
			return identity.Principal{}, err
		}
	}
	if !strings.HasPrefix(c.secret, keyPrefix) && c.session {
		session, err := s.authenticateSession(r.Context(), c.secret)
		if err != nil {
			return identity.Principal{}, err
		}
		return identity.Principal{UserID: session.UserID, OrganizationID: session.OrganizationID, SessionID: session.ID}, nil
	}
	return s.authenticateKey(r.Context(), c.secret)
}

func (s *Service) authenticateKey(ctx context.Context, secret string) (identity.Principal, error) {
	if !wellFormed(secret) {
		return identity.Principal{}, ErrInvalidCredentials
	}
	hash := hashSecret(secret)
	key, err := s.lookup(ctx, hash)
	if err != nil {
		return identity.Principal{}, err
	}
	if subtle.ConstantTimeCompare([]byte(key.Hash), []byte(hash)) != 1 || !s.live(key) {
		return identity.Principal{}, ErrInvalidCredentials
	}
	s.noteUse(key.ID)
	return identity.Principal{UserID: key.UserID, OrganizationID: key.OrganizationID, KeyID: key.ID}, nil
}

// credentials are what a request brings along to prove who sends it.
type credentials struct {
	secret string
	// given tells that there are some, also when they are empty; session that
	// they may be a session's, cookie that a browser added them by itself.
	given, session, cookie bool
}

// credentialsOf finds the credentials of a request. A header that is there but
// empty, or an Authorization of another kind, is a wrong credential, not an
// absent one: silently going on as nobody would hide a broken client.
func credentialsOf(r *http.Request) credentials {
	if values := r.Header.Values("X-Api-Key"); len(values) > 0 {
		return credentials{secret: strings.TrimSpace(values[0]), given: true}
	}
	if values := r.Header.Values("Authorization"); len(values) > 0 {
		scheme, rest, _ := strings.Cut(strings.TrimSpace(values[0]), " ")
		rest = strings.TrimSpace(rest)
		switch {
		case strings.EqualFold(scheme, "Bearer"):
			return credentials{secret: rest, given: true, session: true}
		case strings.EqualFold(scheme, "ApiKey"):
			return credentials{secret: rest, given: true}
		}
		return credentials{given: true}
	}
	if value, ok := sessionCookie(r); ok {
		return credentials{secret: value, given: true, session: true, cookie: true}
	}
	return credentials{}
}

func (s *Service) lookup(ctx context.Context, hash string) (driver.Key, error) {
	if key, ok := s.cache.get(hash, s.cfg.Now()); ok {
		return key, nil
	}
	return s.load(func() (driver.Key, error) { return s.store.ByHash(ctx, hash) })
}

func (s *Service) load(read func() (driver.Key, error)) (driver.Key, error) {
	generation, now := s.cache.begin(), s.cfg.Now()
	key, err := read()
	switch {
	case errors.Is(err, driver.ErrNotFound):
		return driver.Key{}, ErrInvalidCredentials
	case err != nil:
		return driver.Key{}, fmt.Errorf("auth: look up key: %w", err)
	}
	// The age counts from before the read, so that the promise of CacheTTL
	// includes the time that the read took.
	s.cache.put(key, now, generation)
	return key, nil
}

func (s *Service) live(key driver.Key) bool {
	return key.RevokedAt.IsZero() && (key.ExpiresAt.IsZero() || s.cfg.Now().Before(key.ExpiresAt))
}

// Can implements identity.Authorizer.
func (s *Service) Can(ctx context.Context, op identity.Operation, object string) error {
	return s.decide(ctx, func(a authority) error {
		if a.Can(op, object) {
			return nil
		}
		return &identity.DeniedError{Permission: string(op), Object: object}
	})
}

// Has implements identity.Authorizer. The empty permission asks for an
// authenticated caller only.
func (s *Service) Has(ctx context.Context, permission string) error {
	return s.decide(ctx, func(a authority) error {
		if permission == "" || a.Has(permission) {
			return nil
		}
		return &identity.DeniedError{Permission: permission}
	})
}

func (s *Service) decide(ctx context.Context, judge func(authority) error) error {
	if identity.From(ctx).System {
		return nil
	}
	a, err := s.authorityOf(ctx)
	if err != nil {
		return err
	}
	return judge(a)
}

// keyOf returns the caller's key, or ErrInvalidCredentials when it has been
// revoked or has expired since the caller was authenticated.
func (s *Service) keyOf(ctx context.Context, caller identity.Principal) (driver.Key, error) {
	key, ok := s.cache.getByID(caller.KeyID, s.cfg.Now())
	if !ok {
		var err error
		key, err = s.load(func() (driver.Key, error) { return s.store.ByID(ctx, caller.KeyID) })
		if err != nil {
			return driver.Key{}, err
		}
	}
	if !s.live(key) {
		return driver.Key{}, ErrInvalidCredentials
	}
	return key, nil
}
