package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/storage"
)

// sqlite runs one short statement per row, all in the caller's transaction.
type sqlite struct {
	s                                     *Store
	insertSQL, insertClaimedSQL, claimSQL string
	clockSQL                              string
	releaseSQL, retrySQL, finishSQL       string
}

func newSQLite(s *Store) *sqlite {
	return &sqlite{s: s, insertSQL: liteInsert, claimSQL: s.sql(liteClaim + strings.ReplaceAll(claimColumns, "d.", "") +
		`, (SELECT version FROM sys_http_target h WHERE h.number = target_id)`), insertClaimedSQL: liteInsertClaimed,
		clockSQL: s.sql(`SELECT {now}`), releaseSQL: fence(liteRelease), retrySQL: fence(liteRetry), finishSQL: fence(liteFinish)}
}

// uncancelled is for loops of short statements: with a context that can be
// cancelled the driver starts a goroutine for each of them.
func (s *Store) uncancelled(ctx context.Context) (context.Context, storage.Querier) {
	ctx = context.WithoutCancel(ctx)
	return ctx, s.db.Write(ctx)
}

const liteInsertColumns = `
INSERT INTO sys_http_delivery (id, source, ref_id, target_key, target_id, dedup_key, label, url, method, headers_json,
    signing_secret, timeout_ms, payload_json, partition_key, order_seq, order_key, block_on_retry, error, parked,
    notify_finished, expires_at, event_id, run_id, step_id, organization_id, created_at, updated_at, finished_at, ended_as, status,
    claimed_by, claimed_at, claim_token, claim_expires_at)
SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, `

const liteConflict = `
ON CONFLICT (source, COALESCE(organization_id, ''), dedup_key) DO NOTHING
RETURNING status`

// liteInsert stores a row with the status that it has.
const liteInsert = liteInsertColumns + `?, ?, ?, NULL, NULL, NULL, NULL WHERE TRUE` + liteConflict

// liteInsertClaimed stores a row as claimed when no other goes before it, and
// as pending otherwise.
const liteInsertClaimed = liteInsertColumns + `NULL, NULL, CASE WHEN c.claimed THEN 'in_flight' ELSE 'pending' END,
    CASE WHEN c.claimed THEN ? END, CASE WHEN c.claimed THEN ? END, CASE WHEN c.claimed THEN ? END, CASE WHEN c.claimed THEN ? END
FROM (SELECT EXISTS (SELECT 1 FROM sys_http_target h WHERE h.number = ? AND h.state = 'active')
    AND NOT EXISTS (SELECT 1 FROM sys_http_delivery e WHERE e.order_key = ? AND e.finished_at IS NULL
        AND (e.status = 'in_flight' OR COALESCE(e.next_retry_at, 0) = 0 OR ? AND e.block_on_retry))
    AS claimed) c
WHERE TRUE` + liteConflict

func (l *sqlite) insert(ctx context.Context, rows []*driver.Row, terms driver.Terms) (map[string]string, error) {
	stored := make(map[string]string, len(rows))
	ctx, w := l.s.uncancelled(ctx)
	now, err := l.clock(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		args := []any{
			r.ID, r.Source, text(r.RefID), r.TargetKey, r.TargetID, r.DedupKey, text(r.Label), r.URL, r.Method, text(r.HeadersSealed),
			text(r.SecretSealed), r.TimeoutMillis, string(r.Payload), r.Partition, r.OrderSeq, number(r.OrderKey), r.BlockOnRetry,
			text(r.Error), r.Parked, r.NotifyFinished, after(now, r.ExpiresAt), text(r.EventID), text(r.RunID), text(r.StepID),
			text(r.OrganizationID), now, now,
		}
		query := l.insertSQL
		if r.Status == driver.InFlight {
			query = l.insertClaimedSQL
			args = append(args, r.ClaimedBy, now, r.ClaimToken, now+r.TimeoutMillis+terms.Hold.Milliseconds(),
				r.TargetID, number(r.OrderKey), r.BlockOnRetry)
		} else {
			var finished, ended any
			if r.Status.Terminal() {
				finished, ended = now, string(r.Status)
			}
			args = append(args, finished, ended, string(r.Status))
		}
		var status string
		err := w.QueryRowContext(ctx, query, args...).Scan(&status)
		switch {
		case errors.Is(err, sql.ErrNoRows): // the dedup key exists
		case err != nil:
			return nil, err
		default:
			stored[r.ID] = status
		}
	}
	return stored, nil
}

// clock reads the database's clock once for the statements of a batch.
func (l *sqlite) clock(ctx context.Context) (now int64, err error) {
	err = l.s.db.Write(ctx).QueryRowContext(ctx, l.clockSQL).Scan(&now)
	return now, err
}

// text and number are NULL for their zero values, after for no delay.

func text(v string) any {
	if v == "" {
		return nil
	}
	return v
}

func number(v int64) any {
	if v == 0 {
		return nil
	}
	return v
}

func after(now, delay int64) any {
	if delay == 0 {
		return nil
	}
	return now + delay
}

// liteClaim writes its limits as sums: SQLite prepares a statement again when
// a bare parameter in LIMIT changes.
const liteClaim = `
UPDATE sys_http_delivery AS d SET status = 'in_flight', claimed_by = ?4, claim_token = ?5, claimed_at = {now},
    claim_expires_at = {now} + timeout_ms + ?6, updated_at = {now}
WHERE EXISTS (SELECT 1 FROM sys_http_target h WHERE h.number = ?1 AND h.state = 'active') AND rowid IN (
    SELECT n FROM (SELECT d.rowid AS n FROM sys_http_delivery d
        WHERE d.target_id = ?1 AND d.finished_at IS NULL AND d.status = 'pending' AND COALESCE(d.next_retry_at, 0) = 0 AND ` + unblocked + `
        ORDER BY d.order_seq LIMIT ?2 + 0)
    UNION ALL
    SELECT n FROM (SELECT d.rowid AS n FROM sys_http_delivery d
        WHERE d.target_id = ?1 AND d.finished_at IS NULL AND d.status = 'pending' AND COALESCE(d.next_retry_at, 0) > 0
            AND COALESCE(d.next_retry_at, 0) <= (SELECT {now}) AND ` + unblocked + `
        ORDER BY COALESCE(d.next_retry_at, 0), d.order_seq LIMIT ?3 + 0))
RETURNING `

func (l *sqlite) claim(ctx context.Context, req driver.ClaimRequest) ([]*driver.Row, error) {
	var out []*driver.Row
	for _, want := range req.Wants {
		rows, err := l.claimTarget(ctx, req, want)
		if err != nil {
			return nil, err
		}
		out = append(out, rows...)
	}
	return out, nil
}

func (l *sqlite) claimTarget(ctx context.Context, req driver.ClaimRequest, want driver.Want) ([]*driver.Row, error) {
	ctx, w := l.s.uncancelled(ctx)
	rows, err := w.QueryContext(ctx, l.claimSQL, want.TargetID, want.First, want.Retry, req.Node, req.Token, req.Hold.Milliseconds())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []*driver.Row
	for rows.Next() {
		r := &driver.Row{Status: driver.InFlight, ClaimToken: req.Token, ClaimedBy: req.Node}
		if err := scanClaimed(rows, r, &r.TargetVersion); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return sorted(out), rows.Err()
}

// sorted puts claimed rows into the order in which they are to leave.
func sorted(rows []*driver.Row) []*driver.Row {
	slices.SortStableFunc(rows, func(a, b *driver.Row) int { return cmp.Compare(a.OrderSeq, b.OrderSeq) })
	return rows
}

const (
	liteUnclaim = `sent_alone = FALSE, claimed_by = NULL, claimed_at = NULL, claim_token = NULL, claim_expires_at = NULL, updated_at = ?
WHERE id = ? AND claim_token = ? AND status = 'in_flight'`
	liteRelease = `UPDATE sys_http_delivery SET status = 'pending', ` + liteUnclaim
	liteResult  = `UPDATE sys_http_delivery SET attempts = ?, last_attempted_at = COALESCE(?, last_attempted_at),
    signature = COALESCE(?, signature), response_code = ?, response_body = ?, response_truncated = ?, error = ?, parked = ?,
    crash_count = 0, `
	liteRetry  = liteResult + `status = 'pending', next_retry_at = MIN(?, COALESCE(expires_at, 9223372036854775807)), ` + liteUnclaim
	liteFinish = liteResult + `status = ?, ended_as = ?, next_retry_at = NULL, finished_at = ?, ` + liteUnclaim
)

const liteAttempt = `
INSERT INTO sys_http_attempt (id, delivery_id, round, attempt, node, started_at, duration_us, dns_us, connect_us, tls_us,
    first_byte_us, remote_addr, request_headers, response_code, response_headers, response_body, response_truncated,
    location_host, error_class, error, organization_id, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING`

func (l *sqlite) record(ctx context.Context, outcomes []driver.Outcome) (map[string]bool, error) {
	ctx, w := l.s.uncancelled(ctx)
	now, err := l.clock(ctx)
	if err != nil {
		return nil, err
	}
	applied := make(map[string]bool, len(outcomes))
	for i := range outcomes {
		o := &outcomes[i]
		query, args := l.outcome(o, now)
		res, err := w.ExecContext(ctx, query, append(args, now, o.ID, o.Token)...)
		if err != nil {
			return nil, err
		}
		n, err := res.RowsAffected()
		if err != nil {
			return nil, err
		}
		if n == 0 {
			continue
		}
		applied[o.ID] = true
		if a := o.Attempt; a != nil {
			_, err := w.ExecContext(ctx, liteAttempt, attemptID(a), a.DeliveryID, a.Round, a.Attempt, text(a.Node),
				now-a.StartedAgo.Milliseconds(), a.Duration.Microseconds(), a.DNS.Microseconds(), a.Connect.Microseconds(),
				a.TLS.Microseconds(), a.FirstByte.Microseconds(), text(a.RemoteAddr), text(a.RequestHeaders),
				number(int64(a.ResponseCode)), text(a.ResponseHeaders), body(a.ResponseCode, a.ResponseBody), a.Truncated,
				text(a.LocationHost), text(a.ErrorClass), text(a.Error), text(a.OrganizationID), now, now)
			if err != nil {
				return nil, err
			}
		}
	}
	return applied, nil
}

// outcome is the statement of an outcome's class with the arguments that come
// before those of liteUnclaim.
func (l *sqlite) outcome(o *driver.Outcome, now int64) (query string, args []any) {
	if o.Released {
		return l.releaseSQL, nil
	}
	var attempted any
	if o.Attempt != nil {
		attempted = now - o.Attempt.StartedAgo.Milliseconds()
	}
	args = []any{
		o.Attempts, attempted, text(o.Signature), number(int64(o.ResponseCode)), body(o.ResponseCode, o.ResponseBody),
		o.ResponseTruncated, text(o.Error), o.Parked,
	}
	if o.Status == driver.Pending {
		return l.retrySQL, append(args, now+o.RetryIn.Milliseconds())
	}
	return l.finishSQL, append(args, string(o.Status), string(o.Status), now)
}

// body is NULL without an answer; an empty one is empty.
func body(code int, text string) any {
	if code == 0 {
		return nil
	}
	return text
}
