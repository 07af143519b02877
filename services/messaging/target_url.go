package messaging

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxURL is the longest URL in characters, the width of the url columns.
const maxURL = 2048

// URLError is returned for a URL that no request can be sent to as written. It
// never repeats the URL, which may hold credentials.
type URLError struct{ Reason string }

func (e *URLError) Error() string { return "url: " + e.Reason }

// ValidateURL tells whether raw can be delivered to byte for byte: an absolute
// http or https URL of at most 2048 characters, without fragment, whose path
// and query need no further escaping, and whose authority every parser reads
// the same way. Userinfo is allowed (it becomes Basic authentication) when its
// special characters are percent-encoded. Whether the address may be reached
// is judged when it is dialled. The error is a [*URLError].
func ValidateURL(raw string) error {
	_, err := parseTarget(raw)
	return err
}

// parsedURL is a validated URL: url has no userinfo left.
type parsedURL struct {
	url        *url.URL
	user, pass string
	hasUser    bool
}

func parseTarget(raw string) (parsedURL, error) {
	if reason := checkText(raw); reason != "" {
		return parsedURL{}, &URLError{reason}
	}
	u, err := url.Parse(raw)
	if err != nil {
		// url.Error repeats the URL, so that only the kind of trouble is kept.
		return parsedURL{}, &URLError{parseReason(err)}
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return parsedURL{}, &URLError{"scheme must be http or https"}
	}
	_, rest, ok := strings.Cut(raw, "://")
	if !ok || u.Opaque != "" || u.Host == "" {
		return parsedURL{}, &URLError{"host is missing"}
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	if reason := checkAuthority(u, rest[:end]); reason != "" {
		return parsedURL{}, &URLError{reason}
	}
	// net/http writes u.RequestURI(): anything it would spell differently
	// (a raw quote, a brace, a letter outside ASCII) is refused, not repaired.
	tail := rest[end:]
	if uri := u.RequestURI(); uri != tail && uri != "/"+tail {
		return parsedURL{}, &URLError{"path has characters that must be percent-encoded"}
	}
	p := parsedURL{url: u}
	if u.User != nil {
		p.hasUser, p.user = true, u.User.Username()
		p.pass, _ = u.User.Password()
		u.User = nil
	}
	return p, nil
}

// checkText refuses what is wrong wherever it stands.
func checkText(raw string) string {
	switch {
	case raw == "":
		return "is empty"
	case utf8.RuneCountInString(raw) > maxURL:
		return "is longer than " + strconv.Itoa(maxURL) + " characters"
	case !utf8.ValidString(raw):
		return "is not valid UTF-8"
	}
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c <= ' ' || c == 0x7f:
			return "has white space or a control character"
		case c == '#':
			return "has a fragment (a # in a password must be written %23)"
		case c == '\\':
			return "has a backslash"
		}
	}
	if _, query, ok := strings.Cut(raw, "?"); ok {
		for i := 0; i < len(query); i++ {
			if query[i] >= utf8.RuneSelf {
				return "query has characters that must be percent-encoded"
			}
		}
	}
	return ""
}

// parseReason names the part that net/url could not read, without its text.
func parseReason(err error) string {
	text := err.Error()
	for _, known := range []struct{ part, reason string }{
		{"invalid URL escape", "has an invalid percent-encoding"},
		{"invalid port", "port is not a number"},
		{"invalid userinfo", "userinfo has characters that must be percent-encoded"},
		{"missing protocol scheme", "scheme must be http or https"},
		{"first path segment", "scheme must be http or https"},
	} {
		if strings.Contains(text, known.part) {
			return known.reason
		}
	}
	return "cannot be parsed"
}

// checkAuthority looks at the raw text between // and the path, where parsers
// disagree about what the host is.
func checkAuthority(u *url.URL, authority string) string {
	if strings.Count(authority, "@") > 1 {
		return "userinfo has a raw @ (it must be written %40)"
	}
	if userinfo, _, ok := strings.Cut(authority, "@"); ok {
		if userinfo == "" || u.User == nil {
			return "userinfo is empty"
		}
		if strings.Contains(u.User.Username(), ":") {
			return "user name has a colon"
		}
	}
	host := u.Hostname()
	if reason := checkHost(host); reason != "" {
		return reason
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || len(port) > 5 {
			return "port is outside 1 to 65535"
		}
	} else if strings.HasSuffix(u.Host, ":") {
		return "port is empty"
	}
	return ""
}

// checkHost judges a host name or address literal and returns what is wrong
// with it. The guard calls it again on the name that is dialled, after the
// HTTP client's IDNA mapping, so that no spelling reaches a resolver that
// would read it as a number.
func checkHost(host string) string {
	if host == "" {
		return "host is missing"
	}
	if strings.Contains(host, ":") {
		addr, err := netip.ParseAddr(host)
		switch {
		case err != nil:
			return "host is not a valid IPv6 address"
		case addr.Zone() != "":
			return "host has an IPv6 zone, which means something on one machine only"
		}
		return ""
	}
	name := strings.TrimSuffix(host, ".")
	if len(name) > 253 {
		return "host is longer than 253 bytes"
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return "host has an empty or overlong label"
		}
		for _, r := range label {
			if !hostRune(r) {
				return "host has an invalid character"
			}
		}
		last = label
	}
	if numeric(last) {
		// As in the WHATWG URL standard a host that ends in a number is an
		// IPv4 address, and only its usual form is accepted here.
		if _, err := netip.ParseAddr(host); err != nil {
			return "host is a number but not an IPv4 address in its usual form"
		}
	}
	return ""
}

func hostRune(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
		return true
	case r < utf8.RuneSelf:
		return false
	}
	// Letters of other scripts are mapped by IDNA; digits and dots of other
	// scripts would turn into ASCII ones behind the reader's back.
	return unicode.IsLetter(r) || unicode.IsMark(r)
}

// numeric reports a label that some resolver reads as a number.
func numeric(label string) bool {
	digits := label
	if rest, ok := strings.CutPrefix(strings.ToLower(label), "0x"); ok {
		return strings.Trim(rest, "0123456789abcdef") == ""
	}
	return strings.Trim(digits, "0123456789") == ""
}

// hostPort returns a URL's host name and port, the scheme's own when it names none.
func hostPort(u *url.URL) (host, port string) {
	host, port = u.Hostname(), u.Port()
	if port == "" {
		port = "80"
		if u.Scheme == "https" {
			port = "443"
		}
	}
	return host, port
}

// sameAddr compares two host:port texts as the dialler sees them.
func sameAddr(a, b string) bool {
	ah, ap, err1 := net.SplitHostPort(a)
	bh, bp, err2 := net.SplitHostPort(b)
	return err1 == nil && err2 == nil && strings.EqualFold(ah, bh) && ap == bp
}
