package messagingtest

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

// DNS is a name server on loopback whose answers a test chooses.
type DNS struct {
	conn  net.PacketConn
	group sync.WaitGroup
	mu    sync.Mutex
	zone  func(name string) []netip.Addr
	seen  map[string]int
}

// NewDNS starts a name server. zone returns the addresses of a name, in lower
// case and without the last dot; none means that it does not exist. It is
// called once for each question (A and AAAA are questions of their own).
func NewDNS(tb testing.TB, zone func(name string) []netip.Addr) *DNS {
	tb.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("listen: %v", err)
	}
	d := &DNS{conn: conn, zone: zone, seen: map[string]int{}}
	d.group.Go(d.serve)
	tb.Cleanup(func() {
		conn.Close()
		d.group.Wait()
	})
	return d
}

// Resolver returns a resolver that asks this server only.
func (d *DNS) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "udp", d.conn.LocalAddr().String())
	}}
}

// Lookups returns how many A questions came for a name.
func (d *DNS) Lookups(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen[name]
}

func (d *DNS) serve() {
	buf := make([]byte, 1500)
	for {
		n, from, err := d.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if answer := d.answer(buf[:n]); answer != nil {
			_, _ = d.conn.WriteTo(answer, from)
		}
	}
}

const (
	typeA    = 1
	typeAAAA = 28
)

// answer builds the reply to a query with one question (RFC 1035 §4).
func (d *DNS) answer(query []byte) []byte {
	if len(query) < 12 {
		return nil
	}
	var labels []string
	at := 12
	for at < len(query) && query[at] != 0 {
		end := at + 1 + int(query[at])
		if end >= len(query) {
			return nil
		}
		labels = append(labels, string(query[at+1:end]))
		at = end
	}
	if at+5 > len(query) {
		return nil
	}
	question := query[12 : at+5]
	kind := binary.BigEndian.Uint16(query[at+1:])
	name := strings.ToLower(strings.Join(labels, "."))
	d.mu.Lock()
	if kind == typeA {
		d.seen[name]++
	}
	addrs := d.zone(name)
	d.mu.Unlock()

	var records []byte
	count := uint16(0)
	for _, addr := range addrs {
		if (kind == typeA) != addr.Is4() || kind != typeA && kind != typeAAAA {
			continue
		}
		count++
		records = append(records, 0xc0, 12) // the question's name
		records = binary.BigEndian.AppendUint16(records, kind)
		records = append(records, 0, 1, 0, 0, 0, 0) // IN, TTL 0
		data := addr.AsSlice()
		records = binary.BigEndian.AppendUint16(records, uint16(len(data)))
		records = append(records, data...)
	}
	flags := uint16(0x8180) // answer, recursion desired and available
	if len(addrs) == 0 {
		flags |= 3 // NXDOMAIN
	}
	reply := append([]byte{}, query[:2]...)
	for _, field := range []uint16{flags, 1, count, 0, 0} {
		reply = binary.BigEndian.AppendUint16(reply, field)
	}
	reply = append(reply, question...)
	return append(reply, records...)
}

// NewSilentDNS returns a resolver whose server never answers.
func NewSilentDNS(tb testing.TB) *net.Resolver {
	tb.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("listen: %v", err)
	}
	tb.Cleanup(func() { conn.Close() })
	return (&DNS{conn: conn}).Resolver()
}
