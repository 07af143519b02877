package messaging

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/objecthost/objecthost/services/messaging/messagingtest"
)

// storable is what both databases take: valid UTF-8 without NUL, capped.
func storable(t *testing.T, a *Attempt) {
	t.Helper()
	texts := []string{a.ResponseBody, a.Error, a.BodyNote, a.LocationHost, a.Signature}
	size := 0
	for name, values := range a.ResponseHeaders {
		texts = append(texts, name)
		texts = append(texts, values...)
		size += len(name) * len(values)
		for _, v := range values {
			size += len(v)
		}
	}
	for _, text := range texts {
		if !utf8.ValidString(text) || strings.Contains(text, "\x00") {
			t.Errorf("not storable: %.100q", text)
		}
	}
	if len(a.ResponseBody) > maxBody || len(a.Error) > 600 || size > maxResponseHeaders {
		t.Errorf("body has %d bytes, error %d, headers %d", len(a.ResponseBody), len(a.Error), size)
	}
}

func TestCase_RSP_01_UnstorableBytesAreReplaced(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t)
	png := "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\xff\xfe"
	for i, c := range []struct {
		code       int
		body, want string
	}{
		{200, "ok\x00ok", "ok\uFFFDok"},
		{200, "\xff\xfe\x80", "\uFFFD"},
		{500, "a\x00", "a\uFFFD"},
		{200, png, "\uFFFDPNG\r\n\x1a\n\uFFFD\uFFFD\uFFFD\rIHDR\uFFFD"},
		{200, "a\xed\xa0\x80b", "a\uFFFDb"}, // a lone surrogate
		{404, "Zür\xc3", "Zür\uFFFD"},
		{200, strings.Repeat("\x00", maxBody), strings.Repeat("\uFFFD", maxBody/3)},
	} {
		path := "/" + strconv.Itoa(i)
		r.Handle(path, messagingtest.Status(c.code, c.body))
		a := s.Send(t.Context(), outgoing(r.URL+path))
		storable(t, a)
		if a.StatusCode != c.code || a.ResponseBody != c.want {
			t.Errorf("%q: %d %q, want %q", c.body, a.StatusCode, a.ResponseBody, c.want)
		}
		if c.code == 200 && outcome(a) != OutcomeSuccess {
			t.Errorf("%q: outcome is %q", c.body, outcome(a))
		}
	}
	if n := len(r.Requests()); n != 7 {
		t.Errorf("%d requests, want one each", n)
	}
}

func TestCase_RSP_02_CapEndsOnACharacter(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t)
	as := func(n int) string { return strings.Repeat("a", n) }
	for i, c := range []struct {
		body, want string
		truncated  bool
	}{
		{as(maxBody), as(maxBody), false},
		{as(maxBody-2) + "é", as(maxBody-2) + "é", false},
		{as(maxBody + 1), as(maxBody), true},
		{as(maxBody-1) + "ééé", as(maxBody - 1), true},
		{as(maxBody-1) + "é", as(maxBody - 1), true},
		{as(maxBody-3) + "😀", as(maxBody - 3), true},
		{as(maxBody-1) + "😀😀", as(maxBody - 1), true},
		{as(maxBody-4) + "😀z", as(maxBody-4) + "😀", true},
		{as(maxBody-1) + "\xff" + as(50), as(maxBody - 1), true},
		{as(maxBody) + "\xc3", as(maxBody), true},
		{strings.Repeat("é", maxBody), strings.Repeat("é", maxBody/2), true},
	} {
		path := "/" + strconv.Itoa(i)
		r.Handle(path, messagingtest.Status(200, c.body))
		a := s.Send(t.Context(), outgoing(r.URL+path))
		storable(t, a)
		if a.ResponseBody != c.want || a.ResponseTruncated != c.truncated {
			t.Errorf("case %d: %d bytes ending in %q, truncated %v", i, len(a.ResponseBody), a.ResponseBody[len(a.ResponseBody)-8:], a.ResponseTruncated)
		}
	}
	r.Handle("/unfinished", messagingtest.LyingLength(200, 50, "Zür😀"[:6], true))
	if a := s.Send(t.Context(), outgoing(r.URL+"/unfinished")); a.ResponseBody != "Zür" || !a.ResponseTruncated {
		t.Errorf("an unfinished character is kept as %q", a.ResponseBody)
	}
	r.Handle("/small", messagingtest.Status(200, "ééé"))
	for limit, want := range map[int]string{1: "", 2: "é", 3: "é", 6: "ééé", 7: "ééé", maxBody + 9: "ééé"} {
		o := outgoing(r.URL + "/small")
		o.ResponseCap = limit
		if a := s.Send(t.Context(), o); a.ResponseBody != want || a.ResponseTruncated != (limit < 6) {
			t.Errorf("cap %d: %q, truncated %v", limit, a.ResponseBody, a.ResponseTruncated)
		}
	}
}

func TestCase_RSP_03_GzipBombsStayFlat(t *testing.T) {
	r := messagingtest.New(t)
	s := newSender(t)
	r.Handle("/bomb", messagingtest.GzipBomb(200, 64<<20))
	before := residentBytes(t)
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			a := s.Send(t.Context(), outgoing(r.URL+"/bomb"))
			storable(t, a)
			if a.StatusCode != 200 || !a.ResponseTruncated || a.ResponseBody != strings.Repeat("\uFFFD", maxBody/3) {
				t.Errorf("attempt is %d, %d bytes, truncated %v", a.StatusCode, len(a.ResponseBody), a.ResponseTruncated)
			}
		})
	}
	group.Wait()
	if grown := residentBytes(t) - before; grown > 50<<20 {
		t.Errorf("resident memory grew by %d bytes", grown)
	}
	// gzip is decoded although none was asked for; other codings are not kept.
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, _ = w.Write([]byte("plain text"))
	w.Close()
	r.Handle("/gzip", messagingtest.Status(200, z.String(), "Content-Encoding: GZIP"))
	r.Handle("/broken", messagingtest.Status(200, "no gzip at all", "Content-Encoding: gzip"))
	r.Handle("/br", messagingtest.Status(200, "\x0b\x02\x80", "Content-Encoding: br"))
	for path, want := range map[string][2]string{
		"/gzip": {"plain text", ""}, "/broken": {"", "body incomplete: broken gzip"}, "/br": {"", "body not kept: content encoding br"},
	} {
		a := s.Send(t.Context(), outgoing(r.URL+path))
		if a.StatusCode != 200 || a.ResponseBody != want[0] || a.BodyNote != want[1] {
			t.Errorf("%s: %d %q %q", path, a.StatusCode, a.ResponseBody, a.BodyNote)
		}
	}
}

func residentBytes(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, _ := strconv.Atoi(strings.Fields(string(data))[1])
	return pages * os.Getpagesize()
}

func TestCase_RSP_05_OneDeadlineForAll(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t)
	var written int64
	done := make(chan struct{})
	const timeout, slack = 600 * time.Millisecond, 500 * time.Millisecond
	for _, c := range []struct {
		path      string
		answer    messagingtest.Answer
		status    int
		class     Class
		text      string
		note      string
		truncated bool
	}{
		{"/drip", messagingtest.Drip(200, 50*time.Millisecond), 200, ClassNone, "", "body incomplete: timeout", true},
		{"/drip500", messagingtest.Drip(500, 50*time.Millisecond), 500, ClassStatus, "HTTP 500", "body incomplete: timeout", true},
		{"/endless", messagingtest.Endless(200, func(n int64) { written = n; close(done) }), 200, ClassNone, "", "", true},
		{"/lying", messagingtest.LyingLength(200, 50, "abc", false), 200, ClassNone, "", "body incomplete: timeout", true},
		{"/short", messagingtest.LyingLength(200, 50, "abc", true), 200, ClassNone, "", "body incomplete: shorter than announced", true},
		{"/reset", messagingtest.ResetAfter("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nabc"), 200, ClassNone, "", "body incomplete: connection failed", true},
		{"/headers", messagingtest.DripHeaders(50 * time.Millisecond), 0, ClassTimeout, "timeout after 600ms waiting for the answer", "", false},
		{"/hang", messagingtest.Hang(messagingtest.Status(200, "")), 0, ClassTimeout, "timeout after 600ms waiting for the answer", "", false},
	} {
		r.Handle(c.path, c.answer)
		o := outgoing(r.URL + c.path)
		o.Timeout = timeout
		a := s.Send(t.Context(), o)
		want(t, a, c.status, c.class, c.text)
		storable(t, a)
		if a.BodyNote != c.note || a.ResponseTruncated != c.truncated {
			t.Errorf("%s: note %q, truncated %v", c.path, a.BodyNote, a.ResponseTruncated)
		}
		if a.Duration > timeout+slack {
			t.Errorf("%s took %s", c.path, a.Duration)
		}
		if a.Class == ClassTimeout && (outcome(a) != OutcomeRetry || !a.Sent) {
			t.Errorf("%s: outcome is %q", c.path, outcome(a))
		}
	}
	<-done
	if written > 16<<20 { // what socket buffers swallow before the close is seen
		t.Errorf("%d bytes of the endless body were taken", written)
	}
}

func TestCase_RSP_07_InterimAnswersAreSkipped(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t)
	for i, c := range []struct {
		answer messagingtest.Answer
		status int
		class  Class
		text   string
	}{
		{messagingtest.Interim(1, 100, messagingtest.Status(200, "x")), 200, ClassNone, ""},
		{messagingtest.Interim(1, 103, messagingtest.Status(200, "x"), "Link: </a>"), 200, ClassNone, ""},
		{messagingtest.Interim(200, 100, messagingtest.Status(200, "x")), 200, ClassNone, ""},
		{messagingtest.Interim(1, 103, messagingtest.Status(500, "x"), "Link: </a>"), 500, ClassStatus, "HTTP 500"},
		{messagingtest.Interim(1, 103, messagingtest.CloseUnanswered()), 0, ClassReset, "connection closed before an answer"},
		{messagingtest.Interim(20000, 103, messagingtest.Status(200, "x"), "Link: </a>"), 0, ClassProtocol, "response headers are larger than 256 KiB"},
		{messagingtest.Status(200, "after"), 200, ClassNone, ""},
	} {
		path := "/" + strconv.Itoa(i)
		r.Handle(path, c.answer)
		a := s.Send(t.Context(), outgoing(r.URL+path))
		want(t, a, c.status, c.class, c.text)
		if c.status == 200 && a.ResponseBody == "" {
			t.Errorf("case %d: body is empty", i)
		}
		if c.status == 0 && outcome(a) != OutcomeRetry {
			t.Errorf("case %d: outcome is %q", i, outcome(a))
		}
	}
	if n := len(r.Requests()); n != 7 {
		t.Errorf("%d requests, want 7", n)
	}
}

func TestCase_RSP_07_SwitchedProtocolIsDeadAndClosed(t *testing.T) {
	r := messagingtest.New(t)
	s := newSender(t)
	closed := make(chan struct{}, 2)
	r.Handle("/switch", messagingtest.SwitchProtocols(func() { closed <- struct{}{} }))
	r.Handle("/bare", messagingtest.Raw("HTTP/1.1 101 Switching Protocols\r\n\r\n"))
	for _, path := range []string{"/switch", "/bare"} {
		a := s.Send(t.Context(), outgoing(r.URL+path))
		want(t, a, 101, ClassStatus, "HTTP 101")
		if outcome(a) != OutcomeDead || a.Duration > 2*time.Second || a.ResponseBody != "" {
			t.Errorf("%s: attempt is %+v", path, a)
		}
	}
	<-closed // the receiver saw the end
}

func TestCase_RSP_09_OddHeadersAreRecorded(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t)
	many := make([]string, 300)
	for i := range many {
		many[i] = "X-Many-" + strconv.Itoa(i) + ": " + strings.Repeat("v", 100)
	}
	r.Handle("/latin", messagingtest.Status(200, "", "X-Reason: Zur\xfcck", "Set-Cookie: sid=hush", "Location: http://u:p@elsewhere.test/?t=1"))
	r.Handle("/many", messagingtest.Status(200, "", many...))
	r.Handle("/giant", messagingtest.GiantHeader(200, 11<<20))
	r.Handle("/garbage", messagingtest.Raw("SSH-2.0-OpenSSH secret banner\r\n"))
	r.Handle("/badlength", messagingtest.Raw("HTTP/1.1 200 OK\r\nContent-Length: hush\r\n\r\n"))
	r.Handle("/twolengths", messagingtest.Raw("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"))
	r.Handle("/zero", messagingtest.Raw("HTTP/1.1 000 Odd\r\nContent-Length: 0\r\n\r\n"))
	r.Handle("/ninety", messagingtest.Raw("HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n"))
	r.Handle("/encoding", messagingtest.Raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: hush\r\n\r\n"))
	a := s.Send(t.Context(), outgoing(r.URL+"/latin"))
	want(t, a, 200, ClassNone, "")
	storable(t, a)
	if got := a.ResponseHeaders.Get("X-Reason"); got != "Zur\uFFFDck" {
		t.Errorf("X-Reason is %q", got)
	}
	if a.ResponseHeaders.Get("Set-Cookie") != mask || a.ResponseHeaders["Location"] != nil || a.LocationHost != "elsewhere.test" {
		t.Errorf("headers are %v, location host %q", a.ResponseHeaders, a.LocationHost)
	}
	a = s.Send(t.Context(), outgoing(r.URL+"/many"))
	want(t, a, 200, ClassNone, "")
	storable(t, a)
	if n := len(a.ResponseHeaders); n < 100 || n > 200 {
		t.Errorf("%d headers are kept", n)
	}
	for path, text := range map[string]string{
		"/giant": "response headers are larger than 256 KiB", "/garbage": "malformed HTTP response", "/badlength": "malformed HTTP response",
		"/twolengths": "malformed HTTP response", "/encoding": "malformed HTTP response",
		"/zero": "malformed HTTP response", "/ninety": "malformed HTTP response",
	} {
		a = s.Send(t.Context(), outgoing(r.URL+path))
		want(t, a, 0, ClassProtocol, text)
		if outcome(a) != OutcomeRetry {
			t.Errorf("%s: outcome is %q", path, outcome(a))
		}
	}
}

func TestCase_RSP_11_BodiesAreNotInterpreted(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t)
	for i, c := range []struct {
		code int
		body string
	}{{200, "<html>"}, {200, ""}, {200, `{"error":"no"}`}, {201, "x"}, {202, ""}, {204, ""}, {206, "x"}, {299, "x"}} {
		path := "/" + strconv.Itoa(i)
		r.Handle(path, messagingtest.Status(c.code, c.body))
		a := s.Send(t.Context(), outgoing(r.URL+path))
		want(t, a, c.code, ClassNone, "")
		if outcome(a) != OutcomeSuccess || a.ResponseBody != c.body || !a.Success() {
			t.Errorf("%d: %q", c.code, a.ResponseBody)
		}
	}
	if n := r.Connections(); n != 1 {
		t.Errorf("%d connections, want all answers on one", n)
	}
}

func TestCase_RSP_12_CodesOnTheWire(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t)
	for _, code := range []int{400, 401, 404, 407, 408, 409, 410, 422, 423, 425, 429, 451, 500, 501, 505, 599, 600, 999} {
		path := "/" + strconv.Itoa(code)
		r.Handle(path, messagingtest.Status(code, "x", "Retry-After: 7"))
		a := s.Send(t.Context(), outgoing(r.URL+path))
		want(t, a, code, ClassStatus, "HTTP "+strconv.Itoa(code))
		retry := code == 408 || code == 429 || code >= 500 && code < 600
		if (outcome(a) == OutcomeRetry) != retry || (a.RetryAfter == 7*time.Second) != retry {
			t.Errorf("%d: outcome %q, retry after %s", code, outcome(a), a.RetryAfter)
		}
	}
}

func TestCase_RSP_13_EchoedSecretsAreMasked(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	r.Handle("/", messagingtest.Echo())
	s := newSender(t)
	o := outgoing(r.URL + "/")
	o.Headers = map[string]string{"authorization": "Bearer s3cret-t0ken", "X-API-KEY": "key-123456", "Cookie": "sid=abcdef", "X-Acme-Token": "acme-token"}
	a := s.Send(t.Context(), o)
	want(t, a, 200, ClassNone, "")
	for _, secret := range []string{"s3cret-t0ken", "key-123456", "sid=abcdef", "acme-token"} {
		if strings.Contains(a.ResponseBody, secret) {
			t.Errorf("%s stands in %q", secret, a.ResponseBody)
		}
	}
	for _, name := range []string{"Authorization", "X-Api-Key", "Cookie", "X-Acme-Token"} {
		if v := a.RequestHeaders[name]; len(v) != 1 || v[0] != mask {
			t.Errorf("recorded %s is %q", name, v)
		}
	}
	if a.RequestHeaders.Get(headerDelivery) != o.ID || a.RequestHeaders.Get(headerSignature) != a.Signature {
		t.Errorf("recorded headers are %v", a.RequestHeaders)
	}
	// A secret that the cap cuts in two is not left behind in part.
	for split := range len("key-123456") {
		r.Handle("/cut", messagingtest.Status(200, strings.Repeat("a", maxBody-split)+"key-123456 and more"))
		o.URL = r.URL + "/cut"
		if a := s.Send(t.Context(), o); strings.Contains(a.ResponseBody, "key-12") {
			t.Errorf("split at %d: body ends in %q", split, a.ResponseBody[len(a.ResponseBody)-12:])
		}
	}
	// Nor one that the receiver's own end cuts.
	r.Handle("/ended", messagingtest.LyingLength(200, 50, "token key-12345", true))
	o.URL = r.URL + "/ended"
	if a := s.Send(t.Context(), o); a.ResponseBody != "token " || !a.ResponseTruncated {
		t.Errorf("body is %q", a.ResponseBody)
	}
	r.Handle("/header", messagingtest.Status(200, "", "X-Echo: got Bearer s3cret-t0ken"))
	o.URL = r.URL + "/header"
	if got := s.Send(t.Context(), o).ResponseHeaders.Get("X-Echo"); got != "got "+mask {
		t.Errorf("X-Echo is %q", got)
	}
}

func TestLocationHost(t *testing.T) {
	t.Parallel()
	req, _ := http.NewRequest(http.MethodPost, "https://origin.test:8443/a", nil)
	for location, want := range map[string]string{
		"": "", "http://other.test/x?token=1": "other.test", "http://u:p@other.test:81/": "other.test:81", "/relative": "origin.test:8443",
		"//third.test/": "third.test", "http://[::ffff:10.0.0.5]/": "[::ffff:10.0.0.5]", "http://bad host/": "", "mailto:x@y": "",
		"http://" + strings.Repeat("h", 300) + "/": strings.Repeat("h", 255),
	} {
		resp := &http.Response{Header: headerOf("Location", location), Request: req}
		if got := locationHost(resp); got != want {
			t.Errorf("%q leads to %q, want %q", location, got, want)
		}
	}
}
