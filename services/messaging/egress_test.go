package messaging

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/objecthost/objecthost/services/messaging/messagingtest"
)

const refusedText = "destination refused by the egress policy"

// addressTable lists addresses of every kind; FuzzAddressGuard starts from it.
var addressTable = map[string]addressKind{
	"127.0.0.1": addressInside, "127.255.255.254": addressInside, "10.0.0.5": addressInside, "172.16.0.1": addressInside,
	"172.31.255.255": addressInside, "192.168.1.20": addressInside, "100.64.0.1": addressInside, "100.127.255.255": addressInside,
	"::1": addressInside, "fc00::1": addressInside, "fd12:3456::1": addressInside, "::ffff:127.0.0.1": addressInside,
	"::ffff:10.0.0.5": addressInside, "64:ff9b::7f00:1": addressInside, "64:ff9b::a00:5": addressInside, "2002:7f00:1::": addressInside,
	"2002:a00:5::1": addressInside, "::127.0.0.1": addressInside, "::ffff:0:127.0.0.1": addressInside, "::192.168.1.1": addressInside,
	"2a00::5efe:10.0.0.5": addressInside, "2a00::200:5efe:10.0.0.5": addressInside,

	"0.0.0.0": addressForbidden, "0.0.0.1": addressForbidden, "0.255.255.255": addressForbidden, "169.254.169.254": addressForbidden,
	"169.254.0.1": addressForbidden, "100.100.100.200": addressForbidden, "168.63.129.16": addressForbidden, "192.0.0.192": addressForbidden,
	"192.0.2.1": addressForbidden, "198.18.0.1": addressForbidden, "198.19.255.255": addressForbidden, "198.51.100.7": addressForbidden,
	"203.0.113.9": addressForbidden, "192.88.99.1": addressForbidden, "224.0.0.1": addressForbidden, "239.255.255.250": addressForbidden,
	"240.0.0.1": addressForbidden, "255.255.255.255": addressForbidden, "::": addressForbidden, "::ffff:169.254.169.254": addressForbidden,
	"64:ff9b::a9fe:a9fe": addressForbidden, "64:ff9b:1::a00:5": addressForbidden, "64:ff9b:1::808:808": addressForbidden,
	"2002:a9fe:a9fe::": addressForbidden, "::169.254.169.254": addressForbidden, "2001:0:53aa:64c::1": addressForbidden,
	"2001:db8::1": addressForbidden, "3fff::1": addressForbidden, "fe80::1": addressForbidden, "fe80::1%lo": addressForbidden,
	"febf::1": addressForbidden, "fec0::1": addressForbidden, "ff02::1": addressForbidden, "fd00:ec2::254": addressForbidden,
	"fd20:ce::254": addressForbidden, "100::1": addressForbidden, "5f00::1": addressForbidden, "4000::1": addressForbidden,
	"2001:10::1": addressForbidden, "::ffff:0.0.0.0": addressForbidden, "::0.0.0.1": addressInside, // ::1 in another spelling

	"8.8.8.8": addressPublic, "1.1.1.1": addressPublic, "172.15.255.255": addressPublic, "172.32.0.1": addressPublic,
	"100.63.255.255": addressPublic, "100.128.0.1": addressPublic, "192.0.1.1": addressPublic, "198.17.255.255": addressPublic,
	"198.20.0.1": addressPublic, "223.255.255.255": addressPublic, "168.63.129.17": addressPublic, "::ffff:8.8.8.8": addressPublic,
	"64:ff9b::808:808": addressPublic, "2002:808:808::1": addressPublic, "2001:4860:4860::8888": addressPublic, "2606:4700::1111": addressPublic,
	"2a00:1450::5efe:8.8.8.8": addressPublic, "2620:fe::fe": addressPublic, "2001:200::1": addressPublic,
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for text, want := range addressTable {
		if got := classify(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s is of kind %d, want %d", text, got, want)
		}
	}
	if got := classify(netip.Addr{}); got != addressForbidden {
		t.Errorf("the zero Addr is of kind %d", got)
	}
}

func TestCase_SSR_01_InternalAddressesAreNeverDialled(t *testing.T) {
	t.Parallel()
	table := map[string][]string{}
	var urls []string
	i := 0
	for text, kind := range addressTable {
		if kind == addressPublic || strings.Contains(text, "%") {
			continue
		}
		addr := netip.MustParseAddr(text)
		name := "n" + strings.Repeat("a", i%7) + string(rune('a'+i/7)) + ".test"
		table[name] = []string{text}
		i++
		host := text
		if addr.Is6() {
			host = "[" + text + "]"
		}
		urls = append(urls, "http://"+host+":9/", "https://"+name+"/")
	}
	s := newSender(t, func(c *SenderConfig) {
		c.Egress.Allow, c.Resolver = EgressAllow{}, zone(t, table).Resolver()
	})
	for _, url := range urls {
		a := s.Send(t.Context(), outgoing(url))
		d := Decide(Input{Attempt: a, AttemptsDone: 2})
		if d != (Decision{Outcome: OutcomeDead, Error: refusedText}) || a.RemoteAddr != "" || a.Class != ClassRefused {
			t.Errorf("%s: attempt %+v, decision %+v", url, a, d)
		}
	}
}

// The error is the same whether something listens or not.
func TestCase_SSR_01_ErrorsTellNothing(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t, func(c *SenderConfig) { c.Egress.Allow = EgressAllow{} })
	listening, silent := s.Send(t.Context(), outgoing(r.URL)), s.Send(t.Context(), outgoing("http://127.0.0.1:1/"))
	want(t, listening, 0, ClassRefused, refusedText)
	want(t, silent, 0, ClassRefused, refusedText)
	if r.Connections() != 0 {
		t.Errorf("a connection was opened")
	}
}

func TestCase_SSR_03_OneInternalAnswerRefusesTheName(t *testing.T) {
	t.Parallel()
	r := messagingtest.NewAt(t, "[::1]:0")
	for _, addrs := range [][]string{
		{"127.0.0.77", "::1"}, {"::1", "127.0.0.77"}, {"127.0.0.77", "10.0.0.5"}, {"127.0.0.77", "::ffff:10.0.0.5"},
	} {
		s := newSender(t, func(c *SenderConfig) {
			// 127.0.0.77 stands for a public address where nothing listens.
			c.Egress.Allow, c.Resolver = allow(t, "127.0.0.77"), zone(t, map[string][]string{"both.test": addrs}).Resolver()
		})
		a := s.Send(t.Context(), outgoing("http://both.test:"+r.Port()+"/"))
		want(t, a, 0, ClassRefused, refusedText)
	}
	if r.Connections() != 0 {
		t.Errorf("%d connections reached ::1", r.Connections())
	}
}

// The socket's own check holds without the one after the lookup.
func TestCase_SSR_03_ControlJudgesEachSocket(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	g := &guard{cfg: EgressConfig{Allow: allow(t, "127.0.0.77")}, resolver: net.DefaultResolver, life: t.Context()}
	live := netip.MustParseAddrPort(r.Addr)
	dead := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.77"), live.Port())
	for _, targets := range [][]netip.AddrPort{{live}, {dead, live}, {live, dead}} {
		if conn, err := g.dialAny(t.Context(), "x.test", targets); err == nil {
			conn.Close()
			t.Errorf("%v: connected to %s", targets, conn.RemoteAddr())
		}
	}
	var refused *EgressError
	if _, err := g.dialAny(t.Context(), "x.test", []netip.AddrPort{live}); !errors.As(err, &refused) || refused.Addr != live.Addr() {
		t.Errorf("error is %v", err)
	}
	if r.Connections() != 0 {
		t.Errorf("%d connections", r.Connections())
	}
}

func TestCase_SSR_02_RebindingNeverReachesLoopback(t *testing.T) {
	t.Parallel()
	inner := messagingtest.New(t) // 127.0.0.1, refused
	outer := messagingtest.NewAt(t, "127.0.0.77:"+inner.Port())
	var asked atomic.Int64
	dns := messagingtest.NewDNS(t, func(string) []netip.Addr {
		// A resolver that answers "public" once and "inside" ever after, and the
		// other way round for the next request.
		if n := asked.Add(1); n%3 == 1 {
			return []netip.Addr{netip.MustParseAddr("127.0.0.77")}
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	})
	s := newSender(t, func(c *SenderConfig) {
		c.Egress.Allow, c.Resolver = allow(t, "127.0.0.77"), dns.Resolver()
	})
	refused := 0
	for range 30 {
		a := s.Send(t.Context(), outgoing("http://rebind.test:"+inner.Port()+"/"))
		switch a.Class {
		case ClassRefused:
			refused++
		case ClassNone:
			s.pooled.CloseIdleConnections()
		default:
			t.Fatalf("attempt is %+v", a)
		}
	}
	if inner.Connections() != 0 || refused == 0 || outer.Connections() == 0 {
		t.Errorf("%d connections inside, %d outside, %d refused", inner.Connections(), outer.Connections(), refused)
	}
}

func TestCase_SSR_04_NumberSpellingsReachNoResolver(t *testing.T) {
	t.Parallel()
	dns := messagingtest.NewDNS(t, func(string) []netip.Addr { return []netip.Addr{netip.MustParseAddr("127.0.0.1")} })
	s := newSender(t, func(c *SenderConfig) { c.Resolver = dns.Resolver() })
	const reason = "host is a number but not an IPv4 address in its usual form"
	for _, host := range []string{
		"2130706433", "0177.0.0.1", "0x7f.1", "127.1", "0", "1", "127.0.1", "0x7f000001", "017700000001", "127.0.0.1.", "0x7F.0x1", "127.0.0.01", "0x",
	} {
		a := s.Send(t.Context(), outgoing("http://"+host+"/"))
		want(t, a, 0, ClassUnusable, "url: "+reason)
		// Callers of the client, which takes any *url.URL, meet the same answer.
		_, err := s.guard.DialContext(t.Context(), "tcp", net.JoinHostPort(host, "80"))
		var urlErr *URLError
		if !errors.As(err, &urlErr) || urlErr.Reason != reason {
			t.Errorf("%s: dial: %v", host, err)
		}
		if n := dns.Lookups(host); n != 0 {
			t.Errorf("%s was looked up", host)
		}
	}
	// What IDNA turns into an address is judged as one.
	for _, host := range []string{"１２７.０.０.１", "127。0。0。1", "①②⑦.0.0.1"} {
		closed := newSender(t, func(c *SenderConfig) { c.Egress.Allow = EgressAllow{} })
		if resp, err := closed.Client().Get("http://" + host + "/"); err == nil {
			resp.Body.Close()
			t.Errorf("%s was reached", host)
		}
	}
}

func TestCase_SSR_06_UnknownIsNotAllowed(t *testing.T) {
	t.Parallel()
	var added atomic.Bool
	dns := messagingtest.NewDNS(t, func(string) []netip.Addr {
		if !added.Load() {
			return nil
		}
		return []netip.Addr{netip.MustParseAddr("10.0.0.5")}
	})
	s := newSender(t, func(c *SenderConfig) { c.Resolver = dns.Resolver() })
	const url = "http://later.test/"
	if err := s.cfg.Egress.CheckURL(url); err != nil {
		t.Errorf("save: %v", err)
	}
	a := s.Send(t.Context(), outgoing(url))
	want(t, a, 0, ClassDNS, "dns: no such host")
	if !a.Sent || outcome(a) != OutcomeRetry {
		t.Errorf("sent %v, outcome %q", a.Sent, outcome(a))
	}
	added.Store(true)
	want(t, s.Send(t.Context(), outgoing(url)), 0, ClassRefused, refusedText)
}

func TestCase_SSR_07_EverySinkRefusesAlike(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t, func(c *SenderConfig) { c.Egress.Allow = EgressAllow{} })
	for _, method := range []string{"get", "post", "put", "patch", "delete"} {
		o := outgoing(r.URL)
		o.Method = method
		want(t, s.Send(t.Context(), o), 0, ClassRefused, refusedText)
		req, _ := http.NewRequestWithContext(t.Context(), strings.ToUpper(method), r.URL, strings.NewReader("x"))
		var refused *EgressError
		if _, err := s.Client().Do(req); !errors.As(err, &refused) {
			t.Errorf("%s: client: %v", method, err)
		}
	}
	if r.Connections() != 0 {
		t.Errorf("%d connections", r.Connections())
	}
}

func TestCase_SSR_09_AllowListOpensWhatItNames(t *testing.T) {
	t.Parallel()
	lan := EgressConfig{Allow: allow(t, "192.168.1.0/24", "hooks.lan", "fd12::/16")}
	for _, c := range []struct {
		host, addr string
		allowed    bool
	}{
		{"x.test", "192.168.1.20", true},
		{"x.test", "::ffff:192.168.1.20", true},
		{"x.test", "192.168.2.20", false},
		{"x.test", "169.254.169.254", false},
		{"x.test", "127.0.0.1", false},
		{"x.test", "64:ff9b::c0a8:114", false}, // wrapped: leads elsewhere
		{"x.test", "fd12::1", true},
		{"x.test", "8.8.8.8", true},
		{"hooks.lan", "10.0.0.9", true},
		{"HOOKS.lan.", "10.0.0.9", true},
		{"hooks.lan", "127.0.0.1", true},
		{"hooks.lan", "169.254.169.254", false},
		{"hooks.lan", "0.0.0.0", false},
		{"hooks.lan", "fe80::1", false},
		{"a.hooks.lan", "10.0.0.9", false},
	} {
		if err := lan.judge(c.host, netip.MustParseAddr(c.addr)); (err == nil) != c.allowed {
			t.Errorf("%s at %s: %v", c.host, c.addr, err)
		}
	}
	r := messagingtest.NewAt(t, "127.0.0.77:0")
	s := newSender(t, func(c *SenderConfig) {
		c.Egress.Allow, c.Resolver = allow(t, "hooks.lan"), zone(t, map[string][]string{"hooks.lan": {"127.0.0.77"}}).Resolver()
	})
	want(t, s.Send(t.Context(), outgoing("http://hooks.lan:"+r.Port()+"/")), 200, ClassNone, "")
	want(t, s.Send(t.Context(), outgoing(r.URL)), 0, ClassRefused, refusedText)
	for entry, reason := range map[string]string{
		"10.0.0.5/8":          "has bits set after its 8-bit prefix, want 10.0.0.0/8",
		"10.0.0.0/33":         "not a CIDR range",
		"::ffff:10.0.0.0/104": "write an IPv4-mapped range in its IPv4 form",
		"fe80::1%lo":          "has an IPv6 zone",
		"*.lan":               "not a range, an address or a host name: host has an invalid character",
		"":                    "not a range, an address or a host name: host is missing",
		"127.1":               "not a range, an address or a host name: host is a number but not an IPv4 address in its usual form",
		"http://x":            "not a CIDR range",
	} {
		_, err := ParseEgressAllow([]string{"10.0.0.0/8", entry})
		if err == nil || !strings.HasSuffix(err.Error(), reason) {
			t.Errorf("%q: %v, want %s", entry, err, reason)
		}
	}
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	strict := EgressConfig{HTTPSOnly: true}
	for url, want := range map[string]string{
		"http://recv.test/": "url: scheme must be https", "https://127.0.0.1/": refusedText, "https://[::1]/": refusedText,
		"https://recv.test/": "", "https://8.8.8.8/": "", "ftp://x/": "url: scheme must be http or https",
	} {
		got := ""
		if err := strict.CheckURL(url); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
}

func TestCase_CON_07_DeadFamilyIsSkipped(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	six := messagingtest.NewAt(t, "[::1]:0")
	s := newSender(t, func(c *SenderConfig) {
		c.Resolver = zone(t, map[string][]string{"six.test": {"::1"}, "both.test": {"::1", "127.0.0.1"}}).Resolver()
	})
	// Addresses that refuse cost no wait: with one each it would be 1.5 s.
	many := zone(t, map[string][]string{"many.test": {"127.0.0.81", "127.0.0.82", "127.0.0.83", "127.0.0.84", "127.0.0.85", "127.0.0.86", "127.0.0.1"}}).Resolver()
	quick := newSender(t, func(c *SenderConfig) { c.Resolver = many })
	a := quick.Send(t.Context(), outgoing("http://many.test:"+r.Port()+"/"))
	want(t, a, 200, ClassNone, "")
	if a.Connect > 4*dialStagger {
		t.Errorf("connecting took %s", a.Connect)
	}
	// Nothing listens on ::1 at r's port, nor on 127.0.0.1 at six's.
	want(t, s.Send(t.Context(), outgoing("http://both.test:"+r.Port()+"/")), 200, ClassNone, "")
	want(t, s.Send(t.Context(), outgoing("http://both.test:"+six.Port()+"/")), 200, ClassNone, "")
	want(t, s.Send(t.Context(), outgoing("http://six.test:"+six.Port()+"/")), 200, ClassNone, "")
	want(t, s.Send(t.Context(), outgoing(six.URL)), 200, ClassNone, "")
	want(t, s.Send(t.Context(), outgoing("http://[fe80::1%25lo]:80/")), 0, ClassUnusable,
		"url: host has an IPv6 zone, which means something on one machine only")
}

// A black hole first: the next address is tried after the stagger.
func TestCase_CON_07_SilentAddressIsOvertaken(t *testing.T) {
	t.Parallel()
	r := messagingtest.NewAt(t, "127.0.0.79:0")
	blackHole(t, [4]byte{127, 0, 0, 78}, r.Port())
	s := newSender(t, func(c *SenderConfig) {
		c.Resolver = zone(t, map[string][]string{"two.test": {"127.0.0.78", "127.0.0.79"}, "hole.test": {"127.0.0.78"}}).Resolver()
	})
	a := s.Send(t.Context(), outgoing("http://two.test:"+r.Port()+"/"))
	want(t, a, 200, ClassNone, "")
	if a.RemoteAddr != r.Addr {
		t.Errorf("remote address is %s", a.RemoteAddr)
	}
	o := outgoing("http://hole.test:" + r.Port() + "/")
	o.Timeout = 300 * time.Millisecond
	want(t, s.Send(t.Context(), o), 0, ClassTimeout, "timeout after 300ms connecting")
}

// blackHole listens with the shortest backlog and fills it, after which the
// kernel drops what else tries to connect.
func blackHole(t *testing.T, ip [4]byte, port string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	number, _ := strconv.Atoi(port)
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: number, Addr: ip}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for range 16 {
		d := net.Dialer{Timeout: 150 * time.Millisecond}
		conn, err := d.Dial("tcp", net.JoinHostPort(netip.AddrFrom4(ip).String(), port))
		if err != nil {
			return
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Fatal("the backlog has no end")
}

func TestCase_TLS_01_MissingRootsAreRetriable(t *testing.T) {
	t.Parallel()
	if os.Getenv("OBJECTHOST_TLS_CHILD") != "" {
		tlsChild(t)
		return
	}
	r := messagingtest.NewTLS(t, "127.0.0.1")
	dir := t.TempDir()
	pem := filepath.Join(dir, "roots.pem")
	if err := os.WriteFile(pem, r.RootsPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	// The system's roots are read once per process, so that each is one.
	for _, c := range []struct{ file, want string }{
		{"/nonexistent", "0|tls|tls: failed to verify certificate: x509: certificate signed by unknown authority|retry|warned"},
		{pem, "200|||success|"},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCase_TLS_01_MissingRootsAreRetriable$", "-test.v")
		cmd.Env = append(os.Environ(), "OBJECTHOST_TLS_CHILD="+r.URL, "SSL_CERT_FILE="+c.file, "SSL_CERT_DIR=/nonexistent")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "result="+c.want+"\n") {
			t.Errorf("%s: %v, want %s in\n%s", c.file, err, c.want, out)
		}
	}
}

func tlsChild(t *testing.T) {
	var log bytes.Buffer
	s := newSender(t, func(c *SenderConfig) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	a := s.Send(t.Context(), outgoing(os.Getenv("OBJECTHOST_TLS_CHILD")))
	warned := ""
	if strings.Contains(log.String(), "no system root certificates") {
		warned = "warned"
	}
	_, _ = os.Stdout.WriteString("result=" + strings.Join([]string{
		strconv.Itoa(a.StatusCode), string(a.Class), a.Error, string(outcome(a)), warned,
	}, "|") + "\n")
}

func TestCase_TLS_03_VerificationIsNeverOff(t *testing.T) {
	t.Parallel()
	trusted, selfSigned := messagingtest.NewTLS(t, "127.0.0.1"), messagingtest.NewTLS(t, "127.0.0.1")
	s := newSender(t, func(c *SenderConfig) { c.RootCAs = trusted.Roots() })
	want(t, s.Send(t.Context(), outgoing(trusted.URL)), 200, ClassNone, "")
	const text = "tls: failed to verify certificate: x509: certificate signed by unknown authority"
	a := s.Send(t.Context(), outgoing(selfSigned.URL))
	if a.Class != ClassTLS || !strings.HasPrefix(a.Error, text) || outcome(a) != OutcomeRetry || !a.Sent {
		t.Errorf("attempt is %+v", a)
	}
	want(t, s.Send(t.Context(), outgoing(trusted.URL)), 200, ClassNone, "")
	if n := len(selfSigned.Requests()); n != 0 {
		t.Errorf("%d requests went to the unverified receiver", n)
	}
}

func TestTLSNamesAreKept(t *testing.T) {
	t.Parallel()
	named := messagingtest.NewTLS(t, "recv.test")
	resolver := zone(t, map[string][]string{"recv.test": {"127.0.0.1"}, "other.test": {"127.0.0.1"}}).Resolver()
	s := newSender(t, func(c *SenderConfig) { c.RootCAs, c.Resolver = named.Roots(), resolver })
	want(t, s.Send(t.Context(), outgoing("https://recv.test:"+named.Port()+"/")), 200, ClassNone, "")
	if got := named.Requests()[0].Host; got != "recv.test:"+named.Port() {
		t.Errorf("Host is %q", got)
	}
	want(t, s.Send(t.Context(), outgoing("https://other.test:"+named.Port()+"/")), 0, ClassTLS,
		"tls: failed to verify certificate: x509: certificate is valid for recv.test, not other.test")
	plain := messagingtest.New(t)
	want(t, s.Send(t.Context(), outgoing("https://127.0.0.1:"+plain.Port()+"/")), 0, ClassTLS, "tls: the receiver does not speak TLS on this port")
}

func TestCase_PRX_01_EnvironmentProxiesAreNotUsed(t *testing.T) {
	proxy, r := messagingtest.New(t), messagingtest.New(t)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	s := newSender(t, func(c *SenderConfig) { c.Resolver = zone(t, map[string][]string{"out.test": {"127.0.0.1"}}).Resolver() })
	want(t, s.Send(t.Context(), outgoing("http://out.test:"+r.Port()+"/")), 200, ClassNone, "")
	if proxy.Connections() != 0 || r.Connections() != 1 {
		t.Errorf("%d connections to the proxy, %d to the receiver", proxy.Connections(), r.Connections())
	}
}

func TestCase_PRX_01_ConfiguredProxyAndItsExceptions(t *testing.T) {
	t.Parallel()
	proxy, r := messagingtest.New(t), messagingtest.New(t)
	table := map[string][]string{"out.test": {"127.0.0.1"}, "in.test": {"127.0.0.1"}, "range.test": {"127.0.0.80"}}
	ranged := messagingtest.NewAt(t, "127.0.0.80:0")
	s := newSender(t, func(c *SenderConfig) {
		c.Egress.Proxy = strings.Replace(proxy.URL, "http://", "http://user:pass@", 1)
		c.Egress.ProxyExcept = allow(t, "in.test", "127.0.0.80")
		c.Resolver = zone(t, table).Resolver()
	})
	want(t, s.Send(t.Context(), outgoing("http://out.test:"+r.Port()+"/x?y=1")), 200, ClassNone, "")
	want(t, s.Send(t.Context(), outgoing("http://in.test:"+r.Port()+"/")), 200, ClassNone, "")
	want(t, s.Send(t.Context(), outgoing("http://range.test:"+ranged.Port()+"/")), 200, ClassNone, "")
	got := proxy.Requests()
	if len(got) != 1 || got[0].RequestURI != "http://out.test:"+r.Port()+"/x?y=1" || got[0].Header.Get("Proxy-Authorization") != "Basic dXNlcjpwYXNz" {
		t.Errorf("the proxy received %+v", got)
	}
	if len(r.Requests()) != 1 || len(ranged.Requests()) != 1 {
		t.Errorf("%d and %d requests came directly", len(r.Requests()), len(ranged.Requests()))
	}
}

func TestCase_PRX_02_ProxyNeverSeesRefusedTargets(t *testing.T) {
	t.Parallel()
	proxy := messagingtest.New(t)
	s := newSender(t, func(c *SenderConfig) {
		c.Egress.Proxy, c.Egress.Allow = proxy.URL, EgressAllow{}
		c.Resolver = zone(t, map[string][]string{"inside.test": {"10.0.0.5"}, "mixed.test": {"8.8.8.8", "::1"}}).Resolver()
	})
	for _, url := range []string{
		"http://169.254.169.254/latest", "http://inside.test/", "https://inside.test/", "http://mixed.test/", "http://[::ffff:10.0.0.5]/",
		"http://127.0.0.1:" + proxy.Port() + "/", "https://[fd00:ec2::254]/", "http://localhost/",
	} {
		a := s.Send(t.Context(), outgoing(url))
		want(t, a, 0, ClassRefused, refusedText)
	}
	want(t, s.Send(t.Context(), outgoing("http://nowhere.test/")), 0, ClassDNS, "dns: no such host")
	if proxy.Connections() != 0 {
		t.Errorf("the proxy received %+v", proxy.Requests())
	}
}

func TestProxyTroubleIsRetriable(t *testing.T) {
	t.Parallel()
	proxy := messagingtest.New(t)
	s := newSender(t, func(c *SenderConfig) {
		c.Egress.Proxy = proxy.URL
		c.Resolver = zone(t, map[string][]string{"out.test": {"127.0.0.1"}}).Resolver()
	})
	proxy.Handle("/in", messagingtest.Status(407, "who are you"))
	proxy.Handle("", messagingtest.Status(403, "blocked by policy"))
	a := s.Send(t.Context(), outgoing("http://out.test/in"))
	want(t, a, 0, ClassConnect, "proxy: answered HTTP 407")
	a = s.Send(t.Context(), outgoing("https://out.test/in"))
	want(t, a, 0, ClassConnect, "proxy: answered HTTP 403")
	if outcome(a) != OutcomeRetry {
		t.Errorf("outcome is %q", outcome(a))
	}
}

func TestCase_PRX_04_MalformedProxyFailsAtStart(t *testing.T) {
	t.Parallel()
	for _, proxy := range []string{"::bad::", "proxy:3128", "socks5://p:1", "http://", "http://p:1/path", "http://user:hush@p%zz", "http://127.1:3128", "http://p:1?x"} {
		s, err := NewSender(SenderConfig{Egress: EgressConfig{Proxy: proxy}})
		if err == nil {
			s.Close()
			t.Errorf("%s is accepted", proxy)
		} else if !strings.HasPrefix(err.Error(), "egress: proxy") || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", proxy, err)
		}
	}
}

// A dial that nobody waits for ends with the sender.
func TestCloseEndsDials(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	g := &guard{life: ctx}
	bounded, stop := g.bound(context.Background(), nil)
	defer stop()
	cancel()
	<-bounded.Done()
	if !errors.Is(bounded.Err(), context.Canceled) {
		t.Errorf("error is %v", bounded.Err())
	}
}
