package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/auth/driver"
	"github.com/objecthost/objecthost/services/auth/memstore"
	"github.com/objecthost/objecthost/storage"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// counted counts the look-ups that reach the store and can make them fail.
type counted struct {
	driver.Store
	lookups atomic.Int64
	fail    error
	onRead  func()
}

func (c *counted) ByHash(ctx context.Context, hash string) (driver.Key, error) {
	c.lookups.Add(1)
	if c.fail != nil {
		return driver.Key{}, c.fail
	}
	k, err := c.Store.ByHash(ctx, hash)
	if c.onRead != nil {
		c.onRead()
	}
	return k, err
}

func (c *counted) ByID(ctx context.Context, id string) (driver.Key, error) {
	c.lookups.Add(1)
	if c.fail != nil {
		return driver.Key{}, c.fail
	}
	return c.Store.ByID(ctx, id)
}

type bundle struct {
	*Service
	store *counted
	now   time.Time
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{store: &counted{Store: memstore.New()}, now: start}
	service, err := New(b.store, Config{Now: func() time.Time { return b.now }})
	if err != nil {
		t.Fatal(err)
	}
	b.Service = service
	return b
}

// make makes a key as the host itself.
func (b *bundle) make(t *testing.T, scopes ...string) NewKey {
	t.Helper()
	key, err := b.CreateKey(identity.With(t.Context(), identity.System()), KeyRequest{Name: "test", Scopes: scopes})
	if err != nil {
		t.Fatalf("CreateKey = %v", err)
	}
	return key
}

func request(header, value string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if header != "" {
		r.Header.Set(header, value)
	}
	return r
}

func as(t *testing.T, key NewKey) context.Context {
	return identity.With(t.Context(), identity.Principal{
		KeyID: key.ID, UserID: key.UserID, OrganizationID: key.OrganizationID,
	})
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.make(t, "data:read")
	ok := identity.Principal{KeyID: key.ID}
	for name, test := range map[string]struct {
		header, value string
		want          identity.Principal
		err           error
	}{
		"nothing":           {"", "", identity.Principal{}, nil},
		"x-api-key":         {"X-API-Key", key.Secret, ok, nil},
		"api key":           {"Authorization", "ApiKey " + key.Secret, ok, nil},
		"bearer":            {"Authorization", "Bearer " + key.Secret, ok, nil},
		"scheme any case":   {"Authorization", "bEARER  " + key.Secret + " ", ok, nil},
		"empty x-api-key":   {"X-API-Key", "", identity.Principal{}, ErrInvalidCredentials},
		"basic":             {"Authorization", "Basic dTpw", identity.Principal{}, ErrInvalidCredentials},
		"no scheme":         {"Authorization", key.Secret, identity.Principal{}, ErrInvalidCredentials},
		"bearer of others":  {"Authorization", "Bearer abc", identity.Principal{}, ErrInvalidCredentials},
		"unknown key":       {"X-API-Key", newSecret(), identity.Principal{}, ErrInvalidCredentials},
		"the hash":          {"X-API-Key", key.Hash, identity.Principal{}, ErrInvalidCredentials},
		"key with rest":     {"X-API-Key", key.Secret + ", x", identity.Principal{}, ErrInvalidCredentials},
		"upper-case prefix": {"X-API-Key", strings.ToUpper(key.Secret), identity.Principal{}, ErrInvalidCredentials},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := b.Authenticate(request(test.header, test.value))
			if got != test.want || !errors.Is(err, test.err) {
				t.Errorf("Authenticate = %+v, %v, want %+v, %v", got, err, test.want, test.err)
			}
			if test.err != nil && !errors.Is(err, identity.ErrUnauthenticated) {
				t.Errorf("%v is no ErrUnauthenticated", err)
			}
		})
	}
}

func TestAuthenticateCarriesOwner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	maker := identity.Principal{UserID: "u1", OrganizationID: "o1", System: true}
	key, err := b.CreateKey(identity.With(t.Context(), maker), KeyRequest{Scopes: Scopes{"data:read"}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.Authenticate(request("X-API-Key", key.Secret))
	want := identity.Principal{UserID: "u1", OrganizationID: "o1", KeyID: key.ID}
	if err != nil || got != want {
		t.Errorf("Authenticate = %+v, %v, want %+v", got, err, want)
	}
}

func TestAuthenticateReportsStoreFailure(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.make(t, "admin")
	b.store.fail = errors.New("database is gone")
	_, err := b.Authenticate(request("X-API-Key", key.Secret))
	if !errors.Is(err, b.store.fail) || errors.Is(err, identity.ErrUnauthenticated) {
		t.Errorf("Authenticate = %v, want the store's error and no ErrUnauthenticated", err)
	}
}

func TestKeyExpires(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key, err := b.CreateKey(identity.With(t.Context(), identity.System()),
		KeyRequest{Scopes: Scopes{"admin"}, ExpiresAt: start.Add(time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Authenticate(request("X-API-Key", key.Secret)); err != nil {
		t.Fatalf("before the end: %v", err)
	}
	b.now = start.Add(time.Second) // within CacheTTL: the row is cached
	if _, err := b.Authenticate(request("X-API-Key", key.Secret)); !errors.Is(err, ErrInvalidCredentials) {
		t.Errorf("at the end: %v, want ErrInvalidCredentials", err)
	}
	if err := b.Has(as(t, key), "x.y"); !errors.Is(err, ErrInvalidCredentials) {
		t.Errorf("Has at the end: %v, want ErrInvalidCredentials", err)
	}
}

func TestCacheTTL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.make(t, "admin")
	use := func() error {
		_, err := b.Authenticate(request("X-API-Key", key.Secret))
		return err
	}
	for range 3 {
		if err := use(); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.store.lookups.Load(); n != 1 {
		t.Errorf("%d look-ups, want 1", n)
	}
	// Another node revokes the key: only the store knows.
	if _, err := b.store.Revoke(t.Context(), "", key.ID, start); err != nil {
		t.Fatal(err)
	}
	b.now = start.Add(2*time.Second - time.Nanosecond)
	if err := use(); err != nil {
		t.Errorf("within CacheTTL: %v", err)
	}
	b.now = start.Add(2 * time.Second)
	if err := use(); !errors.Is(err, ErrInvalidCredentials) {
		t.Errorf("after CacheTTL: %v, want ErrInvalidCredentials", err)
	}
}

func TestRevokeHere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.make(t, "admin")
	if _, err := b.Authenticate(request("X-API-Key", key.Secret)); err != nil {
		t.Fatal(err)
	}
	revoked, err := b.RevokeKey(identity.With(t.Context(), identity.System()), key.ID)
	if err != nil || !revoked.RevokedAt.Equal(start) {
		t.Fatalf("RevokeKey = %v, %v", revoked.RevokedAt, err)
	}
	if _, err := b.Authenticate(request("X-API-Key", key.Secret)); !errors.Is(err, ErrInvalidCredentials) {
		t.Errorf("Authenticate = %v, want ErrInvalidCredentials", err)
	}
	// Work of the key that is still under way loses its permissions too.
	if err := b.Can(as(t, key), identity.OperationList, "account"); !errors.Is(err, identity.ErrUnauthenticated) {
		t.Errorf("Can = %v, want ErrUnauthenticated", err)
	}
}

func TestRevokeWaitsForCommit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.make(t, "admin")
	if _, err := b.Authenticate(request("X-API-Key", key.Secret)); err != nil {
		t.Fatal(err)
	}
	undo := errors.New("undo")
	err := storage.NewMemory().InTx(identity.With(t.Context(), identity.System()), func(ctx context.Context) error {
		if _, err := b.RevokeKey(ctx, key.ID); err != nil {
			return err
		}
		return undo
	})
	if !errors.Is(err, undo) {
		t.Fatal(err)
	}
	b.now = start.Add(time.Hour)
	if _, err := b.Authenticate(request("X-API-Key", key.Secret)); err != nil {
		t.Errorf("after rollback: %v", err)
	}
}

// TestRevokeDuringLookup revokes between the read of a row and its caching.
func TestRevokeDuringLookup(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.make(t, "admin")
	b.store.onRead = func() {
		b.store.onRead = nil
		if _, err := b.RevokeKey(identity.With(t.Context(), identity.System()), key.ID); err != nil {
			t.Error(err)
		}
	}
	_, _ = b.Authenticate(request("X-API-Key", key.Secret))
	if _, err := b.Authenticate(request("X-API-Key", key.Secret)); !errors.Is(err, ErrInvalidCredentials) {
		t.Errorf("Authenticate = %v, want ErrInvalidCredentials", err)
	}
}

func TestAuthorizer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	reader := b.make(t, "data:read", "webhooks.redeliver")
	anonymous := t.Context()
	system := identity.With(anonymous, identity.System())
	user := identity.With(anonymous, identity.Principal{UserID: "u1"})
	for name, test := range map[string]struct {
		err  error
		want error
	}{
		"read":                  {b.Can(as(t, reader), identity.OperationList, "account"), nil},
		"write":                 {b.Can(as(t, reader), identity.OperationUpdate, "account"), &identity.DeniedError{Permission: "update", Object: "account"}},
		"has":                   {b.Has(as(t, reader), "webhooks.redeliver"), nil},
		"has not":               {b.Has(as(t, reader), "webhooks.rotate"), &identity.DeniedError{Permission: "webhooks.rotate"}},
		"has nothing":           {b.Has(as(t, reader), ""), nil},
		"system can":            {b.Can(system, identity.OperationDelete, "sys_secret"), nil},
		"system has":            {b.Has(system, "webhooks.rotate"), nil},
		"anonymous can":         {b.Can(anonymous, identity.OperationList, "account"), identity.ErrUnauthenticated},
		"anonymous has":         {b.Has(anonymous, ""), identity.ErrUnauthenticated},
		"user without a role":   {b.Can(user, identity.OperationList, "account"), &identity.DeniedError{Permission: "list", Object: "account"}},
		"user is somebody":      {b.Has(user, ""), nil},
		"key that is not there": {b.Has(identity.With(anonymous, identity.Principal{KeyID: "gone"}), ""), ErrInvalidCredentials},
	} {
		t.Run(name, func(t *testing.T) {
			var want *identity.DeniedError
			if errors.As(test.want, &want) {
				var got *identity.DeniedError
				if !errors.As(test.err, &got) || *got != *want {
					t.Errorf("got %v, want %v", test.err, test.want)
				}
				return
			}
			if !errors.Is(test.err, test.want) {
				t.Errorf("got %v, want %v", test.err, test.want)
			}
		})
	}
}

func TestCreateKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.make(t, "data:read")
	want := driver.Key{
		ID: key.ID, Name: "test", Prefix: key.Secret[:12], Hash: hashSecret(key.Secret),
		Scopes: []string{"data:read"}, CreatedAt: start,
	}
	stored, err := b.store.ByID(t.Context(), key.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, stored); diff != "" {
		t.Error(diff)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(verb, key); strings.Contains(text, key.Secret) || strings.Contains(text, key.Hash) {
			t.Errorf("%s prints %s", verb, text)
		}
	}
}

func TestCreateKeyLimits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	system := identity.With(t.Context(), identity.System())
	hour := start.Add(time.Hour)
	maker, err := b.CreateKey(system, KeyRequest{Scopes: Scopes{"keys.manage", "data:read"}, ExpiresAt: hour})
	if err != nil {
		t.Fatal(err)
	}
	plain := b.make(t, "data:read")
	for name, test := range map[string]struct {
		ctx  context.Context
		req  KeyRequest
		want string
	}{
		"less":               {as(t, maker), KeyRequest{Scopes: Scopes{"object:account:get"}}, ""},
		"the same":           {as(t, maker), KeyRequest{}, ""},
		"more":               {as(t, maker), KeyRequest{Scopes: Scopes{"data:read", "data:write"}}, `auth: a key cannot have the scope "data:write", which its maker lacks`},
		"admin":              {as(t, maker), KeyRequest{Scopes: Scopes{"admin"}}, `auth: a key cannot have the scope "admin", which its maker lacks`},
		"longer":             {as(t, maker), KeyRequest{ExpiresAt: hour.Add(time.Millisecond)}, "auth: a key cannot outlive the key that makes it"},
		"past":               {as(t, maker), KeyRequest{ExpiresAt: start}, "auth: expires_at must be in the future"},
		"far":                {system, KeyRequest{Scopes: Scopes{"admin"}, ExpiresAt: start.AddDate(9000, 0, 0)}, "auth: expires_at must be before the year 10000"},
		"no scope":           {system, KeyRequest{Scopes: Scopes{}}, "auth: scopes must name at least one permission"},
		"long name":          {system, KeyRequest{Name: strings.Repeat("ä", 101)}, "auth: name must be at most 100 characters"},
		"name with NUL":      {system, KeyRequest{Name: "a\x00"}, "auth: name must not contain control characters"},
		"name in Latin-1":    {system, KeyRequest{Name: "a\xff"}, "auth: name must be valid UTF-8"},
		"without permission": {as(t, plain), KeyRequest{}, `identity: permission "keys.manage" is required`},
		"anonymous":          {t.Context(), KeyRequest{}, identity.ErrUnauthenticated.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			key, err := b.CreateKey(test.ctx, test.req)
			if got := fmt.Sprint(err); got != test.want && (err != nil || test.want != "") {
				t.Fatalf("CreateKey = %v, want %q", err, test.want)
			}
			if err == nil && !key.ExpiresAt.Equal(hour) {
				t.Errorf("ExpiresAt = %v, want the maker's %v", key.ExpiresAt, hour)
			}
		})
	}
}

func TestEnsureFirstKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key, made, err := b.EnsureFirstKey(t.Context())
	if err != nil || !made {
		t.Fatalf("EnsureFirstKey = %v, %v", made, err)
	}
	if err := b.Has(as(t, key), "anything.at_all"); err != nil {
		t.Errorf("first key: %v", err)
	}
	again, made, err := b.EnsureFirstKey(t.Context())
	if err != nil || made || again.Secret != "" {
		t.Errorf("second EnsureFirstKey = %v, %v, %v", again, made, err)
	}
}

func TestListKeysOfOrganization(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.make(t, "admin")
	other := identity.With(t.Context(), identity.Principal{System: true, OrganizationID: "o1"})
	if keys, err := b.ListKeys(other); err != nil || len(keys) != 0 {
		t.Errorf("ListKeys of o1 = %v, %v, want none", keys, err)
	}
	if _, err := b.RevokeKey(other, key.ID); !errors.Is(err, ErrKeyNotFound) {
		t.Errorf("RevokeKey from o1 = %v, want ErrKeyNotFound", err)
	}
	keys, err := b.ListKeys(as(t, key))
	if err != nil || len(keys) != 1 || keys[0].ID != key.ID {
		t.Errorf("ListKeys = %v, %v", keys, err)
	}
}

func TestFlushUse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.make(t, "admin")
	lastUse := func() time.Time {
		k, err := b.store.ByID(t.Context(), key.ID)
		if err != nil {
			t.Fatal(err)
		}
		return k.LastUsedAt
	}
	for range 5 {
		b.now = b.now.Add(time.Second)
		if _, err := b.Authenticate(request("X-API-Key", key.Secret)); err != nil {
			t.Fatal(err)
		}
	}
	if at := lastUse(); !at.IsZero() {
		t.Errorf("written at a request: %v", at)
	}
	if err := b.FlushUse(t.Context()); err != nil {
		t.Fatal(err)
	}
	if at := lastUse(); !at.Equal(start.Add(5 * time.Second)) {
		t.Errorf("last use = %v", at)
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "<nil>"},
		{Config{CacheTTL: -1}, "<nil>"},
		{Config{CacheTTL: time.Minute}, "auth: CacheTTL is 1m0s, must be at most 30s"},
		{Config{TouchInterval: time.Second}, "auth: TouchInterval is 1s, must be between 1m and 1h"},
		{Config{TouchInterval: 2 * time.Hour}, "auth: TouchInterval is 2h0m0s, must be between 1m and 1h"},
	} {
		if _, err := New(memstore.New(), test.cfg); fmt.Sprint(err) != test.want {
			t.Errorf("New(%+v) = %v, want %s", test.cfg, err, test.want)
		}
	}
}
