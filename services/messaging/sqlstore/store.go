// Package sqlstore keeps the outbox in SQLite or PostgreSQL.
//
// The two dialects share the queries that are not hot. Where a batch serves,
// PostgreSQL gets one statement over arrays; SQLite, which has no round trips,
// one short prepared statement per row inside one transaction.
package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/lease"
)

//go:embed migrations
var migrations embed.FS

// Migrations are the schema of the outbox.
func Migrations() storage.Migrations {
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return storage.Migrations{Name: "messaging", FS: dir}
}

// Store implements [driver.Store]. It is safe for concurrent use.
type Store struct {
	db  *storage.DB
	now string // SQL for the database's clock in epoch milliseconds
	dialect
}

var _ driver.Store = (*Store)(nil)

// dialect is what the two databases do differently.
type dialect interface {
	insert(ctx context.Context, rows []*driver.Row, terms driver.Terms) (map[string]string, error)
	claim(ctx context.Context, req driver.ClaimRequest) ([]*driver.Row, error)
	record(ctx context.Context, outcomes []driver.Outcome) (map[string]bool, error)
}

// New returns a store on a database that holds [Migrations].
func New(db *storage.DB) *Store {
	s := &Store{db: db, now: db.NowSQL()}
	if db.Dialect() == storage.Postgres {
		s.dialect = newPostgres(s)
	} else {
		s.dialect = newSQLite(s)
	}
	return s
}

// sql turns ? into the dialect's placeholders and {now} into its clock.
func (s *Store) sql(query string) string {
	query = strings.NewReplacer("{now}", s.now, "{bounded}", s.db.BoundedSQL(lease.IdleTransaction)).Replace(query)
	if s.db.Dialect() != storage.Postgres {
		return query
	}
	var b strings.Builder
	n := 0
	for _, part := range strings.SplitAfter(query, "?") {
		if text, found := strings.CutSuffix(part, "?"); found {
			n++
			b.WriteString(text + "$" + strconv.Itoa(n))
			continue
		}
		b.WriteString(part)
	}
	return b.String()
}

// Insert implements [driver.Store].
func (s *Store) Insert(ctx context.Context, rows []*driver.Row, terms driver.Terms) ([]driver.Inserted, error) {
	var out []driver.Inserted
	err := s.db.InTx(ctx, func(ctx context.Context) error {
		stored, err := s.dialect.insert(ctx, rows, terms)
		if err != nil {
			return err
		}
		out = make([]driver.Inserted, len(rows))
		var existing []int
		for i, r := range rows {
			status, isNew := stored[r.ID]
			out[i] = driver.Inserted{ID: r.ID, New: isNew, Claimed: status == string(driver.InFlight)}
			if !isNew {
				existing = append(existing, i)
			}
		}
		return s.findExisting(ctx, rows, existing, out)
	})
	return out, err
}

const dedupQuery = `SELECT id FROM sys_http_delivery WHERE source = ? AND COALESCE(organization_id, '') = ? AND dedup_key = ?`

// findExisting fills the ids of the rows that hold the dedup keys.
func (s *Store) findExisting(ctx context.Context, rows []*driver.Row, missing []int, out []driver.Inserted) error {
	query := s.sql(dedupQuery)
	for _, i := range missing {
		r := rows[i]
		err := s.db.Read(ctx).QueryRowContext(ctx, query, r.Source, r.OrganizationID, r.DedupKey).Scan(&out[i].ID)
		if err != nil {
			return fmt.Errorf("find delivery by dedup key: %w", err)
		}
	}
	return nil
}

// Claim implements [driver.Store].
func (s *Store) Claim(ctx context.Context, req driver.ClaimRequest) ([]*driver.Row, error) {
	var rows []*driver.Row
	err := s.db.InTx(ctx, func(ctx context.Context) (err error) {
		rows, err = s.dialect.claim(ctx, req)
		return err
	})
	return rows, err
}

// Record implements [driver.Store].
func (s *Store) Record(ctx context.Context, outcomes []driver.Outcome, touches []driver.Touch) ([]bool, error) {
	applied := make([]bool, len(outcomes))
	err := s.together(ctx, func(ctx context.Context) error {
		done, err := s.dialect.record(ctx, outcomes)
		if err != nil {
			return err
		}
		for i := range outcomes {
			applied[i] = done[outcomes[i].ID]
		}
		return s.touch(ctx, touches)
	})
	return applied, err
}

// together runs fn in ctx's transaction, without a savepoint of its own, or in
// a new one. It is for callers that give the transaction up on an error.
func (s *Store) together(ctx context.Context, fn func(context.Context) error) error {
	if storage.InTransaction(ctx) {
		return fn(ctx)
	}
	return s.db.InTx(ctx, fn)
}

func (s *Store) touch(ctx context.Context, touches []driver.Touch) error {
	for _, t := range touches {
		query := `UPDATE sys_http_target SET last_success_at = {now}, failing_since = NULL, updated_at = {now} WHERE number = ?`
		args := []any{t.TargetID}
		switch {
		case t.HoldReason != "":
			query = `UPDATE sys_http_target SET state = 'held', reason = ?, version = version + 1,
				failing_since = COALESCE(failing_since, {now}), updated_at = {now} WHERE number = ? AND state = 'active'`
			args = []any{t.HoldReason, t.TargetID}
		case t.Failing:
			query = `UPDATE sys_http_target SET failing_since = COALESCE(failing_since, {now}), updated_at = {now} WHERE number = ?`
		}
		if _, err := s.db.Write(ctx).ExecContext(ctx, s.sql(query), args...); err != nil {
			return fmt.Errorf("touch target: %w", err)
		}
	}
	return nil
}

// outlookQuery walks the due index from target to target, one probe each, so
// that its cost grows with the targets that have waiting rows and not with the
// rows.
const outlookQuery = `
WITH RECURSIVE t(id) AS (
    SELECT MIN(target_id) FROM sys_http_delivery WHERE finished_at IS NULL
    UNION ALL
    SELECT (SELECT MIN(target_id) FROM sys_http_delivery WHERE finished_at IS NULL AND target_id > t.id)
    FROM t WHERE t.id IS NOT NULL
)
SELECT t.id, h.state,
    (SELECT COALESCE(next_retry_at, 0) FROM sys_http_delivery d WHERE d.finished_at IS NULL AND d.status = 'pending' AND d.target_id = t.id{held}
        ORDER BY COALESCE(next_retry_at, 0), order_seq LIMIT 1),
    {now}
FROM t JOIN sys_http_target h ON h.number = t.id`

// heldOutlook is the condition for the rows that count where processes share
// the store.
const heldOutlook = ` AND (d.partition_key = ANY ($1::bigint[]) OR d.target_id = ANY ($2::bigint[]))`

// claimsQuery asks for claims that have ended and those of others; where
// processes hold leases, of others without one.
const claimsQuery = `SELECT MIN(d.claim_expires_at), {now} FROM sys_http_delivery d
WHERE d.finished_at IS NULL AND d.status = 'in_flight' AND (d.claim_expires_at <= {now} OR d.claimed_by <> ?{leased})`

const leaselessClaimer = ` AND NOT EXISTS (SELECT 1 FROM sys_node n WHERE n.name = d.claimed_by AND n.lease_until > {now})`

func (s *Store) claimsSQL(leased bool) string {
	condition := ""
	if leased && s.db.Dialect() == storage.Postgres {
		condition = leaselessClaimer
	}
	return s.sql(strings.Replace(claimsQuery, "{leased}", condition, 1))
}

// Claims implements [driver.Store].
func (s *Store) Claims(ctx context.Context, node string, leased bool) (driver.Claims, error) {
	var ends sql.NullInt64
	var now int64
	if err := s.db.Read(ctx).QueryRowContext(ctx, s.claimsSQL(leased), node).Scan(&ends, &now); err != nil {
		return driver.Claims{}, fmt.Errorf("look for orphaned claims: %w", err)
	}
	return driver.Claims{Some: ends.Valid, EndIn: time.Duration(ends.Int64-now) * time.Millisecond}, nil
}

func (s *Store) outlookSQL(view driver.View) (query string, args []any) {
	if view.Partitions == nil || s.db.Dialect() != storage.Postgres {
		return s.sql(strings.Replace(outlookQuery, "{held}", "", 1)), nil
	}
	return s.sql(strings.Replace(outlookQuery, "{held}", heldOutlook, 1)), []any{view.Partitions, view.Anywhere}
}

// Outlook implements [driver.Store].
func (s *Store) Outlook(ctx context.Context, view driver.View) (driver.Outlook, error) {
	var out driver.Outlook
	query, args := s.outlookSQL(view)
	rows, err := s.db.Read(ctx).QueryContext(ctx, query, args...)
	if err != nil {
		return out, fmt.Errorf("look at waiting deliveries: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, now int64
		var due sql.NullInt64
		var state driver.TargetState
		if err := rows.Scan(&id, &state, &due, &now); err != nil {
			return out, err
		}
		switch {
		case state == driver.TargetGone:
			out.Gone = true
		case state == driver.TargetActive && due.Valid:
			out.Due = append(out.Due, driver.Due{TargetID: id, In: time.Duration(due.Int64-now) * time.Millisecond})
		case state == driver.TargetActive && view.Partitions != nil:
			out.Due = append(out.Due, driver.Due{TargetID: id, Elsewhere: true})
		}
	}
	if err := rows.Err(); err != nil {
		return out, err
	}
	return out, nil
}

// Expire implements [driver.Store].
func (s *Store) Expire(ctx context.Context, all bool, deadAt, limit int) (requeued int, dead []*driver.Row, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context) error {
		rows, err := s.scan(s.db.Write(ctx).QueryContext(ctx, s.expireSQL(all), deadAt, deadAt, deadAt, deadAt, limit))
		if err != nil {
			return err
		}
		for _, r := range rows {
			if r.Status == driver.Dead {
				dead = append(dead, r)
			} else {
				requeued++
			}
		}
		return nil
	})
	return requeued, dead, err
}

func (s *Store) expireSQL(all bool) string {
	ended := `claim_expires_at <= (SELECT {now})`
	if all {
		ended = `TRUE`
	}
	count := `(crash_count + CASE WHEN crash_count < ` + strconv.Itoa(driver.AloneAt) + ` OR sent_alone THEN 1 ELSE 0 END)`
	return s.sql(`UPDATE sys_http_delivery SET
		status = CASE WHEN ` + count + ` >= ? THEN 'dead' ELSE 'pending' END,
		error = CASE WHEN ` + count + ` >= ? THEN 'the host ended abnormally ' || ` + count + ` || ' times while sending this delivery' ELSE error END,
		finished_at = CASE WHEN ` + count + ` >= ? THEN {now} END, ended_as = CASE WHEN ` + count + ` >= ? THEN 'dead' END,
		crash_count = ` + count + `, sent_alone = FALSE,
		claimed_by = NULL, claimed_at = NULL, claim_token = NULL, claim_expires_at = NULL, updated_at = {now}
	WHERE ` + s.picked(`SELECT id FROM sys_http_delivery WHERE finished_at IS NULL AND status = 'in_flight' AND `+ended+` ORDER BY claim_expires_at LIMIT ?`+s.lock()) + `
		AND status = 'in_flight' AND {bounded} RETURNING ` + rowColumns)
}

// picked is the condition that a row is among those of a sub-select, in the
// form that makes PostgreSQL run the sub-select once and look its ids up.
func (s *Store) picked(ids string) string {
	if s.db.Dialect() == storage.Postgres {
		return `id = ANY (ARRAY(` + ids + `))`
	}
	return `id IN (` + ids + `)`
}

// lock is appended to sub-selects that pick rows to update.
func (s *Store) lock() string {
	if s.db.Dialect() == storage.Postgres {
		return ` FOR UPDATE SKIP LOCKED`
	}
	return ``
}

// Sweep implements [driver.Store].
func (s *Store) Sweep(ctx context.Context, limit int) ([]*driver.Row, error) {
	return s.scan(s.db.Write(ctx).QueryContext(ctx, s.sweepSQL(), limit))
}

func (s *Store) sweepSQL() string {
	return s.sql(`UPDATE sys_http_delivery SET status = 'failed', ended_as = 'failed', finished_at = {now}, updated_at = {now}, next_retry_at = NULL,
		error = COALESCE((SELECT reason FROM sys_http_target h WHERE h.number = target_id), 'the target no longer exists')
	WHERE ` + s.picked(`SELECT d.id FROM sys_http_target h JOIN sys_http_delivery d ON d.target_id = h.number
		WHERE d.finished_at IS NULL AND d.status = 'pending' AND h.state = 'gone' LIMIT ?`+strings.Replace(s.lock(), "UPDATE", "UPDATE OF d", 1)) + `
		AND status = 'pending' RETURNING ` + rowColumns)
}

// attemptID makes attempts of one delivery neighbours in the primary key, in
// the order in which they were made.
func attemptID(a *driver.Attempt) string {
	return fmt.Sprintf("%s.%04d.%06d", a.DeliveryID, a.Round, a.Attempt)
}

// attemptRange bounds the ids of a delivery's attempts: '/' follows '.'.
func attemptRange(deliveryID string) (low, high string) {
	return deliveryID + ".", deliveryID + "/"
}
