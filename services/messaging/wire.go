package messaging

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// maxWireBody is the largest body that goes over a wireConn; it is copied.
	maxWireBody = 32 << 10
	// inlineWrite is what an idle connection's send buffer takes without
	// waiting for the receiver. More is written beside the reading, so that an
	// answer that comes before the whole request was read is seen at once.
	inlineWrite = 16 << 10
	// answerGrace is how long an answer may take to come after a write failed,
	// and reuseGrace how long the end of a write after its answer.
	answerGrace = time.Second
	reuseGrace  = 50 * time.Millisecond
)

// errHeaderLimit has the words that [explainExchange] looks for.
var errHeaderLimit = errors.New("response headers exceeded the limit")

// aLongTimeAgo is a deadline that has passed.
var aLongTimeAgo = time.Unix(1, 0)

// wireConn is a connection that one exchange at a time is made over, on the
// caller's goroutine. net/http's transport keeps two goroutines for each
// connection, and handing a request to them and its answer back costs as much
// as the system calls. What is left to net/http is the part that is hard to get
// right: http.ReadResponse parses the answer and frames its body.
type wireConn struct {
	conn   net.Conn
	socket syscall.RawConn // nil when conn has none
	key    wireKey
	remote string
	br     *bufio.Reader // reads from this wireConn
	// abort ends reads and writes that wait; made once, not for each request.
	abort func()
	// peek is the function of [wireConn.pending], made once as well.
	peek   func(fd uintptr)
	peeked socketState

	// Of the exchange that goes on: its context, which is of one call, when it
	// ends by itself, and how much of an answer may be read.
	ctx      context.Context
	deadline time.Time
	left     int64
	// overdue is the error of a read that the deadline or an abort has ended.
	overdue error

	// Of the pool.
	idleSince  time.Time
	prev, next *wireConn
}

func newWireConn(conn net.Conn, key wireKey) *wireConn {
	c := &wireConn{conn: conn, key: key, remote: conn.RemoteAddr().String()}
	c.br = bufio.NewReader(c)
	c.abort = func() { _ = conn.SetDeadline(aLongTimeAgo) }
	if s, ok := bare(conn).(syscall.Conn); ok {
		c.socket, _ = s.SyscallConn()
	}
	c.peek = func(fd uintptr) { c.peeked = peekSocket(fd) }
	return c
}

// bare is the connection below TLS and below the guard's own layer.
func bare(conn net.Conn) net.Conn {
	if client, ok := conn.(*tls.Conn); ok {
		conn = client.NetConn()
	}
	if t, ok := conn.(*timedConn); ok {
		conn = t.Conn
	}
	return conn
}

// Read is what the answer is read through: it counts, and tells an abort from a
// deadline.
func (c *wireConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errHeaderLimit
	}
	if int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.conn.Read(p)
	c.left -= int64(n)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if time.Now().Before(c.deadline) { // before its time: by abort
			err = context.Canceled
			if ended := c.ctx.Err(); ended != nil {
				err = ended
			}
		}
		c.overdue = err
	}
	return n, err
}

// wireBuffer is the memory that a request is written from.
type wireBuffer struct {
	bytes []byte
	names []string
}

// maxKeptBuffer is the largest buffer that is used again.
const maxKeptBuffer = 64 << 10

var wireBuffers = sync.Pool{New: func() any { return new(wireBuffer) }}

func (w *wireBuffer) free() {
	if cap(w.bytes) <= maxKeptBuffer {
		wireBuffers.Put(w)
	}
}

// roundTrip sends a request and reads the answer's headers. With an error the
// connection is closed; with an answer it is given back, or closed, when the
// answer's body is closed. The last request of a connection says so.
func (c *wireConn) roundTrip(ctx context.Context, x *wireRequest, last bool) (*http.Response, error) {
	w := wireBuffers.Get().(*wireBuffer)
	w.write(x, last)
	c.ctx, c.deadline, c.left, c.overdue = ctx, x.rec.deadline, maxHeaderBlock, nil
	setUntil(c.conn, &x.rec.deadline)
	if err := c.conn.SetDeadline(c.deadline); err != nil {
		w.free()
		c.drop()
		return nil, err
	}
	// Set after the deadline, which would undo what it does.
	stop := func() bool { return true }
	if ctx.Done() != nil {
		stop = context.AfterFunc(ctx, c.abort)
	}
	written, writeErr := c.send(ctx, w)
	resp, err := c.answer(x)
	if err != nil {
		stop()
		c.drop()
		if writeErr != nil {
			err = writeErr // the cause; what the read met is its consequence
		}
		return nil, err
	}
	keep := !last && !resp.Close && resp.StatusCode > 199 && writeErr == nil
	resp.Body = &wireBody{
		conn: c, pool: x.pool, from: resp.Body, stop: stop, written: written, keep: keep,
		ended: x.req.Method == http.MethodHead || resp.ContentLength == 0,
	}
	return resp, nil
}

// send writes a request and frees its buffer. Where that may have to wait for
// the receiver the writing goes on after the return, and written gets its end.
func (c *wireConn) send(ctx context.Context, w *wireBuffer) (written <-chan error, err error) {
	if len(w.bytes) <= inlineWrite {
		return nil, c.flush(ctx, w)
	}
	done := make(chan error, 1)
	go func() { done <- c.flush(ctx, w) }()
	return done, nil
}

func (c *wireConn) flush(ctx context.Context, w *wireBuffer) error {
	deadline := c.deadline
	_, err := c.conn.Write(w.bytes)
	w.free()
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	// A receiver that refuses a request early closes while it is being sent:
	// its answer may have come. Otherwise the connection is at its end, which
	// the reader sees at once in all but odd cases; those end here.
	if grace := time.Now().Add(answerGrace); grace.Before(deadline) {
		_ = c.conn.SetReadDeadline(grace)
		if ctx.Err() != nil {
			c.abort() // came before, and has just been undone
		}
	}
	return err
}

// answer reads the headers of an answer, interim ones and theirs included, which
// together are bounded.
func (c *wireConn) answer(x *wireRequest) (*http.Response, error) {
	_, err := c.br.Peek(1)
	if err != nil {
		return nil, err
	}
	x.rec.answered()
	for {
		resp, err := http.ReadResponse(c.br, x.req)
		if err != nil {
			// The parser takes a line that was cut off for a whole one, and then
			// calls it malformed.
			switch {
			case c.left <= 0:
				err = errHeaderLimit
			case c.overdue != nil:
				err = c.overdue
			}
			return nil, err
		}
		if status := resp.StatusCode; status < 100 || status > 199 || status == http.StatusSwitchingProtocols {
			c.left = math.MaxInt64
			return resp, nil
		}
	}
}

// drop closes the socket as it is. A close of TLS would write to it first, and
// wait for a receiver that does not read.
func (c *wireConn) drop() { _ = bare(c.conn).Close() }

// close ends an idle connection in good order.
func (c *wireConn) close() {
	setUntil(c.conn, nil)
	_ = c.conn.Close()
}

// fresh reports whether an idle connection can be used: the receiver has
// neither closed it nor said anything unasked. Where that cannot be told, the
// exchange finds out.
func (c *wireConn) fresh() bool {
	if c.br.Buffered() > 0 {
		return false
	}
	state := c.pending()
	client, ok := c.conn.(*tls.Conn)
	if !ok {
		return state == socketSilent
	}
	if state == socketClosed {
		return false
	}
	// What has come may be TLS's own business, like a ticket for the next
	// session, and TLS may hold what it has read already. With a deadline in
	// the past that is all a read looks at.
	until := aLongTimeAgo
	if state == socketHasBytes {
		until = time.Now().Add(time.Millisecond)
	}
	if client.SetReadDeadline(until) != nil {
		return false
	}
	var b [1]byte
	n, err := client.Read(b[:])
	if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	return state == socketSilent || c.pending() == socketSilent // the time was enough
}

// socketState is what a look at a socket finds.
type socketState int

const (
	socketSilent socketState = iota
	socketHasBytes
	socketClosed
)

// pending looks at the socket without waiting and without taking anything.
func (c *wireConn) pending() socketState {
	if c.socket == nil {
		return socketSilent
	}
	if c.socket.Control(c.peek) != nil {
		return socketClosed
	}
	return c.peeked
}

// wireBody is the body of an answer. Its Close gives the connection back.
type wireBody struct {
	conn    *wireConn
	pool    *wirePool
	from    io.Reader
	stop    func() bool
	written <-chan error
	// keep tells that the connection may be used again, ended that the body
	// was read to its end.
	keep, ended bool
	closed      bool
}

func (b *wireBody) Read(p []byte) (int, error) {
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.from.Read(p)
	if err != nil {
		b.ended = errors.Is(err, io.EOF)
	}
	return n, err
}

// Close never reads on: a body may have no end. (That of http.ReadResponse
// would, and is left alone.)
func (b *wireBody) Close() error {
	if b.closed {
		return nil
	}
	b.closed = true
	c := b.conn
	// An abort that has begun may still set a deadline.
	keep := b.stop() && b.ended && b.keep && c.br.Buffered() == 0 && b.wrote()
	switch {
	case keep:
		b.pool.put(c)
	case b.ended && b.written == nil:
		c.close()
	default:
		c.drop()
	}
	return nil
}

// wrote reports that the request was written as a whole. An answer may come
// before the writer has had the time to say so.
func (b *wireBody) wrote() bool {
	if b.written == nil {
		return true
	}
	timer := time.NewTimer(reuseGrace)
	defer timer.Stop()
	select {
	case err := <-b.written:
		return err == nil
	case <-timer.C:
		return false
	}
}
