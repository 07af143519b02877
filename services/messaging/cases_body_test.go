package messaging_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/messaging/memstore"
	"github.com/objecthost/objecthost/services/messaging/messagingtest"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// serially runs fn on one dialect after the other, for tests that measure the
// whole process.
func serially(t *testing.T, fn func(t *testing.T, db *storage.DB)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { fn(t, storagetest.Open(t, storagetest.SQLite(t), storage.Config{})) })
	t.Run("postgres", func(t *testing.T) { fn(t, storagetest.Open(t, storagetest.Postgres(t), storage.Config{})) })
}

// The bytes of a body are the same on the first attempt, on a retry by a host
// that was started meanwhile, and on a redelivery.
func TestCase_BOD_01_RowsKeepTheirBytes(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		secret := []byte("topsecret")
		bodies := []string{
			"{ \"z\":1.10, \"a\" : 1E2,\n \"10\":\"<a&b>\", \"9\":-0, \"a\":2, \"big\":123456789012345678901234567890 }",
			`{"name":"Ñandú 😀 客户 \u2028\ud800","n":9007199254740993,"e":1e400}`,
			"[ ]\n", "  ",
		}
		b.receiver.Handle("/in", messagingtest.Status(503, ""), messagingtest.Status(503, ""), messagingtest.Status(503, ""), messagingtest.Status(503, ""), messagingtest.Status(200, ""))
		var ids []string
		for _, body := range bodies {
			req := b.request("/in")
			req.Payload, req.Secret = []byte(body), secret
			ids = append(ids, b.enqueue(t, req)[0].ID)
			if d := b.waitAttempt(t); d.Status != messaging.StatusPending {
				t.Fatalf("delivery = %+v", d)
			}
		}
		b.halt(t)
		again := setup(t, db)
		for range bodies {
			if d := again.waitAttempt(t); d.Status != messaging.StatusSuccess || d.Attempts != 2 {
				t.Errorf("delivery = %+v", d)
			}
		}
		for _, id := range ids {
			if _, err := again.Redeliver(t.Context(), id, messaging.RedeliverOptions{}); err != nil {
				t.Fatal(err)
			}
			again.waitAttempt(t)
		}
		seen := make(map[string]int)
		for _, r := range b.receiver.Requests() {
			seen[string(r.Body)]++
			if err := messaging.VerifySignature(secret, r.Body, r.Header); err != nil {
				t.Errorf("%q: %v", r.Body, err)
			}
		}
		for i, body := range bodies {
			if seen[body] != 3 {
				t.Errorf("%q was sent %d times, want 3", body, seen[body])
			}
			if d := b.delivery(t, ids[i]); string(d.Payload) != body {
				t.Errorf("the row holds %q, want %q", d.Payload, body)
			}
		}
	})
}

func TestCase_BOD_04_RowsAreSignedWithTheExactSecret(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		body := `{"name":"Ñandú 😀 客户 \u2028"}`
		for _, secret := range []string{"clé-秘", "trailing newline\n", " blanks "} {
			req := b.request("/in")
			req.Payload, req.Secret = []byte(body), []byte(secret)
			b.enqueue(t, req)
			b.waitAttempt(t)
			requests := b.receiver.Requests()
			r := requests[len(requests)-1]
			if err := messaging.VerifySignature([]byte(secret), r.Body, r.Header); err != nil || r.ContentLength != int64(len(body)) {
				t.Errorf("secret %q: %v, length %d of %d bytes", secret, err, r.ContentLength, len(body))
			}
		}
	})
}

func TestCase_BOD_06_RowsTakeTextThatBothDatabasesStore(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		for _, body := range []string{"a\xffb", "\x00", `{"a":"` + "\x00" + `"}`, "\xed\xa0\x80", "\xc3"} {
			req := b.request("/in")
			req.Payload = []byte(body)
			var refused *messaging.RequestError
			if _, err := b.Enqueue(t.Context(), req); !asError(err, &refused) || refused.Field != "Payload" {
				t.Errorf("%q: enqueue = %v", body, err)
			}
		}
		for i, body := range []string{`"\ud800"`, `"\u0000"`, "\u2028\uFEFF", "{\"a\":\"\uFFFD\"}"} {
			req := b.request("/in")
			req.Payload = []byte(body)
			b.enqueue(t, req)
			b.waitAttempt(t)
			if got := string(b.receiver.Requests()[i].Body); got != body {
				t.Errorf("sent %q, want %q", got, body)
			}
		}
	})
}

// Whatever the body is, nothing included, the signature covers what is sent.
func TestCase_BOD_08_RowsWithSmallBodies(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		secret := []byte("topsecret")
		for i, body := range []string{"", `""`, "null", "0", "{}", "[]", "x"} {
			req := b.request("/in")
			req.Payload, req.Secret = []byte(body), secret
			d := b.enqueue(t, req)[0]
			b.waitAttempt(t)
			r := b.receiver.Requests()[i]
			if string(r.Body) != body || r.ContentLength != int64(len(body)) || messaging.VerifySignature(secret, r.Body, r.Header) != nil {
				t.Errorf("%q arrived as %q with length %d", body, r.Body, r.ContentLength)
			}
			if got := b.delivery(t, d.ID); string(got.Payload) != body {
				t.Errorf("the row holds %q, want %q", got.Payload, body)
			}
		}
	})
}

func TestCase_BOD_09_RowsHoldAnyText(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		for i, body := range []string{`"hello"`, "hello", "<?xml version=\"1.0\"?><a/>", "a=b&c=d"} {
			req := b.request("/in")
			req.Payload = []byte(body)
			b.enqueue(t, req)
			b.waitAttempt(t)
			if got := string(b.receiver.Requests()[i].Body); got != body {
				t.Errorf("sent %q, want %q", got, body)
			}
		}
	})
}

func TestCase_BOD_10_RowsOfEveryMethodHaveALength(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		for _, method := range []string{"get", "post", "put", "patch", "delete"} {
			for _, body := range []string{"", `{"n":1}`} {
				req := b.request("/in")
				req.Method, req.Payload = method, []byte(body)
				b.enqueue(t, req)
				b.waitAttempt(t)
				requests := b.receiver.Requests()
				r := requests[len(requests)-1]
				length := r.ContentLength
				if length < 0 && body == "" && (method == "get" || method == "delete") {
					length = 0 // no body, and none announced
				}
				if r.Method != strings.ToUpper(method) || string(r.Body) != body || length != int64(len(body)) || len(r.TransferEncoding) != 0 {
					t.Errorf("%s with %d bytes: %s, %q, length %d, %v", method, len(body), r.Method, r.Body, r.ContentLength, r.TransferEncoding)
				}
			}
		}
	})
}

// Large bodies are in memory only while they are sent, and so many at once as
// the budget allows, whatever waits. A row whose turn does not come
// in time is given back: it does not start after its claim's end, nor count as
// crashed.
func TestCase_BOD_11_LargeBodiesTakeTurns(t *testing.T) {
	t.Parallel()
	receiver, tx := messagingtest.New(t), storage.NewMemory()
	allow, err := messaging.ParseEgressAllow([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	b := &bundle{receiver: receiver, attempts: make(chan messaging.Delivery, 100)}
	cfg := messaging.Config{
		Store: memstore.New(tx, time.Now), Tx: tx, Sender: messaging.SenderConfig{Egress: messaging.EgressConfig{Allow: allow}},
		OnAttempt: func(d messaging.Delivery, _ messaging.Attempt) { b.attempts <- d },
	}
	quick(&cfg)
	cfg.PayloadMemory = 1 << 20
	if b.Service, err = messaging.New(cfg); err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.halt(t) })
	receiver.Handle("/hang", messagingtest.Hang(messagingtest.Status(200, "")))
	body := []byte(`"` + strings.Repeat("x", 256<<10-2) + `"`)
	for i := range 4 {
		req := b.request("/hang")
		req.RefID, req.Payload, req.Timeout = fmt.Sprintf("hang-%d", i), body, time.Minute
		b.enqueue(t, req)
	}
	if _, err := receiver.WaitFor(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	b.hold(t) // so that the row is claimed, and its body left behind
	req := b.request("/in")
	req.Payload, req.Timeout = body[:128<<10], time.Minute
	id := b.enqueue(t, req)[0].ID
	b.resume(t)
	claims := make(map[string]bool)
	eventually(t, "three claims of the row pass", func() bool {
		row, err := cfg.Store.Get(t.Context(), id)
		if err != nil || row == nil {
			t.Fatal(row, err)
		}
		if row.ClaimToken != "" {
			claims[row.ClaimToken] = true
		}
		return len(claims) == 3
	})
	if n := b.arrivals("/in"); n != 0 {
		t.Error("the budget was exceeded")
	}
	receiver.Release()
	if d := b.finished(t, id); d.Status != messaging.StatusSuccess || d.Attempts != 1 || d.CrashCount != 0 || d.UpdatedAt.IsZero() {
		t.Errorf("%s after %d attempts and %d crashes", d.Status, d.Attempts, d.CrashCount)
	}
	if n := b.arrivals("/in"); n != 1 {
		t.Errorf("%d requests, want one", n)
	}
}

// After a run of failures of every kind no descriptor and no goroutine is left
// over what an earlier, shorter run took for good: connections of the database.
func TestCase_CON_03_RowsLeaveNothingOpen(t *testing.T) {
	serially(t, func(t *testing.T, db *storage.DB) {
		failures(t, db, 10)
		fillPool(t, db)
		files, goroutines := -1, -1
		eventually(t, "the process is quiet", func() bool {
			f, g := openDescriptors(t), runtime.NumGoroutine()
			quiet := f == files && g == goroutines
			files, goroutines = f, g
			return quiet
		})
		failures(t, db, 50)
		eventually(t, "descriptors and goroutines are back to the base line", func() bool {
			return openDescriptors(t) <= files && runtime.NumGoroutine() <= goroutines
		})
	})
}

// failures delivers rows to receivers that fail in ten ways.
func failures(t *testing.T, db *storage.DB, each int) {
	t.Helper()
	b := setup(t, db, func(c *messaging.Config) { c.Logger = nil })
	var reqs []messaging.Request
	for i, answer := range []messagingtest.Answer{
		messagingtest.Status(500, "no"), messagingtest.LyingLength(200, 50, "abc", false), messagingtest.Endless(200, nil),
		messagingtest.Redirect(302, "http://elsewhere.test/"), messagingtest.CloseUnanswered(), messagingtest.ResetUnanswered(),
		messagingtest.GiantHeader(200, 1<<20), messagingtest.SwitchProtocols(nil), messagingtest.Drip(200, 200*time.Millisecond),
		messagingtest.Raw("garbage"),
	} {
		path := "/" + strconv.Itoa(i)
		b.receiver.Handle(path, answer)
		for n := range each {
			req := b.request(path)
			req.Timeout, req.RefID = time.Second, fmt.Sprintf("hook-%d-%d", i, n%10)
			reqs = append(reqs, req)
		}
	}
	b.enqueue(t, reqs...)
	for range reqs {
		b.waitAttempt(t)
	}
	b.halt(t)
	b.receiver.Close()
}

// fillPool opens every connection that the database's pool may hold, so that a
// base line includes them.
func fillPool(t *testing.T, db *storage.DB) {
	t.Helper()
	_, readers := db.Stats()
	var held sync.WaitGroup
	open := make(chan struct{})
	held.Add(readers.MaxOpenConnections)
	var done sync.WaitGroup
	for range readers.MaxOpenConnections {
		done.Go(func() {
			rows, err := db.Read(t.Context()).QueryContext(t.Context(), "SELECT 1 UNION ALL SELECT 2")
			if err == nil && !rows.Next() {
				err = errors.New("no row")
			}
			held.Done()
			<-open
			if err == nil {
				err = errors.Join(rows.Close(), rows.Err())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	held.Wait()
	close(open)
	done.Wait()
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// A timeout outside the bounds is refused at the door; one that was written
// past it is brought into them when the row is sent.
func TestCase_CON_05_RowsWithOddTimeouts(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		for _, timeout := range []time.Duration{-1, 1, time.Millisecond, 999 * time.Millisecond, 301 * time.Second, 999999999 * time.Millisecond} {
			req := b.request("/in")
			req.Timeout = timeout
			var refused *messaging.RequestError
			if _, err := b.Enqueue(t.Context(), req); !asError(err, &refused) || refused.Field != "Timeout" {
				t.Errorf("%s: enqueue = %v", timeout, err)
			}
		}
		if d := b.delivery(t, b.enqueue(t, b.request("/in"))[0].ID); d.Timeout != 15*time.Second {
			t.Errorf("the default timeout is %s, want 15 s", d.Timeout)
		}
		b.waitAttempt(t)
		b.hold(t)
		var ids []string
		for _, millis := range []int64{0, -1, 999999999} {
			d := b.enqueue(t, b.request("/in"))[0]
			b.exec(t, `UPDATE sys_http_delivery SET timeout_ms = ? WHERE id = ?`, millis, d.ID)
			ids = append(ids, d.ID)
		}
		b.resume(t)
		for _, id := range ids {
			if d := b.finished(t, id); d.Status != messaging.StatusSuccess || d.Attempts != 1 {
				t.Errorf("delivery = %+v", d)
			}
		}
	})
}
