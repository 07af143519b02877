package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"

	"github.com/objecthost/objecthost/e2e/proc"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// network connects hosts with the database and the receiver, and cuts one off
// from the database.
type network interface {
	// open is called once the database listens.
	open(server *proc.PostgresServer) error
	// receiverIP is where the receiver can be reached from every host.
	receiverIP() string
	// egress is what hosts must be allowed to call.
	egress() string
	// host runs one, which listens at listenIP and reaches the database by dsn.
	host(n int) proc.Options
	listenIP(n int) string
	dsn(n int) string
	// from is how the receiver knows a host.
	from(n int, h *proc.Host) string
	// cut swallows all between a host and the database until mend.
	cut(ctx context.Context, n int) error
	mend(ctx context.Context, n int) error
	close()
}

// newNetwork makes namespaces where the machine allows it, else proxies.
func newNetwork(ctx context.Context, kind string) (network, error) {
	if kind == Proxies {
		return new(proxies), nil
	}
	n, err := newNamespaces(ctx)
	switch {
	case err == nil:
		return n, nil
	case kind == Namespaces:
		return nil, err
	}
	return new(proxies), nil
}

// benchmarks are the addresses set apart for tests of network devices (RFC
// 2544), of which nobody has one.
const benchmarks = "198.18.0.0/15"

// namespaces gives each host a network and process ids of its own, as if it ran
// on another machine: one link leads to the receiver and to whoever calls its
// API, another one to the database.
type namespaces struct {
	id, base int
	server   *proc.PostgresServer
}

func newNamespaces(ctx context.Context) (*namespaces, error) {
	ns := &namespaces{id: os.Getpid() % 1_000_000, base: Nodes * rand.IntN(80)}
	for range 20 {
		if !inUse(ns.address(0, 1)) {
			break
		}
		ns.base = Nodes * rand.IntN(80)
	}
	for n := range Nodes {
		name, calls, db := ns.name(n), ns.link(n, "a"), ns.link(n, "b")
		for _, line := range []string{
			"netns add " + name,
			"link add " + calls + " type veth peer name calls netns " + name,
			"link add " + db + " type veth peer name db netns " + name,
			"addr add " + ns.address(n, 1) + "/30 dev " + calls,
			"addr add " + ns.address(n, 5) + "/30 dev " + db,
			"link set " + calls + " up",
			"link set " + db + " up",
			"-n " + name + " addr add " + ns.address(n, 2) + "/30 dev calls",
			"-n " + name + " addr add " + ns.address(n, 6) + "/30 dev db",
			"-n " + name + " link set lo up",
			"-n " + name + " link set calls up",
			"-n " + name + " link set db up",
			"-n " + name + " route add default via " + ns.address(n, 1),
			// What the database sends while the link is down must not leave the machine.
			"route add blackhole " + ns.address(n, 4) + "/30 metric 10000",
		} {
			if err := ip(ctx, line); err != nil {
				ns.close()
				return nil, err
			}
		}
	}
	return ns, nil
}

// inUse tells that an address belongs to a network of this machine.
func inUse(address string) bool {
	networks, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, n := range networks {
		if in, ok := n.(*net.IPNet); ok && in.Contains(net.ParseIP(address)) {
			return true
		}
	}
	return false
}

// ip runs the command of that name.
func ip(ctx context.Context, line string) error {
	if out, err := exec.CommandContext(ctx, "ip", strings.Fields(line)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", line, err, out)
	}
	return nil
}

func (ns *namespaces) name(n int) string { return fmt.Sprintf("host%d-%d", ns.id, n) }
func (ns *namespaces) link(n int, which string) string {
	return fmt.Sprintf("host%d%s%d", ns.id, which, n)
}
func (ns *namespaces) address(n, last int) string {
	return fmt.Sprintf("198.18.%d.%d", ns.base+n, last)
}

func (ns *namespaces) open(server *proc.PostgresServer) error {
	ns.server = server
	return nil
}
func (ns *namespaces) receiverIP() string    { return ns.address(0, 1) }
func (ns *namespaces) egress() string        { return benchmarks }
func (ns *namespaces) listenIP(n int) string { return ns.address(n, 2) }
func (ns *namespaces) dsn(n int) string      { return ns.server.DSN(ns.address(n, 5)) }
func (ns *namespaces) host(n int) proc.Options {
	return proc.Options{Prefix: []string{"ip", "netns", "exec", ns.name(n)}, Alone: true}
}
func (ns *namespaces) from(n int, _ *proc.Host) string { return ns.address(n, 2) }
func (ns *namespaces) cut(ctx context.Context, n int) error {
	return ip(ctx, "link set "+ns.link(n, "b")+" down")
}

func (ns *namespaces) mend(ctx context.Context, n int) error {
	return ip(ctx, "link set "+ns.link(n, "b")+" up")
}

func (ns *namespaces) close() {
	ctx := context.Background()
	for n := range Nodes {
		// The links go with the namespace; what was not made can't be removed.
		_ = ip(ctx, "link del "+ns.link(n, "a"))
		_ = ip(ctx, "link del "+ns.link(n, "b"))
		_ = ip(ctx, "route del blackhole "+ns.address(n, 4)+"/30")
		_ = ip(ctx, "netns del "+ns.name(n))
	}
}

// proxies has all on the loopback address, and a proxy between each host and
// the database.
type proxies struct {
	server *proc.PostgresServer
	list   []*storagetest.Proxy
}

func (p *proxies) open(server *proc.PostgresServer) error {
	p.server = server
	for range Nodes {
		proxy, err := storagetest.StartProxy(net.JoinHostPort("127.0.0.1", server.Port))
		if err != nil {
			return err
		}
		p.list = append(p.list, proxy)
	}
	return nil
}

func (p *proxies) receiverIP() string                  { return "127.0.0.1" }
func (p *proxies) egress() string                      { return "127.0.0.1" }
func (p *proxies) listenIP(int) string                 { return "127.0.0.1" }
func (p *proxies) host(int) proc.Options               { return proc.Options{} }
func (p *proxies) from(_ int, h *proc.Host) string     { return fmt.Sprintf("pid:%d", h.PID()) }
func (p *proxies) mend(_ context.Context, n int) error { p.list[n].Restore(); return nil }

func (p *proxies) dsn(n int) string {
	return strings.Replace(p.server.DSN("127.0.0.1"), "127.0.0.1:"+p.server.Port, p.list[n].Addr(), 1)
}

// cut swallows all or, at random, ends the connections and refuses new ones.
func (p *proxies) cut(_ context.Context, n int) error {
	if rand.IntN(2) == 0 {
		p.list[n].Stall()
	} else {
		p.list[n].Cut()
	}
	return nil
}

func (p *proxies) close() {
	for _, proxy := range p.list {
		proxy.Close()
	}
}
