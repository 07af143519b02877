package messaging_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/messaging/messagingtest"
	"github.com/objecthost/objecthost/storage"
)

// The tests named TestCase_<KIND>_<NN>_… are the field cases of docs/cases.md.
// Those in the files cases_*_test.go take a case through the outbox: enqueued,
// claimed, sent, and read back from both databases.

// exec runs one statement on the database itself, as an operator or an older
// release would have written the rows. Placeholders are question marks.
func (b *bundle) exec(t *testing.T, query string, args ...any) int64 {
	t.Helper()
	res, err := b.db.Write(t.Context()).ExecContext(t.Context(), b.placeholders(query), args...)
	if err != nil {
		t.Fatal(err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// number reads one integer; NULL is -1.
func (b *bundle) number(t *testing.T, query string, args ...any) int64 {
	t.Helper()
	var n int64
	query = strings.Replace(query, "SELECT ", "SELECT COALESCE(", 1)
	query = strings.Replace(query, " FROM ", ", -1) FROM ", 1)
	if err := b.db.Read(t.Context()).QueryRowContext(t.Context(), b.placeholders(query), args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (b *bundle) placeholders(query string) string {
	if b.db.Dialect() != storage.Postgres {
		return query
	}
	parts := strings.Split(query, "?")
	for i := 1; i < len(parts); i++ {
		parts[i] = "$" + strconv.Itoa(i) + parts[i]
	}
	return strings.Join(parts, "")
}

// hold and resume put the target "hook" on hold and back, so that a test can
// change rows before they are sent.
func (b *bundle) hold(t *testing.T) {
	t.Helper()
	b.target(t, func(target *messaging.Target) { target.State = messaging.TargetHeld })
}

func (b *bundle) resume(t *testing.T) {
	t.Helper()
	b.target(t, func(*messaging.Target) {})
}

// finished waits until a delivery has ended.
func (b *bundle) finished(t *testing.T, id string) messaging.Delivery {
	t.Helper()
	var d messaging.Delivery
	eventually(t, "delivery "+id+" ends", func() bool {
		d = b.delivery(t, id)
		return d.Status.Terminal()
	})
	return d
}

// halt stops a service within a wide grace time.
func (b *bundle) halt(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := b.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// answered is an answer and what one attempt at it must leave in the row.
type answered struct {
	name      string
	answer    messagingtest.Answer
	status    messaging.Status
	code      int
	error     string
	body      string
	truncated bool
}

// judge sends one delivery per answer, all at once and each for a target of
// its own, and compares the rows as they are read back.
func (b *bundle) judge(t *testing.T, cases []answered, edit ...func(*messaging.Request)) {
	t.Helper()
	reqs := make([]messaging.Request, len(cases))
	for i, c := range cases {
		path := "/" + strconv.Itoa(i)
		b.receiver.Handle(path, c.answer)
		reqs[i] = b.request(path)
		reqs[i].RefID = "hook-" + strconv.Itoa(i)
		for _, e := range edit {
			e(&reqs[i])
		}
	}
	got := b.enqueue(t, reqs...)
	for range cases {
		b.waitAttempt(t)
	}
	for i, c := range cases {
		d := b.delivery(t, got[i].ID)
		if d.Status != c.status || d.ResponseCode != c.code || d.Error != c.error || d.Attempts != 1 {
			t.Errorf("%s: %s, code %d, error %q, %d attempts; want %s, %d, %q, 1", c.name, d.Status, d.ResponseCode, d.Error, d.Attempts, c.status, c.code, c.error)
		}
		if d.ResponseBody != c.body {
			t.Errorf("%s: %d bytes of body %.60q, want %d of %.60q", c.name, len(d.ResponseBody), d.ResponseBody, len(c.body), c.body)
		}
		waits := c.status == messaging.StatusPending
		if d.NextRetryAt.IsZero() == waits || d.FinishedAt.IsZero() != waits {
			t.Errorf("%s: next retry %v, finished %v", c.name, d.NextRetryAt, d.FinishedAt)
		}
		attempts, err := b.Attempts(t.Context(), d.ID)
		if err != nil || len(attempts) != 1 || attempts[0].ResponseCode != c.code || attempts[0].ResponseBody != c.body ||
			attempts[0].Truncated != c.truncated || attempts[0].Error != c.error {
			t.Errorf("%s: attempts %+.200v, %v", c.name, attempts, err)
		}
	}
	if n := len(b.receiver.Requests()); n != len(cases) {
		t.Errorf("%d requests, want one for each of %d deliveries", n, len(cases))
	}
}

// asError is errors.As with the target's type inferred.
func asError[E error](err error, target *E) bool { return errors.As(err, target) }
