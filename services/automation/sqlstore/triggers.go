package sqlstore

import (
	"context"

	"github.com/uptrace/bun"
)

// Change is a note about a write that its event does not carry: the record
// before it, and the run that made it.
type Change struct {
	bun.BaseModel `bun:"table:sys_automation_change"`
	ObjectName    string `bun:"object_name,pk"`
	RecordID      string `bun:"record_id,pk"`
	// Stamp is the record's new updated_at in milliseconds, or "deleted".
	Stamp     string `bun:"stamp,pk"`
	Info      string `bun:"info_json"`
	CreatedAt int64  `bun:"created_at"`
}

// Note writes a note, in the transaction of the change that it is about.
func (s *Store) Note(ctx context.Context, c *Change) error {
	_, err := s.db.Bun(ctx).NewInsert().Model(c).
		On("CONFLICT (object_name, record_id, stamp) DO UPDATE").Set("info_json = EXCLUDED.info_json").Exec(ctx)
	return err
}

// Notes returns the notes about records of an object.
func (s *Store) Notes(ctx context.Context, object string, records []string) ([]Change, error) {
	var notes []Change
	err := s.db.Bun(ctx).NewSelect().Model(&notes).Where("object_name = ?", object).Where("record_id IN (?)", bun.List(records)).Scan(ctx)
	return notes, err
}

// Forget deletes notes.
func (s *Store) Forget(ctx context.Context, notes []Change) error {
	if len(notes) == 0 {
		return nil
	}
	_, err := s.db.Bun(ctx).NewDelete().Model(&notes).WherePK().Exec(ctx)
	return err
}

// ForgetOlder deletes notes from before a time: those of events that nobody
// handled, because the flows are gone.
func (s *Store) ForgetOlder(ctx context.Context, before int64) error {
	_, err := s.db.Bun(ctx).NewDelete().Model((*Change)(nil)).Where("created_at < ?", before).Exec(ctx)
	return err
}

// Schedule is when a flow starts next; NextAt 0 is never.
type Schedule struct {
	bun.BaseModel `bun:"table:sys_automation_schedule"`
	FlowName      string `bun:"flow_name,pk"`
	// Source is what NextAt was computed from.
	Source  string `bun:"source"`
	NextAt  int64  `bun:"next_at,nullzero"`
	FiredAt int64  `bun:"fired_at,nullzero"`
}

// Schedules returns all schedules.
func (s *Store) Schedules(ctx context.Context) ([]Schedule, error) {
	var schedules []Schedule
	err := s.db.BunRead(ctx).NewSelect().Model(&schedules).Order("flow_name").Scan(ctx)
	return schedules, err
}

// PutSchedule sets a schedule, unless another node has set one from the same
// source already.
func (s *Store) PutSchedule(ctx context.Context, c *Schedule) error {
	_, err := s.db.Bun(ctx).NewInsert().Model(c).
		On("CONFLICT (flow_name) DO UPDATE").Set("source = EXCLUDED.source").Set("next_at = EXCLUDED.next_at").
		Where("?TableAlias.source <> EXCLUDED.source").Exec(ctx)
	return err
}

// Advance moves a schedule on from the time that it stands at. It reports false
// when another node has done so.
func (s *Store) Advance(ctx context.Context, c Schedule, next int64) (bool, error) {
	var to any
	if next > 0 {
		to = next
	}
	return affected(s.db.Bun(ctx).NewRaw(`UPDATE sys_automation_schedule SET next_at = ?, fired_at = ?
		WHERE flow_name = ? AND source = ? AND next_at = ?`, to, c.NextAt, c.FlowName, c.Source, c.NextAt).Exec(ctx))
}

// DropSchedule forgets a schedule.
func (s *Store) DropSchedule(ctx context.Context, flow string) error {
	_, err := s.db.Bun(ctx).NewRaw("DELETE FROM sys_automation_schedule WHERE flow_name = ?", flow).Exec(ctx)
	return err
}
