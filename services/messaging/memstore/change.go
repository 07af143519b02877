package memstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/storage"
)

// Record implements [driver.Store].
func (s *Store) Record(ctx context.Context, outcomes []driver.Outcome, touches []driver.Touch) (applied []bool, err error) {
	err = s.do(ctx, func(ctx context.Context, now int64) {
		applied = make([]bool, len(outcomes))
		for i := range outcomes {
			o := &outcomes[i]
			r := s.rows[o.ID]
			if r == nil || r.Status != driver.InFlight || r.ClaimToken != o.Token {
				continue
			}
			applied[i] = true
			s.set(ctx, after(r, o, now))
			if a := o.Attempt; a != nil {
				s.addAttempt(ctx, a, now)
			}
		}
		for _, t := range touches {
			s.touch(ctx, t, now)
		}
	})
	return applied, err
}

// after is the row as an outcome leaves it.
func after(r *driver.Row, o *driver.Outcome, now int64) *driver.Row {
	n := clone(r)
	n.Status, n.UpdatedAt, n.SentAlone = o.Status, now, false
	n.ClaimedBy, n.ClaimedAt, n.ClaimToken, n.ClaimExpiresAt = "", 0, "", 0
	if o.Released {
		return n
	}
	n.Attempts, n.CrashCount, n.Parked, n.Error = o.Attempts, 0, o.Parked, o.Error
	n.NextRetryAt, n.FinishedAt = 0, 0
	if o.Status == driver.Pending {
		n.NextRetryAt = now + o.RetryIn.Milliseconds()
		if r.ExpiresAt != 0 {
			n.NextRetryAt = min(n.NextRetryAt, r.ExpiresAt)
		}
	} else {
		n.FinishedAt = now
	}
	if o.Attempt != nil {
		n.LastAttemptAt = now - o.Attempt.StartedAgo.Milliseconds()
	}
	if o.Signature != "" {
		n.Signature = o.Signature
	}
	n.ResponseCode, n.ResponseTruncated, n.ResponseBody = o.ResponseCode, o.ResponseTruncated, ""
	if o.ResponseCode != 0 {
		n.ResponseBody = o.ResponseBody
	}
	return n
}

func (s *Store) addAttempt(ctx context.Context, a *driver.Attempt, now int64) {
	old := s.attempts[a.DeliveryID]
	for _, have := range old {
		if have.Round == a.Round && have.Attempt == a.Attempt {
			return
		}
	}
	n := *a
	n.StartedAt = now - a.StartedAgo.Milliseconds()
	n.Began, n.StartedAgo = time.Time{}, 0
	for _, d := range []*time.Duration{&n.Duration, &n.DNS, &n.Connect, &n.TLS, &n.FirstByte} {
		*d = d.Truncate(time.Microsecond)
	}
	s.attempts[a.DeliveryID] = append(slices.Clip(old), n)
	storage.OnRollback(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.attempts[a.DeliveryID] = old
	})
}

func (s *Store) touch(ctx context.Context, t driver.Touch, now int64) {
	old := s.targets[t.TargetID]
	if old == nil {
		return
	}
	n := *old
	switch {
	case t.HoldReason != "":
		if old.State != driver.TargetActive {
			return
		}
		n.State, n.Reason, n.Version = driver.TargetHeld, t.HoldReason, n.Version+1
		n.FailingSince = firstOf(n.FailingSince, now)
	case t.Failing:
		n.FailingSince = firstOf(n.FailingSince, now)
	default:
		n.LastSuccessAt, n.FailingSince = now, 0
	}
	n.UpdatedAt = now
	s.setTarget(ctx, &n)
}

func firstOf(set, now int64) int64 {
	if set != 0 {
		return set
	}
	return now
}

func (s *Store) setTarget(ctx context.Context, t *driver.Target) {
	old := s.targets[t.ID]
	s.targets[t.ID] = t
	storage.OnRollback(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if old != nil {
			s.targets[t.ID] = old
		} else {
			delete(s.targets, t.ID)
		}
	})
}

// Expire implements [driver.Store].
func (s *Store) Expire(ctx context.Context, all bool, deadAt, limit int) (requeued int, dead []*driver.Row, err error) {
	err = s.do(ctx, func(ctx context.Context, now int64) {
		for _, r := range s.rows {
			if requeued+len(dead) == limit {
				return
			}
			if r.Status != driver.InFlight || !all && r.ClaimExpiresAt > now {
				continue
			}
			n := clone(r)
			if r.CrashCount < driver.AloneAt || r.SentAlone {
				n.CrashCount++
			}
			n.Status, n.UpdatedAt, n.SentAlone = driver.Pending, now, false
			n.ClaimedBy, n.ClaimedAt, n.ClaimToken, n.ClaimExpiresAt = "", 0, "", 0
			if n.CrashCount >= deadAt {
				n.Status, n.FinishedAt = driver.Dead, now
				n.Error = fmt.Sprintf("the host ended abnormally %d times while sending this delivery", n.CrashCount)
				dead = append(dead, clone(n))
			} else {
				requeued++
			}
			s.set(ctx, n)
		}
	})
	return requeued, dead, err
}

// Edit implements [driver.Store].
func (s *Store) Edit(ctx context.Context, e driver.Edit) (row *driver.Row, applied bool, err error) {
	err = s.do(ctx, func(ctx context.Context, now int64) {
		r := s.rows[e.ID]
		if r == nil || e.Scoped && r.OrganizationID != e.OrganizationID {
			return
		}
		row = clone(r)
		if !slices.Contains(e.From, r.Status) {
			return
		}
		n := clone(r)
		n.UpdatedAt = now
		if e.Alone {
			n.SentAlone = true
			s.set(ctx, n)
			row, applied = clone(n), true
			return
		}
		n.NextRetryAt = 0
		if e.Redeliver {
			n.Status, n.Attempts, n.CrashCount, n.OrderKey, n.BlockOnRetry = driver.Pending, 0, 0, 0, false
			n.Round++
			n.ExpiresAt, n.FinishedAt, n.Error, n.ResponseCode, n.ResponseBody = 0, 0, "", 0, ""
			n.ResponseTruncated, n.Parked = false, false
		} else {
			n.Status, n.Error, n.FinishedAt = e.Status, e.Error, now
		}
		if e.Replace {
			n.URL, n.Method, n.HeadersSealed, n.TimeoutMillis = e.URL, e.Method, e.HeadersSealed, e.TimeoutMillis
		}
		s.set(ctx, n)
		row, applied = clone(n), true
	})
	return row, applied, err
}

// PutTarget implements [driver.Store].
func (s *Store) PutTarget(ctx context.Context, t *driver.Target, keep bool) error {
	return s.do(ctx, func(ctx context.Context, now int64) {
		var old *driver.Target
		for _, o := range s.targets {
			if o.Source == t.Source && o.Key == t.Key && o.OrganizationID == t.OrganizationID {
				old = o
			}
		}
		if old != nil && keep {
			t.ID, t.Version = old.ID, old.Version
			return
		}
		n := *t
		n.ID, n.Version, n.UpdatedAt, n.FailingSince, n.LastSuccessAt = int64(len(s.targets)+1), 1, now, 0, 0
		if old != nil {
			n.ID, n.Version, n.LastSuccessAt = old.ID, old.Version+1, old.LastSuccessAt
			if n.State != driver.TargetActive || old.State == driver.TargetActive {
				n.FailingSince = old.FailingSince
			}
		}
		t.ID, t.Version = n.ID, n.Version
		s.setTarget(ctx, &n)
	})
}

// Targets implements [driver.Store].
func (s *Store) Targets(ctx context.Context, ids []int64, keys []driver.TargetKey) (out []*driver.Target, err error) {
	err = s.do(ctx, func(context.Context, int64) {
		for _, t := range s.targets {
			key := driver.TargetKey{Source: t.Source, Key: t.Key, OrganizationID: t.OrganizationID}
			if slices.Contains(ids, t.ID) || len(ids) == 0 && slices.Contains(keys, key) {
				n := *t
				out = append(out, &n)
			}
		}
	})
	return out, err
}

// Sweep implements [driver.Store].
func (s *Store) Sweep(ctx context.Context, limit int) (out []*driver.Row, err error) {
	err = s.do(ctx, func(ctx context.Context, now int64) {
		for _, r := range s.rows {
			t := s.targets[r.TargetID]
			if len(out) == limit || r.Status != driver.Pending || t == nil || t.State != driver.TargetGone {
				continue
			}
			n := clone(r)
			n.Status, n.FinishedAt, n.UpdatedAt, n.NextRetryAt = driver.Failed, now, now, 0
			if n.Error = t.Reason; n.Error == "" {
				n.Error = "the target no longer exists"
			}
			s.set(ctx, n)
			out = append(out, clone(n))
		}
	})
	return out, err
}

// Clean implements [driver.Store]. It looks at all rows at once.
func (s *Store) Clean(ctx context.Context, c driver.Clean) (done driver.Cleaned, err error) {
	done.Done = true
	err = s.do(ctx, func(ctx context.Context, now int64) {
		for id, r := range s.rows {
			if r.FinishedAt == 0 || r.FinishedAt >= now-c.Keep.Milliseconds() {
				continue
			}
			key, attempts := dedup{r.Source, r.OrganizationID, r.DedupKey}, s.attempts[id]
			delete(s.rows, id)
			delete(s.byKey, key)
			delete(s.attempts, id)
			storage.OnRollback(ctx, func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.rows[id], s.byKey[key], s.attempts[id] = r, id, attempts
			})
			done.Removed++
		}
	})
	return done, err
}
