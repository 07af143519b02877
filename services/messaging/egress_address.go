package messaging

import "net/netip"

// addressKind sorts addresses by who may open them.
type addressKind int

const (
	// addressPublic is reachable by everybody.
	addressPublic addressKind = iota
	// addressInside is a machine's or a site's own: loopback, private, shared.
	// An operator opens it by range or by host name.
	addressInside
	// addressForbidden is link-local, cloud metadata, multicast, unspecified
	// or reserved. An operator opens it by range only, because a host name is
	// opened by people who do not expect it to lead there.
	addressForbidden
)

// inside4 and forbidden4 follow the IANA IPv4 special-purpose registry.
var (
	inside4 = prefixes("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")

	forbidden4 = prefixes(
		"0.0.0.0/8",          // this network
		"100.100.100.200/32", // Alibaba Cloud metadata, inside CGNAT
		"168.63.129.16/32",   // Azure's host agent, a public address
		"169.254.0.0/16",     // link-local; the usual metadata address
		"192.0.0.0/24",       // protocol assignments; Oracle's metadata
		"192.0.2.0/24",       // documentation
		"192.88.99.0/24",     // 6to4 relays
		"198.18.0.0/15",      // benchmarks
		"198.51.100.0/24",    // documentation
		"203.0.113.0/24",     // documentation
		"224.0.0.0/4",        // multicast
		"240.0.0.0/4",        // reserved, broadcast
	)
)

// IPv6 outside 2000::/3 is not public; these are the exceptions both ways.
var (
	loopback6 = netip.IPv6Loopback()
	unique6   = netip.MustParsePrefix("fc00::/7")
	global6   = netip.MustParsePrefix("2000::/3")

	metadata6 = prefixes("fd00:ec2::/32", "fd20:ce::254/128")

	forbidden6 = prefixes(
		"2001::/23",     // protocol assignments: Teredo, ORCHID, benchmarks
		"2001:db8::/32", // documentation
		"3fff::/20",     // documentation
	)
)

// wrapped4 lists the IPv6 forms that carry an IPv4 address, and where, besides
// IPv4-mapped ones.
var wrapped4 = []struct {
	prefix netip.Prefix
	offset int
}{
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12}, // IPv4-translated
	{netip.MustParsePrefix("64:ff9b::/96"), 12},    // NAT64
	{netip.MustParsePrefix("2002::/16"), 2},        // 6to4
	{netip.MustParsePrefix("::/96"), 12},           // IPv4-compatible
}

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

// classify sorts the address really connected to. net and netip have helpers
// for this that answer "not private" for NAT64, 6to4, ::127.0.0.1, 100.64/10,
// 198.18/15 and 0.0.0.1, so that they are not used. Local-use NAT64
// (64:ff9b:1::/48), Teredo and site-local addresses fall outside what is
// public and are forbidden whatever they carry.
func classify(addr netip.Addr) addressKind {
	addr = addr.WithZone("").Unmap() // neither makes an address another one
	if !addr.IsValid() {
		return addressForbidden
	}
	if addr.Is4() {
		return classify4(addr)
	}
	if addr == loopback6 {
		return addressInside
	}
	bytes := addr.As16()
	for _, form := range wrapped4 {
		if form.prefix.Contains(addr) {
			return classify4(netip.AddrFrom4([4]byte(bytes[form.offset : form.offset+4])))
		}
	}
	switch {
	case inAny(metadata6, addr):
		return addressForbidden
	case unique6.Contains(addr):
		return addressInside
	case !global6.Contains(addr), inAny(forbidden6, addr):
		return addressForbidden
	}
	// ISATAP: an interface id of 0:5efe or 200:5efe and an IPv4 address.
	if bytes[8]&^2 == 0 && bytes[9] == 0 && bytes[10] == 0x5e && bytes[11] == 0xfe {
		return classify4(netip.AddrFrom4([4]byte(bytes[12:])))
	}
	return addressPublic
}

func classify4(addr netip.Addr) addressKind {
	switch {
	case inAny(forbidden4, addr):
		return addressForbidden
	case inAny(inside4, addr):
		return addressInside
	}
	return addressPublic
}

func inAny(list []netip.Prefix, addr netip.Addr) bool {
	for _, p := range list {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}
