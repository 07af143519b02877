package sqlstore

import (
	"context"
	"strings"

	"github.com/objecthost/objecthost/services/messaging/driver"
)

// unblocked is the condition under which a row may be claimed: a row that
// blocks on retry waits for every earlier unfinished row of its ordering key.
const unblocked = `(NOT d.block_on_retry OR NOT EXISTS (SELECT 1 FROM sys_http_delivery e
	WHERE e.block_on_retry AND e.order_key = d.order_key AND e.finished_at IS NULL AND e.order_seq < d.order_seq))`

// inTurn is the condition for a first attempt where other processes send too:
// an earlier row of its ordering key that is in flight elsewhere, perhaps in a
// process that has died, goes first. Rows in flight here keep their order in
// the dispatcher. OFFSET 0 keeps the planner from making a join of it, which
// would read all rows in flight for each candidate.
const inTurn = `NOT EXISTS (SELECT 1 FROM sys_http_delivery e
	WHERE e.status = 'in_flight' AND e.finished_at IS NULL AND e.order_key = d.order_key AND e.order_seq < d.order_seq AND e.claimed_by <> $4 OFFSET 0)`

// postgres holds the statements over arrays. They are constant text, so that
// the server sees few of them.
type postgres struct {
	s                  *Store
	insertSQL, saveSQL string
	// claimSQL claims without a lease, leasedSQL under one that holds
	// everything, heldSQL under one that holds some partitions.
	claimSQL, leasedSQL, heldSQL string
	insertLeasedSQL              string
}

func newPostgres(s *Store) *postgres {
	claim := func(fenced, held string) string {
		replace := []string{"{fenced}", fenced, "{held}", held, "{anywhere}", "", "{any}", ""}
		if held != "" {
			replace = append(replace[:4], "{anywhere}", ", $9::bool[]", "{any}", ", anywhere")
		}
		return s.sql(strings.NewReplacer(replace...).Replace(pgClaim))
	}
	const lives = `EXISTS (SELECT 1 FROM sys_node WHERE token = $7 AND lease_until > (SELECT now FROM clock) FOR KEY SHARE)`
	return &postgres{
		s: s, saveSQL: s.sql(fence(pgRecord)),
		insertSQL:       s.sql(strings.Replace(pgInsert, "{fenced}", "TRUE", 1)),
		insertLeasedSQL: s.sql(strings.Replace(pgInsert, "{fenced}", leaseFence("EXISTS (SELECT 1 FROM sys_node WHERE token = $30 AND lease_until > {now})"), 1)),
		claimSQL:        claim("TRUE", ""),
		leasedSQL:       claim(leaseFence(lives), ""),
		heldSQL:         claim(leaseFence(lives), " AND (w.anywhere OR d.partition_key = ANY ($8::bigint[]))"),
	}
}

const pgInsert = `
WITH clock AS MATERIALIZED (SELECT {now} AS now)
INSERT INTO sys_http_delivery (id, source, ref_id, target_key, target_id, dedup_key, label, url, method, headers_json,
    signing_secret, timeout_ms, payload_json, partition_key, order_seq, order_key, block_on_retry, status, claimed_by,
    claimed_at, claim_token, claim_expires_at, error, parked, notify_finished, expires_at, finished_at, ended_as, event_id, run_id,
    step_id, organization_id, created_at, updated_at)
SELECT r.id, r.source, NULLIF(r.ref_id, ''), r.target_key, r.target_id, r.dedup_key, NULLIF(r.label, ''), r.url, r.method,
    NULLIF(r.headers, ''), NULLIF(r.secret, ''), r.timeout_ms, r.payload, r.partition_key, r.order_seq, NULLIF(r.order_key, 0),
    r.block, CASE WHEN c.claimed THEN 'in_flight' WHEN r.status = 'in_flight' THEN 'pending' ELSE r.status END,
    CASE WHEN c.claimed THEN r.claimed_by END, CASE WHEN c.claimed THEN c.now END, CASE WHEN c.claimed THEN r.token END,
    CASE WHEN c.claimed THEN c.now + r.timeout_ms + $29::bigint END, NULLIF(r.error, ''), r.parked, r.notify,
    c.now + NULLIF(r.expires_in, 0), CASE WHEN r.status = 'dead' THEN c.now END, CASE WHEN r.status = 'dead' THEN r.status END, NULLIF(r.event_id, ''), NULLIF(r.run_id, ''),
    NULLIF(r.step_id, ''), NULLIF(r.organization_id, ''), c.now, c.now
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::text[], $9::text[],
    $10::text[], $11::text[], $12::bigint[], $13::text[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bool[],
    $18::text[], $19::text[], $20::text[], $21::text[], $22::bool[], $23::bool[], $24::bigint[], $25::text[], $26::text[],
    $27::text[], $28::text[])
    AS r(id, source, ref_id, target_key, target_id, dedup_key, label, url, method, headers, secret, timeout_ms, payload,
    partition_key, order_seq, order_key, block, status, claimed_by, token, error, parked, notify, expires_in, event_id, run_id,
    step_id, organization_id)
CROSS JOIN clock CROSS JOIN LATERAL (SELECT clock.now, r.status = 'in_flight'
    AND NOT EXISTS (SELECT 1 FROM sys_http_delivery e WHERE r.order_key <> 0 AND e.order_key = r.order_key AND e.finished_at IS NULL
        AND (e.status = 'in_flight' OR COALESCE(e.next_retry_at, 0) = 0 OR r.block AND e.block_on_retry))
    AND EXISTS (SELECT 1 FROM sys_http_target h WHERE h.number = r.target_id AND h.state = 'active') AND {fenced} AS claimed) c
ON CONFLICT (source, COALESCE(organization_id, ''), dedup_key) DO NOTHING
RETURNING id, status`

func (p *postgres) insert(ctx context.Context, rows []*driver.Row, terms driver.Terms) (map[string]string, error) {
	column := func(of func(*driver.Row) string) []string { return columnOf(rows, of) }
	number := func(of func(*driver.Row) int64) []int64 { return columnOf(rows, of) }
	flag := func(of func(*driver.Row) bool) []bool { return columnOf(rows, of) }
	type row = driver.Row
	args := []any{
		column(func(r *row) string { return r.ID }), column(func(r *row) string { return r.Source }),
		column(func(r *row) string { return r.RefID }), column(func(r *row) string { return r.TargetKey }),
		number(func(r *row) int64 { return r.TargetID }), column(func(r *row) string { return r.DedupKey }),
		column(func(r *row) string { return r.Label }), column(func(r *row) string { return r.URL }),
		column(func(r *row) string { return r.Method }), column(func(r *row) string { return r.HeadersSealed }),
		column(func(r *row) string { return r.SecretSealed }), number(func(r *row) int64 { return r.TimeoutMillis }),
		column(func(r *row) string { return string(r.Payload) }), number(func(r *row) int64 { return int64(r.Partition) }),
		number(func(r *row) int64 { return r.OrderSeq }), number(func(r *row) int64 { return r.OrderKey }),
		flag(func(r *row) bool { return r.BlockOnRetry }), column(func(r *row) string { return string(r.Status) }),
		column(func(r *row) string { return r.ClaimedBy }), column(func(r *row) string { return r.ClaimToken }),
		column(func(r *row) string { return r.Error }), flag(func(r *row) bool { return r.Parked }),
		flag(func(r *row) bool { return r.NotifyFinished }), number(func(r *row) int64 { return r.ExpiresAt }),
		column(func(r *row) string { return r.EventID }), column(func(r *row) string { return r.RunID }),
		column(func(r *row) string { return r.StepID }), column(func(r *row) string { return r.OrganizationID }),
		terms.Hold.Milliseconds(),
	}
	query := p.insertSQL
	if terms.Token != "" {
		query, args = p.insertLeasedSQL, append(args, terms.Token)
	}
	found, err := p.s.db.Write(ctx).QueryContext(ctx, query, p.s.db.Hot(args...)...)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	stored := make(map[string]string, len(rows))
	for found.Next() {
		var id, status string
		if err := found.Scan(&id, &status); err != nil {
			return nil, err
		}
		stored[id] = status
	}
	return stored, found.Err()
}

// columnOf turns rows into one column.
func columnOf[R, T any](rows []R, of func(R) T) []T {
	out := make([]T, len(rows))
	for i, r := range rows {
		out[i] = of(r)
	}
	return out
}

// pgClaim locks the rows that it picks, so that the update need not look at
// their status again: with that condition the planner reads the whole due
// index. It reads the clock once in front: as a part of the scan it would be
// asked for every row, and could not bound the index.
const pgClaim = `
WITH clock AS MATERIALIZED (SELECT {now} AS now WHERE {bounded}), picked AS (
    SELECT p.tid FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]{anywhere}) AS w(target_id, first, again{any})
    JOIN sys_http_target h ON h.number = w.target_id AND h.state = 'active' AND {fenced}
    CROSS JOIN LATERAL (
        SELECT f.tid FROM (SELECT d.ctid AS tid FROM sys_http_delivery d
         WHERE d.target_id = w.target_id AND d.finished_at IS NULL AND d.status = 'pending' AND COALESCE(d.next_retry_at, 0) = 0 AND ` + unblocked + `
             AND ` + inTurn + `{held}
         ORDER BY d.order_seq LIMIT w.first FOR UPDATE SKIP LOCKED) f
        UNION ALL
        SELECT r.tid FROM (SELECT d.ctid AS tid FROM sys_http_delivery d
         WHERE d.target_id = w.target_id AND d.finished_at IS NULL AND d.status = 'pending' AND COALESCE(d.next_retry_at, 0) > 0
             AND COALESCE(d.next_retry_at, 0) <= (SELECT now FROM clock) AND ` + unblocked + `{held}
         ORDER BY COALESCE(d.next_retry_at, 0), d.order_seq LIMIT w.again FOR UPDATE SKIP LOCKED) r
    ) p
)
UPDATE sys_http_delivery d SET status = 'in_flight', claimed_by = $4, claim_token = $5, claimed_at = clock.now,
    claim_expires_at = clock.now + d.timeout_ms + $6::bigint, updated_at = clock.now
FROM picked, clock, sys_http_target h WHERE d.ctid = picked.tid AND h.number = d.target_id
RETURNING ` + claimColumns + `, h.version`

func (p *postgres) claim(ctx context.Context, req driver.ClaimRequest) ([]*driver.Row, error) {
	query, args := p.claimStatement(req)
	rows, err := p.s.db.Write(ctx).QueryContext(ctx, query, p.s.db.Hot(args...)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []*driver.Row
	claimed := newClaimScanner(req)
	for rows.Next() {
		r, err := claimed.scan(rows)
		if err != nil {
			return nil, err
		}
		r.TargetVersion = claimed.more
		out = append(out, r)
	}
	return sorted(out), rows.Err()
}

func (p *postgres) claimStatement(req driver.ClaimRequest) (query string, args []any) {
	args = []any{
		columnOf(req.Wants, func(w driver.Want) int64 { return w.TargetID }),
		columnOf(req.Wants, func(w driver.Want) int64 { return int64(w.First) }),
		columnOf(req.Wants, func(w driver.Want) int64 { return int64(w.Retry) }),
		req.Node, req.Token, req.Hold.Milliseconds(),
	}
	switch lease := req.Lease; {
	case lease.Token == "":
		return p.claimSQL, args
	case lease.Partitions == nil:
		return p.leasedSQL, append(args, lease.Token)
	default:
		return p.heldSQL, append(args, lease.Token, lease.Partitions, columnOf(req.Wants, func(w driver.Want) bool { return w.Anywhere }))
	}
}

const pgRecord = `
WITH clock AS MATERIALIZED (SELECT {now} AS now), saved AS (
    UPDATE sys_http_delivery d SET status = o.status,
        attempts = CASE WHEN o.released THEN d.attempts ELSE o.attempts END,
        next_retry_at = CASE WHEN o.released THEN d.next_retry_at
            WHEN o.status = 'pending' THEN LEAST(clock.now + o.retry_in, COALESCE(d.expires_at, 9223372036854775807)) END,
        last_attempted_at = CASE WHEN o.ago >= 0 THEN clock.now - o.ago ELSE d.last_attempted_at END,
        signature = CASE WHEN o.signature <> '' THEN o.signature ELSE d.signature END,
        response_code = CASE WHEN o.released THEN d.response_code ELSE NULLIF(o.code, 0) END,
        response_body = CASE WHEN o.released THEN d.response_body WHEN o.code <> 0 THEN o.body END,
        response_truncated = CASE WHEN o.released THEN d.response_truncated ELSE o.truncated END,
        error = CASE WHEN o.released THEN d.error ELSE NULLIF(o.error, '') END,
        parked = CASE WHEN o.released THEN d.parked ELSE o.parked END,
        crash_count = CASE WHEN o.released THEN d.crash_count ELSE 0 END,
        finished_at = CASE WHEN o.status <> 'pending' THEN clock.now END, ended_as = NULLIF(o.status, 'pending'),
        sent_alone = FALSE, claimed_by = NULL, claimed_at = NULL, claim_token = NULL, claim_expires_at = NULL, updated_at = clock.now
    FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bool[], $7::bigint[], $8::text[],
        $9::bigint[], $10::text[], $11::bool[], $12::text[], $13::bool[])
        AS o(id, token, status, attempts, retry_in, released, ago, signature, code, body, truncated, error, parked)
    CROSS JOIN clock
    WHERE d.id = o.id AND d.claim_token = o.token AND d.status = 'in_flight' AND {bounded}
    RETURNING d.id
), tried AS (
    INSERT INTO sys_http_attempt (id, delivery_id, round, attempt, node, started_at, duration_us, dns_us, connect_us, tls_us,
        first_byte_us, remote_addr, request_headers, response_code, response_headers, response_body, response_truncated,
        location_host, error_class, error, organization_id, created_at, updated_at)
    SELECT a.id, a.delivery_id, a.round, a.attempt, NULLIF(a.node, ''), clock.now - a.ago, a.duration, a.dns, a.connect, a.tls,
        a.first_byte, NULLIF(a.remote, ''), NULLIF(a.request_headers, ''), NULLIF(a.code, 0), NULLIF(a.response_headers, ''),
        CASE WHEN a.code <> 0 THEN a.body END, a.truncated, NULLIF(a.location, ''), NULLIF(a.class, ''), NULLIF(a.error, ''),
        NULLIF(a.organization_id, ''), clock.now, clock.now
    FROM unnest($14::text[], $15::text[], $16::bigint[], $17::bigint[], $18::text[], $19::bigint[], $20::bigint[], $21::bigint[],
        $22::bigint[], $23::bigint[], $24::bigint[], $25::text[], $26::text[], $27::bigint[], $28::text[], $29::text[],
        $30::bool[], $31::text[], $32::text[], $33::text[], $34::text[])
        AS a(id, delivery_id, round, attempt, node, ago, duration, dns, connect, tls, first_byte, remote, request_headers, code,
        response_headers, body, truncated, location, class, error, organization_id)
    CROSS JOIN clock JOIN saved ON saved.id = a.delivery_id
    ON CONFLICT (id) DO NOTHING
)
SELECT id FROM saved`

func (p *postgres) record(ctx context.Context, outcomes []driver.Outcome) (map[string]bool, error) {
	var attempts []*driver.Attempt
	for i := range outcomes {
		if a := outcomes[i].Attempt; a != nil {
			attempts = append(attempts, a)
		}
	}
	args := append(outcomeArrays(outcomes), attemptArrays(attempts)...)
	rows, err := p.s.db.Write(ctx).QueryContext(ctx, p.saveSQL, p.s.db.Hot(args...)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	applied := make(map[string]bool, len(outcomes))
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		applied[id] = true
	}
	return applied, rows.Err()
}

func outcomeArrays(outcomes []driver.Outcome) []any {
	type outcome = driver.Outcome
	text := func(of func(*outcome) string) []string {
		return columnOf(outcomes, func(o outcome) string { return of(&o) })
	}
	number := func(of func(*outcome) int64) []int64 {
		return columnOf(outcomes, func(o outcome) int64 { return of(&o) })
	}
	flag := func(of func(*outcome) bool) []bool { return columnOf(outcomes, func(o outcome) bool { return of(&o) }) }
	return []any{
		text(func(o *outcome) string { return o.ID }), text(func(o *outcome) string { return o.Token }),
		text(func(o *outcome) string { return string(o.Status) }), number(func(o *outcome) int64 { return int64(o.Attempts) }),
		number(func(o *outcome) int64 { return o.RetryIn.Milliseconds() }), flag(func(o *outcome) bool { return o.Released }),
		number(startedAgo), text(func(o *outcome) string { return o.Signature }),
		number(func(o *outcome) int64 { return int64(o.ResponseCode) }), text(func(o *outcome) string { return o.ResponseBody }),
		flag(func(o *outcome) bool { return o.ResponseTruncated }), text(func(o *outcome) string { return o.Error }),
		flag(func(o *outcome) bool { return o.Parked }),
	}
}

// startedAgo is the age of an outcome's attempt in milliseconds, -1 for none.
func startedAgo(o *driver.Outcome) int64 {
	if o.Attempt == nil {
		return -1
	}
	return o.Attempt.StartedAgo.Milliseconds()
}

func attemptArrays(attempts []*driver.Attempt) []any {
	type attempt = driver.Attempt
	text := func(of func(*attempt) string) []string { return columnOf(attempts, of) }
	number := func(of func(*attempt) int64) []int64 { return columnOf(attempts, of) }
	return []any{
		text(attemptID), text(func(a *attempt) string { return a.DeliveryID }),
		number(func(a *attempt) int64 { return int64(a.Round) }), number(func(a *attempt) int64 { return int64(a.Attempt) }),
		text(func(a *attempt) string { return a.Node }), number(func(a *attempt) int64 { return a.StartedAgo.Milliseconds() }),
		number(func(a *attempt) int64 { return a.Duration.Microseconds() }), number(func(a *attempt) int64 { return a.DNS.Microseconds() }),
		number(func(a *attempt) int64 { return a.Connect.Microseconds() }), number(func(a *attempt) int64 { return a.TLS.Microseconds() }),
		number(func(a *attempt) int64 { return a.FirstByte.Microseconds() }), text(func(a *attempt) string { return a.RemoteAddr }),
		text(func(a *attempt) string { return a.RequestHeaders }), number(func(a *attempt) int64 { return int64(a.ResponseCode) }),
		text(func(a *attempt) string { return a.ResponseHeaders }), text(func(a *attempt) string { return a.ResponseBody }),
		columnOf(attempts, func(a *attempt) bool { return a.Truncated }), text(func(a *attempt) string { return a.LocationHost }),
		text(func(a *attempt) string { return a.ErrorClass }), text(func(a *attempt) string { return a.Error }),
		text(func(a *attempt) string { return a.OrganizationID }),
	}
}
