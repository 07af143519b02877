package messaging

import (
	"context"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/objecthost/objecthost/services/messaging/messagingtest"
)

// newSender returns a sender that may reach the test's receivers on loopback.
func newSender(t testing.TB, change ...func(*SenderConfig)) *Sender {
	t.Helper()
	cfg := SenderConfig{Egress: EgressConfig{Allow: allow(t, "127.0.0.0/8", "::1")}}
	for _, c := range change {
		c(&cfg)
	}
	s, err := NewSender(cfg)
	if err != nil {
		t.Fatalf("NewSender: %v", err)
	}
	t.Cleanup(s.Close)
	return s
}

func allow(t testing.TB, entries ...string) EgressAllow {
	t.Helper()
	a, err := ParseEgressAllow(entries)
	if err != nil {
		t.Fatalf("ParseEgressAllow: %v", err)
	}
	return a
}

func outgoing(url string) *Outgoing {
	return &Outgoing{
		ID: "0193-delivery", URL: url, Method: "post", Label: "data.record.created",
		Body: []byte(`{"object":"account"}`), Timeout: 10 * time.Second, Attempt: 1, Secret: []byte("s3cret-key"),
	}
}

// want checks the parts of an attempt that decide.
func want(t *testing.T, a *Attempt, status int, class Class, text string) {
	t.Helper()
	if a.StatusCode != status || a.Class != class || a.Error != text {
		t.Fatalf("attempt is %d %q %q, want %d %q %q", a.StatusCode, a.Class, a.Error, status, class, text)
	}
}

// outcome is what a first attempt means under the default schedule.
func outcome(a *Attempt) Outcome {
	return Decide(Input{Attempt: a, Source: SourceWebhook, Now: time.Now()}).Outcome
}

// openFiles counts descriptors, so that leaked sockets show.
func openFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatalf("count open files: %v", err)
	}
	return len(entries)
}

// settles waits until goroutines and files are back at a base line. The
// transport ends its goroutines after Send has returned, without a signal.
func settles(t *testing.T, goroutines, files int) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > goroutines || openFiles(t) > files {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("goroutines %d, base line %d; files %d, base line %d\n%s", runtime.NumGoroutine(), goroutines,
				openFiles(t), files, buf[:runtime.Stack(buf, true)])
		}
		<-time.After(5 * time.Millisecond)
	}
}

func TestSendPutsOurHeadersOnTheWire(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	a := newSender(t).Send(t.Context(), outgoing(r.URL+"/in"))
	want(t, a, 200, ClassNone, "")
	got := r.Requests()[0]
	const raw = "POST /in HTTP/1.1\r\nHost: HOST\r\nUser-Agent: ObjectStack-Http/1.0\r\nContent-Length: 20\r\n" +
		"Content-Type: application/json\r\nX-Objectstack-Attempt: 1\r\nX-Objectstack-Delivery: 0193-delivery\r\n" +
		"X-Objectstack-Event: data.record.created\r\n" +
		"X-Objectstack-Signature: sha256=27137ef005f1c7600f8767f839bf6fad7d0a11d2addc384663c3e8efa3e81c14\r\n\r\n" +
		`{"object":"account"}`
	wantRaw := strings.Replace(raw, "HOST", r.Addr, 1)
	if string(got.Raw) != wantRaw {
		t.Errorf("request is\n%q, want\n%q", got.Raw, wantRaw)
	}
	if a.Signature != "sha256=27137ef005f1c7600f8767f839bf6fad7d0a11d2addc384663c3e8efa3e81c14" {
		t.Errorf("Signature is %q", a.Signature)
	}
	if err := VerifySignature([]byte("s3cret-key"), got.Body, got.Header); err != nil {
		t.Errorf("VerifySignature: %v", err)
	}
}

func TestSendRecordsTimingsAndReuse(t *testing.T) {
	t.Parallel()
	r := messagingtest.NewTLS(t, "127.0.0.1")
	s := newSender(t, func(c *SenderConfig) { c.RootCAs = r.Roots() })
	first := s.Send(t.Context(), outgoing(r.URL))
	second := s.Send(t.Context(), outgoing(r.URL))
	want(t, first, 200, ClassNone, "")
	want(t, second, 200, ClassNone, "")
	if first.Reused || first.Connect <= 0 || first.TLS <= 0 || first.FirstByte < first.TLS || first.Duration < first.FirstByte {
		t.Errorf("first attempt: %+v", first)
	}
	if !second.Reused || second.Connect != 0 || second.TLS != 0 || second.DNS != 0 || second.FirstByte <= 0 {
		t.Errorf("second attempt: %+v", second)
	}
	if second.RemoteAddr != r.Addr || r.Connections() != 1 {
		t.Errorf("remote %q, %d connections", second.RemoteAddr, r.Connections())
	}
}

func TestSendStopsWithItsCaller(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	r.Handle("/", messagingtest.Hang(messagingtest.Status(200, "")))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan *Attempt, 1)
	s := newSender(t)
	go func() { done <- s.Send(ctx, outgoing(r.URL+"/")) }()
	if _, err := r.WaitFor(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	cancel()
	a := <-done
	want(t, a, 0, ClassStopped, "stopped before an answer")
	if got := outcome(a); got != OutcomeRelease {
		t.Errorf("outcome is %q", got)
	}
}

func TestSendNeverPanics(t *testing.T) {
	t.Parallel()
	s := newSender(t)
	for _, o := range []*Outgoing{nil, {}, {URL: "http://127.0.0.1:1/", Method: "TRACE"}, {URL: "http://x.test/", ID: "a\nb"}, {URL: "http://x.test/", Label: "\x00"}} {
		a := s.Send(t.Context(), o)
		if a == nil || a.Class != ClassUnusable || a.Sent || a.Error == "" {
			t.Errorf("attempt is %+v", a)
		}
	}
	broken := newSender(t)
	pooled := broken.pooled
	broken.pooled = nil // a defect of ours, not of the row
	defer func() { broken.pooled = pooled }()
	a := broken.Send(t.Context(), outgoing("http://127.0.0.1:1/"))
	if a.Class != ClassInternal || !strings.HasPrefix(a.Error, "defect in the sender") || outcome(a) != OutcomeRetry {
		t.Errorf("attempt is %+v", a)
	}
}

func TestClientIsGuarded(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	r.Handle("/redirect", messagingtest.Redirect(302, r.URL+"/elsewhere"))
	r.Handle("/switch", messagingtest.SwitchProtocols(nil))
	open, closed := newSender(t).Client(), newSender(t, func(c *SenderConfig) { c.Egress.Allow = EgressAllow{} }).Client()
	resp, err := open.Get(r.URL + "/redirect")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 302 || len(r.Requests()) != 1 {
		t.Errorf("status %d, %d requests", resp.StatusCode, len(r.Requests()))
	}
	resp, err = open.Get(r.URL + "/switch")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the body of a 101 can be read: %d %v", n, err)
	}
	before := r.Connections()
	if _, err := closed.Get(r.URL); err == nil || !strings.HasSuffix(err.Error(), "destination refused by the egress policy") {
		t.Errorf("error is %v", err)
	}
	if r.Connections() != before {
		t.Errorf("a connection was opened")
	}
}

func TestHTTPSOnly(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t, func(c *SenderConfig) { c.Egress.HTTPSOnly = true })
	a := s.Send(t.Context(), outgoing(r.URL))
	want(t, a, 0, ClassRefused, "destination refused by the egress policy: only https is allowed")
	if a.Sent || outcome(a) != OutcomeDead || r.Connections() != 0 {
		t.Errorf("attempt is %+v, %d connections", a, r.Connections())
	}
	if _, err := s.Client().Get(r.URL); err == nil || r.Connections() != 0 {
		t.Errorf("client: %v", err)
	}
}

// zone answers every question from a fixed table.
func zone(t testing.TB, table map[string][]string) *messagingtest.DNS {
	t.Helper()
	addrs := map[string][]netip.Addr{}
	for name, texts := range table {
		for _, text := range texts {
			addrs[name] = append(addrs[name], netip.MustParseAddr(text))
		}
	}
	return messagingtest.NewDNS(t, func(name string) []netip.Addr { return addrs[name] })
}

func headerOf(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}
