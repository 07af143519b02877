package messaging

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// A process that slept through a request's time, between the check of its claim
// and the write, sends nothing when it wakes up: not on a kept connection and
// not on a new one, with and without TLS.
func TestNothingIsWrittenAfterTheRequestsTime(t *testing.T) {
	for name, start := range map[string]func(http.Handler) *httptest.Server{"plain": httptest.NewServer, "tls": httptest.NewTLSServer} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int64
			server := start(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
			t.Cleanup(server.Close)
			allow, err := ParseEgressAllow([]string{"127.0.0.1"})
			if err != nil {
				t.Fatal(err)
			}
			cfg := SenderConfig{Egress: EgressConfig{Allow: allow}}
			if certificate := server.Certificate(); certificate != nil {
				cfg.RootCAs = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
			}
			s, err := NewSender(cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Close)
			// send sends with some time left by the clock. Its context does not end,
			// as before the timers of a process that wakes up have run.
			send := func(left time.Duration) *Attempt {
				o := &Outgoing{ID: "id", URL: server.URL, Body: []byte("{}"), Attempt: 1}
				a := &Attempt{}
				req, secrets, err := s.request(o, a)
				if err != nil {
					t.Fatal(err)
				}
				rec := &recorder{start: time.Now(), deadline: time.Now().Add(left)}
				s.exchange(rec.trace(t.Context()), req, o, a, rec, secrets, time.Minute)
				rec.save(a)
				return a
			}
			if a := send(-time.Second); a.Class != ClassTimeout {
				t.Errorf("late on a new connection: class %q (%s), want %q", a.Class, a.Error, ClassTimeout)
			}
			if a := send(time.Minute); a.StatusCode != 200 {
				t.Fatalf("in time: %+v", a)
			}
			if a := send(-time.Second); a.Class != ClassTimeout {
				t.Errorf("late on a kept connection: class %q (%s), want %q", a.Class, a.Error, ClassTimeout)
			}
			if n := requests.Load(); n != 1 {
				t.Errorf("%d requests arrived, want the one in time", n)
			}
		})
	}
}
