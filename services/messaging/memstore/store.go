// Package memstore keeps the outbox in memory, for tests and for programs that
// may lose it. It behaves as the SQL stores do, rollbacks included.
package memstore

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/storage"
)

// Store implements [driver.Store]. Its transactions are those of the
// [storage.Memory] that it is made with, which runs one at a time. It is safe
// for concurrent use.
type Store struct {
	tx  *storage.Memory
	now func() time.Time

	mu       sync.Mutex
	rows     map[string]*driver.Row
	byKey    map[dedup]string
	attempts map[string][]driver.Attempt
	targets  map[int64]*driver.Target
}

type dedup struct{ source, organization, key string }

var _ driver.Store = (*Store)(nil)

// New returns an empty store. now is its clock; nil means time.Now.
func New(tx *storage.Memory, now func() time.Time) *Store {
	if now == nil {
		now = time.Now
	}
	return &Store{
		tx: tx, now: now, rows: make(map[string]*driver.Row), byKey: make(map[dedup]string),
		attempts: make(map[string][]driver.Attempt), targets: make(map[int64]*driver.Target),
	}
}

// do runs fn in a transaction with the store locked.
func (s *Store) do(ctx context.Context, fn func(ctx context.Context, now int64)) error {
	return s.tx.InTx(ctx, func(ctx context.Context) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		fn(ctx, s.now().UnixMilli())
		return nil
	})
}

// set replaces a row and takes that back when the transaction rolls back.
func (s *Store) set(ctx context.Context, r *driver.Row) {
	old := s.rows[r.ID]
	s.rows[r.ID] = r
	key := dedup{r.Source, r.OrganizationID, r.DedupKey}
	s.byKey[key] = r.ID
	storage.OnRollback(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if old != nil {
			s.rows[r.ID] = old
			return
		}
		delete(s.rows, r.ID)
		delete(s.byKey, key)
	})
}

// Insert implements [driver.Store].
func (s *Store) Insert(ctx context.Context, rows []*driver.Row, terms driver.Terms) (out []driver.Inserted, err error) {
	err = s.do(ctx, func(ctx context.Context, now int64) {
		out = make([]driver.Inserted, len(rows))
		for i, r := range rows {
			if id, exists := s.byKey[dedup{r.Source, r.OrganizationID, r.DedupKey}]; exists {
				out[i] = driver.Inserted{ID: id}
				continue
			}
			n := clone(r)
			n.CreatedAt, n.UpdatedAt = now, now
			if r.ExpiresAt > 0 {
				n.ExpiresAt = now + r.ExpiresAt
			}
			claimed := r.Status == driver.InFlight && s.active(r.TargetID) && !s.keyBusy(r)
			switch {
			case claimed:
				n.ClaimedAt, n.ClaimExpiresAt = now, now+r.TimeoutMillis+terms.Hold.Milliseconds()
			case r.Status == driver.InFlight:
				n.Status, n.ClaimToken, n.ClaimedBy = driver.Pending, "", ""
			case r.Status.Terminal():
				n.FinishedAt = now
			}
			s.set(ctx, n)
			out[i] = driver.Inserted{ID: r.ID, New: true, Claimed: claimed}
		}
	})
	return out, err
}

func clone(r *driver.Row) *driver.Row {
	n := *r
	n.Payload = slices.Clone(r.Payload)
	n.PayloadSize = len(n.Payload)
	n.OrderingKey = ""
	return &n
}

func (s *Store) active(target int64) bool {
	t := s.targets[target]
	return t != nil && t.State == driver.TargetActive
}

// keyBusy tells whether another row of the ordering key goes before a row: one
// in flight, or one that was never tried, or any unfinished one when the row
// blocks on retry.
func (s *Store) keyBusy(row *driver.Row) bool {
	if row.OrderKey == 0 {
		return false
	}
	for _, r := range s.rows {
		if r.OrderKey == row.OrderKey && (r.Status == driver.InFlight ||
			r.Status == driver.Pending && (r.NextRetryAt == 0 || row.BlockOnRetry && r.BlockOnRetry)) {
			return true
		}
	}
	return false
}

// Claim implements [driver.Store].
func (s *Store) Claim(ctx context.Context, req driver.ClaimRequest) (out []*driver.Row, err error) {
	err = s.do(ctx, func(ctx context.Context, now int64) {
		for _, want := range req.Wants {
			if !s.active(want.TargetID) {
				continue
			}
			first := s.due(want.TargetID, func(r *driver.Row) bool { return r.NextRetryAt == 0 && s.inTurn(r, req.Node) })
			again := s.due(want.TargetID, func(r *driver.Row) bool { return r.NextRetryAt > 0 && r.NextRetryAt <= now })
			picked := slices.Concat(first[:min(want.First, len(first))], again[:min(want.Retry, len(again))])
			slices.SortStableFunc(picked, func(a, b *driver.Row) int { return cmp.Compare(a.OrderSeq, b.OrderSeq) })
			for _, r := range picked {
				n := clone(r)
				n.Status, n.ClaimedBy, n.ClaimToken = driver.InFlight, req.Node, req.Token
				n.ClaimedAt, n.ClaimExpiresAt, n.UpdatedAt = now, now+r.TimeoutMillis+req.Hold.Milliseconds(), now
				s.set(ctx, n)
				got := clone(n)
				got.TargetVersion = s.targets[want.TargetID].Version
				got.Expired = r.ExpiresAt != 0 && r.ExpiresAt <= now
				if got.PayloadSize > driver.MaxClaimedPayload {
					got.Payload = nil
				}
				out = append(out, got)
			}
		}
	})
	return out, err
}

// due lists the waiting rows of a target in the order of the due index.
func (s *Store) due(target int64, match func(*driver.Row) bool) []*driver.Row {
	var rows []*driver.Row
	for _, r := range s.rows {
		if r.TargetID == target && r.Status == driver.Pending && match(r) && !s.blocked(r) {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b *driver.Row) int {
		return cmp.Or(cmp.Compare(a.NextRetryAt, b.NextRetryAt), cmp.Compare(a.OrderSeq, b.OrderSeq))
	})
	return rows
}

// blocked tells whether an earlier unfinished row of the ordering key holds
// back a row that blocks on retry.
func (s *Store) blocked(r *driver.Row) bool {
	if !r.BlockOnRetry || r.OrderKey == 0 {
		return false
	}
	for _, o := range s.rows {
		if o.BlockOnRetry && o.OrderKey == r.OrderKey && !o.Status.Terminal() && o.OrderSeq < r.OrderSeq {
			return true
		}
	}
	return false
}

// inTurn tells that no earlier row of the ordering key is in flight on another
// node.
func (s *Store) inTurn(r *driver.Row, node string) bool {
	for _, o := range s.rows {
		if r.OrderKey != 0 && o.OrderKey == r.OrderKey && o.Status == driver.InFlight && o.OrderSeq < r.OrderSeq && o.ClaimedBy != node {
			return false
		}
	}
	return true
}

// Outlook implements [driver.Store].
func (s *Store) Outlook(ctx context.Context, _ driver.View) (out driver.Outlook, err error) {
	err = s.do(ctx, func(_ context.Context, now int64) {
		due := make(map[int64]int64)
		for _, r := range s.rows {
			if r.Status != driver.Pending {
				continue
			}
			if at, seen := due[r.TargetID]; !seen || r.NextRetryAt < at {
				due[r.TargetID] = r.NextRetryAt
			}
		}
		for id, at := range due {
			switch s.targets[id].State {
			case driver.TargetActive:
				out.Due = append(out.Due, driver.Due{TargetID: id, In: time.Duration(at-now) * time.Millisecond})
			case driver.TargetGone:
				out.Gone = true
			}
		}
		slices.SortFunc(out.Due, func(a, b driver.Due) int { return cmp.Compare(a.TargetID, b.TargetID) })
	})
	return out, err
}

// Claims implements [driver.Store].
func (s *Store) Claims(ctx context.Context, node string, _ bool) (out driver.Claims, err error) {
	err = s.do(ctx, func(_ context.Context, now int64) {
		for _, r := range s.rows {
			if r.Status != driver.InFlight || r.ClaimExpiresAt > now && r.ClaimedBy == node {
				continue
			}
			if in := time.Duration(r.ClaimExpiresAt-now) * time.Millisecond; !out.Some || in < out.EndIn {
				out.Some, out.EndIn = true, in
			}
		}
	})
	return out, err
}

// Get implements [driver.Store].
func (s *Store) Get(ctx context.Context, id string) (row *driver.Row, err error) {
	err = s.do(ctx, func(context.Context, int64) {
		if r := s.rows[id]; r != nil {
			row = clone(r)
		}
	})
	return row, err
}

// Attempts implements [driver.Store].
func (s *Store) Attempts(ctx context.Context, deliveryID string) (out []driver.Attempt, err error) {
	err = s.do(ctx, func(context.Context, int64) { out = slices.Clone(s.attempts[deliveryID]) })
	return out, err
}
