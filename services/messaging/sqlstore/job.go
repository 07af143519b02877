package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/objecthost/objecthost/services/messaging/driver"
)

var _ driver.JobStore = (*Store)(nil)

const jobColumns = `id, kind, filter_json, as_of, per_second, status, matched, redelivered, skipped, cursor_at, cursor_id, claim_token,
	error, scoped, organization_id, created_by, created_at, updated_at, finished_at`

// PutJob implements [driver.JobStore].
func (s *Store) PutJob(ctx context.Context, j *driver.Job) error {
	_, err := s.db.Write(ctx).ExecContext(ctx, s.sql(`INSERT INTO sys_http_job (id, kind, filter_json, as_of, per_second, status, matched,
		scoped, organization_id, created_by, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, 'running', ?, ?, NULLIF(?, ''), NULLIF(?, ''), {now}, {now})`),
		j.ID, j.Kind, j.Filter, j.AsOf, j.PerSecond, j.Matched, j.Scoped, j.OrganizationID, j.CreatedBy)
	return err
}

// GetJob implements [driver.JobStore].
func (s *Store) GetJob(ctx context.Context, id string) (*driver.Job, error) {
	return s.job(s.db.Read(ctx).QueryContext(ctx, s.sql(`SELECT `+jobColumns+` FROM sys_http_job WHERE id = ?`), id))
}

// job reads the one row of a query over jobColumns.
func (s *Store) job(rows *sql.Rows, err error) (*driver.Job, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	if !rows.Next() {
		return nil, rows.Err()
	}
	j := new(driver.Job)
	err = rows.Scan(&j.ID, &j.Kind, &j.Filter, &j.AsOf, &j.PerSecond, &j.Status, &j.Matched, &j.Redelivered, &j.Skipped, &j.CursorAt, &j.CursorID,
		nil0(&j.Token), nil0(&j.Error), &j.Scoped, nil0(&j.OrganizationID), nil0(&j.CreatedBy), &j.CreatedAt, &j.UpdatedAt, nil0(&j.FinishedAt))
	if err != nil {
		return nil, err
	}
	return j, rows.Err()
}

// ClaimJob implements [driver.JobStore]. It writes only when there is a job.
func (s *Store) ClaimJob(ctx context.Context, kinds []string, token string, lease time.Duration) (*driver.Job, error) {
	list, args := listOf(kinds)
	free := ` FROM sys_http_job WHERE status = 'running' AND COALESCE(claim_expires_at, 0) <= {now} AND kind IN (` + list + `)`
	var waiting int
	if err := s.db.Read(ctx).QueryRowContext(ctx, s.sql(`SELECT COUNT(*)`+free), args...).Scan(&waiting); err != nil || waiting == 0 {
		return nil, err
	}
	return s.job(s.db.Write(ctx).QueryContext(ctx, s.sql(`UPDATE sys_http_job SET claim_token = ?, claim_expires_at = {now} + ?
		WHERE id = (SELECT id`+free+` ORDER BY created_at, id LIMIT 1`+s.lock()+`) AND status = 'running' RETURNING `+jobColumns),
		append([]any{token, lease.Milliseconds()}, args...)...))
}

// SaveJob implements [driver.JobStore].
func (s *Store) SaveJob(ctx context.Context, j *driver.Job, lease time.Duration) (bool, error) {
	return s.changed(s.db.Write(ctx).ExecContext(ctx, s.sql(`UPDATE sys_http_job SET status = ?, redelivered = ?, skipped = ?, cursor_at = ?,
		cursor_id = ?, error = NULLIF(?, ''), claim_expires_at = {now} + ?, updated_at = {now},
		finished_at = CASE WHEN ? <> 'running' THEN {now} END WHERE id = ? AND status = 'running' AND claim_token = ?`),
		j.Status, j.Redelivered, j.Skipped, j.CursorAt, j.CursorID, j.Error, lease.Milliseconds(), j.Status, j.ID, j.Token))
}

// CancelJob implements [driver.JobStore].
func (s *Store) CancelJob(ctx context.Context, id string) (bool, error) {
	return s.changed(s.db.Write(ctx).ExecContext(ctx, s.sql(
		`UPDATE sys_http_job SET status = 'cancelled', updated_at = {now}, finished_at = {now} WHERE id = ? AND status = 'running'`), id))
}

func (s *Store) changed(res sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// CountEnded implements [driver.JobStore].
func (s *Store) CountEnded(ctx context.Context, f driver.JobFilter, asOf int64) (int, error) {
	where, args := endedWhere(f, asOf)
	n := 0
	err := s.db.Read(ctx).QueryRowContext(ctx, s.sql(`SELECT COUNT(*) FROM sys_http_delivery WHERE `+where), args...).Scan(&n)
	return n, err
}

// ListEnded implements [driver.JobStore].
func (s *Store) ListEnded(ctx context.Context, f driver.JobFilter, asOf, cursorAt int64, cursorID string, limit int) ([]driver.Ended, error) {
	where, args := endedWhere(f, asOf)
	rows, err := s.db.Read(ctx).QueryContext(ctx, s.sql(`SELECT id, created_at FROM sys_http_delivery WHERE `+where+
		` AND created_at >= ? AND (created_at > ? OR id > ?) ORDER BY created_at, id LIMIT ?`), append(args, cursorAt, cursorAt, cursorID, limit)...)
	if err != nil {
		return nil, fmt.Errorf("list ended deliveries: %w", err)
	}
	defer rows.Close()
	var out []driver.Ended
	for rows.Next() {
		var e driver.Ended
		if err := rows.Scan(&e.ID, &e.CreatedAt); err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, rows.Err()
}

func endedWhere(f driver.JobFilter, asOf int64) (string, []any) {
	where, args := `finished_at <= ?`, []any{asOf}
	add := func(condition string, values ...any) {
		where += ` AND ` + condition
		args = append(args, values...)
	}
	if len(f.Statuses) > 0 {
		list, values := listOf(f.Statuses)
		add(`status IN (`+list+`)`, values...)
	}
	if f.Source != "" {
		add(`source = ?`, f.Source)
	}
	if f.TargetKey != "" {
		add(`target_key = ?`, f.TargetKey)
	}
	if f.CreatedFrom != 0 {
		add(`created_at >= ?`, f.CreatedFrom)
	}
	if f.CreatedTo != 0 {
		add(`created_at < ?`, f.CreatedTo)
	}
	if len(f.ResponseCodes) > 0 {
		list, values := listOf(f.ResponseCodes)
		add(`COALESCE(response_code, 0) IN (`+list+`)`, values...)
	}
	if f.Scoped {
		add(`COALESCE(organization_id, '') = ?`, f.OrganizationID)
	}
	return where, args
}

func listOf[T any](values []T) (list string, args []any) {
	for i, v := range values {
		if i > 0 {
			list += `, `
		}
		list += `?`
		args = append(args, v)
	}
	return list, args
}
