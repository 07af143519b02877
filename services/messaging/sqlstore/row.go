package sqlstore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/objecthost/objecthost/services/messaging/driver"
)

// rowColumns are all columns of a delivery in the order of scanRow.
const rowColumns = `id, source, ref_id, target_key, target_id, dedup_key, label, url, method, headers_json, signature,
	signing_secret, timeout_ms, payload_json, partition_key, order_seq, order_key, block_on_retry, status, attempts,
	round, claimed_by, claimed_at, claim_token, claim_expires_at, crash_count, next_retry_at, last_attempted_at,
	response_code, response_body, response_truncated, error, parked, notify_finished, expires_at, finished_at,
	event_id, run_id, step_id, organization_id, created_at, updated_at`

// null scans a NULL as the zero value.
type null[T any] struct{ to *T }

func (n null[T]) Scan(src any) error {
	// The types that make up nearly all of a claim go without reflection.
	switch to := any(n.to).(type) {
	case *string:
		if v, ok := src.(string); ok || src == nil {
			*to = v
			return nil
		}
	case *int64:
		if v, ok := src.(int64); ok || src == nil {
			*to = v
			return nil
		}
	case *int:
		if v, ok := src.(int64); ok || src == nil {
			*to = int(v)
			return nil
		}
	}
	var v sql.Null[T]
	if err := v.Scan(src); err != nil {
		return err
	}
	*n.to = v.V
	return nil
}

func nil0[T any](to *T) null[T] { return null[T]{to} }

func scanRow(rows *sql.Rows, r *driver.Row) error {
	err := rows.Scan(&r.ID, &r.Source, nil0(&r.RefID), &r.TargetKey, &r.TargetID, &r.DedupKey, nil0(&r.Label), &r.URL, &r.Method,
		nil0(&r.HeadersSealed), nil0(&r.Signature), nil0(&r.SecretSealed), &r.TimeoutMillis, &r.Payload, &r.Partition,
		&r.OrderSeq, nil0(&r.OrderKey), &r.BlockOnRetry, &r.Status, &r.Attempts, &r.Round, nil0(&r.ClaimedBy),
		nil0(&r.ClaimedAt), nil0(&r.ClaimToken), nil0(&r.ClaimExpiresAt), &r.CrashCount, nil0(&r.NextRetryAt),
		nil0(&r.LastAttemptAt), nil0(&r.ResponseCode), nil0(&r.ResponseBody), &r.ResponseTruncated, nil0(&r.Error), &r.Parked,
		&r.NotifyFinished, nil0(&r.ExpiresAt), nil0(&r.FinishedAt), nil0(&r.EventID), nil0(&r.RunID), nil0(&r.StepID),
		nil0(&r.OrganizationID), &r.CreatedAt, &r.UpdatedAt)
	r.PayloadSize = len(r.Payload)
	return err
}

// scan reads all rows of a query over rowColumns.
func (s *Store) scan(rows *sql.Rows, err error) ([]*driver.Row, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []*driver.Row
	for rows.Next() {
		r := new(driver.Row)
		if err := scanRow(rows, r); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, rows.Err()
}

// Get implements [driver.Store].
func (s *Store) Get(ctx context.Context, id string) (*driver.Row, error) {
	return s.one(s.scan(s.db.Read(ctx).QueryContext(ctx, s.sql(`SELECT `+rowColumns+` FROM sys_http_delivery WHERE id = ?`), id)))
}

func (s *Store) one(rows []*driver.Row, err error) (*driver.Row, error) {
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows[0], nil
}

// Edit implements [driver.Store].
func (s *Store) Edit(ctx context.Context, e driver.Edit) (row *driver.Row, applied bool, err error) {
	set := `status = ?, ended_as = ?, error = ?, finished_at = {now}, next_retry_at = NULL, updated_at = {now}`
	args := []any{string(e.Status), string(e.Status), e.Error}
	if e.Redeliver {
		// Without an ordering key the row neither waits for others nor holds
		// them back; with none of its old outcome it reads as waiting.
		set = `status = 'pending', attempts = 0, round = round + 1, crash_count = 0, order_key = NULL, block_on_retry = FALSE,
			next_retry_at = NULL, expires_at = NULL, finished_at = NULL, ended_as = NULL, error = NULL, response_code = NULL,
			response_body = NULL, response_truncated = FALSE, parked = FALSE, updated_at = {now}`
		args = nil
	}
	if e.Alone {
		set, args = `sent_alone = TRUE, updated_at = {now}`, nil
	}
	if e.Replace {
		set += `, url = ?, method = ?, headers_json = NULLIF(?, ''), timeout_ms = ?`
		args = append(args, e.URL, e.Method, e.HeadersSealed, e.TimeoutMillis)
	}
	where := ` WHERE id = ? AND status IN (''`
	args = append(args, e.ID)
	for _, from := range e.From {
		where += `, ?`
		args = append(args, string(from))
	}
	where += `)`
	if e.Scoped {
		where += ` AND COALESCE(organization_id, '') = ?`
		args = append(args, e.OrganizationID)
	}
	query := s.sql(`UPDATE sys_http_delivery SET ` + set + where + ` RETURNING ` + rowColumns)
	row, err = s.one(s.scan(s.db.Write(ctx).QueryContext(ctx, query, args...)))
	if err != nil {
		return nil, false, fmt.Errorf("edit delivery: %w", err)
	}
	if row != nil {
		return row, true, nil
	}
	row, err = s.Get(ctx, e.ID)
	if row != nil && e.Scoped && row.OrganizationID != e.OrganizationID {
		row = nil
	}
	return row, false, err
}

const attemptColumns = `delivery_id, round, attempt, node, started_at, duration_us, dns_us, connect_us, tls_us, first_byte_us,
	remote_addr, request_headers, response_code, response_headers, response_body, response_truncated, location_host,
	error_class, error, organization_id`

// Attempts implements [driver.Store].
func (s *Store) Attempts(ctx context.Context, deliveryID string) ([]driver.Attempt, error) {
	low, high := attemptRange(deliveryID)
	rows, err := s.db.Read(ctx).QueryContext(ctx, s.sql(`SELECT `+attemptColumns+
		` FROM sys_http_attempt WHERE id >= ? AND id < ? ORDER BY id`), low, high)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []driver.Attempt
	for rows.Next() {
		var a driver.Attempt
		err := rows.Scan(&a.DeliveryID, &a.Round, &a.Attempt, nil0(&a.Node), &a.StartedAt, micros{&a.Duration}, micros{&a.DNS},
			micros{&a.Connect}, micros{&a.TLS}, micros{&a.FirstByte}, nil0(&a.RemoteAddr), nil0(&a.RequestHeaders),
			nil0(&a.ResponseCode), nil0(&a.ResponseHeaders), nil0(&a.ResponseBody), &a.Truncated, nil0(&a.LocationHost),
			nil0(&a.ErrorClass), nil0(&a.Error), nil0(&a.OrganizationID))
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, rows.Err()
}

// claimColumns are the columns of a claimed row in the order of claimScanner.
const claimColumns = `d.id, d.source, d.ref_id, d.target_key, d.target_id, d.label, d.url, d.method, d.headers_json, d.signing_secret,
	d.timeout_ms, CASE WHEN octet_length(d.payload_json) <= 65536 THEN d.payload_json END, octet_length(d.payload_json),
	d.partition_key, d.order_seq, d.order_key, d.block_on_retry, d.attempts, d.round, d.crash_count, d.notify_finished,
	COALESCE(d.expires_at <= {now}, FALSE), d.event_id, d.run_id, d.step_id, d.organization_id, d.created_at`

// claimScanner reads rows of claimColumns. It scans into one place and copies,
// so that the list of where to is made once for a claim.
type claimScanner struct {
	row  driver.Row
	more int64 // the column after those
	to   []any
}

// newClaimScanner returns a scanner of the rows of a claim, which have a number
// behind claimColumns.
func newClaimScanner(req driver.ClaimRequest) *claimScanner {
	c := &claimScanner{row: driver.Row{Status: driver.InFlight, ClaimToken: req.Token, ClaimedBy: req.Node}}
	r := &c.row
	c.to = []any{
		&r.ID, &r.Source, nil0(&r.RefID), &r.TargetKey, nil0(&r.TargetID), nil0(&r.Label), &r.URL, &r.Method, nil0(&r.HeadersSealed),
		nil0(&r.SecretSealed), nil0(&r.TimeoutMillis), &r.Payload, nil0(&r.PayloadSize), nil0(&r.Partition), nil0(&r.OrderSeq),
		nil0(&r.OrderKey), &r.BlockOnRetry, nil0(&r.Attempts), nil0(&r.Round), nil0(&r.CrashCount), &r.NotifyFinished, &r.Expired,
		nil0(&r.EventID), nil0(&r.RunID), nil0(&r.StepID), nil0(&r.OrganizationID), nil0(&r.CreatedAt), &c.more,
	}
	return c
}

func (c *claimScanner) scan(rows *sql.Rows) (*driver.Row, error) {
	c.row.Payload = nil
	if err := rows.Scan(c.to...); err != nil {
		return nil, err
	}
	r := c.row
	return &r, nil
}
