package rest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"io"
	"net/http"
	"regexp"
	"time"

	"github.com/objecthost/objecthost/core/identity"
)

// exchange is what the middleware learns about one request while it is served,
// for the access log.
type exchange struct {
	requestID string
	route     string // the pattern, "" when no route took the request
	plugin    string
	principal identity.Principal
	body      io.ReadCloser // before it was limited
	cause     error         // behind a 5xx
	stack     string
	cancelled bool
}

type exchangeKey struct{}

func contextWith(ctx context.Context, x *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}

// exchangeOf returns the request's exchange. Handlers that are called without
// the middleware get one that nobody reads.
func exchangeOf(ctx context.Context) *exchange {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return x
	}
	return &exchange{}
}

var plainID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// requestID is the client's own X-Request-Id when it is short and plain enough
// for a log line, else a fresh one.
func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); plainID.MatchString(id) {
		return id
	}
	var b [12]byte
	_, _ = rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// chunk is how much of an answer one write deadline covers.
const chunk = 64 << 10

// recorder notes what was answered, and gives the client a fresh deadline for
// each chunk, so that a client that stops reading cannot hold a handler for
// ever while a long answer or an event stream may take its time.
type recorder struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	status  int
	bytes   int64
}

func newRecorder(w http.ResponseWriter, timeout time.Duration) *recorder {
	return &recorder{ResponseWriter: w, control: http.NewResponseController(w), timeout: timeout}
}

// extend begins a new deadline; net/http clears it before the next request. The
// error tells that the writer has no deadlines, as in tests.
func (r *recorder) extend() { _ = r.control.SetWriteDeadline(time.Now().Add(r.timeout)) }

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= http.StatusOK {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	written := 0
	for {
		part := b[written:min(len(b), written+chunk)]
		r.extend()
		n, err := r.ResponseWriter.Write(part)
		written += n
		r.bytes += int64(n)
		if err != nil || written == len(b) {
			return written, err
		}
	}
}

// Flush implements http.Flusher for handlers that stream.
func (r *recorder) Flush() {
	r.extend()
	_ = r.control.Flush()
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
