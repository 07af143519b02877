package messaging_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/messaging/messagingtest"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

func TestCase_URL_01_RowsKeepLongURLs(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		for _, length := range []int{297, 2048} {
			req := b.request("/in?sig=")
			req.URL += strings.Repeat("Ab%2F1", length)[:length-len(req.URL)]
			if req.URL[len(req.URL)-1] == '%' || req.URL[len(req.URL)-2] == '%' {
				req.URL = req.URL[:length-2] + "xy"
			}
			d := b.enqueue(t, req)[0]
			b.waitAttempt(t)
			if got := b.delivery(t, d.ID); got.URL != req.URL || got.Status != messaging.StatusSuccess {
				t.Errorf("the row holds %d bytes, want %d: %s", len(got.URL), length, got.Status)
			}
			requests := b.receiver.Requests()
			if got := requests[len(requests)-1].RequestURI; got != strings.TrimPrefix(req.URL, b.receiver.URL) {
				t.Errorf("the receiver got %d bytes", len(got))
			}
		}
		req := b.request("/" + strings.Repeat("x", 2049))
		var refused *messaging.RequestError
		if _, err := b.Enqueue(t.Context(), req); !asError(err, &refused) || refused.Field != "URL" {
			t.Errorf("enqueue of %d bytes = %v", len(req.URL), err)
		}
	})
}

// A URL that got past the door, or into the table without it, ends its own row.
func TestCase_URL_04_StoredUnusableURLsEndDead(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		b.hold(t)
		urls := []string{
			"http:///x", "//recv.test/x", "recv.test:8080/x", "ftp://recv.test/", "http://recv.test:99999/", "http://recv.test/%zz",
			" http://recv.test/", "http://recv.test/\n", "", "https://svc:p@ss#w@recv.test/in", "http://[fe80::1%25lo]:80/", "\x01",
			"http://recv.test/" + strings.Repeat("x", 3000),
		}
		var bad []string
		for _, url := range urls {
			d := b.enqueue(t, b.request("/in"), b.request("/fine"))
			b.exec(t, `UPDATE sys_http_delivery SET url = ? WHERE id = ?`, url, d[0].ID)
			bad = append(bad, d[0].ID)
		}
		b.resume(t)
		for i, id := range bad {
			d := b.finished(t, id)
			if d.Status != messaging.StatusDead || d.Attempts != 0 || d.Error == "" || d.ResponseCode != 0 || len(d.Error) > 300 {
				t.Errorf("%.40q: %+v", urls[i], d)
			}
		}
		eventually(t, "the healthy rows arrive", func() bool { return b.arrivals("/fine") == len(urls) })
		if n := b.arrivals("/in"); n != 0 {
			t.Errorf("%d requests for unusable rows", n)
		}
	})
}

func TestCase_URL_06_RowsKeepTheirQueryOnEveryAttempt(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		const uri = "/in?key=a&key=b&empty=&q=a+b%20c&x=%2F"
		b.receiver.Handle("/in", messagingtest.Status(400, ""), messagingtest.Status(200, ""))
		d := b.enqueue(t, b.request(uri))[0]
		b.waitAttempt(t)
		if _, err := b.Redeliver(t.Context(), d.ID, messaging.RedeliverOptions{}); err != nil {
			t.Fatal(err)
		}
		b.waitAttempt(t)
		for i, r := range b.receiver.Requests() {
			if r.RequestURI != uri {
				t.Errorf("request %d went to %s", i, r.RequestURI)
			}
		}
	})
}

func TestCase_RED_01_RowsOfRedirectsEndDead(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		elsewhere := messagingtest.New(t)
		var cases []answered
		for _, code := range []int{301, 302, 303, 307, 308} {
			cases = append(cases, answered{
				name: strconv.Itoa(code), answer: messagingtest.Redirect(code, elsewhere.URL+"/b?token=hush"),
				status: messaging.StatusDead, code: code, error: fmt.Sprintf("HTTP %d", code),
			})
		}
		b.judge(t, cases)
		if elsewhere.Connections() != 0 {
			t.Error("a redirect was followed")
		}
		var hosts int64
		if hosts = b.number(t, `SELECT COUNT(*) FROM sys_http_attempt WHERE location_host = ?`, elsewhere.Addr); hosts != 5 {
			t.Errorf("%d attempts name the host that the redirect leads to, want 5", hosts)
		}
		if n := b.number(t, `SELECT COUNT(*) FROM sys_http_attempt WHERE response_headers LIKE '%hush%' OR error LIKE '%hush%'`); n != 0 {
			t.Errorf("%d attempts hold the Location's query", n)
		}
	})
}

func TestCase_RED_03_RowsOf3xxAreNoSuccess(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		var cases []answered
		for _, code := range []int{300, 301, 304, 399} {
			cases = append(cases, answered{
				name: strconv.Itoa(code), answer: messagingtest.Status(code, ""),
				status: messaging.StatusDead, code: code, error: fmt.Sprintf("HTTP %d", code),
			})
		}
		setup(t, db).judge(t, cases)
	})
}

func TestCase_RED_05_LoopsLeaveNoRowInFlight(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		b.judge(t, []answered{
			{name: "to itself", answer: messagingtest.Redirect(302, b.url("/0")), status: messaging.StatusDead, code: 302, error: "HTTP 302"},
			{name: "a to b", answer: messagingtest.Redirect(307, b.url("/2")), status: messaging.StatusDead, code: 307, error: "HTTP 307"},
			{name: "b to a", answer: messagingtest.Redirect(307, b.url("/1")), status: messaging.StatusDead, code: 307, error: "HTTP 307"},
		})
		if n := b.number(t, `SELECT COUNT(*) FROM sys_http_delivery WHERE status IN ('pending', 'in_flight')`); n != 0 {
			t.Errorf("%d rows are left open", n)
		}
	})
}

func TestCase_RED_06_RowsNeverReachTheSecondAddress(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		inside := messagingtest.New(t)
		var cases []answered
		for _, code := range []int{302, 307} {
			for _, to := range []string{"http://169.254.169.254/", "http://[::ffff:10.0.0.5]/", inside.URL} {
				cases = append(cases, answered{
					name: to, answer: messagingtest.Redirect(code, to),
					status: messaging.StatusDead, code: code, error: fmt.Sprintf("HTTP %d", code),
				})
			}
		}
		b.judge(t, cases)
		if n := inside.Connections(); n != 0 {
			t.Errorf("%d connections to the address that a redirect named", n)
		}
	})
}

// An unknown authority is a transport error: the row waits, and is delivered
// once the authority is given.
func TestCase_TLS_01_RowsWaitForTheirAuthority(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		r := messagingtest.NewTLS(t, "127.0.0.1")
		b := setup(t, db)
		req := b.request("/")
		req.URL = r.URL + "/in"
		d := b.enqueue(t, req)[0]
		b.waitAttempt(t)
		got := b.delivery(t, d.ID)
		if got.Status != messaging.StatusPending || got.Attempts != 1 || !strings.Contains(got.Error, "x509: certificate signed by unknown authority") {
			t.Errorf("delivery = %+v", got)
		}
		b.halt(t)
		again := setup(t, db, func(c *messaging.Config) { c.Sender.RootCAs = r.Roots() })
		if got := again.waitAttempt(t); got.ID != d.ID || got.Status != messaging.StatusSuccess || got.Attempts != 2 || got.Error != "" {
			t.Errorf("with the authority: %+v", got)
		}
	})
}

func TestCase_TLS_03_OneSelfSignedRowOpensNothing(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		trusted, selfSigned := messagingtest.NewTLS(t, "127.0.0.1"), messagingtest.NewTLS(t, "127.0.0.1")
		b := setup(t, db, func(c *messaging.Config) { c.Sender.RootCAs = trusted.Roots() })
		one, other := b.request("/"), b.request("/")
		one.URL, other.URL, other.RefID = trusted.URL, selfSigned.URL, "other"
		got := b.enqueue(t, one, other)
		b.waitAttempt(t)
		b.waitAttempt(t)
		if d := b.delivery(t, got[0].ID); d.Status != messaging.StatusSuccess {
			t.Errorf("trusted: %+v", d)
		}
		if d := b.delivery(t, got[1].ID); d.Status != messaging.StatusPending || d.ResponseCode != 0 {
			t.Errorf("self-signed: %+v", d)
		}
		if n := len(selfSigned.Requests()); n != 0 {
			t.Errorf("%d requests reached the receiver that nobody vouches for", n)
		}
	})
}

// The outbox and the client of inline calls share the configured proxy.
func TestCase_PRX_01_RowsAndInlineCallsUseOneProxy(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		proxy, inside := messagingtest.New(t), messagingtest.NewAt(t, "127.0.0.81:0")
		except, err := messaging.ParseEgressAllow([]string{"127.0.0.81"})
		if err != nil {
			t.Fatal(err)
		}
		b := setup(t, db, func(c *messaging.Config) {
			c.Sender.Egress.Proxy, c.Sender.Egress.ProxyExcept = proxy.URL, except
		})
		flow, direct := b.request("/flow"), b.request("/direct")
		flow.Source, flow.RefID = messaging.SourceFlow, "flow:node"
		direct.URL, direct.RefID = inside.URL+"/direct", "direct"
		b.enqueue(t, b.request("/webhook"), flow, direct)
		for range 3 {
			if d := b.waitAttempt(t); d.Status != messaging.StatusSuccess {
				t.Errorf("delivery = %+v", d)
			}
		}
		resp, err := b.Sender().Client().Get(b.url("/inline"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		through := make(map[string]bool)
		for _, r := range proxy.Requests() {
			through[strings.TrimPrefix(r.RequestURI, b.receiver.URL)] = true
		}
		if len(through) != 3 || !through["/webhook"] || !through["/flow"] || !through["/inline"] || len(inside.Requests()) != 1 {
			t.Errorf("through the proxy %v, directly %d", through, len(inside.Requests()))
		}
		if n := b.receiver.Connections(); n != 0 {
			t.Errorf("%d connections went past the proxy", n)
		}
	})
}

func TestCase_PRX_02_RowsOfRefusedTargetsNeverReachTheProxy(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		proxy := messagingtest.New(t)
		b := setup(t, db, func(c *messaging.Config) {
			c.Sender.Egress.Proxy, c.Sender.Egress.Allow = proxy.URL, messaging.EgressAllow{}
		})
		for _, url := range []string{"http://169.254.169.254/latest", "http://10.0.0.5/"} {
			req := b.request("/")
			req.URL = url
			if d := b.finished(t, b.enqueue(t, req)[0].ID); d.Status != messaging.StatusDead || d.Error != refusedByPolicy || d.Attempts != 0 {
				t.Errorf("%s: %+v", url, d)
			}
		}
		if n := len(proxy.Requests()); n != 0 {
			t.Errorf("the proxy got %d requests", n)
		}
	})
}

const refusedByPolicy = "destination refused by the egress policy"

// A refusal is final, costs no attempt, and reads the same for every address.
func TestCase_SSR_01_RowsOfInternalTargetsEndDead(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db, func(c *messaging.Config) { c.Sender.Egress.Allow = messaging.EgressAllow{} })
		hosts := []string{
			"127.0.0.1:" + b.receiver.Port(), "[::ffff:127.0.0.1]:" + b.receiver.Port(), "[::ffff:a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]",
			"[2002:7f00:1::]", "[::127.0.0.1]", "0.0.0.0:" + b.receiver.Port(), "0.0.0.1", "[::]", "100.100.100.200", "198.18.0.1", "[fd00:ec2::254]",
		}
		for _, host := range hosts {
			req := b.request("/")
			req.URL, req.RefID = "http://"+host+"/in", host
			d := b.finished(t, b.enqueue(t, req)[0].ID)
			if d.Status != messaging.StatusDead || d.Error != refusedByPolicy || d.Attempts != 0 || d.ResponseCode != 0 {
				t.Errorf("%s: %+v", host, d)
			}
		}
		if n := b.receiver.Connections(); n != 0 {
			t.Errorf("%d connections were opened", n)
		}
	})
}

// Every way out refuses alike: durable rows of webhooks, flows and programs,
// redeliveries, moved endpoints, and the client of inline calls.
func TestCase_SSR_07_RowsOfEverySourceAreRefused(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db, func(c *messaging.Config) { c.Sender.Egress.Allow = messaging.EgressAllow{} })
		refused := func(what, id string) {
			t.Helper()
			if d := b.finished(t, id); d.Status != messaging.StatusDead || d.Error != refusedByPolicy {
				t.Errorf("%s: %+v", what, d)
			}
		}
		for _, source := range []string{messaging.SourceWebhook, messaging.SourceFlow, "plugin"} {
			req := b.request("/in")
			req.Source = source
			id := b.enqueue(t, req)[0].ID
			refused(source, id)
			if _, err := b.Redeliver(t.Context(), id, messaging.RedeliverOptions{}); err != nil {
				t.Fatal(err)
			}
			refused(source+" redelivered", id)
			current := &messaging.Endpoint{URL: b.url("/moved"), Method: "put"}
			if _, err := b.Redeliver(t.Context(), id, messaging.RedeliverOptions{Current: current}); err != nil {
				t.Fatal(err)
			}
			refused(source+" moved", id)
		}
		var egress *messaging.EgressError
		if _, err := b.Sender().Client().Post(b.url("/inline"), "application/json", strings.NewReader("{}")); !asError(err, &egress) {
			t.Errorf("inline call = %v", err)
		}
		if n := b.receiver.Connections(); n != 0 {
			t.Errorf("%d connections were opened", n)
		}
	})
}

// Rows whose stored headers are illegal, as another writer may leave them, end
// alone, by the header's name and without its value.
func TestCase_HDR_02_StoredBadHeadersEndDeadAlone(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		b.hold(t)
		type bad struct{ sealed, name, id string }
		var list []bad
		for _, headers := range []map[string]string{
			{"X-A": "s3cret\r\nX-Injected: 1"}, {"X A": "s3cret"}, {"X-A:": "s3cret"}, {"": "s3cret"}, {"X-A": "s3cret\x00"},
			{"X-Objectstack-Signature": "s3cret"}, {"Host": "s3cret"}, {"Content-Length": "9999"},
		} {
			plain, err := json.Marshal(headers)
			if err != nil {
				t.Fatal(err)
			}
			sealed, err := plainSealer{}.Seal(plain, []byte("sys_http_delivery.headers_json"))
			if err != nil {
				t.Fatal(err)
			}
			for name := range headers {
				list = append(list, bad{sealed: sealed, name: name})
			}
		}
		for i := range list {
			d := b.enqueue(t, b.request("/bad"), b.request("/fine"))
			list[i].id = d[0].ID
			b.exec(t, `UPDATE sys_http_delivery SET headers_json = ? WHERE id = ?`, list[i].sealed, d[0].ID)
		}
		broken := b.enqueue(t, b.request("/bad"))[0]
		b.exec(t, `UPDATE sys_http_delivery SET headers_json = 'no seal at all' WHERE id = ?`, broken.ID)
		b.resume(t)
		for _, c := range list {
			d := b.finished(t, c.id)
			if d.Status != messaging.StatusDead || d.Attempts != 0 || !strings.Contains(d.Error, strings.TrimSuffix(c.name, ":")) || strings.Contains(d.Error, "s3cret") {
				t.Errorf("header %q: %+v", c.name, d)
			}
		}
		if d := b.finished(t, broken.ID); d.Status != messaging.StatusDead || d.Error != "headers are set but cannot be read" {
			t.Errorf("unreadable headers: %+v", d)
		}
		eventually(t, "the healthy rows arrive", func() bool { return b.arrivals("/fine") == len(list) })
		for _, r := range b.receiver.Requests() {
			if r.Path != "/fine" || r.Header.Get("X-Injected") != "" {
				t.Errorf("the receiver got %s %v", r.Path, r.Header)
			}
		}
	})
}

func TestCase_HDR_01_RowsCarryOurHeadersOnce(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		secret := []byte("topsecret")
		var refused *messaging.RequestError
		for _, name := range []string{"x-objectstack-signature", "X-OBJECTSTACK-DELIVERY", "x-objectstack-attempt", "X-Objectstack-Event", "Webhook-ID"} {
			req := b.request("/in")
			req.Headers = map[string]string{name: "fake-value"}
			if _, err := b.Enqueue(t.Context(), req); !asError(err, &refused) || strings.Contains(err.Error(), "fake-value") {
				t.Errorf("%s: enqueue = %v", name, err)
			}
		}
		ids := make(map[string]bool)
		var reqs []messaging.Request
		for range 50 {
			req := b.request("/in")
			req.Secret, req.Headers = secret, map[string]string{"X-Team": "crm"}
			reqs = append(reqs, req)
		}
		for _, e := range b.enqueue(t, reqs...) {
			ids[e.ID] = true
			b.waitAttempt(t)
		}
		for _, r := range b.receiver.Requests() {
			for _, name := range []string{"X-Objectstack-Signature", "X-Objectstack-Delivery", "X-Objectstack-Attempt", "X-Objectstack-Event"} {
				if n := len(r.Header[name]); n != 1 {
					t.Errorf("%s has %d values", name, n)
				}
			}
			if !ids[r.Header.Get("X-Objectstack-Delivery")] || messaging.VerifySignature(secret, r.Body, r.Header) != nil {
				t.Errorf("request = %v", r.Header)
			}
		}
	})
}

func TestCase_HDR_05_RowsKeepColonsAndUTF8(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		req := b.request("/in")
		req.Headers = map[string]string{"X-Link": "a:b:c", "X-Name": "Zoë 客户", "X-Empty": ""}
		b.enqueue(t, req)
		b.waitAttempt(t)
		r := b.receiver.Requests()[0]
		for name, want := range req.Headers {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s = %q, want %q", name, got, want)
			}
		}
	})
}

// The seal binds what it holds: rows never show headers or secrets in clear.
func TestCase_SEC_07_RecordedHeadersAreMasked(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		b.receiver.Handle("/in", messagingtest.Echo())
		req := b.request("/in")
		req.Secret = []byte("s3cret-signing-key")
		req.Headers = map[string]string{
			"authorization": "Bearer s3cret-one", "X-API-KEY": "s3cret-two", "Cookie": "sid=s3cret-three", "X-Acme-Token": "s3cret-four",
		}
		d := b.enqueue(t, req)[0]
		b.waitAttempt(t)
		attempts, err := b.Attempts(t.Context(), d.ID)
		if err != nil || len(attempts) != 1 {
			t.Fatalf("attempts = %+v, %v", attempts, err)
		}
		var recorded http.Header
		if err := json.Unmarshal([]byte(attempts[0].RequestHeaders), &recorded); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"Authorization", "X-Api-Key", "Cookie", "X-Acme-Token"} {
			if v := recorded.Get(name); v == "" || strings.Contains(v, "s3cret") {
				t.Errorf("recorded %s is %q", name, v)
			}
		}
		for _, query := range []string{
			`SELECT COUNT(*) FROM sys_http_attempt WHERE request_headers LIKE '%s3cret%' OR response_body LIKE '%s3cret%' OR response_headers LIKE '%s3cret%'`,
			`SELECT COUNT(*) FROM sys_http_delivery WHERE headers_json LIKE '%s3cret%' OR signing_secret LIKE '%s3cret%' OR response_body LIKE '%s3cret%' OR payload_json LIKE '%s3cret%'`,
		} {
			if n := b.number(t, query); n != 0 {
				t.Errorf("%d rows hold a secret: %s", n, query)
			}
		}
	})
}

func TestCase_RSP_01_RowsOfUnstorableAnswersAreSaved(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		setup(t, db).judge(t, []answered{
			{"NUL", messagingtest.Status(200, "ok\x00ok"), messaging.StatusSuccess, 200, "", "ok\uFFFDok", false},
			{"no UTF-8", messagingtest.Status(200, "\xff\xfe\x80"), messaging.StatusSuccess, 200, "", "\uFFFD", false},
			{"500 with NUL", messagingtest.Status(500, "a\x00"), messaging.StatusPending, 500, "HTTP 500", "a\uFFFD", false},
			{"PNG", messagingtest.Status(200, "\x89PNG\r\n\x1a\n\x00\xff"), messaging.StatusSuccess, 200, "", "\uFFFDPNG\r\n\x1a\n\uFFFD\uFFFD", false},
			{"surrogate", messagingtest.Status(200, "a\xed\xa0\x80b"), messaging.StatusSuccess, 200, "", "a\uFFFDb", false},
			{"only NUL", messagingtest.Status(200, strings.Repeat("\x00", 16384)), messaging.StatusSuccess, 200, "", strings.Repeat("\uFFFD", 5461), true},
		})
	})
}

func TestCase_RSP_02_RowsCutOnACharacter(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		as := func(n int) string { return strings.Repeat("a", n) }
		setup(t, db).judge(t, []answered{
			{"exactly", messagingtest.Status(200, as(16384)), messaging.StatusSuccess, 200, "", as(16384), false},
			{"one more", messagingtest.Status(200, as(16385)), messaging.StatusSuccess, 200, "", as(16384), true},
			{"in two bytes", messagingtest.Status(200, as(16383)+"ééé"), messaging.StatusSuccess, 200, "", as(16383), true},
			{"in four bytes", messagingtest.Status(200, as(16381)+"😀"), messaging.StatusSuccess, 200, "", as(16381), true},
			{"dead", messagingtest.Status(404, as(16383)+"é"), messaging.StatusDead, 404, "HTTP 404", as(16383), true},
			{"retried", messagingtest.Status(503, as(16382)+"客"), messaging.StatusPending, 503, "HTTP 503", as(16382), true},
		})
	})
}

func TestCase_RSP_03_RowsOfGzipBombs(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		full := strings.Repeat("\uFFFD", 5461)
		setup(t, db).judge(t, []answered{
			{"64 MB", messagingtest.GzipBomb(200, 64<<20), messaging.StatusSuccess, 200, "", full, true},
			{"500", messagingtest.GzipBomb(500, 64<<20), messaging.StatusPending, 500, "HTTP 500", full, true},
			{"broken", messagingtest.Status(200, "no gzip", "Content-Encoding: gzip"), messaging.StatusSuccess, 200, "", "", true},
		})
	})
}

func TestCase_RSP_05_RowsEndWithinTheirTimeout(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		const late = "timeout after 1s waiting for the answer"
		began := time.Now()
		setup(t, db).judge(t, []answered{
			{"endless body", messagingtest.Endless(200, nil), messaging.StatusSuccess, 200, "", strings.Repeat("x", 16384), true},
			{"lying length", messagingtest.LyingLength(200, 50, "abc", false), messaging.StatusSuccess, 200, "", "abc", true},
			{"slow headers", messagingtest.DripHeaders(100 * time.Millisecond), messaging.StatusPending, 0, late, "", false},
			{"silence", messagingtest.Hang(messagingtest.Status(200, "")), messaging.StatusPending, 0, late, "", false},
		}, func(r *messaging.Request) { r.Timeout = time.Second })
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("all of them took %s with a timeout of 1 s", took)
		}
	})
}

func TestCase_RSP_07_RowsSkipInterimAnswers(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		ok := messagingtest.Status(200, "done")
		setup(t, db).judge(t, []answered{
			{"100", messagingtest.Interim(1, 100, ok), messaging.StatusSuccess, 200, "", "done", false},
			{"103", messagingtest.Interim(1, 103, ok, "Link: </x>"), messaging.StatusSuccess, 200, "", "done", false},
			{"100 of them", messagingtest.Interim(100, 102, ok), messaging.StatusSuccess, 200, "", "done", false},
			{"103 and 500", messagingtest.Interim(1, 103, messagingtest.Status(500, "no")), messaging.StatusPending, 500, "HTTP 500", "no", false},
			{"101", messagingtest.SwitchProtocols(nil), messaging.StatusDead, 101, "HTTP 101", "", false},
		})
	})
}

func TestCase_RSP_09_RowsOfOddHeadersAreSaved(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		many := make([]string, 300)
		for i := range many {
			many[i] = "X-Many-" + strconv.Itoa(i) + ": " + strings.Repeat("v", 100)
		}
		b := setup(t, db)
		b.judge(t, []answered{
			{"latin 1", messagingtest.Status(200, "", "X-Reason: Zur\xfcck", "X-Nul: a\tb"), messaging.StatusSuccess, 200, "", "", false},
			{"300", messagingtest.Status(200, "", many...), messaging.StatusSuccess, 200, "", "", false},
			{"giant", messagingtest.GiantHeader(200, 11<<20), messaging.StatusPending, 0, "response headers are larger than 256 KiB", "", false},
			{"garbage", messagingtest.Raw("SSH-2.0-OpenSSH\r\n"), messaging.StatusPending, 0, "malformed HTTP response", "", false},
		})
		if n := b.number(t, `SELECT COUNT(*) FROM sys_http_attempt WHERE response_headers LIKE ?`, "%Zur\uFFFDck%"); n != 1 {
			t.Errorf("%d attempts hold the odd header, want 1", n)
		}
	})
}

func TestCase_RSP_11_RowsDoNotReadBodies(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		var cases []answered
		for _, c := range []struct {
			code int
			body string
		}{{200, "<html>"}, {200, ""}, {200, `{"error":"no"}`}, {202, ""}, {204, ""}, {299, "x"}} {
			cases = append(cases, answered{fmt.Sprint(c), messagingtest.Status(c.code, c.body), messaging.StatusSuccess, c.code, "", c.body, false})
		}
		setup(t, db).judge(t, cases)
	})
}

func TestCase_RSP_12_RowsFollowTheTableOfCodes(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		var cases []answered
		for _, code := range []int{400, 401, 404, 408, 409, 410, 422, 423, 425, 429, 451, 500, 501, 503, 505, 599, 600, 999} {
			status := messaging.StatusDead
			if code == 408 || code == 429 || code >= 500 && code < 600 {
				status = messaging.StatusPending
			}
			cases = append(cases, answered{strconv.Itoa(code), messagingtest.Status(code, "x", "Retry-After: 60"), status, code, fmt.Sprintf("HTTP %d", code), "x", false})
		}
		setup(t, db).judge(t, cases)
	})
}

func TestCase_RSP_13_RowsMaskEchoedSecrets(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		b.target(t, func(target *messaging.Target) {
			target.Auth = &messaging.Authentication{Type: "bearer", Credentials: map[string]string{"token": "s3cret-token"}}
		})
		b.receiver.Handle("/in", messagingtest.Echo())
		d := b.enqueue(t, b.request("/in"))[0]
		b.waitAttempt(t)
		if got := b.receiver.Requests()[0].Header.Get("Authorization"); got != "Bearer s3cret-token" {
			t.Errorf("Authorization = %q", got)
		}
		if got := b.delivery(t, d.ID); strings.Contains(got.ResponseBody, "s3cret") || !strings.Contains(got.ResponseBody, "Authorization") {
			t.Errorf("stored answer = %q", got.ResponseBody)
		}
	})
}
