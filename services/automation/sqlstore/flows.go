package sqlstore

import (
	"context"

	"github.com/uptrace/bun"
)

// Flow is the head of a flow: its current version and whether it is on.
type Flow struct {
	bun.BaseModel `bun:"table:sys_automation_flow"`
	Name          string `bun:"name,pk"`
	Version       int    `bun:"version"`
	Enabled       bool   `bun:"enabled"`
	// Source is api or file. Customized tells that a flow of a file was edited
	// through the API since.
	Source     string `bun:"source"`
	Customized bool   `bun:"customized"`
	// Deleted flows keep their row, so that version numbers are never used
	// twice.
	Deleted   bool  `bun:"deleted"`
	CreatedAt int64 `bun:"created_at"`
	UpdatedAt int64 `bun:"updated_at"`
}

// Version is one version of a flow. It is never changed.
type Version struct {
	bun.BaseModel `bun:"table:sys_automation_version"`
	Name          string `bun:"name,pk"`
	Version       int    `bun:"version,pk"`
	Sealed        string `bun:"definition_sealed"`
	CreatedAt     int64  `bun:"created_at"`
}

// Revision counts the changes of all flows.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	var revision int64
	err := s.db.BunRead(ctx).NewRaw("SELECT revision FROM sys_automation_revision WHERE id = 1").Scan(ctx, &revision)
	return revision, err
}

// Bump counts a change and holds the counter's row until the transaction ends,
// so that changes of flows come one after the other.
func (s *Store) Bump(ctx context.Context) error {
	_, err := s.db.Bun(ctx).NewRaw("UPDATE sys_automation_revision SET revision = revision + 1 WHERE id = 1").Exec(ctx)
	return err
}

// Flows returns the heads of all flows that are not deleted, by name.
func (s *Store) Flows(ctx context.Context) ([]Flow, error) {
	var flows []Flow
	err := s.db.BunRead(ctx).NewSelect().Model(&flows).Where("NOT deleted").Order("name").Scan(ctx)
	return flows, err
}

// Flow returns the head of one flow, deleted or not. The error is ErrNotFound
// when there never was one.
func (s *Store) Flow(ctx context.Context, name string) (*Flow, error) {
	f := new(Flow)
	err := s.db.BunRead(ctx).NewSelect().Model(f).Where("name = ?", name).Scan(ctx)
	return f, found(err)
}

// PutFlow writes the head of a flow.
func (s *Store) PutFlow(ctx context.Context, f *Flow) error {
	_, err := s.db.Bun(ctx).NewInsert().Model(f).
		On("CONFLICT (name) DO UPDATE").
		Set("version = EXCLUDED.version").Set("enabled = EXCLUDED.enabled").Set("source = EXCLUDED.source").
		Set("customized = EXCLUDED.customized").Set("deleted = EXCLUDED.deleted").Set("updated_at = EXCLUDED.updated_at").
		Exec(ctx)
	return err
}

// Version returns one version of a flow, or ErrNotFound.
func (s *Store) Version(ctx context.Context, name string, version int) (*Version, error) {
	v := new(Version)
	err := s.db.BunRead(ctx).NewSelect().Model(v).Where("name = ?", name).Where("version = ?", version).Scan(ctx)
	return v, found(err)
}

// AddVersion writes a version.
func (s *Store) AddVersion(ctx context.Context, v *Version) error {
	_, err := s.db.Bun(ctx).NewInsert().Model(v).Exec(ctx)
	return err
}
