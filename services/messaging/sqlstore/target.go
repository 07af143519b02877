package sqlstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/objecthost/objecthost/services/messaging/driver"
)

const targetColumns = `number, source, target_key, organization_id, state, reason, max_concurrency, rate_per_second, rate_burst,
	retry_policy, serial, signature_scheme, secret_sealed, previous_secret_sealed, previous_until, auth_sealed, failing_since,
	last_success_at, version, updated_at`

// PutTarget implements [driver.Store].
func (s *Store) PutTarget(ctx context.Context, t *driver.Target, keep bool) error {
	update := `source = excluded.source` // an update that changes nothing returns the row
	if !keep {
		update = `state = excluded.state, reason = excluded.reason, max_concurrency = excluded.max_concurrency,
			rate_per_second = excluded.rate_per_second, rate_burst = excluded.rate_burst, serial = excluded.serial, retry_policy = excluded.retry_policy,
			signature_scheme = excluded.signature_scheme, secret_sealed = excluded.secret_sealed,
			previous_secret_sealed = excluded.previous_secret_sealed, previous_until = excluded.previous_until,
			auth_sealed = excluded.auth_sealed, version = sys_http_target.version + 1, updated_at = excluded.updated_at,
			failing_since = CASE WHEN excluded.state = 'active' AND sys_http_target.state <> 'active' THEN NULL
				ELSE sys_http_target.failing_since END`
	}
	query := s.sql(`INSERT INTO sys_http_target (id, source, target_key, organization_id, state, reason, max_concurrency,
			rate_per_second, rate_burst, retry_policy, serial, signature_scheme, secret_sealed, previous_secret_sealed, previous_until,
			auth_sealed, created_at, updated_at)
		VALUES (?, ?, ?, NULLIF(?, ''), ?, NULLIF(?, ''), ?, ?, ?, NULLIF(?, ''), ?, NULLIF(?, ''), NULLIF(?, ''), NULLIF(?, ''),
			NULLIF(CAST(? AS BIGINT), 0), NULLIF(?, ''), {now}, {now})
		ON CONFLICT (source, target_key, COALESCE(organization_id, '')) DO UPDATE SET ` + update + ` RETURNING number, version`)
	err := s.db.Write(ctx).QueryRowContext(ctx, query, uuid.NewString(), t.Source, t.Key, t.OrganizationID, string(t.State), t.Reason,
		t.MaxConcurrency, t.RatePerSecond, t.RateBurst, t.RetryPolicy, t.Serial, t.SignatureScheme, t.SecretSealed,
		t.PreviousSecretSealed, t.PreviousUntil, t.AuthSealed).Scan(&t.ID, &t.Version)
	if err != nil {
		return fmt.Errorf("put target: %w", err)
	}
	return nil
}

// Targets implements [driver.Store].
func (s *Store) Targets(ctx context.Context, ids []int64, keys []driver.TargetKey) ([]*driver.Target, error) {
	var where []string
	var args []any
	for _, id := range ids {
		where, args = append(where, `number = ?`), append(args, id)
	}
	if len(ids) == 0 {
		for _, k := range keys {
			where = append(where, `(source = ? AND target_key = ? AND COALESCE(organization_id, '') = ?)`)
			args = append(args, k.Source, k.Key, k.OrganizationID)
		}
	}
	const most = 200 // conditions in one statement
	var out []*driver.Target
	per := len(args) / max(1, len(where))
	for len(where) > 0 {
		n := min(most, len(where))
		part, err := s.targets(ctx, strings.Join(where[:n], ` OR `), args[:n*per])
		if err != nil {
			return nil, err
		}
		out, where, args = append(out, part...), where[n:], args[n*per:]
	}
	return out, nil
}

func (s *Store) targets(ctx context.Context, where string, args []any) ([]*driver.Target, error) {
	rows, err := s.db.Read(ctx).QueryContext(ctx, s.sql(`SELECT `+targetColumns+` FROM sys_http_target WHERE `+where), args...)
	if err != nil {
		return nil, fmt.Errorf("read targets: %w", err)
	}
	defer rows.Close()
	var out []*driver.Target
	for rows.Next() {
		t := new(driver.Target)
		err := rows.Scan(&t.ID, &t.Source, &t.Key, nil0(&t.OrganizationID), &t.State, nil0(&t.Reason), &t.MaxConcurrency,
			&t.RatePerSecond, &t.RateBurst, nil0(&t.RetryPolicy), &t.Serial, nil0(&t.SignatureScheme), nil0(&t.SecretSealed),
			nil0(&t.PreviousSecretSealed), nil0(&t.PreviousUntil), nil0(&t.AuthSealed), nil0(&t.FailingSince),
			nil0(&t.LastSuccessAt), &t.Version, &t.UpdatedAt)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, rows.Err()
}

// micros scans a number of microseconds.
type micros struct{ to *time.Duration }

func (m micros) Scan(src any) error {
	n, ok := src.(int64)
	if !ok {
		return fmt.Errorf("want a number of microseconds, got %T", src)
	}
	*m.to = time.Duration(n) * time.Microsecond
	return nil
}
