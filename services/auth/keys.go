package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/auth/driver"
	"github.com/objecthost/objecthost/storage"
)

// PermissionManageKeys is the system permission for making, listing and
// revoking keys. It is a permission of its own: otherwise whoever finds a key
// could make more of them, which live on when the found one is revoked.
const PermissionManageKeys = "keys.manage"

const (
	defaultName   = "API key"
	firstKeyName  = "First key"
	maxNameLength = 100
)

// KeyRequest describes a key to make.
type KeyRequest struct {
	// Name is at most 100 characters; empty means "API key".
	Name string
	// Scopes is what the key may do; nil means what its maker may do.
	Scopes Scopes
	// ExpiresAt ends the key; zero means never, or when the maker's own key
	// ends.
	ExpiresAt time.Time
}

// NewKey is a key at the one moment when it can be read.
type NewKey struct {
	driver.Key
	// Secret is the key itself. It is not stored.
	Secret string
}

// String leaves the secret out, so that no log shows it.
func (k NewKey) String() string { return "key " + k.ID + " (" + k.Prefix + "…)" }

// GoString is the same for %#v.
func (k NewKey) GoString() string { return k.String() }

// CreateKey makes a key in the name of the principal in ctx, with the user and
// organization of that principal. The caller must hold [PermissionManageKeys].
// Errors: *[InvalidError] and *[ScopeError] for bad values, *[ExceedsError] for
// a key that would reach further than its maker, and those of Has.
func (s *Service) CreateKey(ctx context.Context, req KeyRequest) (NewKey, error) {
	if err := s.Has(ctx, PermissionManageKeys); err != nil {
		return NewKey{}, err
	}
	caller := identity.From(ctx)
	own, err := s.makersKey(ctx, caller)
	if err != nil {
		return NewKey{}, err
	}
	may, err := s.authorityOf(ctx)
	if err != nil {
		return NewKey{}, err
	}
	if req, err = s.settle(req, own, may); err != nil {
		return NewKey{}, err
	}
	key := s.mint(req)
	key.UserID, key.OrganizationID = caller.UserID, caller.OrganizationID
	err = s.inTx(ctx, func(ctx context.Context) error {
		if err := s.store.Insert(ctx, key.Key); err != nil {
			return err
		}
		return s.audit(ctx, "key.create", "key", key.ID, map[string]any{"name": key.Name, "prefix": key.Prefix, "scopes": key.Scopes})
	})
	if err != nil {
		return NewKey{}, fmt.Errorf("auth: create key: %w", err)
	}
	return key, nil
}

// inTx runs fn in a transaction where the store has any.
func (s *Service) inTx(ctx context.Context, fn func(context.Context) error) error {
	if s.dir == nil {
		return fn(ctx)
	}
	return s.dir.InTx(ctx, fn)
}

// makersKey returns the key that a new key is measured by: the caller's own, or
// for a user one with what the user's roles allow.
func (s *Service) makersKey(ctx context.Context, caller identity.Principal) (driver.Key, error) {
	switch {
	case caller.KeyID != "":
		return s.keyOf(ctx, caller)
	case caller.System:
		return driver.Key{Scopes: Scopes{ScopeAdmin}}, nil
	case s.dir == nil:
		return driver.Key{}, nil
	}
	g, err := s.grantOf(ctx, caller.UserID, caller.OrganizationID)
	return driver.Key{Scopes: slices.Compact(slices.Sorted(slices.Values(g.scopes)))}, err
}

// settle checks a request and fills in what it leaves open.
func (s *Service) settle(req KeyRequest, own driver.Key, may authority) (KeyRequest, error) {
	if err := checkName(req.Name); err != nil {
		return req, err
	}
	if req.Name == "" {
		req.Name = defaultName
	}
	if req.Scopes == nil {
		req.Scopes = own.Scopes
	}
	if err := req.Scopes.Validate(); err != nil {
		return req, err
	}
	if scope := may.lacking(req.Scopes); scope != "" {
		return req, &ExceedsError{Scope: scope}
	}
	if req.ExpiresAt.IsZero() {
		req.ExpiresAt = own.ExpiresAt
	}
	switch {
	case req.ExpiresAt.IsZero():
	case !req.ExpiresAt.After(s.cfg.Now()):
		return req, &InvalidError{Field: "expires_at", Reason: "must be in the future"}
	case req.ExpiresAt.Year() > 9999:
		return req, &InvalidError{Field: "expires_at", Reason: "must be before the year 10000"}
	case !own.ExpiresAt.IsZero() && req.ExpiresAt.After(own.ExpiresAt):
		return req, &ExceedsError{}
	}
	return req, nil
}

func checkName(name string) error {
	switch {
	case !utf8.ValidString(name):
		return &InvalidError{Field: "name", Reason: "must be valid UTF-8"}
	case utf8.RuneCountInString(name) > maxNameLength:
		return &InvalidError{Field: "name", Reason: fmt.Sprintf("must be at most %d characters", maxNameLength)}
	case strings.ContainsFunc(name, unicode.IsControl):
		return &InvalidError{Field: "name", Reason: "must not contain control characters"}
	}
	return nil
}

func (s *Service) mint(req KeyRequest) NewKey {
	secret := newSecret()
	return NewKey{Secret: secret, Key: driver.Key{
		ID: newID(), Name: req.Name, Prefix: secret[:shownLength], Hash: hashSecret(secret),
		Scopes: req.Scopes, CreatedAt: millis(s.cfg.Now()), ExpiresAt: millis(req.ExpiresAt),
	}}
}

// millis cuts a time to what is stored, and leaves zero alone.
func millis(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Millisecond)
}

// EnsureFirstKey makes a key with the scope admin when the store has never held
// a key, and reports whether it did. The caller shows the secret once.
func (s *Service) EnsureFirstKey(ctx context.Context) (NewKey, bool, error) {
	key := s.mint(KeyRequest{Name: firstKeyName, Scopes: Scopes{ScopeAdmin}})
	made, err := s.store.InsertFirst(ctx, key.Key)
	if err != nil {
		return NewKey{}, false, fmt.Errorf("auth: create first key: %w", err)
	}
	if !made {
		return NewKey{}, false, nil
	}
	return key, true, nil
}

// ListKeys returns the keys of the caller's organization, oldest first, revoked
// and expired ones among them. The caller must hold [PermissionManageKeys].
func (s *Service) ListKeys(ctx context.Context) ([]driver.Key, error) {
	if err := s.Has(ctx, PermissionManageKeys); err != nil {
		return nil, err
	}
	keys, err := s.store.List(ctx, identity.From(ctx).OrganizationID)
	if err != nil {
		return nil, fmt.Errorf("auth: list keys: %w", err)
	}
	return keys, nil
}

// RevokeKey ends a key of the caller's organization; revoking it again changes
// nothing. It takes effect here once the transaction of ctx has committed, and
// on other nodes within Config.CacheTTL after that. [ErrKeyNotFound] for a key
// that the organization does not have. The caller must hold
// [PermissionManageKeys].
func (s *Service) RevokeKey(ctx context.Context, id string) (driver.Key, error) {
	if err := s.Has(ctx, PermissionManageKeys); err != nil {
		return driver.Key{}, err
	}
	var key driver.Key
	err := s.inTx(ctx, func(ctx context.Context) (err error) {
		if key, err = s.store.Revoke(ctx, identity.From(ctx).OrganizationID, id, millis(s.cfg.Now())); err != nil {
			return err
		}
		return s.audit(ctx, "key.revoke", "key", id, nil)
	})
	switch {
	case errors.Is(err, driver.ErrNotFound):
		return driver.Key{}, ErrKeyNotFound
	case err != nil:
		return driver.Key{}, fmt.Errorf("auth: revoke key: %w", err)
	}
	storage.AfterCommit(ctx, func(context.Context) { s.cache.forget(key.ID) })
	return key, nil
}
