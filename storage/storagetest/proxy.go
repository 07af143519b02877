package storagetest

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// Proxy stands between a test and its database server. Its connections can be
// cut and restored, as when the server goes away for a while, or stalled, as
// when the network swallows everything.
type Proxy struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	cut     bool
	conns   map[net.Conn]struct{}
	flowing chan struct{} // closed while bytes pass
	wg      sync.WaitGroup
}

// NewProxy listens on a port of this machine and passes connections on to the
// server at target (host:port). It ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := StartProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// StartProxy is NewProxy outside of a test. It ends with Close.
func StartProxy(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, target: target, conns: map[net.Conn]struct{}{}, flowing: make(chan struct{})}
	close(p.flowing)
	p.wg.Go(p.accept)
	return p, nil
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.Cut()
	p.wg.Wait()
}

// ProxyDSN starts a Proxy for the server of a postgres:// DSN and returns the
// DSN that goes through it.
func ProxyDSN(t testing.TB, dsn string) (*Proxy, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatalf("not a URL: %v", err)
	}
	target := u.Host
	if u.Port() == "" {
		target = net.JoinHostPort(u.Hostname(), "5432")
	}
	p := NewProxy(t, target)
	u.Host = p.Addr()
	return p, u.String()
}

// Addr is the proxy's host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut ends all connections and every new one until Restore is called.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for c := range p.conns {
		_ = c.Close()
	}
	p.flow()
}

// Stall keeps all connections, and takes new ones, but passes nothing on until
// Restore is called.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flowing:
		p.flowing = make(chan struct{})
	default:
	}
}

// Restore lets connections through again.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
	p.flow()
}

// flow ends a stall. p.mu is held.
func (p *Proxy) flow() {
	select {
	case <-p.flowing:
	default:
		close(p.flowing)
	}
}

// valve passes bytes on to a connection while the proxy is not stalled.
type valve struct {
	p  *Proxy
	to net.Conn
}

func (v valve) Write(b []byte) (int, error) {
	v.p.awaitFlow()
	return v.to.Write(b)
}

func (p *Proxy) awaitFlow() {
	p.mu.Lock()
	flowing := p.flowing
	p.mu.Unlock()
	<-flowing
}

// Conns is the number of open connections from the tested side.
func (p *Proxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) / 2
}

func (p *Proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(in) })
	}
}

func (p *Proxy) serve(in net.Conn) {
	defer func() { _ = in.Close() }()
	out, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer func() { _ = out.Close() }()
	if !p.add(in, out) {
		return
	}
	defer p.remove(in, out)
	var both sync.WaitGroup
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(valve{p, to}, from)
		p.awaitFlow() // an end doesn't get through either
		_ = to.Close()
		_ = from.Close()
	}
	both.Go(func() { pass(out, in) })
	both.Go(func() { pass(in, out) })
	both.Wait()
}

// add registers a pair of connections, or refuses it while the proxy is cut.
func (p *Proxy) add(in, out net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		return false
	}
	p.conns[in], p.conns[out] = struct{}{}, struct{}{}
	return true
}

func (p *Proxy) remove(in, out net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, in)
	delete(p.conns, out)
}
