package messaging

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/storage"
)

// Limits of a [Request].
const (
	maxSource   = 32
	maxDedupKey = 191
	minTimeout  = time.Second
	maxTimeout  = 300 * time.Second
	// DefaultTimeout bounds an attempt of a request without a timeout.
	DefaultTimeout = 15 * time.Second
)

// Enqueue stores one delivery. See [Service.EnqueueBatch].
func (s *Service) Enqueue(ctx context.Context, req Request) (Enqueued, error) {
	out, err := s.EnqueueBatch(ctx, []Request{req})
	if err != nil {
		return Enqueued{}, err
	}
	return out[0], nil
}

// EnqueueBatch stores deliveries in one statement, and returns what became of
// each in the order of reqs. It joins the transaction of ctx, so that the
// deliveries commit or roll back with the caller's own rows. Without one it
// returns once the deliveries are committed; calls of several goroutines then
// share commits, and each gets its own result.
//
// A request whose dedup key exists, in the table or earlier in reqs, is not
// stored again. It returns a *[RequestError], and stores nothing, when a
// request could never be delivered.
func (s *Service) EnqueueBatch(ctx context.Context, reqs []Request) ([]Enqueued, error) {
	if len(reqs) == 0 {
		return nil, nil
	}
	rows := make([]*driver.Row, len(reqs))
	for i := range reqs {
		row, err := s.rowOf(&reqs[i])
		if err != nil {
			return nil, err
		}
		rows[i] = row
	}
	if !storage.InTransaction(ctx) {
		return s.group.submit(ctx, rows)
	}
	return s.insert(ctx, rows)
}

// SealHeaders returns a request's headers as [Request.Sealed] takes them.
func (s *Service) SealHeaders(headers map[string]string) (string, error) {
	if len(headers) == 0 {
		return "", nil
	}
	if err := ValidateHeaders(headers); err != nil {
		return "", &RequestError{Field: "Headers", Reason: err.Error(), Err: err}
	}
	if s.cfg.Sealer == nil {
		return "", ErrNoSealer
	}
	plain, err := json.Marshal(headers)
	if err != nil {
		return "", err
	}
	return s.cfg.Sealer.Seal(plain, aadHeaders)
}

// insert stores rows in ctx's transaction. Rows that can be sent here and now
// are stored as claimed and sent after the commit, which saves a claim.
func (s *Service) insert(ctx context.Context, rows []*driver.Row) ([]Enqueued, error) {
	if err := s.resolveTargets(ctx, rows); err != nil {
		return nil, err
	}
	reserved := s.dispatch.reserve(ctx, rows)
	done, err := s.cfg.Store.Insert(ctx, rows, driver.Terms{Hold: s.cfg.hold(), Token: reserved.lease})
	if err != nil {
		reserved.release(rows...)
		return nil, fmt.Errorf("enqueue deliveries: %w", err)
	}
	out := make([]Enqueued, len(rows))
	var waiting []*driver.Row
	for i, d := range done {
		out[i] = Enqueued{ID: d.ID, New: d.New}
		if d.Claimed {
			continue
		}
		reserved.release(rows[i])
		if d.New && rows[i].Status != StatusDead {
			waiting = append(waiting, rows[i])
		}
	}
	storage.OnRollback(ctx, func() { reserved.release(rows...) })
	storage.OnCommitUnknown(ctx, reserved.unknown)
	storage.AfterCommit(ctx, func(context.Context) { reserved.committed(waiting) })
	return out, nil
}

// resolveTargets fills TargetID and what depends on it, and creates targets
// that do not exist yet.
func (s *Service) resolveTargets(ctx context.Context, rows []*driver.Row) error {
	ids := make(map[driver.TargetKey]int64)
	var unknown []driver.TargetKey
	s.mu.Lock()
	for _, r := range rows {
		key := driver.TargetKey{Source: r.Source, Key: r.TargetKey, OrganizationID: r.OrganizationID}
		if _, seen := ids[key]; seen {
			continue
		}
		ids[key] = s.targets[key]
		if ids[key] == 0 {
			unknown = append(unknown, key)
		}
	}
	s.mu.Unlock()
	if len(unknown) > 0 {
		found, err := s.cfg.Store.Targets(ctx, nil, unknown)
		if err != nil {
			return fmt.Errorf("find targets: %w", err)
		}
		for _, t := range found {
			ids[driver.TargetKey{Source: t.Source, Key: t.Key, OrganizationID: t.OrganizationID}] = t.ID
		}
		for _, key := range unknown {
			if ids[key] != 0 {
				continue
			}
			t := driver.Target{Source: key.Source, Key: key.Key, OrganizationID: key.OrganizationID, State: TargetActive}
			if err := s.cfg.Store.PutTarget(ctx, &t, true); err != nil {
				return fmt.Errorf("put target: %w", err)
			}
			ids[key] = t.ID
		}
		storage.AfterCommit(ctx, func(context.Context) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, key := range unknown {
				s.targets[key] = ids[key]
			}
		})
	}
	for _, r := range rows {
		r.TargetID = ids[driver.TargetKey{Source: r.Source, Key: r.TargetKey, OrganizationID: r.OrganizationID}]
		r.OrderKey = orderKey(r.TargetID, r.OrderingKey)
	}
	return nil
}

// rowOf checks a request and makes its row.
func (s *Service) rowOf(req *Request) (*driver.Row, error) {
	bad := func(field, reason string, err error) (*driver.Row, error) {
		return nil, &RequestError{Field: field, Reason: reason, Err: err}
	}
	method := strings.ToUpper(req.Method)
	def(&method, "POST")
	timeout := req.Timeout
	def(&timeout, DefaultTimeout)
	switch {
	case req.Source == "" || len(req.Source) > maxSource:
		return bad("Source", fmt.Sprintf("must have 1 to %d bytes", maxSource), nil)
	case len(req.DedupKey) > maxDedupKey:
		return bad("DedupKey", fmt.Sprintf("has %d bytes, at most %d", len(req.DedupKey), maxDedupKey), nil)
	case timeout < minTimeout || timeout > maxTimeout:
		return bad("Timeout", fmt.Sprintf("%s is outside %s to %s", timeout, minTimeout, maxTimeout), nil)
	case len(req.Payload) > s.cfg.MaxPayload:
		return bad("Payload", fmt.Sprintf("has %d bytes, at most %d", len(req.Payload), s.cfg.MaxPayload), nil)
	case !utf8.Valid(req.Payload) || bytes.IndexByte(req.Payload, 0) >= 0:
		return bad("Payload", "must be UTF-8 text without NUL bytes", nil)
	case req.ExpireAfter < 0:
		return bad("ExpireAfter", "must not be negative", nil)
	}
	for _, text := range []struct{ field, value string }{
		{"Source", req.Source}, {"RefID", req.RefID}, {"TargetKey", req.TargetKey}, {"DedupKey", req.DedupKey},
		{"Label", req.Label}, {"OrganizationID", req.OrganizationID}, {"EventID", req.EventID},
		{"RunID", req.RunID}, {"StepID", req.StepID}, {"OrderingKey", req.OrderingKey}, {"Parked", req.Parked},
	} {
		if !utf8.ValidString(text.value) || strings.IndexByte(text.value, 0) >= 0 {
			return bad(text.field, "must be UTF-8 text without NUL bytes", nil)
		}
	}
	if err := ValidateURL(req.URL); err != nil {
		return bad("URL", err.Error(), err)
	}
	if err := ValidateMethod(method); err != nil {
		return bad("Method", err.Error(), err)
	}
	row := &driver.Row{
		ID: newID(), Source: req.Source, RefID: req.RefID, TargetKey: req.TargetKey,
		DedupKey: req.DedupKey, Label: req.Label, URL: req.URL, Method: method,
		TimeoutMillis: timeout.Milliseconds(), Payload: req.Payload, PayloadSize: len(req.Payload),
		Status: StatusPending, OrderSeq: req.OrderSeq, OrderingKey: req.OrderingKey,
		BlockOnRetry: req.BlockOnRetry, NotifyFinished: req.NotifyFinished,
		ExpiresAt: req.ExpireAfter.Milliseconds(), EventID: req.EventID, RunID: req.RunID,
		StepID: req.StepID, OrganizationID: req.OrganizationID, HeadersSealed: req.Sealed,
	}
	def(&row.TargetKey, req.RefID)
	def(&row.TargetKey, "default")
	def(&row.DedupKey, row.ID)
	if row.OrderSeq == 0 {
		row.OrderSeq = nextOrder()
	}
	partitionKey := req.OrderingKey
	def(&partitionKey, row.ID)
	row.Partition = event.Partition(partitionKey)
	if req.Parked != "" {
		row.Status, row.Parked, row.Error = StatusDead, true, req.Parked
		return row, nil
	}
	var err error
	if row.HeadersSealed == "" {
		if row.HeadersSealed, err = s.SealHeaders(req.Headers); err != nil {
			return nil, err
		}
	}
	if len(req.Secret) > 0 {
		if s.cfg.Sealer == nil {
			return nil, ErrNoSealer
		}
		row.SecretSealed, err = s.cfg.Sealer.Seal(req.Secret, aadSecret)
	}
	return row, err
}

// newID returns a UUID of version 7: ids sort by time.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

var lastOrder atomic.Int64

// nextOrder numbers enqueued rows without an order of their own: microseconds
// of the clock, strictly growing within the process.
func nextOrder() int64 {
	for {
		last := lastOrder.Load()
		next := max(last+1, time.Now().UnixMicro())
		if lastOrder.CompareAndSwap(last, next) {
			return next
		}
	}
}
