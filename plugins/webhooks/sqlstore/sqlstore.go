// Package sqlstore keeps the version of the subscriptions and reads webhooks
// for matching, on SQLite and PostgreSQL.
package sqlstore

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"time"

	"github.com/uptrace/bun"

	"github.com/objecthost/objecthost/storage"
)

//go:embed migrations
var files embed.FS

// Migrations creates the tables of this package. The table sys_webhook itself
// belongs to the data service.
func Migrations() storage.Migrations {
	sub, err := fs.Sub(files, "migrations")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return storage.Migrations{Name: "webhooks", FS: sub}
}

// KeepChanges is the number of changes that the log of changes remembers. A
// cache that is further behind reads every webhook anew.
const KeepChanges = 10000

// chunk bounds the ids of one statement; SQLite takes 32766 variables.
const chunk = 500

// Webhook is a row of sys_webhook as matching needs it. Empty strings stand
// for NULL; secrets are references.
type Webhook struct {
	bun.BaseModel  `bun:"table:sys_webhook"`
	ID             string `bun:"id"`
	OrganizationID string `bun:"organization_id"`
	Name           string `bun:"name"`
	ObjectName     string `bun:"object_name"`
	Triggers       string `bun:"triggers"`
	URL            string `bun:"url"`
	Method         string `bun:"method"`
	Active         bool   `bun:"active"`
	Paused         bool   `bun:"paused"`
	Definition     string `bun:"definition_json"`
	Secret         string `bun:"signing_secret"`
	Headers        string `bun:"headers_secret"`
	Auth           string `bun:"auth_secret"`
	ManagedBy      string `bun:"managed_by"`
	Customized     bool   `bun:"customized"`
	DisabledReason string `bun:"disabled_reason"`
	// FailingSince and LastSuccessAt are epoch milliseconds, 0 for NULL.
	FailingSince  int64 `bun:"failing_since"`
	LastSuccessAt int64 `bun:"last_success_at"`
}

// selection reads NULL as the zero value.
const selection = `id, COALESCE(organization_id, '') AS organization_id, name, COALESCE(object_name, '') AS object_name, ` +
	`COALESCE(triggers, '') AS triggers, url, COALESCE(method, 'post') AS method, active, paused, definition_json, ` +
	`COALESCE(signing_secret, '') AS signing_secret, COALESCE(headers_secret, '') AS headers_secret, ` +
	`COALESCE(auth_secret, '') AS auth_secret, COALESCE(managed_by, '') AS managed_by, ` +
	`COALESCE(customized, FALSE) AS customized, COALESCE(disabled_reason, '') AS disabled_reason, ` +
	`COALESCE(failing_since, 0) AS failing_since, COALESCE(last_success_at, 0) AS last_success_at`

// Store reads and writes in the transaction of its context where there is one.
type Store struct{ db *storage.DB }

// New returns a store on db, on which [Migrations] have run.
func New(db *storage.DB) *Store { return &Store{db: db} }

// Bump records that a webhook was written, in the webhook's own transaction.
// Versions are handed out in the order in which transactions commit, because
// the version's row stays locked until then.
func (s *Store) Bump(ctx context.Context, webhookID string) error {
	tx := s.db.Bun(ctx)
	var version int64
	err := tx.NewRaw(`UPDATE sys_webhook_version SET version = version + 1 WHERE id = 1 RETURNING version`).Scan(ctx, &version)
	if err != nil {
		return fmt.Errorf("bump subscription version: %w", err)
	}
	if _, err := tx.NewRaw(`INSERT INTO sys_webhook_change (version, webhook_id) VALUES (?, ?)`, version, webhookID).Exec(ctx); err != nil {
		return fmt.Errorf("record webhook change: %w", err)
	}
	if _, err := tx.NewRaw(`DELETE FROM sys_webhook_change WHERE version <= ?`, version-KeepChanges).Exec(ctx); err != nil {
		return fmt.Errorf("trim webhook changes: %w", err)
	}
	return nil
}

// Version is the version of the last committed webhook write, 0 for none.
func (s *Store) Version(ctx context.Context) (int64, error) {
	var version int64
	if err := s.db.BunRead(ctx).NewRaw(`SELECT version FROM sys_webhook_version WHERE id = 1`).Scan(ctx, &version); err != nil {
		return 0, fmt.Errorf("read subscription version: %w", err)
	}
	return version, nil
}

// ChangedSince lists the webhooks written after a version, each once. known is
// false when the changes are no longer remembered.
func (s *Store) ChangedSince(ctx context.Context, version int64) (ids []string, known bool, err error) {
	var oldest int64
	db := s.db.BunRead(ctx)
	if err := db.NewRaw(`SELECT COALESCE(MIN(version), 0) FROM sys_webhook_change`).Scan(ctx, &oldest); err != nil {
		return nil, false, fmt.Errorf("read webhook changes: %w", err)
	}
	if oldest == 0 || version+1 < oldest {
		return nil, false, nil
	}
	err = db.NewRaw(`SELECT DISTINCT webhook_id FROM sys_webhook_change WHERE version > ?`, version).Scan(ctx, &ids)
	if err != nil {
		return nil, false, fmt.Errorf("read webhook changes: %w", err)
	}
	return ids, true, nil
}

// All returns every active webhook.
func (s *Store) All(ctx context.Context) ([]Webhook, error) {
	var rows []Webhook
	err := s.db.BunRead(ctx).NewSelect().Model(&rows).ColumnExpr(selection).Where("active").Order("id").Scan(ctx)
	if err != nil {
		return nil, fmt.Errorf("read webhooks: %w", err)
	}
	return rows, nil
}

// Some returns the webhooks with the ids, whatever their state; those that do
// not exist are left out.
func (s *Store) Some(ctx context.Context, ids []string) ([]Webhook, error) {
	var out []Webhook
	for len(ids) > 0 {
		part := ids[:min(chunk, len(ids))]
		ids = ids[len(part):]
		var rows []Webhook
		err := s.db.BunRead(ctx).NewSelect().Model(&rows).ColumnExpr(selection).Where("id IN ?", bun.Tuple(part)).Order("id").Scan(ctx)
		if err != nil {
			return nil, fmt.Errorf("read webhooks: %w", err)
		}
		out = append(out, rows...)
	}
	return out, nil
}

// Get returns one webhook, nil when there is none.
func (s *Store) Get(ctx context.Context, id string) (*Webhook, error) {
	rows, err := s.Some(ctx, []string{id})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

// Lock is Get that keeps other transactions from writing the webhook until this
// one has ended.
func (s *Store) Lock(ctx context.Context, id string) (*Webhook, error) {
	if s.db.Dialect() == storage.Postgres { // SQLite has one writer
		_, err := s.db.Bun(ctx).NewRaw(`SELECT 1 FROM sys_webhook WHERE id = ? FOR UPDATE`, id).Exec(ctx)
		if err != nil {
			return nil, fmt.Errorf("lock webhook: %w", err)
		}
	}
	return s.Get(ctx, id)
}

// Named returns the webhook with the name in an organization ("" for none),
// nil when there is none.
func (s *Store) Named(ctx context.Context, organization, name string) (*Webhook, error) {
	var rows []Webhook
	err := s.db.BunRead(ctx).NewSelect().Model(&rows).ColumnExpr(selection).
		Where("name = ?", name).Where("COALESCE(organization_id, '') = ?", organization).Scan(ctx)
	if err != nil {
		return nil, fmt.Errorf("read webhook: %w", err)
	}
	if len(rows) == 0 {
		return nil, nil
	}
	return &rows[0], nil
}

// Marks are the columns of a webhook that only the host writes, inside the
// webhook's own transaction.
type Marks struct {
	// Customized marks a package's webhook as edited.
	Customized bool
	// ResetStreak forgets earlier failures, SwitchedOn why the webhook was
	// switched off.
	ResetStreak, SwitchedOn bool
}

// Mark writes marks; those that are not set stay.
func (s *Store) Mark(ctx context.Context, id string, m Marks) error {
	update := s.db.Bun(ctx).NewUpdate().Table("sys_webhook").Where("id = ?", id)
	if m.Customized {
		update = update.Set("customized = TRUE")
	}
	if m.ResetStreak {
		update = update.Set("failing_since = NULL")
	}
	if m.SwitchedOn {
		update = update.Set("disabled_reason = NULL")
	}
	if m == (Marks{}) {
		return nil
	}
	if _, err := update.Exec(ctx); err != nil {
		return fmt.Errorf("mark webhook: %w", err)
	}
	return nil
}

// SetHealth writes since when a webhook fails and when it last succeeded, in
// epoch milliseconds, 0 for never.
func (s *Store) SetHealth(ctx context.Context, id string, failingSince, lastSuccess int64) error {
	_, err := s.db.Bun(ctx).NewRaw(`UPDATE sys_webhook SET failing_since = NULLIF(?, 0), last_success_at = NULLIF(?, 0) WHERE id = ?`,
		failingSince, lastSuccess, id).Exec(ctx)
	if err != nil {
		return fmt.Errorf("write health of webhook: %w", err)
	}
	return nil
}

// Now is the database's clock.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	ms, err := s.db.NowMillis(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the database's clock: %w", err)
	}
	return time.UnixMilli(ms).UTC(), nil
}

// Mentioning returns every webhook whose definition holds one of the texts.
func (s *Store) Mentioning(ctx context.Context, texts ...string) ([]Webhook, error) {
	var rows []Webhook
	query := s.db.BunRead(ctx).NewSelect().Model(&rows).ColumnExpr(selection).Order("id")
	for _, text := range texts {
		query = query.WhereOr("definition_json LIKE ?", "%"+text+"%")
	}
	if err := query.Scan(ctx); err != nil {
		return nil, fmt.Errorf("read webhooks: %w", err)
	}
	return rows, nil
}
