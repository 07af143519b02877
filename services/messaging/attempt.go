package messaging

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Class sorts attempts by what went wrong.
type Class string

// The classes of an attempt. Those above ClassStatus got no complete answer.
const (
	// ClassNone: the receiver answered 2xx.
	ClassNone Class = ""
	// ClassDNS: the name could not be resolved.
	ClassDNS Class = "dns"
	// ClassConnect: no connection, to the receiver or through the proxy.
	ClassConnect Class = "connect"
	// ClassTLS: the handshake or the certificate check failed.
	ClassTLS Class = "tls"
	// ClassTimeout: the time was over before the headers were complete.
	ClassTimeout Class = "timeout"
	// ClassReset: the connection ended before the headers were complete.
	ClassReset Class = "reset"
	// ClassProtocol: what came was no HTTP answer, or its headers are too big.
	ClassProtocol Class = "protocol"
	// ClassStatus: answered, but not 2xx.
	ClassStatus Class = "status"
	// ClassRefused: the egress policy refused the destination.
	ClassRefused Class = "refused"
	// ClassUnusable: the row holds something that cannot be sent.
	ClassUnusable Class = "unusable"
	// ClassStopped: the caller's context was cancelled before an answer.
	ClassStopped Class = "stopped"
	// ClassInternal: a defect in the sender; the error says where.
	ClassInternal Class = "internal"
)

// Attempt is the record of one try. Every text in it is valid UTF-8 without
// NUL, so that both databases store it.
type Attempt struct {
	// Started is the wall-clock start, Duration the time until Send returned.
	Started  time.Time
	Duration time.Duration
	// DNS, Connect and TLS are the parts of opening the connection, zero for a
	// reused one. FirstByte runs from the start to the answer's first byte.
	DNS, Connect, TLS, FirstByte time.Duration
	// RemoteAddr is the ip:port connected to, the proxy's when there is one.
	RemoteAddr string
	// Reused tells that a kept-alive connection was used.
	Reused bool
	// RequestHeaders are the headers sent; the author's values and credentials
	// are masked.
	RequestHeaders http.Header
	// Signature is the X-Objectstack-Signature sent, or the webhook-signature
	// where that is the only one.
	Signature string
	// StatusCode is the final status, 0 when no header block was complete.
	StatusCode int
	// ResponseHeaders are the answer's, at most 16 KiB of them, without
	// Location and with the values of cookies masked.
	ResponseHeaders http.Header
	// ResponseBody is at most 16 KiB and ends on a character.
	ResponseBody string
	// ResponseTruncated tells that there was or may have been more.
	ResponseTruncated bool
	// LocationHost is the host that a Location header points to.
	LocationHost string
	// Class and Error say what went wrong; both are empty on success.
	Class Class
	Error string
	// RetryAfter is what a retryable answer asked for, at most 24 h.
	RetryAfter time.Duration
	// Sent tells that the attempt went to the network: a failed lookup or
	// connect counts, a refused or unusable row does not.
	Sent bool
	// BodyNote says what was wrong with the answer's body. It never changes
	// the outcome.
	BodyNote string
}

// Success reports whether the receiver took the delivery.
func (a *Attempt) Success() bool { return a.StatusCode >= 200 && a.StatusCode <= 299 }

// fail records an error. Only texts made here are stored: net/http's own
// repeat the URL, addresses and bytes of the answer.
func (a *Attempt) fail(class Class, text string) {
	a.Class, a.Error = class, text
}

// phase is how far an exchange has come.
type phase int

const (
	phaseStart phase = iota
	phaseDNS
	phaseConnect
	phaseTLS
	phaseExchange
)

var phaseNames = [...]string{"connecting", "resolving the name", "connecting", "in the TLS handshake", "waiting for the answer"}

// recorder collects what happens to one exchange. Its methods accept a nil
// receiver, for requests of [Sender.Client], and calls after the exchange is
// over, which a dial that outlives its request makes.
type recorder struct {
	deadline time.Time

	mu                   sync.Mutex
	start, tlsStart      time.Time
	phase                phase
	dns, connect, tls    time.Duration
	first                time.Duration
	remote               string
	reused, gotFirstByte bool
}

type recorderKey struct{}

func recorderOf(ctx context.Context) *recorder {
	rec, _ := ctx.Value(recorderKey{}).(*recorder)
	return rec
}

// trace returns ctx with the recorder and its hooks.
func (r *recorder) trace(ctx context.Context) context.Context {
	ctx = context.WithValue(ctx, recorderKey{}, r)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			r.connection(info.Conn.RemoteAddr().String(), info.Reused)
			setUntil(info.Conn, &r.deadline)
		},
		// These two run inside a proxy's tunnel; the guard calls their like.
		TLSHandshakeStart:    func() { r.enter(phaseTLS) },
		TLSHandshakeDone:     func(tls.ConnectionState, error) { r.handshaken() },
		GotFirstResponseByte: r.answered,
	})
}

// connection notes the connection that the exchange goes over.
func (r *recorder) connection(remote string, reused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase, r.reused, r.remote = phaseExchange, reused, remote
}

// answered notes the first byte of an answer.
func (r *recorder) answered() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.first, r.gotFirstByte = time.Since(r.start), true
}

func (r *recorder) enter(p phase) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase = p
	if p == phaseTLS {
		r.tlsStart = time.Now()
	}
}

func (r *recorder) handshaken() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tls = time.Since(r.tlsStart)
}

func (r *recorder) resolved(start time.Time) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dns += time.Since(start)
}

func (r *recorder) connected(start time.Time) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.connect += time.Since(start)
}

// save copies what is known into a.
func (r *recorder) save(a *Attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.RemoteAddr, a.Reused, a.FirstByte = r.remote, r.reused, r.first
	if !r.reused {
		a.DNS, a.Connect, a.TLS = r.dns, r.connect, r.tls
	}
}

// stale reports that an exchange failed on a kept-alive connection before a
// byte of the answer was read.
func (r *recorder) stale() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.phase == phaseExchange && r.reused && !r.gotFirstByte
}

// reset prepares for the exchange on a fresh connection.
func (r *recorder) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase, r.reused, r.remote = phaseStart, false, ""
	r.dns, r.connect, r.tls = 0, 0, 0
}

func (r *recorder) at() phase {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.phase
}

// explain sorts the error of an exchange without an answer. ended is the
// exchange's context error at that moment.
func explain(err, ended error, at phase, timeout time.Duration) (Class, string) {
	var (
		refused *EgressError
		badURL  *URLError
		dns     *net.DNSError
		cert    *tls.CertificateVerificationError
		alert   tls.AlertError
		proxied *proxyError
		unknown x509.UnknownAuthorityError
	)
	switch {
	case errors.As(err, &refused), errors.Is(err, errPlainHTTP{}):
		return ClassRefused, (&EgressError{}).Error() + suffixOf(err)
	case errors.As(err, &badURL):
		return ClassUnusable, badURL.Error()
	case errors.Is(ended, context.Canceled):
		return ClassStopped, "stopped before an answer"
	case ended != nil, isTimeout(err):
		return ClassTimeout, "timeout after " + timeout.String() + " " + phaseNames[at]
	case errors.As(err, &dns):
		return ClassDNS, "dns: " + dnsReason(dns)
	case errors.As(err, &cert):
		return ClassTLS, clean(cert.Error(), maxError) // begins with "tls: "
	case errors.As(err, &unknown):
		return ClassTLS, "tls: " + clean(unknown.Error(), maxError)
	case errors.As(err, &alert):
		return ClassTLS, "tls: " + clean(alert.Error(), maxError)
	case at == phaseTLS:
		return ClassTLS, "tls: " + tlsReason(err)
	case errors.As(err, &proxied):
		return ClassConnect, proxied.Error()
	case at != phaseExchange:
		return ClassConnect, "connect: " + socketReason(err)
	}
	return explainExchange(err)
}

// explainExchange sorts failures after the request was on its way.
func explainExchange(err error) (Class, string) {
	text := err.Error()
	switch {
	case strings.Contains(text, "response headers exceeded"):
		return ClassProtocol, "response headers are larger than 256 KiB"
	case strings.Contains(text, "malformed"), strings.Contains(text, "unsupported transfer encoding"),
		strings.Contains(text, "bad Content-Length"), strings.Contains(text, "message cannot contain multiple"):
		// net/http quotes the receiver's bytes here.
		return ClassProtocol, "malformed HTTP response"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		strings.Contains(text, "server closed idle connection"), strings.Contains(text, "EOF"):
		return ClassReset, "connection closed before an answer"
	}
	return ClassReset, "connection failed before an answer: " + socketReason(err)
}

// errMalformed stands for an answer that net/http takes and HTTP does not allow.
var errMalformed = errors.New("malformed status")

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func suffixOf(err error) string {
	if errors.Is(err, errPlainHTTP{}) {
		return ": only https is allowed"
	}
	return ""
}

// dnsReason leaves the resolver's address out.
func dnsReason(err *net.DNSError) string {
	switch {
	case err.IsNotFound:
		return "no such host"
	case err.IsTimeout:
		return "lookup timed out"
	}
	return "lookup failed"
}

// tlsReason keeps the kinds of trouble that tell an author what to change.
func tlsReason(err error) string {
	var record tls.RecordHeaderError
	switch text := err.Error(); {
	case errors.As(err, &record), strings.Contains(text, "HTTP response to HTTPS client"):
		return "the receiver does not speak TLS on this port"
	case strings.Contains(text, "x509: "):
		return clean(text[strings.Index(text, "x509: "):], maxError)
	case strings.Contains(text, "protocol version"):
		return "no common protocol version"
	}
	return "handshake failed: " + socketReason(err)
}

// socketReason names the system's error alone, without addresses.
func socketReason(err error) string {
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed"
	}
	return "no connection"
}
