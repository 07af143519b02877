// Package driver is what the auth service asks of a store of API keys.
// Implementations return raw errors; the service wraps them once.
package driver

import (
	"context"
	"errors"
	"time"
)

// Key is a row of sys_api_key. The key itself is not in it: only its hash is
// stored.
type Key struct {
	// ID is a 16-character nanoid.
	ID string
	// Name is what people call the key.
	Name string
	// Prefix is the first 12 characters of the key, for telling keys apart.
	Prefix string
	// Hash is the hex SHA-256 of the key.
	Hash string
	// UserID and OrganizationID tell in whose name the key acts; "" for none.
	UserID, OrganizationID string
	// Scopes is what the key may do.
	Scopes []string
	// CreatedAt is when the key was made, in UTC with milliseconds.
	CreatedAt time.Time
	// ExpiresAt, LastUsedAt and RevokedAt are zero when they do not apply.
	ExpiresAt, LastUsedAt, RevokedAt time.Time
}

// ErrNotFound is returned when no key fits.
var ErrNotFound = errors.New("driver: key not found")

// Store keeps API keys. Writes join the transaction that ctx carries.
// Implementations are safe for concurrent use.
type Store interface {
	// Migrate creates or upgrades the store's tables. Hosts may call it at
	// the same time.
	Migrate(ctx context.Context) error
	// Insert adds a key.
	Insert(ctx context.Context, key Key) error
	// InsertFirst adds the key when the store holds none, revoked ones
	// counting, and reports whether it did. Of several hosts that call it at
	// the same time exactly one gets true.
	InsertFirst(ctx context.Context, key Key) (bool, error)
	// ByHash and ByID return one key, or ErrNotFound.
	ByHash(ctx context.Context, hash string) (Key, error)
	ByID(ctx context.Context, id string) (Key, error)
	// List returns the keys of an organization ("" are the keys without one),
	// oldest first.
	List(ctx context.Context, organizationID string) ([]Key, error)
	// Revoke marks a key of the organization as revoked at the given time. A
	// key that is revoked already keeps its time. ErrNotFound when the
	// organization has no such key.
	Revoke(ctx context.Context, organizationID, id string, at time.Time) (Key, error)
	// Touch sets LastUsedAt of keys to times that are later than the stored
	// ones, in one transaction. Unknown ids are passed over.
	Touch(ctx context.Context, used map[string]time.Time) error
}
