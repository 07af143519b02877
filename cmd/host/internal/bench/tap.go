package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync/atomic"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/dsn"
)

// countQueries has the box's database reached through a tap that counts what is
// asked. The returned function tells the number so far, -1 where nothing is
// counted: on SQLite, and for servers that are not reached by plain TCP.
func (b *box) countQueries(ctx context.Context) (queries func() int64, err error) {
	none := func() int64 { return -1 }
	if b.db.Dialect() == storage.SQLite {
		return none, nil
	}
	u, err := url.Parse(b.db.dsn)
	if err != nil {
		return nil, fmt.Errorf("read the DSN: %w", err)
	}
	if u.Hostname() == "" || u.Query().Has("host") {
		return none, nil
	}
	server := u.Host
	if u.Port() == "" {
		server = net.JoinHostPort(u.Hostname(), "5432")
	}
	t := &tap{server: server}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open the tap's socket: %w", err)
	}
	u.Host = listener.Addr().String()
	q := u.Query()
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	go t.accept(listener)
	tapped, err := dsn.Open(ctx, u.String(), storage.Config{})
	if err != nil { // the server wants TLS, most likely
		return none, listener.Close()
	}
	direct := b.db.DB
	b.db.DB = tapped
	drop := b.db.drop
	b.db.drop = func() error { return errors.Join(drop(), listener.Close()) }
	return t.queries.Load, errors.Join(direct.Close(), b.hold())
}

// tap forwards connections to a PostgreSQL server and counts their queries.
type tap struct {
	server  string
	queries atomic.Int64
}

func (t *tap) accept(listener net.Listener) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return // closed
		}
		go t.forward(c)
	}
}

func (t *tap) forward(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", t.server)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	}()
	_ = t.copyMessages(server, bufio.NewReader(client)) // ends with the connection
}

// copyMessages copies a client's messages: a first one of length and content,
// then each with a type before it. Q is a simple query, E executes a prepared
// one (https://www.postgresql.org/docs/current/protocol-message-formats.html).
func (t *tap) copyMessages(to io.Writer, from *bufio.Reader) error {
	for first := true; ; first = false {
		head := 5
		if first {
			head = 4
		}
		peeked, err := from.Peek(head)
		if err != nil {
			return err
		}
		if kind := peeked[0]; !first && (kind == 'Q' || kind == 'E') {
			t.queries.Add(1)
		}
		// The length counts itself, not the type.
		n := int64(binary.BigEndian.Uint32(peeked[head-4:])) + int64(head-4)
		if _, err := io.CopyN(to, from, n); err != nil {
			return err
		}
	}
}
