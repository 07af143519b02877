package messaging

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/objecthost/objecthost/services/messaging/messagingtest"
)

func TestCase_RED_01_RedirectIsNeverSuccess(t *testing.T) {
	t.Parallel()
	target, r := messagingtest.New(t), messagingtest.New(t)
	s := newSender(t)
	for _, code := range []int{301, 302, 303, 307, 308} {
		path := "/" + strconv.Itoa(code)
		r.Handle(path, messagingtest.Redirect(code, target.URL+"/b?token=hush"))
		a := s.Send(t.Context(), outgoing(r.URL+path))
		want(t, a, code, ClassStatus, "HTTP "+strconv.Itoa(code))
		if a.LocationHost != target.Addr || outcome(a) != OutcomeDead || strings.Contains(a.Error, "hush") {
			t.Errorf("%d: attempt is %+v", code, a)
		}
	}
	if target.Connections() != 0 || len(r.Requests()) != 5 {
		t.Errorf("%d connections to the target, %d requests", target.Connections(), len(r.Requests()))
	}
}

func TestCase_RED_03_All3xxAreAlike(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t)
	for _, code := range []int{300, 301, 304, 305, 306, 310, 399} {
		path := "/" + strconv.Itoa(code)
		r.Handle(path, messagingtest.Status(code, ""))
		a := s.Send(t.Context(), outgoing(r.URL+path))
		want(t, a, code, ClassStatus, "HTTP "+strconv.Itoa(code))
		if outcome(a) != OutcomeDead || a.LocationHost != "" {
			t.Errorf("%d: attempt is %+v", code, a)
		}
	}
}

func TestCase_RED_05_LoopsAndChainsEndAtOnce(t *testing.T) {
	t.Parallel()
	a, b := messagingtest.New(t), messagingtest.New(t)
	a.Handle("/", messagingtest.Redirect(302, b.URL+"/"))
	b.Handle("/", messagingtest.Redirect(302, a.URL+"/"))
	for i := range 12 {
		a.Handle("/"+strconv.Itoa(i), messagingtest.Redirect(307, a.URL+"/"+strconv.Itoa(i+1)))
	}
	s := newSender(t)
	want(t, s.Send(t.Context(), outgoing(a.URL+"/")), 302, ClassStatus, "HTTP 302")
	want(t, s.Send(t.Context(), outgoing(a.URL+"/0")), 307, ClassStatus, "HTTP 307")
	if len(a.Requests()) != 2 || b.Connections() != 0 {
		t.Errorf("%d requests and %d connections", len(a.Requests()), b.Connections())
	}
}

func TestCase_RED_06_SecondAddressIsNeverOpened(t *testing.T) {
	t.Parallel()
	r, inner := messagingtest.New(t), messagingtest.NewAt(t, "127.0.0.90:0")
	s := newSender(t)
	for _, location := range []string{
		"http://169.254.169.254/", "http://[::ffff:10.0.0.5]/", "http://localhost:" + inner.Port() + "/", inner.URL, "//" + inner.Addr, "::bad::",
	} {
		for _, code := range []int{302, 307} {
			r.Handle("/", messagingtest.Redirect(code, location))
			a := s.Send(t.Context(), outgoing(r.URL+"/"))
			want(t, a, code, ClassStatus, "HTTP "+strconv.Itoa(code))
		}
	}
	if inner.Connections() != 0 {
		t.Errorf("%d connections", inner.Connections())
	}
}

// bodies are sent and signed byte for byte with every method.
var bodies = []string{
	"", `""`, "null", "0", "{}", "[]", "x", "\x00", "\xff\xfe", `"hello"`, "<xml a='1'/>", "hello", `{"z":1,"a":1.10,"9":1E2,"t":"<a&b>"}`,
	`{"id":9007199254740993,"n":123456789012345678901234567890,"s":-0,"e":1e400}`, `{"name":"Ñandú 😀 客户 \u2028 ` + "\u2028" + `"}`,
	`{"lone":"\ud800"}`, "a\xffb", "\ufeff{}", "  {}\r\n", strings.Repeat("long ", 50_000),
}

func TestCase_BOD_08_SignatureCoversWhatIsSent(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t)
	for i, body := range bodies {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "GET", "OPTIONS"} {
			o := outgoing(r.URL + "/in")
			o.Method, o.Body, o.PreviousSecret = method, []byte(body), []byte("old-secret")
			want(t, s.Send(t.Context(), o), 200, ClassNone, "")
			requests := r.Requests()
			got := requests[len(requests)-1]
			if got.Method != method || string(got.Body) != body {
				t.Fatalf("body %d with %s arrived as %s %.80q", i, method, got.Method, got.Body)
			}
			if err := VerifySignature(o.Secret, got.Body, got.Header); err != nil {
				t.Errorf("body %d with %s: %v", i, method, err)
			}
			if err := VerifySignature(o.PreviousSecret, got.Body, got.Header); err != nil {
				t.Errorf("body %d with %s, old secret: %v", i, method, err)
			}
		}
	}
}

func TestCase_BOD_01_EveryAttemptSendsTheSameBytes(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	o := outgoing(r.URL)
	o.Body = []byte(`{"z":1,"f":2,"a":3,"10":4,"9":5,"v":1.10,"e":1E2,"t":"<a&b>","z":6}`)
	for attempt := range 3 {
		o.Attempt = attempt + 1
		s := newSender(t) // as after a restart
		a := s.Send(t.Context(), o)
		want(t, a, 200, ClassNone, "")
		if a.Signature != "sha256=47159a24cb2074148f8d0be5b4f32921043428ad1ad9fbea5ef78b5d056ab46e" { // by openssl
			t.Errorf("attempt %d is signed %s", attempt+1, a.Signature)
		}
	}
	for i, got := range r.Requests() {
		if !bytes.Equal(got.Body, o.Body) || got.Header.Get(headerAttempt) != strconv.Itoa(i+1) || got.Header.Get(headerDelivery) != o.ID {
			t.Errorf("attempt %d: %s %v", i+1, got.Body, got.Header)
		}
	}
}

func TestCase_BOD_10_LengthIsAlwaysGiven(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t)
	for _, method := range []string{"delete", "get", "put", "post", "patch", "head", "options"} {
		for _, body := range []string{"", "{}"} {
			o := outgoing(r.URL)
			o.Method, o.Body = method, []byte(body)
			want(t, s.Send(t.Context(), o), 200, ClassNone, "")
			requests := r.Requests()
			got := requests[len(requests)-1]
			length := int64(len(body))
			if body == "" && (method == "get" || method == "head") {
				length = -1 // no body, no length: what every receiver expects of GET
			}
			if got.ContentLength != length || got.TransferEncoding != nil || got.Method != strings.ToUpper(method) || string(got.Body) != body {
				t.Errorf("%s with %q: length %d, encoding %v, body %q", method, body, got.ContentLength, got.TransferEncoding, got.Body)
			}
		}
	}
}

func TestCase_BOD_11_LargeBodiesAreNotCopied(t *testing.T) {
	r := messagingtest.New(t)
	s := newSender(t)
	o := outgoing("http://127.0.0.1:1/") // nothing listens: what is measured is ours
	o.Body = bytes.Repeat([]byte("0123456789abcdef"), 10<<20/16)
	s.Send(t.Context(), o)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 20 {
		s.Send(t.Context(), o)
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / 20; n > 1<<20 {
		t.Errorf("%d bytes are allocated for each send of 10 MB", n)
	}
	o.URL = r.URL
	want(t, s.Send(t.Context(), o), 200, ClassNone, "")
	if got := r.Requests()[0]; !bytes.Equal(got.Body, o.Body) {
		t.Errorf("the body arrived with %d bytes", len(got.Body))
	}
}

// A receiver that closes idle connections costs no attempt and no event.
func TestCase_CON_01_StaleConnectionIsReplacedOnce(t *testing.T) {
	t.Parallel()
	for name, closing := range map[string]messagingtest.Answer{
		"closes after the answer": messagingtest.HangUp(messagingtest.Status(200, "")),
		"closes on the next":      messagingtest.Status(200, ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := messagingtest.New(t)
			s := newSender(t)
			r.Handle("/", closing)
			for i := range 30 {
				o := outgoing(r.URL + "/")
				o.ID, o.Body = "delivery-"+strconv.Itoa(i), []byte(strconv.Itoa(i))
				a := s.Send(t.Context(), o)
				want(t, a, 200, ClassNone, "")
				r.CloseIdle()
			}
			got := r.Requests()
			if len(got) != 30 {
				t.Errorf("%d requests, want 30", len(got))
			}
			for i, req := range got {
				if string(req.Body) != strconv.Itoa(i) || req.Header.Get(headerAttempt) != "1" {
					t.Errorf("request %d is %q, attempt %s", i, req.Body, req.Header.Get(headerAttempt))
				}
			}
		})
	}
}

// The receiver reads the second request of a connection and then closes it
// without a byte of an answer: the same bytes come once more, not for ever.
func TestCase_CON_01_ReplayIsOnceAndOnAFreshConnection(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t)
	for _, method := range []string{"POST", "DELETE", "GET"} {
		r.Handle("/", messagingtest.Status(200, ""), messagingtest.CloseUnanswered(), messagingtest.Status(200, "second"))
		before := len(r.Requests())
		o := outgoing(r.URL + "/")
		o.Method = method
		want(t, s.Send(t.Context(), o), 200, ClassNone, "")
		a := s.Send(t.Context(), o)
		want(t, a, 200, ClassNone, "")
		got := r.Requests()[before:]
		if len(got) != 3 || got[1].Conn != got[0].Conn || got[2].Conn == got[1].Conn || got[2].Seq != 1 || a.Reused {
			t.Fatalf("%s: %d requests: %+v", method, len(got), got)
		}
		if !bytes.Equal(got[1].Body, got[2].Body) || got[1].Header.Get(headerDelivery) != got[2].Header.Get(headerDelivery) ||
			got[2].Header.Get(headerAttempt) != "1" || got[1].Header.Get(headerSignature) != got[2].Header.Get(headerSignature) {
			t.Errorf("%s: the second try differs: %+v", method, got)
		}
	}
	// Closed again: a failure like any other.
	r.Handle("/", messagingtest.Status(200, ""), messagingtest.CloseUnanswered())
	want(t, s.Send(t.Context(), outgoing(r.URL+"/")), 200, ClassNone, "")
	before := len(r.Requests())
	a := s.Send(t.Context(), outgoing(r.URL+"/"))
	want(t, a, 0, ClassReset, "connection closed before an answer")
	if n := len(r.Requests()) - before; n != 2 || !a.Sent || outcome(a) != OutcomeRetry {
		t.Errorf("%d requests, attempt %+v", n, a)
	}
}

// No replay when the connection was fresh or something of an answer was read.
func TestCase_CON_01_NoReplayAfterAnAnswerBegan(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t)
	r.Handle("/fresh", messagingtest.CloseUnanswered())
	a := s.Send(t.Context(), outgoing(r.URL+"/fresh"))
	want(t, a, 0, ClassReset, "connection closed before an answer")
	r.Handle("/reset", messagingtest.ResetUnanswered())
	a = s.Send(t.Context(), outgoing(r.URL+"/reset"))
	want(t, a, 0, ClassReset, "connection failed before an answer: connection reset by peer")
	if n := len(r.Requests()); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
	for _, begun := range []messagingtest.Answer{messagingtest.Raw("HTTP/1.1 2"), messagingtest.Interim(1, 103, messagingtest.CloseUnanswered()), messagingtest.Raw("x")} {
		r.Handle("/", messagingtest.Status(200, ""), begun)
		want(t, s.Send(t.Context(), outgoing(r.URL+"/")), 200, ClassNone, "")
		before := len(r.Requests())
		a := s.Send(t.Context(), outgoing(r.URL+"/"))
		if n := len(r.Requests()) - before; n != 1 || a.StatusCode != 0 || outcome(a) != OutcomeRetry {
			t.Errorf("%d requests, attempt %+v", n, a)
		}
	}
	// A timeout on a kept connection is no stale connection.
	r.Handle("/", messagingtest.Status(200, ""), messagingtest.Hang(messagingtest.Status(200, "")))
	want(t, s.Send(t.Context(), outgoing(r.URL+"/")), 200, ClassNone, "")
	before := len(r.Requests())
	o := outgoing(r.URL + "/")
	o.Timeout = 200 * time.Millisecond
	want(t, s.Send(t.Context(), o), 0, ClassTimeout, "timeout after 200ms waiting for the answer")
	if n := len(r.Requests()) - before; n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

func TestConnectionsAreReusedWhereTheBodyIsRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer messagingtest.Answer
		conns  int
	}{
		"small body":             {messagingtest.Status(200, "ok"), 1},
		"no body":                {messagingtest.Status(204, ""), 1},
		"refusal":                {messagingtest.Status(404, "no"), 1},
		"a little over the cap":  {messagingtest.Status(200, strings.Repeat("a", maxBody+maxDrain)), 1},
		"far over the cap":       {messagingtest.Status(200, strings.Repeat("a", 1<<20)), 10},
		"receiver says close":    {messagingtest.HangUp(messagingtest.Status(200, "ok", "Connection: close")), 10},
		"redirect, unread cause": {messagingtest.Redirect(302, "/x"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := messagingtest.New(t)
			s := newSender(t)
			r.Handle("/", c.answer)
			for range 10 {
				s.Send(t.Context(), outgoing(r.URL+"/"))
			}
			if n := r.Connections(); n != c.conns || len(r.Requests()) != 10 {
				t.Errorf("%d connections for %d requests, want %d", n, len(r.Requests()), c.conns)
			}
		})
	}
}

func TestCase_CON_03_NothingLeaks(t *testing.T) {
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	r := messagingtest.New(t)
	s := newSender(t)
	r.Handle("/500", messagingtest.Status(500, "no"))
	r.Handle("/hang", messagingtest.Hang(messagingtest.Status(200, "")))
	r.Handle("/big", messagingtest.Status(200, strings.Repeat("b", 100_000)))
	r.Handle("/redirect", messagingtest.Redirect(302, r.URL+"/500"))
	r.Handle("/reset", messagingtest.ResetUnanswered())
	r.Handle("/lying", messagingtest.LyingLength(200, 100, "x", false))
	r.Handle("/endless", messagingtest.Endless(200, nil))
	r.Handle("/switch", messagingtest.SwitchProtocols(nil))
	r.Handle("/giant", messagingtest.GiantHeader(200, 1<<20))
	paths := []string{"/500", "/hang", "/big", "/redirect", "/reset", "/lying", "/endless", "/switch", "/giant"}
	slots := make(chan struct{}, 50)
	for i := range 2000 {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			o := outgoing(r.URL + paths[i%len(paths)])
			o.Timeout = 30 * time.Millisecond
			if a := s.Send(context.Background(), o); a.Duration > 5*time.Second {
				t.Errorf("%s took %s", o.URL, a.Duration)
			}
		}()
	}
	for range cap(slots) {
		slots <- struct{}{}
	}
	s.Close()
	r.Close()
	settles(t, goroutines+2, files+2)
}

func TestCase_CON_04_DNSTroubleIsRetriable(t *testing.T) {
	t.Parallel()
	resolver := zone(t, map[string][]string{}).Resolver()
	s := newSender(t, func(c *SenderConfig) { c.Resolver = resolver })
	for range 3 {
		a := s.Send(t.Context(), outgoing("http://gone.test/"))
		want(t, a, 0, ClassDNS, "dns: no such host")
		if d := Decide(Input{Attempt: a, Jitter: 0.5}); d != (Decision{Outcome: OutcomeRetry, NextDelay: time.Second, Error: "dns: no such host", SpendAttempt: true}) {
			t.Errorf("decision is %+v", d)
		}
	}
}

func TestCase_CON_05_TimeoutsHaveABound(t *testing.T) {
	t.Parallel()
	for given, want := range map[time.Duration]time.Duration{
		0: 15 * time.Second, -1: 15 * time.Second, 1: 1, time.Second: time.Second, 300 * time.Second: 300 * time.Second,
		301 * time.Second: 300 * time.Second, 1<<63 - 1: 300 * time.Second, -1 << 63: 15 * time.Second,
	} {
		if got := timeoutOf(&Outgoing{Timeout: given}); got != want {
			t.Errorf("%d becomes %s, want %s", given, got, want)
		}
	}
	r := messagingtest.New(t)
	o := outgoing(r.URL)
	o.Timeout = 1
	if a := newSender(t).Send(t.Context(), o); a.Class != ClassTimeout || !a.Sent {
		t.Errorf("attempt is %+v", a)
	}
}

func TestConnectTimeoutIsBounded(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t, func(c *SenderConfig) { c.Resolver = messagingtest.NewSilentDNS(t) })
	o := outgoing("http://silent.test:" + r.Port() + "/")
	o.Timeout = 300 * time.Millisecond
	a := s.Send(t.Context(), o)
	want(t, a, 0, ClassTimeout, "timeout after 300ms resolving the name")
	if a.Duration > time.Second {
		t.Errorf("took %s", a.Duration)
	}
}

// A receiver that accepts and says nothing holds its socket no longer than the
// request lasts.
func TestSilentTLSReceiverIsLeftInTime(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	closed := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			_, err = io.Copy(io.Discard, conn)
			conn.Close()
		}
		closed <- err
	}()
	o := outgoing("https://" + listener.Addr().String() + "/")
	o.Timeout = 300 * time.Millisecond
	want(t, newSender(t).Send(t.Context(), o), 0, ClassTimeout, "timeout after 300ms in the TLS handshake")
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the socket is still open 5 s later")
	}
}

func BenchmarkSend(b *testing.B) {
	r := messagingtest.New(b)
	r.Handle("/", messagingtest.Status(200, "ok"))
	s := newSender(b)
	o := outgoing(r.URL + "/")
	o.Headers = map[string]string{"Authorization": "Bearer s3cret-t0ken"}
	b.ReportAllocs()
	for b.Loop() {
		if a := s.Send(b.Context(), o); a.StatusCode != http.StatusOK {
			b.Fatalf("attempt is %+v", a)
		}
	}
}

// BenchmarkPrepare is Send without the exchange: parsing, headers, signature.
func BenchmarkPrepare(b *testing.B) {
	s := newSender(b)
	o := outgoing("https://hooks.example.com/services/T000/B000?x=1")
	o.Headers = map[string]string{"Authorization": "Bearer s3cret-t0ken"}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := s.request(o, &Attempt{}); err != nil {
			b.Fatal(err)
		}
	}
}

// A claim that ends before the request's own time ends the request.
func TestSendEndsBefore(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	r.Handle("/", messagingtest.Hang(messagingtest.Status(200, "")))
	s := newSender(t)
	for _, body := range []int{10, maxWireBody + 1} { // both ways of sending
		o := outgoing("http://127.0.0.1:" + r.Port() + "/")
		o.Body, o.Timeout, o.Before = bytes.Repeat([]byte("x"), body), time.Minute, time.Now().Add(50*time.Millisecond)
		a := s.Send(t.Context(), o)
		if a.Class != ClassTimeout || a.Duration < 20*time.Millisecond || a.Duration > 20*time.Second {
			t.Errorf("attempt with %d bytes is %q %q after %s, want a timeout after 50 ms", body, a.Class, a.Error, a.Duration)
		}
	}
}

// When the caller's own deadline ends a request, the caller finds it over.
func TestSendOutlastsTheCallersDeadline(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	r.Handle("/", messagingtest.Hang(messagingtest.Status(200, "")))
	s := newSender(t)
	for range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
		a := s.Send(ctx, outgoing("http://127.0.0.1:"+r.Port()+"/"))
		if a.Class != ClassTimeout || ctx.Err() == nil {
			t.Fatalf("attempt is %q %q while the context's error is %v", a.Class, a.Error, ctx.Err())
		}
		cancel()
	}
}
