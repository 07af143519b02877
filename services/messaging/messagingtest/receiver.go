// Package messagingtest holds a programmable HTTP receiver for tests of
// outbound requests: it answers badly in every way that receivers do, and
// records each request byte for byte.
package messagingtest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Request is one recorded request. It is complete: a request whose body did
// not arrive is not recorded.
type Request struct {
	Method, RequestURI, Path, Host, Proto string
	Header                                http.Header
	// Body is the decoded body, Raw the whole request as it came off the wire.
	Body, Raw []byte
	// ContentLength is -1 when the length was not given; TransferEncoding is
	// not empty for a chunked request.
	ContentLength    int64
	TransferEncoding []string
	// Conn is the 1-based number of the connection, Seq the 1-based number of
	// the request on it.
	Conn, Seq int
	At        time.Time
}

// Exchange is one request being answered.
type Exchange struct {
	Request Request
	// Closing is closed when the receiver shuts down; answers that wait select
	// on it.
	Closing <-chan struct{}
	// Released is closed by [Receiver.Release].
	Released <-chan struct{}
	conn     net.Conn
	// keep tells whether the connection is read from again.
	keep bool
}

// Write sends raw bytes.
func (e *Exchange) Write(p []byte) (int, error) { return e.conn.Write(p) }

// Wait waits and reports false when the receiver is closing or the peer may
// have gone.
func (e *Exchange) Wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-e.Closing:
		return false
	}
}

// Answer answers one request.
type Answer func(*Exchange)

// Receiver is a running server. Requests to a path without answers get 200 and
// an empty body.
type Receiver struct {
	// URL is the base URL, without a slash at the end.
	URL string
	// Addr is the host:port that it listens on.
	Addr string

	listener net.Listener
	rootsPEM []byte
	closing  chan struct{}
	group    sync.WaitGroup

	mu       sync.Mutex
	answers  map[string][]Answer
	requests []Request
	changed  chan struct{}
	released chan struct{}
	conns    map[net.Conn]bool // true while no request is being answered
	accepted int
}

// New starts a receiver on 127.0.0.1 that is closed with the test.
func New(tb testing.TB) *Receiver {
	tb.Helper()
	return start(tb, "127.0.0.1:0", nil)
}

// NewAt starts a receiver on an address of the test's choice.
func NewAt(tb testing.TB, addr string) *Receiver {
	tb.Helper()
	return start(tb, addr, nil)
}

// NewTLS starts an https receiver whose certificate is valid for the given
// names and addresses, signed by the authority that Roots returns.
func NewTLS(tb testing.TB, names ...string) *Receiver {
	tb.Helper()
	certificate, roots, err := certificate(names)
	if err != nil {
		tb.Fatalf("make certificate: %v", err)
	}
	r := start(tb, "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}})
	r.rootsPEM = roots
	return r
}

func start(tb testing.TB, addr string, config *tls.Config) *Receiver {
	tb.Helper()
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		tb.Fatalf("listen on %s: %v", addr, err)
	}
	r := &Receiver{
		Addr: listener.Addr().String(), listener: listener,
		closing: make(chan struct{}), changed: make(chan struct{}), released: make(chan struct{}),
		answers: map[string][]Answer{}, conns: map[net.Conn]bool{},
	}
	r.URL = "http://" + r.Addr
	if config != nil {
		r.URL = "https://" + r.Addr
		r.listener = tls.NewListener(listener, config)
	}
	r.group.Go(r.accept)
	tb.Cleanup(r.Close)
	return r
}

// Roots returns the authority of a receiver made by [NewTLS].
func (r *Receiver) Roots() *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.rootsPEM)
	return roots
}

// Port returns the port that it listens on.
func (r *Receiver) Port() string {
	_, port, _ := net.SplitHostPort(r.Addr)
	return port
}

// Handle sets the answers of a path: the first request gets the first, later
// ones the next, and the last is repeated.
func (r *Receiver) Handle(path string, answers ...Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[path] = answers
}

// Requests returns what arrived so far, in order.
func (r *Receiver) Requests() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// WaitFor waits until n requests have arrived and returns all of them.
func (r *Receiver) WaitFor(ctx context.Context, n int) ([]Request, error) {
	for {
		r.mu.Lock()
		requests, changed := slices.Clone(r.requests), r.changed
		r.mu.Unlock()
		if len(requests) >= n {
			return requests, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return requests, fmt.Errorf("wait for %d requests: %d came: %w", n, len(requests), ctx.Err())
		}
	}
}

// Connections returns how many connections were accepted so far.
func (r *Receiver) Connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.accepted
}

// Open returns how many connections are open.
func (r *Receiver) Open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.conns)
}

// CloseIdle closes the connections that wait for their next request, as
// receivers do after their keep-alive time.
func (r *Receiver) CloseIdle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for conn, idle := range r.conns {
		if idle {
			conn.Close()
		}
	}
}

// Release lets every answer made by [Hang] go on, those to come included.
func (r *Receiver) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.released:
	default:
		close(r.released)
	}
}

// Close stops the receiver and waits for its goroutines. It may be called twice.
func (r *Receiver) Close() {
	r.mu.Lock()
	select {
	case <-r.closing:
	default:
		close(r.closing)
	}
	r.listener.Close()
	for conn := range r.conns {
		conn.Close()
	}
	r.mu.Unlock()
	r.group.Wait()
}

func (r *Receiver) accept() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		select {
		case <-r.closing:
			conn.Close()
		default:
			r.accepted++
			number := r.accepted
			r.conns[conn] = true
			r.group.Go(func() { r.serve(conn, number) })
		}
		r.notify()
		r.mu.Unlock()
	}
}

// notify wakes WaitFor; the lock is held.
func (r *Receiver) notify() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *Receiver) serve(conn net.Conn, number int) {
	defer func() {
		conn.Close()
		r.mu.Lock()
		delete(r.conns, conn)
		r.notify()
		r.mu.Unlock()
	}()
	// Every byte read is kept until the request is complete; what was read
	// ahead of it stays in the buffer for the next.
	var raw bytes.Buffer
	br := bufio.NewReader(io.TeeReader(conn, &raw))
	for seq := 1; ; seq++ {
		if _, err := br.Peek(1); err != nil {
			return
		}
		r.mark(conn, false)
		req, err := record(br, &raw)
		if err != nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
			return
		}
		req.Conn, req.Seq = number, seq
		e := &Exchange{Request: req, Closing: r.closing, conn: conn, keep: true}
		answer := r.arrived(e)
		answer(e)
		if !e.keep || strings.EqualFold(req.Header.Get("Connection"), "close") {
			return
		}
		r.mark(conn, true)
	}
}

func (r *Receiver) mark(conn net.Conn, idle bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, open := r.conns[conn]; open {
		r.conns[conn] = idle
	}
}

// arrived stores the request and picks its answer.
func (r *Receiver) arrived(e *Exchange) Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Released = r.released
	r.requests = append(r.requests, e.Request)
	r.notify()
	answers := r.answers[e.Request.Path]
	if len(answers) == 0 {
		return Status(200, "")
	}
	if len(answers) > 1 {
		r.answers[e.Request.Path] = answers[1:]
	}
	return answers[0]
}

func record(br *bufio.Reader, raw *bytes.Buffer) (Request, error) {
	parsed, err := http.ReadRequest(br)
	if err != nil {
		return Request{}, err
	}
	body, err := io.ReadAll(parsed.Body)
	if err != nil {
		return Request{}, err
	}
	whole := raw.Bytes()
	whole = bytes.Clone(whole[:len(whole)-br.Buffered()])
	rest := bytes.Clone(raw.Bytes()[len(whole):])
	raw.Reset()
	raw.Write(rest)
	length := parsed.ContentLength
	if parsed.Header.Get("Content-Length") == "" && !bytes.Contains(headOf(whole), []byte("Content-Length:")) {
		length = -1
	}
	return Request{
		Method: parsed.Method, RequestURI: parsed.RequestURI, Path: parsed.URL.Path, Host: parsed.Host,
		Proto: parsed.Proto, Header: parsed.Header, Body: body, Raw: whole, ContentLength: length,
		TransferEncoding: parsed.TransferEncoding, At: time.Now(),
	}, nil
}

func headOf(raw []byte) []byte {
	head, _, _ := bytes.Cut(raw, []byte("\r\n\r\n"))
	return head
}

// reset closes a connection so that the peer sees RST, not EOF.
func reset(conn net.Conn) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	conn.Close()
}
