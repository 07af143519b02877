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

	mu   sync.Mutex
	used map[string]time.Time // last use of keys, not yet written
}

var _ identity.Authorizer = (*Service)(nil)

// New returns a service over store. The caller closes the store.
func New(store driver.Store, cfg Config) (*Service, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Service{
		store: store, cfg: cfg, cache: newCache(cfg.CacheTTL), used: map[string]time.Time{},
	}, nil
}

// Authenticate tells who sent the request: the anonymous principal when it
// carries no credentials, [ErrInvalidCredentials] when it carries wrong ones,
// and another error when the store cannot be asked. X-API-Key counts before
// Authorization.
func (s *Service) Authenticate(r *http.Request) (identity.Principal, error) {
	secret, given := credentials(r.Header)
	if !given {
		return identity.Principal{}, nil
	}
	if !wellFormed(secret) {
		return identity.Principal{}, ErrInvalidCredentials
	}
	hash := hashSecret(secret)
	key, err := s.lookup(r.Context(), hash)
	if err != nil {
		return identity.Principal{}, err
	}
	if subtle.ConstantTimeCompare([]byte(key.Hash), []byte(hash)) != 1 || !s.live(key) {
		return identity.Principal{}, ErrInvalidCredentials
	}
	s.noteUse(key.ID)
	return identity.Principal{UserID: key.UserID, OrganizationID: key.OrganizationID, KeyID: key.ID}, nil
}

// credentials finds the key in a request's headers. A header that is there but
// empty, or an Authorization of another kind, is a wrong credential, not an
// absent one: silently going on as nobody would hide a broken client.
func credentials(h http.Header) (secret string, given bool) {
	if values := h.Values("X-Api-Key"); len(values) > 0 {
		return strings.TrimSpace(values[0]), true
	}
	values := h.Values("Authorization")
	if len(values) == 0 {
		return "", false
	}
	scheme, rest, _ := strings.Cut(strings.TrimSpace(values[0]), " ")
	if strings.EqualFold(scheme, "Bearer") || strings.EqualFold(scheme, "ApiKey") {
		return strings.TrimSpace(rest), true
	}
	return "", true
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
	return s.decide(ctx, func(scopes Scopes) error {
		if scopes.Can(op, object) {
			return nil
		}
		return &identity.DeniedError{Permission: string(op), Object: object}
	})
}

// Has implements identity.Authorizer. The empty permission asks for an
// authenticated caller only.
func (s *Service) Has(ctx context.Context, permission string) error {
	return s.decide(ctx, func(scopes Scopes) error {
		if permission == "" || scopes.Has(permission) {
			return nil
		}
		return &identity.DeniedError{Permission: permission}
	})
}

func (s *Service) decide(ctx context.Context, judge func(Scopes) error) error {
	caller := identity.From(ctx)
	if caller.System {
		return nil
	}
	scopes, err := s.scopesOf(ctx, caller)
	if err != nil {
		return err
	}
	return judge(scopes)
}

// scopesOf returns what a caller may do: the scopes of its key. A caller that
// is authenticated by other means has none.
func (s *Service) scopesOf(ctx context.Context, caller identity.Principal) (Scopes, error) {
	switch {
	case caller.System:
		return Scopes{ScopeAdmin}, nil
	case !caller.Authenticated():
		return nil, identity.ErrUnauthenticated
	case caller.KeyID == "":
		return nil, nil
	}
	key, err := s.keyOf(ctx, caller)
	return key.Scopes, err
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
