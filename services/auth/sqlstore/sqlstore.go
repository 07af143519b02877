// Package sqlstore keeps API keys in the table sys_api_key, on PostgreSQL and
// on SQLite.
package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/objecthost/objecthost/services/auth/driver"
	"github.com/objecthost/objecthost/storage"
)

//go:embed migrations
var migrationFiles embed.FS

// Store is a driver.Store over a database.
type Store struct{ db *storage.DB }

var _ driver.Store = (*Store)(nil)

// New returns a store over db, which the caller closes.
func New(db *storage.DB) *Store { return &Store{db: db} }

// row is a row of sys_api_key; times are epoch milliseconds.
type row struct {
	bun.BaseModel `bun:"table:sys_api_key,alias:k"`

	ID             string `bun:"id,pk"`
	Name           string `bun:"name"`
	Prefix         string `bun:"prefix"`
	Hash           string `bun:"hash"`
	UserID         string `bun:"user_id,nullzero"`
	OrganizationID string `bun:"organization_id,nullzero"`
	Scopes         string `bun:"scopes"`
	CreatedAt      int64  `bun:"created_at"`
	ExpiresAt      int64  `bun:"expires_at,nullzero"`
	LastUsedAt     int64  `bun:"last_used_at,nullzero"`
	RevokedAt      int64  `bun:"revoked_at,nullzero"`
}

func rowOf(k driver.Key) (*row, error) {
	scopes, err := json.Marshal(k.Scopes)
	if err != nil {
		return nil, err
	}
	return &row{
		ID: k.ID, Name: k.Name, Prefix: k.Prefix, Hash: k.Hash,
		UserID: k.UserID, OrganizationID: k.OrganizationID, Scopes: string(scopes),
		CreatedAt: epoch(k.CreatedAt), ExpiresAt: epoch(k.ExpiresAt),
		LastUsedAt: epoch(k.LastUsedAt), RevokedAt: epoch(k.RevokedAt),
	}, nil
}

func (r *row) key() (driver.Key, error) {
	k := driver.Key{
		ID: r.ID, Name: r.Name, Prefix: r.Prefix, Hash: r.Hash,
		UserID: r.UserID, OrganizationID: r.OrganizationID,
		CreatedAt: instant(r.CreatedAt), ExpiresAt: instant(r.ExpiresAt),
		LastUsedAt: instant(r.LastUsedAt), RevokedAt: instant(r.RevokedAt),
	}
	if err := json.Unmarshal([]byte(r.Scopes), &k.Scopes); err != nil {
		return driver.Key{}, fmt.Errorf("read scopes of key %s: %w", r.ID, err)
	}
	return k, nil
}

// epoch and instant map the zero time to 0, which is stored as NULL.
func epoch(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// Migrate implements driver.Store.
func (s *Store) Migrate(ctx context.Context) error {
	return s.db.Migrate(ctx, Migrations())
}

// Insert implements driver.Store.
func (s *Store) Insert(ctx context.Context, key driver.Key) error {
	r, err := rowOf(key)
	if err != nil {
		return err
	}
	_, err = s.db.Bun(ctx).NewInsert().Model(r).Exec(ctx)
	return err
}

// InsertFirst implements driver.Store. On PostgreSQL the table lock makes hosts
// take turns (it conflicts with itself and with writers, not with readers), and
// is taken before the transaction reads anything; on SQLite the transaction is
// the one writer anyway.
func (s *Store) InsertFirst(ctx context.Context, key driver.Key) (made bool, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context) error {
		made = false
		tx := s.db.Bun(ctx)
		if s.db.Dialect() == storage.Postgres {
			if _, err := tx.ExecContext(ctx, "LOCK TABLE sys_api_key IN SHARE ROW EXCLUSIVE MODE"); err != nil {
				return err
			}
		}
		exists, err := tx.NewSelect().Model((*row)(nil)).Exists(ctx)
		if err != nil || exists {
			return err
		}
		made = true
		return s.Insert(ctx, key)
	})
	return made && err == nil, err
}

// ByHash implements driver.Store.
func (s *Store) ByHash(ctx context.Context, hash string) (driver.Key, error) {
	return one(ctx, s.db.BunRead(ctx), "hash = ?", hash)
}

// ByID implements driver.Store.
func (s *Store) ByID(ctx context.Context, id string) (driver.Key, error) {
	return one(ctx, s.db.BunRead(ctx), "id = ?", id)
}

func one(ctx context.Context, db bun.IDB, where string, args ...any) (driver.Key, error) {
	var r row
	err := db.NewSelect().Model(&r).Where(where, args...).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return driver.Key{}, driver.ErrNotFound
	}
	if err != nil {
		return driver.Key{}, err
	}
	return r.key()
}

// List implements driver.Store.
func (s *Store) List(ctx context.Context, organizationID string) ([]driver.Key, error) {
	var rows []row
	where, args := inOrganization(organizationID)
	err := s.db.BunRead(ctx).NewSelect().Model(&rows).Where(where, args...).Order("created_at", "id").Scan(ctx)
	if err != nil {
		return nil, err
	}
	keys := make([]driver.Key, 0, len(rows))
	for i := range rows {
		k, err := rows[i].key()
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, nil
}

func inOrganization(id string) (where string, args []any) {
	if id == "" {
		return "organization_id IS NULL", nil
	}
	return "organization_id = ?", []any{id}
}

// Revoke implements driver.Store.
func (s *Store) Revoke(ctx context.Context, organizationID, id string, at time.Time) (key driver.Key, err error) {
	where, args := inOrganization(organizationID)
	err = s.db.InTx(ctx, func(ctx context.Context) error {
		tx := s.db.Bun(ctx)
		_, err := tx.NewUpdate().Model((*row)(nil)).Set("revoked_at = ?", epoch(at)).
			Where("id = ?", id).Where(where, args...).Where("revoked_at IS NULL").Exec(ctx)
		if err != nil {
			return err
		}
		key, err = one(ctx, tx, "id = ? AND "+where, append([]any{id}, args...)...)
		return err
	})
	return key, err
}

// Touch implements driver.Store. Ids are taken in one order everywhere, so that
// two nodes that flush at once cannot lock each other out.
func (s *Store) Touch(ctx context.Context, used map[string]time.Time) error {
	return s.db.InTx(ctx, func(ctx context.Context) error {
		tx := s.db.Bun(ctx)
		for _, id := range slices.Sorted(maps.Keys(used)) {
			at := epoch(used[id])
			_, err := tx.NewUpdate().Model((*row)(nil)).Set("last_used_at = ?", at).
				Where("id = ?", id).Where("(last_used_at IS NULL OR last_used_at < ?)", at).Exec(ctx)
			if err != nil {
				return err
			}
		}
		return nil
	})
}
