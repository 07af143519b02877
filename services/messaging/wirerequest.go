package messaging

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// wireRequest is a request that goes over a [wireConn].
type wireRequest struct {
	req  *http.Request
	dest *destination
	body []byte
	rec  *recorder
	pool *wirePool
}

// lineBreaks keeps a value on its line. Values are validated long before; this
// is what still holds when that is wrong.
var lineBreaks = strings.NewReplacer("\n", " ", "\r", " ")

// write fills w with the request, byte for byte as net/http's transport writes
// it: a test compares the two.
func (w *wireBuffer) write(x *wireRequest, last bool) {
	header, method := x.req.Header, x.req.Method
	b := append(w.bytes[:0], method...)
	b = append(b, ' ')
	b = append(b, x.dest.uri...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, x.req.Host...)
	b = append(b, "\r\n"...)
	w.names = w.names[:0]
	for name := range header {
		switch name {
		case "User-Agent", "Host", "Content-Length", "Transfer-Encoding", "Trailer":
		default:
			w.names = append(w.names, name)
		}
	}
	slices.Sort(w.names)
	if agent := header["User-Agent"]; len(agent) > 0 && agent[0] != "" {
		b = appendHeader(b, "User-Agent", agent[0])
	}
	// A length of 0 is left out where no receiver expects a body.
	if len(x.body) > 0 || method != http.MethodGet && method != http.MethodHead {
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, int64(len(x.body)), 10)
		b = append(b, "\r\n"...)
	}
	for _, name := range w.names {
		for _, value := range header[name] {
			b = appendHeader(b, name, value)
		}
	}
	if last {
		b = append(b, "Connection: close\r\n"...)
	}
	b = append(b, "\r\n"...)
	w.bytes = append(b, x.body...)
}

func appendHeader(b []byte, name, value string) []byte {
	if strings.ContainsAny(value, "\r\n") {
		value = lineBreaks.Replace(value)
	}
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, strings.Trim(value, " \t")...)
	return append(b, "\r\n"...)
}
