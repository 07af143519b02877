package sqlstore

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/objecthost/objecthost/services/auth/driver"
)

type entryRow struct {
	bun.BaseModel `bun:"table:sys_audit_log,alias:l"`

	ID             string `bun:"id,pk"`
	OrganizationID string `bun:"organization_id,nullzero"`
	CreatedAt      int64  `bun:"created_at"`
	UserID         string `bun:"user_id,nullzero"`
	KeyID          string `bun:"key_id,nullzero"`
	Action         string `bun:"action"`
	TargetType     string `bun:"target_type,nullzero"`
	TargetID       string `bun:"target_id,nullzero"`
	IP             string `bun:"ip,nullzero"`
	Detail         string `bun:"detail_json,nullzero"`
}

// Append implements driver.Directory.
func (s *Store) Append(ctx context.Context, entries ...driver.Entry) error {
	rows := make([]entryRow, len(entries))
	for i, e := range entries {
		rows[i] = entryRow{
			ID: e.ID, OrganizationID: e.OrganizationID, CreatedAt: epoch(e.At), UserID: e.UserID, KeyID: e.KeyID, Action: e.Action,
			TargetType: e.TargetType, TargetID: e.TargetID, IP: e.IP, Detail: e.Detail,
		}
	}
	if len(rows) == 0 {
		return nil
	}
	_, err := s.db.Bun(ctx).NewInsert().Model(&rows).Exec(ctx)
	return err
}

// Hit implements driver.Directory. One statement counts, so that attempts at the
// same time cannot pass for one.
func (s *Store) Hit(ctx context.Context, key string, window time.Duration, now time.Time) (hits int, ends time.Time, err error) {
	var until int64
	err = s.db.Bun(ctx).NewRaw(`INSERT INTO sys_auth_attempt (attempt_key, hits, ends_at) VALUES (?, 1, ?)
		ON CONFLICT (attempt_key) DO UPDATE SET
			hits = CASE WHEN sys_auth_attempt.ends_at <= ? THEN 1 ELSE sys_auth_attempt.hits + 1 END,
			ends_at = CASE WHEN sys_auth_attempt.ends_at <= ? THEN EXCLUDED.ends_at ELSE sys_auth_attempt.ends_at END
		RETURNING hits, ends_at`, key, epoch(now.Add(window)), epoch(now), epoch(now)).Scan(ctx, &hits, &until)
	return hits, instant(until), err
}

// Forget implements driver.Directory.
func (s *Store) Forget(ctx context.Context, key string) error {
	_, err := s.db.Bun(ctx).NewRaw("DELETE FROM sys_auth_attempt WHERE attempt_key = ?", key).Exec(ctx)
	return err
}

type pendingRow struct {
	bun.BaseModel `bun:"table:sys_auth_pending,alias:p"`

	Hash      string `bun:"hash,pk"`
	Kind      string `bun:"kind"`
	Data      string `bun:"data"`
	ExpiresAt int64  `bun:"expires_at,nullzero"`
}

// Put implements driver.Directory.
func (s *Store) Put(ctx context.Context, p driver.Pending) error {
	_, err := s.db.Bun(ctx).NewInsert().Model(&pendingRow{Hash: p.Hash, Kind: p.Kind, Data: p.Data, ExpiresAt: epoch(p.ExpiresAt)}).Exec(ctx)
	return conflict(err)
}

// Take implements driver.Directory: of several that take the same one, one gets
// it.
func (s *Store) Take(ctx context.Context, kind, hash string, now time.Time) (driver.Pending, error) {
	var r pendingRow
	err := s.db.Bun(ctx).NewDelete().Model(&r).Where("hash = ?", hash).Where("kind = ?", kind).
		Where("(expires_at IS NULL OR expires_at > ?)", epoch(now)).Returning("*").Scan(ctx)
	return driver.Pending{Hash: r.Hash, Kind: r.Kind, Data: r.Data, ExpiresAt: instant(r.ExpiresAt)}, missing(err)
}

// AnyPending implements driver.Directory.
func (s *Store) AnyPending(ctx context.Context, kind string) (bool, error) {
	return s.db.Bun(ctx).NewSelect().Model((*pendingRow)(nil)).Where("kind = ?", kind).Exists(ctx)
}

// Value implements driver.Directory.
func (s *Store) Value(ctx context.Context, name, initial string) (value string, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context) error {
		db := s.db.Bun(ctx)
		_, err := db.NewRaw("INSERT INTO sys_auth_value (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING", name, initial).Exec(ctx)
		if err != nil {
			return err
		}
		return db.NewRaw("SELECT value FROM sys_auth_value WHERE name = ?", name).Scan(ctx, &value)
	})
	return value, err
}

// Clean implements driver.Directory.
func (s *Store) Clean(ctx context.Context, now time.Time) error {
	for _, statement := range []string{
		"DELETE FROM sys_auth_attempt WHERE ends_at <= ?", "DELETE FROM sys_auth_pending WHERE expires_at <= ?",
		"DELETE FROM sys_session WHERE expires_at <= ?",
	} {
		if _, err := s.db.Bun(ctx).NewRaw(statement, epoch(now)).Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}
