package messaging

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// An attempt whose row gives no timeout, or an absurd one, gets these.
const (
	fallbackTimeout = 15 * time.Second
	ceilingTimeout  = 300 * time.Second
)

const (
	userAgent = "ObjectStack-Http/1.0"
	// maxHeaderBlock bounds an answer's headers, its 1xx blocks included.
	maxHeaderBlock = 256 << 10
	// Idle connections: as many per host as one target may have in flight, and
	// for a shorter time than most receivers keep theirs.
	maxIdlePerHost = 64
	maxIdle        = 1024
	idleTimeout    = 30 * time.Second
)

// SenderConfig configures a [Sender]; the zero value works.
type SenderConfig struct {
	// Egress says where requests may go.
	Egress EgressConfig
	// RootCAs verifies receivers; nil means the system's roots, for which
	// SSL_CERT_FILE and SSL_CERT_DIR are honoured. There is no way to switch
	// verification off: trust a private authority by adding it here or there.
	RootCAs *x509.CertPool
	// Resolver looks names up; nil means net.DefaultResolver.
	Resolver *net.Resolver
	// Logger receives one warning at the start when there are no system roots;
	// nil discards.
	Logger *slog.Logger
	// Now is the clock of timestamps and of Retry-After dates; nil means
	// time.Now. Durations and deadlines use the monotonic clock.
	Now func() time.Time
}

// Outgoing is what the sender needs of a delivery, secrets unsealed.
type Outgoing struct {
	// ID is the delivery's id, the receiver's idempotency key.
	ID string
	// URL is sent byte for byte (see [ValidateURL]); Method in any letter case,
	// POST when empty.
	URL, Method string
	// Label is sent as X-Objectstack-Event.
	Label string
	// Headers are the author's (see [ValidateHeaders]).
	Headers map[string]string
	// Body is sent as it is with every method, GET and DELETE included, and is
	// what the signature covers. It must not change while Send runs.
	Body []byte
	// Timeout bounds the whole exchange; 0 or less is 15 s, more
	// than 300 s is 300 s.
	Timeout time.Duration
	// Before ends the exchange earlier than Timeout would; zero does not.
	Before time.Time
	// Attempt is the 1-based number of this attempt.
	Attempt int
	// Secret signs, PreviousSecret as well during a rotation's overlap. Without
	// Secret the request is not signed.
	Secret, PreviousSecret []byte
	// SignatureScheme chooses the signature headers.
	SignatureScheme SignatureScheme
	// Auth is applied to the request; nil for none.
	Auth *Authentication
	// ResponseCap keeps less than 16 KiB of the answer's body; 0 means 16 KiB.
	ResponseCap int
}

// Sender sends deliveries through the guarded transport. It is safe for
// concurrent use.
//
// It speaks HTTP/1.1 only. One connection carries one request at a time, so
// that a receiver that hangs or resets takes one delivery with it, not all
// that share an HTTP/2 connection, and a stale connection is told from a
// refused request without doubt. Measured on loopback with 64 in flight HTTP/2
// moves 20 to 90 % more requests; receivers are slower than that.
type Sender struct {
	cfg   SenderConfig
	guard *guard
	// pooled makes the exchanges that it can: those without a proxy, a large body
	// or a host name outside ASCII.
	pooled *wirePool
	// standard makes the others, and those of [Sender.Client]. It keeps
	// connections; once opens one for each request, for the second try after a
	// kept connection turned out to be closed.
	standard, once *http.Transport
	destinations   destinations
	stop           context.CancelFunc
}

// NewSender returns a sender, or an error when the configuration cannot work
// (a malformed proxy). Close it to release its connections.
func NewSender(cfg SenderConfig) (*Sender, error) {
	proxy, err := cfg.Egress.proxyURL()
	if err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Resolver == nil {
		cfg.Resolver = net.DefaultResolver
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.RootCAs == nil {
		// With no roots every https delivery fails, hours before anybody looks.
		if roots, err := x509.SystemCertPool(); err != nil || roots.Equal(x509.NewCertPool()) {
			cfg.Logger.Warn("no system root certificates: https deliveries will fail; set SSL_CERT_FILE or install a CA bundle")
		}
	}
	life, stop := context.WithCancel(context.Background())
	s := &Sender{
		cfg: cfg,
		guard: &guard{cfg: cfg.Egress, proxy: proxy, resolver: cfg.Resolver, life: life, tls: &tls.Config{
			RootCAs:            cfg.RootCAs,
			MinVersion:         tls.VersionTLS12,
			ClientSessionCache: tls.NewLRUClientSessionCache(256),
		}},
		stop: stop,
	}
	s.pooled = newWirePool(s.guard)
	s.standard, s.once = s.transport(), s.transport()
	s.once.DisableKeepAlives = true
	return s, nil
}

func (s *Sender) transport() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:                  s.guard.chooseProxy,
		OnProxyConnectResponse: proxyAnswer,
		DialContext:            s.guard.DialContext,
		DialTLSContext:         s.guard.DialTLSContext,
		TLSClientConfig:        s.guard.tls, // inside a proxy's tunnel
		TLSHandshakeTimeout:    dialLimit,
		// Answers are read to a small cap, and compressed ones are a bomb
		// risk: none are asked for. See readBody for those that come anyway.
		DisableCompression:     true,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBlock,
		Protocols:              protocols,
	}
}

// Close ends dials that nobody waits for and closes idle connections. Requests
// in flight end by their own contexts; Send must not be called afterwards.
func (s *Sender) Close() {
	s.stop()
	s.pooled.close()
	s.standard.CloseIdleConnections()
	s.once.CloseIdleConnections()
}

// Send makes one attempt. It never panics, returns no later than o.Timeout
// plus a little, and never returns nil. When ctx is cancelled before the
// answer's headers are complete the attempt is of ClassStopped.
//
// A kept-alive connection that the receiver has closed meanwhile costs no
// attempt: when nothing of an answer was read, the same bytes go out once more,
// over a fresh connection and under the same deadline.
func (s *Sender) Send(ctx context.Context, o *Outgoing) (a *Attempt) {
	begin := time.Now()
	a = &Attempt{Started: s.cfg.Now()}
	defer func() {
		if p := recover(); p != nil {
			// The value may hold anything, a secret included.
			a.fail(ClassInternal, fmt.Sprintf("defect in the sender (%T)", p))
		}
		a.Duration = time.Since(begin)
	}()
	if o == nil {
		a.fail(ClassUnusable, "no delivery given")
		return a
	}
	req, secrets, err := s.request(o, a)
	if err != nil {
		a.fail(ClassUnusable, err.Error())
		return a
	}
	if s.cfg.Egress.HTTPSOnly && req.URL.Scheme != "https" {
		a.fail(ClassRefused, errPlainHTTP{}.Error())
		return a
	}
	timeout := timeoutOf(o)
	rec := &recorder{start: begin, deadline: begin.Add(timeout)}
	if !o.Before.IsZero() && o.Before.Before(rec.deadline) {
		rec.deadline = o.Before
	}
	s.exchange(ctx, req, o, a, rec, secrets, timeout)
	rec.save(a)
	return a
}

func timeoutOf(o *Outgoing) time.Duration {
	if o.Timeout <= 0 {
		return fallbackTimeout
	}
	return min(o.Timeout, ceilingTimeout)
}

// exchange sends the request, a second time where the first met a stale
// connection, and reads the answer. The recorder's deadline ends it.
func (s *Sender) exchange(ctx context.Context, req *http.Request, o *Outgoing, a *Attempt, rec *recorder, secrets []string, timeout time.Duration) {
	var resp *http.Response
	dest, err := s.destinations.parse(o.URL)
	switch {
	case err != nil:
	case s.guard.proxy == nil && len(o.Body) <= maxWireBody && dest.ascii:
		resp, err = s.pooled.roundTrip(ctx, &wireRequest{req: req, dest: dest, body: o.Body, rec: rec})
	default:
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, rec.deadline)
		defer cancel()
		resp, err = s.roundTrip(rec.trace(ctx), req, o.Body, rec)
	}
	if err == nil && resp.StatusCode == http.StatusProxyAuthRequired && s.guard.proxy != nil && req.URL.Scheme == "http" {
		// Only a proxy answers 407: no word from the receiver.
		resp.Body.Close()
		resp, err = nil, &proxyError{resp.StatusCode}
	}
	if err == nil && resp.StatusCode < 100 {
		resp.Body.Close()
		resp, err = nil, errMalformed
	}
	if err != nil {
		awaitEnd(ctx)
		class, text := explain(err, ctx.Err(), rec.at(), timeout)
		a.fail(class, text)
		a.Sent = class != ClassRefused && class != ClassUnusable
		return
	}
	defer resp.Body.Close()
	a.Sent = true
	a.readAnswer(resp, o, secrets, s.cfg.Now())
}

// awaitEnd waits until a context knows of its end when its deadline has passed: a
// dial takes the deadline for its own, and may be the first to notice.
func awaitEnd(ctx context.Context) {
	if end, ok := ctx.Deadline(); !ok || time.Now().Before(end) {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(answerGrace): // no context of the standard library
	}
}

// roundTrip makes an exchange that has a proxy, a large body (which it streams)
// or a host name to be mapped, by net/http.
func (s *Sender) roundTrip(ctx context.Context, req *http.Request, body []byte, rec *recorder) (*http.Response, error) {
	resp, err := s.standard.RoundTrip(withBody(req.WithContext(ctx), body))
	if err != nil && ctx.Err() == nil && rec.stale() {
		// net/http would replay by itself, but only methods that it takes for
		// idempotent, as often as it finds kept connections. A delivery id
		// makes every method repeatable; once is enough.
		rec.reset()
		resp, err = s.once.RoundTrip(withBody(req.WithContext(ctx), body))
	}
	return resp, err
}

// withBody gives a request its own reader of the body. There is no GetBody, so
// that net/http replays nothing on its own.
func withBody(req *http.Request, body []byte) *http.Request {
	req.ContentLength = int64(len(body))
	if len(body) == 0 {
		req.Body = http.NoBody
		// Makes net/http write Content-Length: 0 with DELETE and OPTIONS too.
		req.TransferEncoding = identityEncoding
		return req
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	return req
}

var identityEncoding = []string{"identity"}

// proxyError is an answer of the proxy's own.
type proxyError struct{ status int }

func (e *proxyError) Error() string { return "proxy: answered HTTP " + strconv.Itoa(e.status) }

// proxyAnswer turns a refused CONNECT into an error without the proxy's text.
func proxyAnswer(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	return &proxyError{resp.StatusCode}
}

// Client returns an HTTP client over the same guarded transport, for plugins
// and for flow nodes that wait for their answer. It follows no redirects, asks
// for no compression and gives up after 300 s; callers set shorter
// deadlines in their contexts, and bound what they read of a body.
func (s *Sender) Client() *http.Client {
	return &http.Client{
		Transport:     guardedTripper{s},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       ceilingTimeout,
	}
}

// guardedTripper adds to the transport what Send checks for itself.
type guardedTripper struct{ sender *Sender }

func (t guardedTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	fail := func(err error) (*http.Response, error) {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	if t.sender.cfg.Egress.HTTPSOnly && req.URL.Scheme != "https" {
		return fail(errPlainHTTP{})
	}
	if reason := checkHost(req.URL.Hostname()); reason != "" {
		return fail(&URLError{reason})
	}
	resp, err := t.sender.standard.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		// Its body would be the bare connection, free of every deadline.
		resp.Body.Close()
		resp.Body = http.NoBody
	}
	return resp, err
}

// CloseIdleConnections keeps clients from closing connections of others.
func (guardedTripper) CloseIdleConnections() {}
