package sqlstore

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/storage"
)

// sqlite runs one short statement per row, all in the caller's transaction.
type sqlite struct {
	s                               *Store
	firstSQL, againSQL              string
	clockSQL                        string
	releaseSQL, retrySQL, finishSQL string
}

func newSQLite(s *Store) *sqlite {
	columns := `SELECT ` + strings.ReplaceAll(claimColumns, "{now}", "?3") + `, d.rowid`
	return &sqlite{s: s, firstSQL: columns + liteFirst, againSQL: columns + liteAgain,
		clockSQL: s.sql(`SELECT {now}`), releaseSQL: fence(liteRelease), retrySQL: fence(liteRetry), finishSQL: fence(liteFinish)}
}

// uncancelled is for loops of short statements: with a context that can be
// cancelled the driver starts a goroutine for each of them.
func (s *Store) uncancelled(ctx context.Context) (context.Context, storage.Querier) {
	ctx = context.WithoutCancel(ctx)
	return ctx, s.db.Write(ctx)
}

// liteInsert has no RETURNING and no SELECT, and neither has any statement that
// runs once per row: SQLite then knows that it writes one row at most, and
// keeps no copy of the pages that it changes to undo half of it.
const liteInsert = `
INSERT INTO sys_http_delivery (id, source, ref_id, target_key, target_id, dedup_key, label, url, method, headers_json,
    signing_secret, timeout_ms, payload_json, partition_key, order_seq, order_key, block_on_retry, error, parked,
    notify_finished, expires_at, event_id, run_id, step_id, organization_id, created_at, updated_at, finished_at, ended_as, status,
    claimed_by, claimed_at, claim_token, claim_expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (source, COALESCE(organization_id, ''), dedup_key) DO NOTHING`

// liteBehind tells that a row of an ordering key goes before a new one.
const liteBehind = `SELECT EXISTS (SELECT 1 FROM sys_http_delivery e WHERE e.order_key = ? AND e.finished_at IS NULL
    AND (e.status = 'in_flight' OR COALESCE(e.next_retry_at, 0) = 0 OR ? AND e.block_on_retry))`

func (l *sqlite) insert(ctx context.Context, rows []*driver.Row, terms driver.Terms) (map[string]string, error) {
	stored := make(map[string]string, len(rows))
	ctx, w := l.s.uncancelled(ctx)
	now, err := l.clock(ctx)
	if err != nil {
		return nil, err
	}
	active, err := l.active(ctx, w, claimedTargets(rows))
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		status := r.Status
		if status == driver.InFlight {
			if status, err = l.claimable(ctx, w, r, active); err != nil {
				return nil, err
			}
		}
		var finished, ended, by, at, token, until any
		switch {
		case status == driver.InFlight:
			by, at, token, until = r.ClaimedBy, now, r.ClaimToken, now+r.TimeoutMillis+terms.Hold.Milliseconds()
		case status.Terminal():
			finished, ended = now, string(status)
		}
		res, err := w.ExecContext(ctx, liteInsert,
			r.ID, r.Source, text(r.RefID), r.TargetKey, r.TargetID, r.DedupKey, text(r.Label), r.URL, r.Method, text(r.HeadersSealed),
			text(r.SecretSealed), r.TimeoutMillis, string(r.Payload), r.Partition, r.OrderSeq, number(r.OrderKey), r.BlockOnRetry,
			text(r.Error), r.Parked, r.NotifyFinished, after(now, r.ExpiresAt), text(r.EventID), text(r.RunID), text(r.StepID),
			text(r.OrganizationID), now, now, finished, ended, string(status), by, at, token, until)
		if err != nil {
			return nil, err
		}
		n, err := res.RowsAffected()
		if err != nil {
			return nil, err
		}
		if n > 0 { // else the dedup key exists
			stored[r.ID] = string(status)
		}
	}
	return stored, nil
}

// claimedTargets lists the targets of the rows that are to be stored as claimed.
func claimedTargets(rows []*driver.Row) []int64 {
	var ids []int64
	for _, r := range rows {
		if r.Status == driver.InFlight && !slices.Contains(ids, r.TargetID) {
			ids = append(ids, r.TargetID)
		}
	}
	return ids
}

// claimable is the status of a row that is to be stored as claimed: pending
// when its target is not active or another row goes before it.
func (l *sqlite) claimable(ctx context.Context, w storage.Querier, r *driver.Row, active map[int64]int64) (driver.Status, error) {
	if _, ok := active[r.TargetID]; !ok {
		return driver.Pending, nil
	}
	if r.OrderKey == 0 {
		return driver.InFlight, nil
	}
	var behind bool
	err := w.QueryRowContext(ctx, liteBehind, r.OrderKey, r.BlockOnRetry).Scan(&behind)
	if err != nil || behind {
		return driver.Pending, err
	}
	return driver.InFlight, nil
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

// The statements of a claim. The write lock is held all the way, so that what
// the first ones read is what the last one takes. Limits are written as sums:
// SQLite prepares a statement again when a bare parameter in LIMIT changes.
const (
	liteTargets = `SELECT number, version FROM sys_http_target WHERE state = 'active' AND number IN (SELECT value FROM json_each(?))`
	liteWaiting = ` FROM sys_http_delivery d WHERE d.target_id = ?1 AND d.finished_at IS NULL AND d.status = 'pending' AND ` + unblocked
	liteFirst   = liteWaiting + ` AND COALESCE(d.next_retry_at, 0) = 0 ORDER BY d.order_seq LIMIT ?2 + 0`
	liteAgain   = liteWaiting + ` AND COALESCE(d.next_retry_at, 0) > 0 AND COALESCE(d.next_retry_at, 0) <= ?3
		ORDER BY COALESCE(d.next_retry_at, 0), d.order_seq LIMIT ?2 + 0`
	liteTake = `UPDATE OR FAIL sys_http_delivery SET status = 'in_flight', claimed_by = ?1, claim_token = ?2, claimed_at = ?3,
		claim_expires_at = ?3 + timeout_ms + ?4, updated_at = ?3 WHERE rowid IN (SELECT value FROM json_each(?5))`
)

func (l *sqlite) claim(ctx context.Context, req driver.ClaimRequest) ([]*driver.Row, error) {
	ctx, w := l.s.uncancelled(ctx)
	now, err := l.clock(ctx)
	if err != nil {
		return nil, err
	}
	versions, err := l.active(ctx, w, columnOf(req.Wants, func(w driver.Want) int64 { return w.TargetID }))
	if err != nil {
		return nil, err
	}
	c := liteClaim{w: w, now: now, scanner: newClaimScanner(req)}
	for _, want := range req.Wants {
		version, active := versions[want.TargetID]
		if !active {
			continue
		}
		c.scanner.row.TargetVersion = version
		began := len(c.rows)
		if err := c.read(ctx, l.firstSQL, want.TargetID, want.First); err != nil {
			return nil, err
		}
		if err := c.read(ctx, l.againSQL, want.TargetID, want.Retry); err != nil {
			return nil, err
		}
		sorted(c.rows[began:])
	}
	if len(c.rows) == 0 {
		return nil, nil
	}
	_, err = w.ExecContext(ctx, liteTake, req.Node, req.Token, now, req.Hold.Milliseconds(), numbers(c.rowids))
	return c.rows, err
}

// active returns the versions of those targets that are active.
func (l *sqlite) active(ctx context.Context, w storage.Querier, ids []int64) (map[int64]int64, error) {
	versions := make(map[int64]int64, len(ids))
	if len(ids) == 0 {
		return versions, nil
	}
	rows, err := w.QueryContext(ctx, liteTargets, numbers(ids))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var number, version int64
		if err := rows.Scan(&number, &version); err != nil {
			return nil, err
		}
		versions[number] = version
	}
	return versions, rows.Err()
}

// liteClaim gathers the rows of one claim.
type liteClaim struct {
	w       storage.Querier
	now     int64
	scanner *claimScanner
	rows    []*driver.Row
	rowids  []int64
}

// read adds the rows that a query finds for a target.
func (c *liteClaim) read(ctx context.Context, query string, target int64, limit int) error {
	if limit == 0 {
		return nil
	}
	rows, err := c.w.QueryContext(ctx, query, target, limit, c.now)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		r, err := c.scanner.scan(rows)
		if err != nil {
			return err
		}
		c.rows, c.rowids = append(c.rows, r), append(c.rowids, c.scanner.more)
	}
	return rows.Err()
}

// numbers are a JSON array.
func numbers(of []int64) string {
	text := []byte{'['}
	for i, n := range of {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, n, 10)
	}
	return string(append(text, ']'))
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
