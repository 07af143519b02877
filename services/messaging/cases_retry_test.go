package messaging_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/messaging/messagingtest"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// retryWait is how long a row waits for its retry, as the database has it. Two
// readings of its clock in one statement may differ by some milliseconds.
func (b *bundle) retryWait(t *testing.T, id string) time.Duration {
	t.Helper()
	return time.Duration(b.number(t, `SELECT next_retry_at - updated_at FROM sys_http_delivery WHERE id = ?`, id)) * time.Millisecond
}

// rush makes a waiting retry due now, and wakes the dispatcher by a write of
// its target.
func (b *bundle) rush(t *testing.T, id string) {
	t.Helper()
	if n := b.exec(t, `UPDATE sys_http_delivery SET next_retry_at = 1 WHERE id = ? AND status = 'pending'`, id); n != 1 {
		t.Fatalf("delivery %s does not wait", id)
	}
	b.resume(t)
}

func TestCase_RTY_01_RowsHeedRetryAfter(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		const own, day = time.Second, 24 * time.Hour
		soon := time.Now().UTC().Add(90 * time.Second)
		cases := []struct {
			headers  []string
			min, max time.Duration
		}{
			{nil, own * 8 / 10, own * 12 / 10}, {[]string{"120"}, 120 * time.Second, 121 * time.Second},
			{[]string{"0"}, own * 8 / 10, own * 12 / 10}, {[]string{"-5"}, own * 8 / 10, own * 12 / 10}, {[]string{"1.5"}, own * 8 / 10, own * 12 / 10},
			{[]string{"9999999999"}, day, day + time.Second}, {[]string{soon.Format(http.TimeFormat)}, 85 * time.Second, 91 * time.Second},
			{[]string{soon.Format(time.RFC850)}, own * 8 / 10, 91 * time.Second}, {[]string{"Thu, 01 Jan 1970 00:00:00 GMT"}, own * 8 / 10, own * 12 / 10},
			{[]string{"soon"}, own * 8 / 10, own * 12 / 10}, {[]string{"5", "60"}, 60 * time.Second, 61 * time.Second},
		}
		for _, code := range []int{429, 503} {
			var ids []string
			for i, c := range cases {
				path := fmt.Sprintf("/%d/%d", code, i)
				var lines []string
				for _, value := range c.headers {
					lines = append(lines, "Retry-After: "+value)
				}
				b.receiver.Handle(path, messagingtest.Status(code, "", lines...))
				req := b.request(path)
				req.RefID = path
				ids = append(ids, b.enqueue(t, req)[0].ID)
				if d := b.waitAttempt(t); d.Status != messaging.StatusPending {
					t.Errorf("%d with %q: %+v", code, c.headers, d)
				}
				if wait := b.retryWait(t, ids[i]); wait < c.min || wait > c.max {
					t.Errorf("%d with %q: the retry waits %s, want %s to %s", code, c.headers, wait, c.min, c.max)
				}
			}
		}
	})
}

func TestCase_RTY_02_JitterNeverUndercutsTheReceiver(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		b.receiver.Handle("/in", messagingtest.Status(503, "", "Retry-After: 300"))
		var reqs []messaging.Request
		for i := range 30 {
			req := b.request("/in")
			req.RefID = fmt.Sprintf("hook-%d", i)
			reqs = append(reqs, req)
		}
		got := b.enqueue(t, reqs...)
		for range reqs {
			b.waitAttempt(t)
		}
		for _, e := range got {
			if wait := b.retryWait(t, e.ID); wait < 300*time.Second-5*time.Millisecond {
				t.Errorf("the retry waits %s, the receiver asked for 300 s", wait)
			}
		}
	})
}

// The whole schedule: eight requests numbered 1 to 8, seven waits, then dead.
func TestCase_RTY_03_RowsWalkTheWholeSchedule(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		b.receiver.Handle("/in", messagingtest.Status(503, "no"))
		id := b.enqueue(t, b.request("/in"))[0].ID
		delays := []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour}
		for i, delay := range delays {
			b.waitAttempt(t)
			d := b.delivery(t, id)
			if d.Status != messaging.StatusPending || d.Attempts != i+1 || d.Error != "HTTP 503" {
				t.Fatalf("after attempt %d: %+v", i+1, d)
			}
			if wait := b.retryWait(t, id); wait < delay*8/10-time.Millisecond || wait > delay*12/10 {
				t.Errorf("after attempt %d the retry waits %s, want %s ± 20 %%", i+1, wait, delay)
			}
			b.rush(t, id)
		}
		b.waitAttempt(t)
		if d := b.delivery(t, id); d.Status != messaging.StatusDead || d.Attempts != 8 || d.Error != "HTTP 503" || !d.NextRetryAt.IsZero() || d.FinishedAt.IsZero() {
			t.Errorf("after the eighth attempt: %+v", d)
		}
		var numbers []string
		for _, r := range b.receiver.Requests() {
			numbers = append(numbers, r.Header.Get("X-Objectstack-Attempt"))
		}
		if got := strings.Join(numbers, " "); got != "1 2 3 4 5 6 7 8" {
			t.Errorf("attempt numbers on the wire: %s", got)
		}
		attempts, err := b.Attempts(t.Context(), id)
		if err != nil || len(attempts) != 8 {
			t.Errorf("%d attempts are recorded, %v", len(attempts), err)
		}
	})
}

func TestCase_RTY_05_RowsWithAbsurdAttempts(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		b.receiver.Handle("/in", messagingtest.Status(503, "no"))
		b.hold(t)
		ids := make(map[int64]string)
		for _, attempts := range []int64{7, 8, 50, 2147483647} {
			ids[attempts] = b.enqueue(t, b.request("/in"))[0].ID
			b.exec(t, `UPDATE sys_http_delivery SET attempts = ? WHERE id = ?`, attempts, ids[attempts])
		}
		b.resume(t)
		for attempts, id := range ids {
			if d := b.finished(t, id); d.Status != messaging.StatusDead || int64(d.Attempts) != attempts+1 || !d.NextRetryAt.IsZero() || d.Error != "HTTP 503" {
				t.Errorf("with %d attempts: %+v", attempts, d)
			}
		}
		if n := b.arrivals("/in"); n != 4 {
			t.Errorf("%d requests, want one each", n)
		}
	})
}

// The header decides, whatever happens to the body: one final state.
func TestCase_RTY_07_RowsEndInOneState(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		b.receiver.Handle("/in", messagingtest.Status(503, "first"), messagingtest.LyingLength(200, 50, "abc", false))
		req := b.request("/in")
		req.Timeout = time.Second
		id := b.enqueue(t, req)[0].ID
		b.waitAttempt(t)
		b.rush(t, id)
		b.waitAttempt(t)
		d := b.delivery(t, id)
		if d.Status != messaging.StatusSuccess || d.Error != "" || !d.NextRetryAt.IsZero() || d.ResponseCode != 200 || d.ResponseBody != "abc" || d.Attempts != 2 || d.FinishedAt.IsZero() {
			t.Errorf("delivery = %+v", d)
		}
		if n := b.number(t, `SELECT COUNT(*) FROM sys_http_delivery WHERE id = ? AND error IS NULL AND next_retry_at IS NULL AND claim_token IS NULL AND claim_expires_at IS NULL`, id); n != 1 {
			t.Error("the row keeps something of its failure or claim")
		}
	})
}

// Each retry leaves when it is due, not when the store is next looked at.
func TestRetriesOfOneTargetLeaveWhenTheyAreDue(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db, func(c *messaging.Config) { c.PollInterval = time.Minute })
		var ids []string
		for i := range 6 {
			path := fmt.Sprintf("/%d", i)
			b.receiver.Handle(path, messagingtest.Status(503, ""), messagingtest.Status(200, ""))
			ids = append(ids, b.enqueue(t, b.request(path))[0].ID)
		}
		for range 2 * len(ids) {
			b.waitAttempt(t)
		}
		for _, id := range ids {
			attempts, err := b.Attempts(t.Context(), id)
			if err != nil || len(attempts) != 2 {
				t.Fatalf("attempts = %+v, %v", attempts, err)
			}
			wait := time.Duration(attempts[1].StartedAt-attempts[0].StartedAt) * time.Millisecond
			if wait < 800*time.Millisecond || wait > 3*time.Second {
				t.Errorf("the retry left %s after the first attempt, want about 1 s", wait)
			}
		}
	})
}

// A record's later state may overtake an earlier one that is tried again,
// unless its target blocks on retry.
func TestCase_FAI_04_LaterStatesAndRetries(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		for _, block := range []bool{false, true} {
			before := len(b.receiver.Requests())
			b.receiver.Handle("/v1", messagingtest.Status(503, ""), messagingtest.Status(200, ""))
			var reqs []messaging.Request
			for i, path := range []string{"/v1", "/v2"} {
				req := b.request(path)
				req.OrderingKey, req.OrderSeq, req.BlockOnRetry = fmt.Sprint("key", block), int64(i+1), block
				reqs = append(reqs, req)
			}
			b.enqueue(t, reqs...)
			for range 3 {
				b.waitAttempt(t)
			}
			var got []string
			for _, r := range b.receiver.Requests()[before:] {
				got = append(got, r.Path)
			}
			want := []string{"/v1", "/v2", "/v1"}
			if block {
				want = []string{"/v1", "/v1", "/v2"}
			}
			if !slices.Equal(got, want) {
				t.Errorf("block on retry %v: arrivals %v, want %v", block, got, want)
			}
		}
	})
}

func TestCase_FAI_05_UpdatesFollowTheirCreates(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		const pairs = 300
		for i := range pairs {
			for step, path := range []string{"/created", "/updated"} {
				req := b.request(fmt.Sprintf("%s/%d", path, i))
				req.OrderingKey, req.OrderSeq = fmt.Sprintf("record-%d", i), int64(2*i+step+1)
				b.enqueue(t, req)
			}
		}
		for range 2 * pairs {
			b.waitAttempt(t)
		}
		created := make(map[string]bool)
		for _, r := range b.receiver.Requests() {
			if id, ok := strings.CutPrefix(r.Path, "/created/"); ok {
				created[id] = true
			} else if id := strings.TrimPrefix(r.Path, "/updated/"); !created[id] {
				t.Errorf("record %s was updated before it was created", id)
			}
		}
		if len(created) != pairs {
			t.Errorf("%d records were created, want %d", len(created), pairs)
		}
	})
}
