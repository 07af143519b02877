package messaging

import (
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// maxBody and maxResponseHeaders bound what is kept of an answer.
	maxBody            = 16 << 10
	maxResponseHeaders = 16 << 10
	// maxError bounds error texts.
	maxError = 500
	// maxDrain is what may be read and dropped to reuse a connection.
	maxDrain = 8 << 10
	// mask replaces secret values wherever a record would show them.
	mask = "••••••••"
)

// readAnswer fills a from a response whose header block is complete. From here
// on the status has decided, and trouble is noted only.
func (a *Attempt) readAnswer(resp *http.Response, o *Outgoing, secrets []string, now time.Time) {
	a.StatusCode = resp.StatusCode
	a.LocationHost = locationHost(resp)
	if !a.Success() {
		a.fail(ClassStatus, "HTTP "+strconv.Itoa(resp.StatusCode))
	}
	if retryable(resp.StatusCode) {
		a.RetryAfter = retryAfter(resp.Header["Retry-After"], now)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// The body of a 101 is the bare connection: reading it would ignore
		// every deadline, so it is closed unread (by the caller).
		a.BodyNote = "connection closed: protocol switches are not followed"
	} else {
		limit := maxBody
		if o.ResponseCap > 0 && o.ResponseCap < limit {
			limit = o.ResponseCap
		}
		a.readBody(resp, limit, secrets)
	}
	a.ResponseHeaders = keptHeaders(resp.Header, secrets) // changes what it is given
}

// readBody keeps the first limit bytes of the decoded body. An endless or slow
// body ends at the limit or with the exchange's deadline; a remainder is read
// only when it is known to be small.
func (a *Attempt) readBody(resp *http.Response, limit int, secrets []string) {
	var body io.Reader = resp.Body
	switch encoding := strings.ToLower(strings.TrimSpace(resp.Header.Get("Content-Encoding"))); encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		// None was asked for. The limit below counts decoded bytes, and the
		// rest of a bomb is never inflated.
		body = &gzipBody{raw: resp.Body}
	default:
		a.BodyNote = clean("body not kept: content encoding "+encoding, maxError)
		a.ResponseTruncated = resp.ContentLength != 0
		return
	}
	// A few bytes more than the limit tell whether there is more, and complete
	// a character that begins below it.
	buf := make([]byte, 0, min(limit+utf8.UTFMax, sizeHint(resp.ContentLength)))
	buf, err := readUpTo(body, buf, limit+utf8.UTFMax)
	if err == nil {
		a.ResponseTruncated = true
		if left := resp.ContentLength - int64(len(buf)); left > 0 && left <= maxDrain {
			_, _ = io.CopyN(io.Discard, resp.Body, left+1) // reaches EOF, which frees the connection
		}
	} else if !errors.Is(err, io.EOF) {
		a.ResponseTruncated = true
		a.BodyNote = "body incomplete: " + bodyReason(err)
	}
	if a.ResponseTruncated {
		buf = trimPartialRune(buf)
	}
	text := redact(clean(string(buf), 0), secrets, a.ResponseTruncated)
	if cut := cutText(text, limit); len(cut) < len(text) {
		text, a.ResponseTruncated = redactTail(cut, secrets), true
	}
	a.ResponseBody = text
}

func sizeHint(contentLength int64) int {
	if contentLength < 0 || contentLength > maxBody {
		return 512
	}
	return int(contentLength) + 1
}

// readUpTo appends to buf until it holds n bytes (nil error) or r ends.
func readUpTo(r io.Reader, buf []byte, n int) ([]byte, error) {
	for len(buf) < n {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		m, err := r.Read(buf[len(buf):min(cap(buf), n)])
		buf = buf[:len(buf)+m]
		if err != nil {
			return buf, err
		}
	}
	return buf, nil
}

// gzipBody opens the gzip stream at the first read, so that a broken or slow
// one is body trouble like any other.
type gzipBody struct {
	raw io.Reader
	z   *gzip.Reader
}

func (g *gzipBody) Read(p []byte) (int, error) {
	if g.z == nil {
		z, err := gzip.NewReader(g.raw)
		if err != nil {
			return 0, err
		}
		g.z = z
	}
	return g.z.Read(p)
}

func bodyReason(err error) string {
	switch {
	case isTimeout(err):
		return "timeout"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "shorter than announced"
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum):
		return "broken gzip"
	}
	return "connection failed"
}

// clean makes text storable: invalid UTF-8 and NUL become U+FFFD. A positive
// limit cuts it to so many bytes on a character.
func clean(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if strings.IndexByte(text, 0) >= 0 {
		text = strings.ReplaceAll(text, "\x00", "\uFFFD")
	}
	if limit > 0 {
		text = cutText(text, limit)
	}
	return text
}

// cutText shortens valid UTF-8 to at most limit bytes, on a character.
func cutText(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// trimPartialRune drops a character that a cut left unfinished.
func trimPartialRune(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// minEcho is the shortest secret that is looked for in an answer; shorter ones
// would mask ordinary text.
const minEcho = 6

// redact masks our own secrets where a receiver echoes the request. It helps
// against debugging endpoints; a receiver that encodes what it echoes defeats
// it, so that reading answers stays a permission of its own.
func redact(text string, secrets []string, truncated bool) string {
	for _, s := range secrets {
		if len(s) >= minEcho && strings.Contains(text, s) {
			text = strings.ReplaceAll(text, s, mask)
		}
	}
	if truncated {
		text = redactTail(text, secrets)
	}
	return text
}

// redactTail drops the beginning of a secret that a cut left at the end.
func redactTail(text string, secrets []string) string {
	for _, s := range secrets {
		for n := min(len(s)-1, len(text)); n >= minEcho; n-- {
			if strings.HasSuffix(text, s[:n]) {
				return strings.ToValidUTF8(text[:len(text)-n], "")
			}
		}
	}
	return text
}

// keptHeaders makes an answer's headers storable. It takes h over and returns it,
// or what of it is kept. Location is left out (its host is kept apart, the rest
// may hold tokens), cookies are masked. Past the bound the rest is dropped in
// alphabetical order.
func keptHeaders(h http.Header, secrets []string) http.Header {
	for _, name := range [...]string{"Location", "Content-Location", "Refresh"} {
		delete(h, name)
	}
	size, asIs := 0, true
	for name, values := range h {
		cookie := name == "Set-Cookie" || name == "Set-Cookie2"
		for i, value := range values {
			if cookie {
				values[i] = mask
			} else {
				values[i] = redact(clean(value, 0), secrets, false)
			}
			size += len(name) + len(values[i])
		}
		asIs = asIs && clean(name, 0) == name
	}
	if asIs && size <= maxResponseHeaders {
		return h
	}
	kept := make(http.Header, len(h))
	left := maxResponseHeaders
	for _, name := range slices.Sorted(maps.Keys(h)) {
		key := clean(name, 0)
		for _, value := range h[name] {
			if left -= len(key) + len(value); left < 0 {
				return kept
			}
			kept[key] = append(kept[key], value)
		}
	}
	return kept
}

// locationHost is the host that a Location header leads to, without userinfo.
func locationHost(resp *http.Response) string {
	text := resp.Header.Get("Location")
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	if u.Host == "" && resp.Request != nil && u.Scheme == "" {
		u = resp.Request.URL.ResolveReference(u)
	}
	return clean(u.Host, 255)
}

// retryAfter reads Retry-After: whole seconds, or any of HTTP's three date
// forms against now. What is neither, negative or past asks for nothing. Of
// several values the longest counts; the result is at most 24 h.
func retryAfter(values []string, now time.Time) time.Duration {
	var longest time.Duration
	for _, value := range values {
		value = strings.TrimSpace(value)
		var wait time.Duration
		if value != "" && strings.Trim(value, "0123456789") == "" {
			wait = maxRetryAfter
			if n, err := strconv.ParseInt(value, 10, 64); err == nil && n < int64(maxRetryAfter/time.Second) {
				wait = time.Duration(n) * time.Second
			}
		} else if at, err := http.ParseTime(value); err == nil {
			wait = at.Sub(now) // saturates
		}
		longest = max(longest, min(wait, maxRetryAfter))
	}
	return longest
}
