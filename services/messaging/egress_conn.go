package messaging

import (
	"crypto/tls"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// timedConn sends nothing once its request's time is over. A timer does not
// ensure that: a process that was stopped, and wakes up with a request at the
// ready, may write it before its timers have run, long after the row's claim
// has ended and another process has sent it.
type timedConn struct {
	net.Conn
	until atomic.Pointer[time.Time] // nil during the handshake
}

func timed(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	return &timedConn{Conn: c}, nil
}

func (c *timedConn) Write(b []byte) (int, error) {
	if until := c.until.Load(); until != nil && !time.Now().Before(*until) {
		return 0, os.ErrDeadlineExceeded
	}
	return c.Conn.Write(b)
}

// setUntil gives a connection that [guard.DialContext] made the end of its next
// request's time.
func setUntil(c net.Conn, until *time.Time) {
	if client, ok := c.(*tls.Conn); ok {
		c = client.NetConn()
	}
	if t, ok := c.(*timedConn); ok {
		t.until.Store(until)
	}
}
