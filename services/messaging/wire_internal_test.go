package messaging

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/objecthost/objecthost/services/messaging/messagingtest"
)

// piped gives the sender an idle connection to recv.test, whose other end the
// test holds. A write to it waits until it is read.
func piped(t *testing.T, s *Sender) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	t.Cleanup(func() { server.Close() })
	s.pooled.put(newWireConn(client, wireKey{"http", "recv.test:80"}))
	return server
}

func TestWireConnectionsAreKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method string
		body   int
		answer string
		conns  int
	}{
		"a body that is written at once":    {"POST", 1000, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 1},
		"a body that is written beside":     {"POST", inlineWrite + 1, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 1},
		"the largest body":                  {"POST", maxWireBody, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 1},
		"a body for net/http":               {"POST", maxWireBody + 1, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 1},
		"chunks":                            {"POST", 10, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 1},
		"chunks and a trailer":              {"POST", 10, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-T: 1\r\n\r\n", 1},
		"HEAD with a length":                {"HEAD", 0, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 1},
		"304 with a length":                 {"POST", 10, "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 1},
		"interim answers":                   {"POST", 10, "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", 1},
		"HTTP/1.0":                          {"POST", 10, "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 3},
		"HTTP/1.0 that keeps":               {"POST", 10, "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", 1},
		"Connection: close":                 {"POST", 10, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", 3},
		"more than was announced":           {"POST", 10, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok!", 3},
		"a body with 204":                   {"POST", 10, "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok", 3},
		"a second answer":                   {"POST", 10, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 500 No\r\n\r\n", 3},
		"an encoding that is not read":      {"POST", 10, "HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\nok", 3},
		"a status past the last":            {"POST", 10, "HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n", 1},
		"no status":                         {"POST", 10, "HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n", 3},
		"far more than is kept of a body":   {"POST", 10, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100000), 3},
		"a length after which TLS has more": {"POST", 10, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + strings.Repeat("x", 12000), 3},
	} {
		for scheme, receiver := range map[string]func() *messagingtest.Receiver{
			"http":  func() *messagingtest.Receiver { return messagingtest.New(t) },
			"https": func() *messagingtest.Receiver { return messagingtest.NewTLS(t, "127.0.0.1") },
		} {
			r := receiver()
			s := newSender(t, func(c *SenderConfig) {
				if scheme == "https" {
					c.RootCAs = r.Roots()
				}
			})
			r.Handle("/", func(e *messagingtest.Exchange) { _, _ = io.WriteString(e, c.answer) })
			for i := range 3 {
				o := outgoing(r.URL + "/")
				o.Method, o.Body = c.method, bytes.Repeat([]byte("b"), c.body)
				a := s.Send(t.Context(), o)
				if a.Reused != (c.conns == 1 && i > 0) {
					t.Errorf("%s, %s: request %d reused %v", name, scheme, i, a.Reused)
				}
			}
			if n, m := r.Connections(), len(r.Requests()); n != c.conns || m != 3 {
				t.Errorf("%s, %s: %d requests over %d connections, want 3 over %d", name, scheme, m, n, c.conns)
			}
		}
	}
}

// A receiver that talks on an idle connection could forge the answer to the
// next delivery.
func TestWireUnaskedBytesEndAConnection(t *testing.T) {
	t.Parallel()
	for name, receiver := range map[string]*messagingtest.Receiver{"plain": messagingtest.New(t), "tls": messagingtest.NewTLS(t, "127.0.0.1")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSender(t, func(c *SenderConfig) {
				if name == "tls" {
					c.RootCAs = receiver.Roots()
				}
			})
			speak, said := make(chan struct{}), make(chan struct{})
			receiver.Handle("/", func(e *messagingtest.Exchange) {
				messagingtest.Status(200, "first")(e)
				<-speak
				messagingtest.Status(418, "forged")(e)
				close(said)
			}, messagingtest.Status(200, "second"))
			want(t, s.Send(t.Context(), outgoing(receiver.URL+"/")), 200, ClassNone, "")
			close(speak)
			<-said
			a := s.Send(t.Context(), outgoing(receiver.URL+"/"))
			want(t, a, 200, ClassNone, "")
			if a.ResponseBody != "second" || a.Reused || receiver.Connections() != 2 {
				t.Errorf("attempt is %+v, %d connections", a, receiver.Connections())
			}
		})
	}
}

// The second try says that it is the last of its connection, and is the same
// otherwise.
func TestWireSecondTryIsTheSameRequest(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t)
	for _, size := range []int{20, maxWireBody} {
		r.Handle("/", messagingtest.Status(200, ""), messagingtest.CloseUnanswered(), messagingtest.Status(200, ""))
		o := outgoing(r.URL + "/")
		o.Body = bytes.Repeat([]byte("b"), size)
		want(t, s.Send(t.Context(), o), 200, ClassNone, "")
		a := s.Send(t.Context(), o)
		want(t, a, 200, ClassNone, "")
		requests := r.Requests()
		first, second := string(requests[len(requests)-2].Raw), string(requests[len(requests)-1].Raw)
		if strings.Replace(second, "\r\nConnection: close\r\n", "\r\n", 1) != first || first == second {
			t.Errorf("first\n%.500q, then\n%.500q", first, second)
		}
		if a.Reused || a.Connect == 0 || a.RemoteAddr != r.Addr {
			t.Errorf("attempt is %+v", a)
		}
	}
}

// A receiver that refuses a request before it has read it is heard at once.
func TestWireEarlyAnswerEndsTheWrite(t *testing.T) {
	t.Parallel()
	s := newSender(t)
	server := piped(t, s)
	done := make(chan *Attempt, 1)
	o := outgoing("http://recv.test/")
	o.Body = make([]byte, inlineWrite+1)
	go func() { done <- s.Send(t.Context(), o) }()
	if _, err := io.ReadFull(server, make([]byte, 100)); err != nil { // and no more
		t.Fatal(err)
	}
	if _, err := io.WriteString(server, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno"); err != nil {
		t.Fatal(err)
	}
	a := <-done
	want(t, a, 413, ClassStatus, "HTTP 413")
	if a.ResponseBody != "no" {
		t.Errorf("attempt is %+v", a)
	}
	// A connection with half a request on it is not used again.
	if _, err := io.Copy(io.Discard, server); err != nil || s.pooled.count != 0 {
		t.Errorf("the connection is open: %v, %d idle", err, s.pooled.count)
	}
}

// scriptedConn fails to write and gives an answer.
type scriptedConn struct {
	net.Conn
	writeErr error
	answer   io.Reader
	closed   atomic.Bool
	written  atomic.Int64
}

func (c *scriptedConn) Write(p []byte) (int, error) {
	if c.writeErr != nil {
		return 0, c.writeErr
	}
	c.written.Add(int64(len(p)))
	return len(p), nil
}
func (c *scriptedConn) Read(p []byte) (int, error)    { return c.answer.Read(p) }
func (c *scriptedConn) Close() error                  { c.closed.Store(true); return nil }
func (*scriptedConn) SetDeadline(time.Time) error     { return nil }
func (*scriptedConn) SetReadDeadline(time.Time) error { return nil }
func (*scriptedConn) RemoteAddr() net.Addr            { return &net.TCPAddr{} }

func TestWireAnswerIsReadAfterAFailedWrite(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, inlineWrite + 1} {
		for answer, want := range map[string]string{
			"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n": "HTTP 413",
			"": "connection failed before an answer: broken pipe",
		} {
			s := newSender(t)
			conn := &scriptedConn{writeErr: syscall.EPIPE, answer: strings.NewReader(answer)}
			c := newWireConn(conn, wireKey{})
			o := outgoing("http://recv.test/")
			o.Body = make([]byte, size)
			x := scripted(t, s, o)
			resp, err := c.roundTrip(t.Context(), x, false)
			got := ""
			if err == nil {
				got = "HTTP " + strconv.Itoa(resp.StatusCode)
				resp.Body.Close()
			} else if _, got = explain(err, nil, phaseExchange, time.Second); size > inlineWrite {
				got = want // which of the two errors comes first is not told
			}
			if got != want || !conn.closed.Load() || s.pooled.count != 0 {
				t.Errorf("%d bytes, answer %q: %s, closed %v", size, answer, got, conn.closed.Load())
			}
		}
	}
}

// A process that slept through its request's time writes nothing, also where
// the connection's own timer has not run yet.
func TestWireLateRequestIsNotWritten(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, inlineWrite + 1} {
		s := newSender(t)
		o := outgoing("http://recv.test/")
		o.Body = make([]byte, size)
		conn := &scriptedConn{answer: strings.NewReader("")} // its deadlines do nothing
		x := scripted(t, s, o)
		x.rec.deadline = time.Now()
		if _, err := newWireConn(&timedConn{Conn: conn}, wireKey{}).roundTrip(t.Context(), x, false); err == nil {
			t.Error("there is an answer")
		}
		if n := conn.written.Load(); n != 0 || !conn.closed.Load() {
			t.Errorf("%d bytes were written, closed %v", n, conn.closed.Load())
		}
	}
}

func scripted(t testing.TB, s *Sender, o *Outgoing) *wireRequest {
	t.Helper()
	req, _, err := s.request(o, &Attempt{})
	if err != nil {
		t.Fatal(err)
	}
	dest, err := s.destinations.parse(o.URL)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	return &wireRequest{req: req, dest: dest, body: o.Body, pool: s.pooled, rec: &recorder{start: now, deadline: now.Add(time.Minute)}}
}

func TestWireStopsWhileWritingAndReading(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body   int
		whole  bool   // the receiver reads the request
		answer string // and begins to answer
		want   string
	}{
		"inline write":   {10, false, "", "stopped before an answer"},
		"write beside":   {maxWireBody, false, "", "stopped before an answer"},
		"before a byte":  {10, true, "", "stopped before an answer"},
		"in the headers": {10, true, "HTTP/1.1 200 OK\r\nX-A", "stopped before an answer"},
		"in the body":    {10, true, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSender(t)
			server := piped(t, s)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan *Attempt, 1)
			o := outgoing("http://recv.test/")
			o.Body = make([]byte, c.body)
			go func() { done <- s.Send(ctx, o) }()
			br := bufio.NewReaderSize(server, 16)
			if c.whole {
				req, err := http.ReadRequest(br)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, req.Body)
			} else if _, err := br.ReadByte(); err != nil {
				t.Fatal(err)
			}
			if c.answer != "" { // even an empty write would wait for a reader
				if _, err := io.WriteString(server, c.answer); err != nil {
					t.Fatal(err)
				}
			}
			cancel()
			a := <-done
			if c.want == "" {
				want(t, a, 200, ClassNone, "")
				if a.ResponseBody != "ab" || a.BodyNote != "body incomplete: connection failed" {
					t.Errorf("attempt is %+v", a)
				}
			} else {
				want(t, a, 0, ClassStopped, c.want)
			}
			if _, err := io.Copy(io.Discard, server); err != nil || s.pooled.count != 0 {
				t.Errorf("the connection is open: %v, %d idle", err, s.pooled.count)
			}
		})
	}
}

func TestWireStoppedBeforeItBegan(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t)
	want(t, s.Send(t.Context(), outgoing(r.URL)), 200, ClassNone, "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		want(t, s.Send(ctx, outgoing(r.URL)), 0, ClassStopped, "stopped before an answer")
	}
	if n := len(r.Requests()); n != 1 || s.pooled.count != 1 {
		t.Errorf("%d requests arrived, want 1; %d idle", n, s.pooled.count)
	}
}

// The caller's deadline ends a body as the delivery's own does.
func TestWireCallersDeadlineIsATimeout(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	r.Handle("/", messagingtest.LyingLength(200, 50, "abc", false))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	a := newSender(t).Send(ctx, outgoing(r.URL+"/"))
	want(t, a, 200, ClassNone, "")
	if a.ResponseBody != "abc" || a.BodyNote != "body incomplete: timeout" {
		t.Errorf("attempt is %+v", a)
	}
}

// No receiver holds a sender longer than its timeout, or makes it read on.
func TestWireHostileReceiversEnd(t *testing.T) {
	t.Parallel()
	const late = "timeout after 300ms waiting for the answer"
	for name, c := range map[string]struct {
		head, rest string // rest is repeated for ever
		size       int
		class      Class
		text       string
	}{
		"interim answers":    {"", "HTTP/1.1 100 Continue\r\n\r\n", 10, ClassProtocol, "response headers are larger than 256 KiB"},
		"headers":            {"HTTP/1.1 200 OK\r\n", "X-A: b\r\n", 10, ClassProtocol, "response headers are larger than 256 KiB"},
		"one header":         {"HTTP/1.1 200 OK\r\nX-A: ", "b", 10, ClassProtocol, "response headers are larger than 256 KiB"},
		"a status line":      {"HTTP/1.1 200 ", "b", 10, ClassProtocol, "response headers are larger than 256 KiB"},
		"line breaks":        {"", "\r\n", 10, ClassProtocol, "malformed HTTP response"},
		"silence":            {"", "", 10, ClassTimeout, late},
		"silence in headers": {"HTTP/1.1 200 OK\r\nX-A", "", 10, ClassTimeout, late},
		"silence unread":     {"", "", maxWireBody, ClassTimeout, late},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSender(t)
			server := piped(t, s)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = io.ReadFull(server, make([]byte, 10))
				if c.size < inlineWrite {
					go func() { _, _ = io.Copy(io.Discard, server) }()
				}
				_, err := io.WriteString(server, c.head)
				for rest := []byte(strings.Repeat(c.rest, 1000)); err == nil && len(rest) > 0; {
					_, err = server.Write(rest)
				}
			}()
			o := outgoing("http://recv.test/")
			o.Body = make([]byte, c.size)
			if c.class == ClassTimeout {
				o.Timeout = 300 * time.Millisecond
			}
			a := s.Send(t.Context(), o)
			want(t, a, 0, c.class, c.text)
			if a.Duration > 5*time.Second {
				t.Errorf("took %s", a.Duration)
			}
			<-ended
		})
	}
}

func TestWireLeavesNothingBehind(t *testing.T) {
	messagingtest.New(t).Close() // with its first socket the runtime opens files of its own
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	r, secure := messagingtest.New(t), messagingtest.NewTLS(t, "127.0.0.1")
	s := newSender(t, func(c *SenderConfig) { c.RootCAs = secure.Roots() })
	r.Handle("/early", func(e *messagingtest.Exchange) {
		_, _ = io.WriteString(e, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	})
	for range 50 {
		for _, url := range []string{r.URL + "/early", secure.URL} {
			o := outgoing(url)
			o.Body = make([]byte, inlineWrite+1)
			want(t, s.Send(t.Context(), o), 200, ClassNone, "")
		}
	}
	s.Close()
	if s.pooled.count != 0 || len(s.pooled.idle) != 0 {
		t.Errorf("%d connections are kept by a closed sender", s.pooled.count)
	}
	r.Close()
	secure.Close()
	settles(t, goroutines, files)
}

// The answer reader takes what http.ReadResponse takes, gives the connection
// back only at the exact end of an answer, and never reads past its bounds.
func FuzzWireAnswer(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n", "HTTP/1.1 101 S\r\n\r\nx",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\nuntil the end", "SSH-2.0\r\n", "HTTP/1.1 2", "",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", "HTTP/1.1 099 x\r\n\r\n", "HTTP/1.1 304 x\r\nContent-Length: 5\r\n\r\n",
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed+seed), true)
	}
	s := newSender(f)
	f.Fuzz(func(t *testing.T, raw []byte, head bool) {
		o := outgoing("http://recv.test/")
		if head {
			o.Method = "HEAD"
		}
		x := scripted(t, s, o)
		x.pool = newWirePool(s.guard)
		conn := &scriptedConn{answer: bytes.NewReader(raw)}
		c := newWireConn(conn, wireKey{})
		resp, err := c.roundTrip(t.Context(), x, false)
		br := bufio.NewReader(bytes.NewReader(raw))
		wanted, wantErr := http.ReadResponse(br, x.req)
		for wantErr == nil && wanted.StatusCode/100 == 1 && wanted.StatusCode != 101 {
			wanted, wantErr = http.ReadResponse(br, x.req)
		}
		if err != nil {
			if wantErr == nil && len(raw) <= maxHeaderBlock || !conn.closed.Load() {
				t.Fatalf("%q: %v, http.ReadResponse gives %v; closed %v", raw, err, wantErr, conn.closed.Load())
			}
			return
		}
		if wantErr != nil || resp.StatusCode != wanted.StatusCode {
			t.Fatalf("%q: status %d, http.ReadResponse gives %v", raw, resp.StatusCode, wantErr)
		}
		got, gotErr := io.ReadAll(resp.Body)
		body, bodyErr := io.ReadAll(wanted.Body)
		if !bytes.Equal(got, body) || (gotErr == nil) != (bodyErr == nil) {
			t.Errorf("%q: body %q, %v; want %q, %v", raw, got, gotErr, body, bodyErr)
		}
		resp.Body.Close()
		_, rest := br.Peek(1)
		atEnd := bodyErr == nil && errors.Is(rest, io.EOF) && !wanted.Close && wanted.StatusCode > 199
		if kept := x.pool.count == 1; kept && !atEnd || kept == conn.closed.Load() {
			t.Errorf("%q: kept %v, closed %v, the answer is whole %v", raw, kept, conn.closed.Load(), atEnd)
		}
	})
}
