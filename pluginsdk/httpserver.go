package pluginsdk

import (
	"bufio"
	"errors"
	"io"
	"net/http"

	"google.golang.org/grpc"

	"github.com/objecthost/objecthost/core/identity"
	pluginv1 "github.com/objecthost/objecthost/pluginsdk/proto/v1"
)

type httpStream = grpc.BidiStreamingServer[pluginv1.HTTPRequest, pluginv1.HTTPResponse]

// ServeHTTP serves one request of the host. The handler reads the body and
// writes the answer as it likes; Flush sends what was written so far.
func (s *server) ServeHTTP(stream httpStream) (err error) {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.Head == nil {
		return &Error{Code: CodeInvalid, Message: "a request begins with its head"}
	}
	ctx := identity.With(stream.Context(), identity.Principal{UserID: first.Head.UserId, OrganizationID: first.Head.OrganizationId})
	body := &requestBody{stream: stream, rest: first.Body, end: first.End}
	r, err := http.NewRequestWithContext(ctx, first.Head.Method, first.Head.Target, body)
	if err != nil {
		return &Error{Code: CodeInvalid, Message: err.Error()}
	}
	r.RequestURI = first.Head.Target
	r.Header = DecodeHeader(first.Head.Headers)
	r.Host = r.Header.Get("Host")
	w := &responseWriter{header: http.Header{}, stream: stream}
	w.buffer = bufio.NewWriterSize(chunkWriter{w}, 32<<10)
	defer recovered(&err)
	s.guest.Handler().ServeHTTP(w, r)
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
	if err := w.buffer.Flush(); err != nil {
		return err
	}
	return w.sendHead()
}

// requestBody reads the parts of a body as they come.
type requestBody struct {
	stream httpStream
	rest   []byte
	end    bool
}

func (b *requestBody) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		if b.end {
			return 0, io.EOF
		}
		part, err := b.stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) { // the host closed its side before the end
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
		b.rest, b.end = part.Body, part.End
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

func (b *requestBody) Close() error { return nil }

// responseWriter sends the head with the first flush.
type responseWriter struct {
	header http.Header
	status int
	wrote  bool
	sent   bool
	buffer *bufio.Writer
	stream httpStream
}

var _ http.Flusher = (*responseWriter)(nil)

func (w *responseWriter) Header() http.Header { return w.header }

func (w *responseWriter) WriteHeader(status int) {
	if !w.wrote {
		w.wrote, w.status = true, status
	}
}

func (w *responseWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.buffer.Write(p)
}

func (w *responseWriter) Flush() {
	w.WriteHeader(http.StatusOK)
	// A write error shows when the handler returns; the context has ended.
	_ = w.buffer.Flush()
	_ = w.sendHead()
}

func (w *responseWriter) sendHead() error {
	if w.sent {
		return nil
	}
	w.sent = true
	return w.stream.Send(&pluginv1.HTTPResponse{Head: &pluginv1.HTTPResponseHead{Status: int32(w.status), Headers: EncodeHeader(w.header)}})
}

// chunkWriter sends what the buffer lets go, in messages of a bounded size.
type chunkWriter struct{ w *responseWriter }

func (c chunkWriter) Write(p []byte) (int, error) {
	if err := c.w.sendHead(); err != nil {
		return 0, err
	}
	written := 0
	for written < len(p) {
		chunk := p[written:min(len(p), written+1<<20)]
		if err := c.w.stream.Send(&pluginv1.HTTPResponse{Body: chunk}); err != nil {
			return written, err
		}
		written += len(chunk)
	}
	return written, nil
}
