package postgres

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"
)

// pair returns both ends of a connection.
func pair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	return client, server
}

func TestDoubtsAboutIdleConnections(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		idle   time.Duration
		before func(t *testing.T, l *losses, server net.Conn)
		wrap   func(net.Conn) net.Conn
		want   bool
	}{
		"just used":                 {want: false},
		"quiet for a while":         {idle: pingAfter - time.Second, want: false},
		"quiet for long":            {idle: pingAfter + time.Second, want: true},
		"quiet and encrypted":       {idle: 2 * time.Second, wrap: encrypted, want: false},
		"closed":                    {before: closed, want: true},
		"closed and encrypted":      {before: closed, wrap: encrypted, want: true},
		"with last words":           {before: said, want: true},
		"last used before a loss":   {idle: time.Second, before: lost, want: true},
		"not to be seen, just used": {wrap: opaque, want: false},
		"not to be seen, idle":      {wrap: opaque, idle: unseenAfter + time.Millisecond, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := new(losses)
			client, server := pair(t)
			var conn net.Conn = &watchedConn{Conn: client, losses: l}
			if c.wrap != nil {
				conn = c.wrap(conn)
			}
			if c.before != nil {
				c.before(t, l, server)
			}
			if got := l.doubts(conn, c.idle); got != c.want {
				t.Errorf("doubts = %t, want %t", got, c.want)
			}
		})
	}
}

func encrypted(c net.Conn) net.Conn { return tls.Client(c, &tls.Config{MinVersion: tls.VersionTLS13}) }

// opaque hides what a connection is.
func opaque(c net.Conn) net.Conn { return struct{ net.Conn }{c} }

func closed(t *testing.T, _ *losses, server net.Conn) {
	t.Helper()
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
}

func said(t *testing.T, _ *losses, server net.Conn) {
	t.Helper()
	if _, err := server.Write([]byte("E")); err != nil {
		t.Fatal(err)
	}
}

func lost(_ *testing.T, l *losses, _ net.Conn) { l.note(io.ErrUnexpectedEOF) }

// Looking takes nothing away from the reader.
func TestDoubtsLeaveWhatArrived(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	said(t, nil, server)
	l := new(losses)
	for range 2 {
		if !l.doubts(&watchedConn{Conn: client, losses: l}, 0) {
			t.Error("what arrived does not show")
		}
	}
	got := make([]byte, 1)
	if _, err := io.ReadFull(client, got); err != nil || string(got) != "E" {
		t.Errorf("read %q, %v; want E", got, err)
	}
}
