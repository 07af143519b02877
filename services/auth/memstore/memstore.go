// Package memstore keeps API keys in memory, for tests and for hosts that need
// no persistence. Writes are undone when the transaction of their context rolls
// back; they are visible to others before it commits.
package memstore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/objecthost/objecthost/services/auth/driver"
	"github.com/objecthost/objecthost/storage"
)

// Store is a driver.Store in memory. The zero value is not usable; see [New].
type Store struct {
	mu   sync.Mutex
	keys map[string]driver.Key // by id
}

var _ driver.Store = (*Store)(nil)

// New returns an empty store.
func New() *Store { return &Store{keys: map[string]driver.Key{}} }

// Migrate implements driver.Store.
func (s *Store) Migrate(context.Context) error { return nil }

// set stores a key and takes it back when ctx's transaction rolls back. The
// caller holds the lock.
func (s *Store) set(ctx context.Context, key driver.Key) {
	before, existed := s.keys[key.ID]
	s.keys[key.ID] = key
	storage.OnRollback(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if existed {
			s.keys[key.ID] = before
		} else {
			delete(s.keys, key.ID)
		}
	})
}

// Insert implements driver.Store.
func (s *Store) Insert(ctx context.Context, key driver.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(ctx, key)
	return nil
}

// InsertFirst implements driver.Store.
func (s *Store) InsertFirst(ctx context.Context, key driver.Key) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.keys) > 0 {
		return false, nil
	}
	s.set(ctx, key)
	return true, nil
}

// ByHash implements driver.Store.
func (s *Store) ByHash(_ context.Context, hash string) (driver.Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.keys {
		if k.Hash == hash {
			return k, nil
		}
	}
	return driver.Key{}, driver.ErrNotFound
}

// ByID implements driver.Store.
func (s *Store) ByID(_ context.Context, id string) (driver.Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, ok := s.keys[id]; ok {
		return k, nil
	}
	return driver.Key{}, driver.ErrNotFound
}

// List implements driver.Store.
func (s *Store) List(_ context.Context, organizationID string) ([]driver.Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := slices.DeleteFunc(slices.Collect(maps.Values(s.keys)), func(k driver.Key) bool {
		return k.OrganizationID != organizationID
	})
	slices.SortFunc(keys, func(a, b driver.Key) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return keys, nil
}

// Revoke implements driver.Store.
func (s *Store) Revoke(ctx context.Context, organizationID, id string, at time.Time) (driver.Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.keys[id]
	if !ok || k.OrganizationID != organizationID {
		return driver.Key{}, driver.ErrNotFound
	}
	if k.RevokedAt.IsZero() {
		k.RevokedAt = at
		s.set(ctx, k)
	}
	return k, nil
}

// Touch implements driver.Store.
func (s *Store) Touch(ctx context.Context, used map[string]time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, at := range used {
		if k, ok := s.keys[id]; ok && at.After(k.LastUsedAt) {
			k.LastUsedAt = at
			s.set(ctx, k)
		}
	}
	return nil
}
