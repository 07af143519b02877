package messaging

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// EgressConfig says where requests may go. The zero value allows every public
// address, over http and https, and nothing inside.
type EgressConfig struct {
	// Allow opens ranges and hosts that are refused by default.
	Allow EgressAllow
	// HTTPSOnly refuses http URLs.
	HTTPSOnly bool
	// Proxy is the URL of a forward proxy (http or https, with userinfo for
	// Basic authentication), empty for direct connections. HTTP_PROXY and its
	// relatives in the environment are not read: a proxy is chosen here or not
	// at all. Each target is resolved and judged before it is handed to the
	// proxy; because the proxy resolves the name again, it needs a policy of
	// its own against names that change in between.
	Proxy string
	// ProxyExcept lists the hosts and ranges that are reached directly.
	ProxyExcept EgressAllow
}

// EgressAllow is a set of address ranges and host names.
type EgressAllow struct {
	ranges []netip.Prefix
	hosts  map[string]bool
}

// ParseEgressAllow reads CIDR ranges (192.168.1.0/24), addresses (10.1.2.3)
// and host names (hooks.lan). A range opens every address in it, metadata
// addresses included, so ranges should be small. A host name opens the
// loopback and private addresses that it resolves to, but no link-local,
// metadata, multicast or reserved one. Names match as a whole; there are no
// wildcards.
func ParseEgressAllow(entries []string) (EgressAllow, error) {
	allow := EgressAllow{hosts: map[string]bool{}}
	for _, entry := range entries {
		if err := allow.add(entry); err != nil {
			return EgressAllow{}, fmt.Errorf("egress allow: entry %.80q: %w", entry, err)
		}
	}
	return allow, nil
}

func (a *EgressAllow) add(entry string) error {
	if strings.Contains(entry, "/") {
		prefix, err := netip.ParsePrefix(entry)
		switch {
		case err != nil:
			return fmt.Errorf("not a CIDR range")
		case prefix.Addr().Is4In6():
			return fmt.Errorf("write an IPv4-mapped range in its IPv4 form")
		case prefix != prefix.Masked():
			return fmt.Errorf("has bits set after its %d-bit prefix, want %s", prefix.Bits(), prefix.Masked())
		}
		a.ranges = append(a.ranges, prefix)
		return nil
	}
	if addr, err := netip.ParseAddr(entry); err == nil {
		if addr.Zone() != "" {
			return fmt.Errorf("has an IPv6 zone")
		}
		addr = addr.Unmap()
		a.ranges = append(a.ranges, netip.PrefixFrom(addr, addr.BitLen()))
		return nil
	}
	if reason := checkHost(entry); reason != "" {
		return fmt.Errorf("not a range, an address or a host name: %s", reason)
	}
	a.hosts[hostKey(entry)] = true
	return nil
}

func (a EgressAllow) host(name string) bool { return a.hosts[hostKey(name)] }

// covers looks at the address itself, never at an address wrapped in it, so
// that 64:ff9b::192.168.1.20 is not opened by 192.168.1.0/24.
func (a EgressAllow) covers(addr netip.Addr) bool {
	return inAny(a.ranges, addr.Unmap().WithZone(""))
}

func hostKey(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// EgressError is returned for a destination that the policy refuses. Its text
// is the same for every address, existing or not, so that a caller cannot map
// an internal network by it; the fields are for the operator's own log.
type EgressError struct {
	// Host is the name or address that was asked for.
	Host string
	// Addr is the refused address, the zero Addr when none was looked up.
	Addr netip.Addr
}

func (e *EgressError) Error() string { return "destination refused by the egress policy" }

// errPlainHTTP is the refusal of an http URL under HTTPSOnly. It tells nothing
// about the network, so that it may say what to change.
type errPlainHTTP struct{}

func (errPlainHTTP) Error() string {
	return "destination refused by the egress policy: only https is allowed"
}

// CheckURL is [ValidateURL] plus what the policy says without the network:
// plain http under HTTPSOnly, and literal addresses that are not allowed. It
// serves early answers when a URL is saved; sending judges again.
func (c EgressConfig) CheckURL(raw string) error {
	p, err := parseTarget(raw)
	if err != nil {
		return err
	}
	if c.HTTPSOnly && p.url.Scheme != "https" {
		return &URLError{"scheme must be https"}
	}
	host := p.url.Hostname()
	if addr, err := netip.ParseAddr(host); err == nil {
		return c.judge(host, addr)
	}
	return nil
}

// judge decides about one address that host stands for.
func (c EgressConfig) judge(host string, addr netip.Addr) error {
	kind := classify(addr)
	switch {
	case kind == addressPublic, c.Allow.covers(addr):
		return nil
	case kind == addressInside && c.Allow.host(host):
		return nil
	}
	return &EgressError{Host: host, Addr: addr}
}

// proxyURL parses the configured proxy; nil means none. The error shows no
// part of the value, which may hold a password.
func (c EgressConfig) proxyURL() (*url.URL, error) {
	if c.Proxy == "" {
		return nil, nil
	}
	u, err := url.Parse(c.Proxy)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("egress: proxy must be an http or https URL with a host")
	}
	if u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("egress: proxy URL must have no path, query or fragment")
	}
	if reason := checkHost(u.Hostname()); reason != "" {
		return nil, fmt.Errorf("egress: proxy %s", reason)
	}
	return u, nil
}

// proxyAddr is the host:port that the transport dials for a proxy.
func proxyAddr(u *url.URL) string {
	if u == nil {
		return ""
	}
	host, port := hostPort(u)
	return net.JoinHostPort(host, port)
}
