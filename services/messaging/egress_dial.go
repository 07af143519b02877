package messaging

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"
)

const (
	// dialLimit bounds a dial that outlives its request: net/http lets it go
	// on for the sake of the next one.
	dialLimit = 30 * time.Second
	// dialStagger is RFC 8305's wait before the next address is tried too.
	dialStagger = 250 * time.Millisecond
	// maxDialAddrs bounds what one name can make the host connect to.
	maxDialAddrs = 8
)

// guard dials for every transport of a sender. A name is resolved once, all of
// its addresses are judged (one refused address refuses the name, so that the
// outcome does not depend on the family that is tried first), and exactly the
// judged addresses are dialled: an answer that changes afterwards is never
// seen. The dialer's Control judges the address of each socket again.
type guard struct {
	cfg      EgressConfig
	proxy    *url.URL
	resolver *net.Resolver
	tls      *tls.Config
	// life ends with the sender and takes dials that nobody waits for along.
	life context.Context
}

// DialContext connects to addr, the host:port of a target or of the proxy.
func (g *guard) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	rec := recorderOf(ctx)
	ctx, cancel := g.bound(ctx, rec)
	defer cancel()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, &URLError{"host or port is not valid"}
	}
	if g.proxy != nil && sameAddr(addr, proxyAddr(g.proxy)) {
		rec.enter(phaseConnect)
		defer rec.connected(time.Now())
		var d net.Dialer
		d.Resolver = g.resolver
		return timed(d.DialContext(ctx, network, addr))
	}
	addrs, err := g.resolve(ctx, rec, host)
	if err != nil {
		return nil, err
	}
	portNumber, err := g.resolver.LookupPort(ctx, network, port)
	if err != nil {
		return nil, &URLError{"port is not valid"}
	}
	targets := make([]netip.AddrPort, len(addrs))
	for i, a := range addrs {
		targets[i] = netip.AddrPortFrom(a, uint16(portNumber))
	}
	rec.enter(phaseConnect)
	defer rec.connected(time.Now())
	return timed(g.dialAny(ctx, host, targets))
}

// DialTLSContext is DialContext and the handshake. net/http would do the
// handshake itself, but without the request's deadline once it has detached
// the dial, so that a silent receiver would hold its socket longer than its
// request.
func (g *guard) DialTLSContext(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := g.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	rec := recorderOf(ctx)
	ctx, cancel := g.bound(ctx, rec)
	defer cancel()
	host, _, _ := net.SplitHostPort(addr)
	config := g.tls.Clone()
	config.ServerName = strings.TrimSuffix(host, ".")
	rec.enter(phaseTLS)
	client := tls.Client(conn, config)
	err = client.HandshakeContext(ctx)
	rec.handshaken()
	if err != nil {
		conn.Close()
		return nil, err
	}
	return client, nil
}

// bound limits a dial to its request's deadline and to the sender's life; the
// context that net/http hands on has lost both.
func (g *guard) bound(ctx context.Context, rec *recorder) (context.Context, context.CancelFunc) {
	deadline := time.Now().Add(dialLimit)
	if rec != nil && rec.deadline.Before(deadline) {
		deadline = rec.deadline
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	stop := context.AfterFunc(g.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// resolve returns the addresses of host, all of them allowed.
func (g *guard) resolve(ctx context.Context, rec *recorder, host string) ([]netip.Addr, error) {
	if reason := checkHost(host); reason != "" {
		return nil, &URLError{reason}
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, g.cfg.judge(host, addr)
	}
	rec.enter(phaseDNS)
	start := time.Now()
	addrs, err := g.resolver.LookupNetIP(ctx, "ip", host)
	rec.resolved(start)
	if err != nil {
		return nil, err
	}
	for i, addr := range addrs {
		if err := g.cfg.judge(host, addr); err != nil {
			return nil, err
		}
		addrs[i] = addr.Unmap()
	}
	return interleave(addrs), nil
}

// interleave alternates the families, beginning with the resolver's first.
func interleave(addrs []netip.Addr) []netip.Addr {
	var first, second []netip.Addr
	for _, a := range addrs {
		if a.Is4() == addrs[0].Is4() {
			first = append(first, a)
		} else {
			second = append(second, a)
		}
	}
	mixed := make([]netip.Addr, 0, len(addrs))
	for i := 0; i < max(len(first), len(second)) && len(mixed) < maxDialAddrs; i++ {
		if i < len(first) {
			mixed = append(mixed, first[i])
		}
		if i < len(second) {
			mixed = append(mixed, second[i])
		}
	}
	return mixed
}

type dialResult struct {
	conn net.Conn
	err  error
}

// dialAny is Happy Eyeballs: addresses are tried in order, the next one when
// the last has failed or has not answered within dialStagger. The first
// connection wins; connections that come later are closed.
func (g *guard) dialAny(ctx context.Context, host string, targets []netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{Control: g.control(host)}
	if len(targets) == 1 {
		return d.DialContext(ctx, "tcp", targets[0].String())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan dialResult, len(targets))
	timer := time.NewTimer(0)
	defer timer.Stop()
	var firstErr error
	for next, running := 0, 0; ; {
		select {
		case <-timer.C:
			if next < len(targets) {
				go func(addr string) {
					conn, err := d.DialContext(ctx, "tcp", addr)
					results <- dialResult{conn, err}
				}(targets[next].String())
				next, running = next+1, running+1
				timer.Reset(dialStagger)
			}
		case r := <-results:
			running--
			if r.err == nil {
				go closeLate(results, running)
				return r.conn, nil
			}
			if firstErr == nil {
				firstErr = r.err
			}
			if running == 0 && next == len(targets) {
				return nil, firstErr
			}
			timer.Reset(0)
		}
	}
}

// closeLate closes the connections of dials that lost. It ends soon: their
// context is cancelled.
func closeLate(results <-chan dialResult, running int) {
	for range running {
		if r := <-results; r.conn != nil {
			r.conn.Close()
		}
	}
}

// control judges the address of a socket before it connects. It repeats what
// resolve decided; it is what still holds when the code above is wrong.
func (g *guard) control(host string) func(network, address string, _ syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		target, err := netip.ParseAddrPort(address)
		if err != nil {
			return &EgressError{Host: host}
		}
		return g.cfg.judge(host, target.Addr())
	}
}

// chooseProxy is the transport's Proxy function. With a proxy configured the
// target is judged here, because the dial sees the proxy's address only.
func (g *guard) chooseProxy(r *http.Request) (*url.URL, error) {
	if g.proxy == nil {
		return nil, nil
	}
	ctx, rec := r.Context(), recorderOf(r.Context())
	host, _ := hostPort(r.URL)
	addrs, err := g.resolve(ctx, rec, host)
	if err != nil {
		return nil, err
	}
	if g.cfg.ProxyExcept.host(host) {
		return nil, nil
	}
	for _, a := range addrs {
		if g.cfg.ProxyExcept.covers(a) {
			return nil, nil
		}
	}
	return g.proxy, nil
}
