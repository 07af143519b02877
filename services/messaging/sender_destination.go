package messaging

import (
	"net"
	"sync"
	"unicode/utf8"
)

// destination is a validated URL in the forms that requests need.
type destination struct {
	parsedURL
	// addr is the host:port to dial, uri the request target.
	addr, uri string
	// ascii tells that the host needs no IDNA mapping.
	ascii bool
}

// maxDestinations bounds how many URLs are remembered, of at most 2 KiB each.
const maxDestinations = 1024

// destinations remembers URLs that were parsed: parsing and checking one costs
// more than to write the request that goes there.
type destinations struct {
	mu    sync.RWMutex
	known map[string]*destination
}

// parse returns what raw leads to, or its [*URLError]. The result is shared and
// must not be changed.
func (d *destinations) parse(raw string) (*destination, error) {
	d.mu.RLock()
	dest := d.known[raw]
	d.mu.RUnlock()
	if dest != nil {
		return dest, nil
	}
	p, err := parseTarget(raw)
	if err != nil {
		return nil, err
	}
	host, port := hostPort(p.url)
	dest = &destination{parsedURL: p, addr: net.JoinHostPort(host, port), uri: p.url.RequestURI(), ascii: true}
	for i := range len(host) {
		dest.ascii = dest.ascii && host[i] < utf8.RuneSelf
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil || len(d.known) >= maxDestinations {
		// Rare enough that a fresh start is as good as knowing which to forget.
		d.known = make(map[string]*destination)
	}
	d.known[raw] = dest
	return dest, nil
}
