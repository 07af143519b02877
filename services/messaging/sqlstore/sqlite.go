package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/storage"
)

// sqlite runs one short statement per row, all in the caller's transaction.
type sqlite struct {
	s                                        *Store
	insertSQL, claimSQL, saveSQL, attemptSQL string
}

func newSQLite(s *Store) *sqlite {
	return &sqlite{s: s, insertSQL: s.sql(liteInsert), claimSQL: s.sql(liteClaim + strings.ReplaceAll(claimColumns, "d.", "") +
		`, (SELECT version FROM sys_http_target h WHERE h.number = target_id)`), saveSQL: s.sql(liteRecord), attemptSQL: s.sql(liteAttempt)}
}

// uncancelled is for loops of short statements: with a context that can be
// cancelled the driver starts a goroutine for each of them.
func (s *Store) uncancelled(ctx context.Context) (context.Context, storage.Querier) {
	ctx = context.WithoutCancel(ctx)
	return ctx, s.db.Write(ctx)
}

const liteInsert = `
INSERT INTO sys_http_delivery (id, source, ref_id, target_key, target_id, dedup_key, label, url, method, headers_json,
    signing_secret, timeout_ms, payload_json, partition_key, order_seq, order_key, block_on_retry, status, claimed_by,
    claimed_at, claim_token, claim_expires_at, error, parked, notify_finished, expires_at, finished_at, event_id, run_id,
    step_id, organization_id, created_at, updated_at)
SELECT ?1, ?2, NULLIF(?3, ''), ?4, ?5, ?6, NULLIF(?7, ''), ?8, ?9, NULLIF(?10, ''), NULLIF(?11, ''), ?12, ?13, ?14, ?15,
    NULLIF(?16, 0), ?17, CASE WHEN c.claimed THEN 'in_flight' WHEN ?18 = 'in_flight' THEN 'pending' ELSE ?18 END,
    CASE WHEN c.claimed THEN ?19 END, CASE WHEN c.claimed THEN c.now END, CASE WHEN c.claimed THEN ?20 END,
    CASE WHEN c.claimed THEN c.now + ?12 + ?29 END, NULLIF(?21, ''), ?22, ?23, c.now + NULLIF(?24, 0),
    CASE WHEN ?18 = 'dead' THEN c.now END, NULLIF(?25, ''), NULLIF(?26, ''), NULLIF(?27, ''), NULLIF(?28, ''), c.now, c.now
FROM (SELECT {now} AS now, ?18 = 'in_flight'
    AND NOT EXISTS (SELECT 1 FROM sys_http_delivery e WHERE ?16 <> 0 AND e.status = 'in_flight' AND e.order_key = ?16)
    AND NOT EXISTS (SELECT 1 FROM sys_http_delivery e WHERE ?16 <> 0 AND e.status = 'pending' AND e.target_id = ?5
        AND COALESCE(e.next_retry_at, 0) = 0 AND e.order_key = ?16)
    AND NOT EXISTS (SELECT 1 FROM sys_http_delivery e WHERE ?17 AND e.block_on_retry AND e.order_key = ?16 AND e.finished_at IS NULL)
    AND EXISTS (SELECT 1 FROM sys_http_target h WHERE h.number = ?5 AND h.state = 'active') AS claimed) c
WHERE TRUE
ON CONFLICT (source, COALESCE(organization_id, ''), dedup_key) DO NOTHING
RETURNING status`

func (l *sqlite) insert(ctx context.Context, rows []*driver.Row, hold time.Duration) (map[string]string, error) {
	stored := make(map[string]string, len(rows))
	ctx, w := l.s.uncancelled(ctx)
	for _, r := range rows {
		var status string
		err := w.QueryRowContext(ctx, l.insertSQL, r.ID, r.Source, r.RefID, r.TargetKey, r.TargetID, r.DedupKey, r.Label, r.URL,
			r.Method, r.HeadersSealed, r.SecretSealed, r.TimeoutMillis, string(r.Payload), r.Partition, r.OrderSeq, r.OrderKey,
			r.BlockOnRetry, string(r.Status), r.ClaimedBy, r.ClaimToken, r.Error, r.Parked, r.NotifyFinished, r.ExpiresAt,
			r.EventID, r.RunID, r.StepID, r.OrganizationID, hold.Milliseconds()).Scan(&status)
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

// liteClaim writes its limits as sums: SQLite prepares a statement again when
// a bare parameter in LIMIT changes.
const liteClaim = `
UPDATE sys_http_delivery AS d SET status = 'in_flight', claimed_by = ?4, claim_token = ?5, claimed_at = {now},
    claim_expires_at = {now} + timeout_ms + ?6, updated_at = {now}
WHERE EXISTS (SELECT 1 FROM sys_http_target h WHERE h.number = ?1 AND h.state = 'active') AND rowid IN (
    SELECT n FROM (SELECT d.rowid AS n FROM sys_http_delivery d
        WHERE d.target_id = ?1 AND d.status = 'pending' AND COALESCE(d.next_retry_at, 0) = 0 AND ` + unblocked + `
        ORDER BY d.order_seq LIMIT ?2 + 0)
    UNION ALL
    SELECT n FROM (SELECT d.rowid AS n FROM sys_http_delivery d
        WHERE d.target_id = ?1 AND d.status = 'pending' AND COALESCE(d.next_retry_at, 0) > 0
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

const liteRecord = `
UPDATE sys_http_delivery SET status = ?3,
    attempts = CASE WHEN ?6 THEN attempts ELSE ?4 END,
    next_retry_at = CASE WHEN ?6 THEN next_retry_at
        WHEN ?3 = 'pending' THEN MIN({now} + ?5, COALESCE(expires_at, 9223372036854775807)) END,
    last_attempted_at = CASE WHEN ?7 >= 0 THEN {now} - ?7 ELSE last_attempted_at END,
    signature = CASE WHEN ?8 <> '' THEN ?8 ELSE signature END,
    response_code = CASE WHEN ?6 THEN response_code ELSE NULLIF(?9, 0) END,
    response_body = CASE WHEN ?6 THEN response_body WHEN ?9 <> 0 THEN ?10 END,
    response_truncated = CASE WHEN ?6 THEN response_truncated ELSE ?11 END,
    error = CASE WHEN ?6 THEN error ELSE NULLIF(?12, '') END,
    parked = CASE WHEN ?6 THEN parked ELSE ?13 END,
    crash_count = CASE WHEN ?6 THEN crash_count ELSE 0 END,
    finished_at = CASE WHEN ?3 <> 'pending' THEN {now} END,
    claimed_by = NULL, claimed_at = NULL, claim_token = NULL, claim_expires_at = NULL, updated_at = {now}
WHERE id = ?1 AND claim_token = ?2 AND status = 'in_flight'`

const liteAttempt = `
INSERT INTO sys_http_attempt (id, delivery_id, round, attempt, node, started_at, duration_us, dns_us, connect_us, tls_us,
    first_byte_us, remote_addr, request_headers, response_code, response_headers, response_body, response_truncated,
    location_host, error_class, error, organization_id, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, NULLIF(?5, ''), {now} - ?6, ?7, ?8, ?9, ?10, ?11, NULLIF(?12, ''), NULLIF(?13, ''), NULLIF(?14, 0),
    NULLIF(?15, ''), CASE WHEN ?14 <> 0 THEN ?16 END, ?17, NULLIF(?18, ''), NULLIF(?19, ''), NULLIF(?20, ''), NULLIF(?21, ''),
    {now}, {now})
ON CONFLICT (id) DO NOTHING`

func (l *sqlite) record(ctx context.Context, outcomes []driver.Outcome) (map[string]bool, error) {
	ctx, w := l.s.uncancelled(ctx)
	applied := make(map[string]bool, len(outcomes))
	for i := range outcomes {
		o := &outcomes[i]
		res, err := w.ExecContext(ctx, l.saveSQL, o.ID, o.Token, string(o.Status), o.Attempts, o.RetryIn.Milliseconds(), o.Released,
			startedAgo(o), o.Signature, o.ResponseCode, o.ResponseBody, o.ResponseTruncated, o.Error, o.Parked)
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
			_, err := w.ExecContext(ctx, l.attemptSQL, attemptID(a), a.DeliveryID, a.Round, a.Attempt, a.Node,
				a.StartedAgo.Milliseconds(), a.Duration.Microseconds(), a.DNS.Microseconds(), a.Connect.Microseconds(),
				a.TLS.Microseconds(), a.FirstByte.Microseconds(), a.RemoteAddr, a.RequestHeaders, a.ResponseCode,
				a.ResponseHeaders, a.ResponseBody, a.Truncated, a.LocationHost, a.ErrorClass, a.Error, a.OrganizationID)
			if err != nil {
				return nil, err
			}
		}
	}
	return applied, nil
}
