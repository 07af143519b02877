package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/realtime"
)

// Streamer gives the events of the log as they are committed;
// *realtime.Service is one.
type Streamer interface {
	Stream(ctx context.Context, cfg realtime.StreamConfig, send func(realtime.StreamItem) error) error
}

const (
	eventsBase = apiBase + "/events"
	// maxStreamFilter bounds the objects and the types of a stream.
	maxStreamFilter = 100
	// streamRetry is when a client that lost its stream is to come back, in
	// milliseconds.
	streamRetry = 2000
	// codeTooManyStreams refuses one stream too many.
	codeTooManyStreams = "TOO_MANY_STREAMS"
)

// Why a stream was closed by the server. After all but unauthenticated the
// client comes back with the id of its last event and misses nothing.
const (
	closedSlow            = "too_slow"
	closedShutdown        = "shutdown"
	closedUnauthenticated = "unauthenticated"
	closedUnavailable     = "unavailable"
)

// streams counts the event streams of each caller and ends them all at once.
type streams struct {
	mu     sync.Mutex
	open   map[string]int
	ending chan struct{}
	ended  bool
}

func newStreams() *streams { return &streams{open: map[string]int{}, ending: make(chan struct{})} }

// enter counts one more stream of a caller, unless it has the most.
func (s *streams) enter(caller string, most int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[caller] >= most {
		return false
	}
	s.open[caller]++
	return true
}

func (s *streams) leave(caller string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[caller]--; s.open[caller] == 0 {
		delete(s.open, caller)
	}
}

func (s *streams) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended = true
		close(s.ending)
	}
}

// callerOf is what streams are counted by.
func callerOf(p identity.Principal) string {
	switch {
	case p.SessionID != "":
		return "session:" + p.SessionID
	case p.KeyID != "":
		return "key:" + p.KeyID
	}
	return "user:" + p.UserID
}

func (s *Server) streamRoutes() []OwnedRoute {
	if s.events == nil {
		return nil
	}
	return []OwnedRoute{own(http.MethodGet, eventsBase+"/stream", "Follow the events of records as they are committed (text/event-stream)", s.streamEvents)}
}

// streamQuery is what a client asks for.
type streamQuery struct {
	objects, types []string
	after          string
}

var eventType = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.:-]{0,99}$`)

// readStreamQuery reads object and type, which may be repeated or separated by
// commas, and the id of the last event, which browsers send as a header.
func (s *Server) readStreamQuery(r *http.Request) (streamQuery, error) {
	q := streamQuery{after: r.Header.Get("Last-Event-ID")}
	for name, values := range r.URL.Query() {
		var list []string
		for _, value := range values {
			list = append(list, strings.Split(value, ",")...)
		}
		list = slices.DeleteFunc(list, func(v string) bool { return v == "" })
		switch name {
		case "object":
			q.objects = list
		case "type":
			q.types = list
		case "lastEventId":
			if q.after == "" && len(values) > 0 {
				q.after = values[0]
			}
			continue
		default:
			return q, invalidRequest("The stream takes object, type and lastEventId, not " + strconv.Quote(clip(name)) + ".")
		}
		if len(list) > maxStreamFilter {
			return q, invalidRequest("The stream takes at most 100 of " + name + ".")
		}
	}
	for _, t := range q.types {
		if !eventType.MatchString(t) {
			return q, invalidRequest(strconv.Quote(clip(t)) + " is not an event type such as data.record.created.")
		}
	}
	for _, object := range q.objects {
		if err := s.followable(r.Context(), object); err != nil {
			return q, err
		}
	}
	return q, nil
}

// followable refuses an object that the caller names and may not read.
func (s *Server) followable(ctx context.Context, object string) error {
	for method, op := range map[string]identity.Operation{"get": identity.OperationRead, "list": identity.OperationList} {
		if err := s.data.CheckMethod(object, method); err != nil {
			return err
		}
		if err := s.auth.Can(ctx, op, object); err != nil {
			return err
		}
	}
	return nil
}

// streamEvents answers with server-sent events, https://html.spec.whatwg.org/multipage/server-sent-events.html:
//
//	id: <cursor>            where to go on after this event
//	data: {"id":…,"type":"data.record.created","object":…,…}
//
//	event: reset            the id that the client came with can't be gone on from
//	data: {"reason":"expired"}
//
//	event: closed           the last one
//	data: {"reason":"too_slow"}
//
// and, while nothing happens, ids without an event.
func (s *Server) streamEvents(w http.ResponseWriter, r *http.Request) error {
	query, err := s.readStreamQuery(r)
	if err != nil {
		return err
	}
	caller := callerOf(identity.From(r.Context()))
	if !s.streams.enter(caller, s.cfg.MaxStreams) {
		w.Header().Set("Retry-After", "5")
		return &requestError{
			status: http.StatusTooManyRequests, code: codeTooManyStreams,
			message: "This session or API key has " + strconv.Itoa(s.cfg.MaxStreams) + " event streams open, which is the most. Close one first.",
		}
	}
	defer s.streams.leave(caller)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // for proxies that would collect
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	go func() {
		select {
		case <-s.streams.ending:
			cancel(realtime.ErrStopped)
		case <-ctx.Done():
		}
	}()
	// The time to send a request is over when there is one; else it would end
	// the stream. The error tells that the writer has no deadlines.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	out := &sse{w: w, r: r, s: s, ctx: ctx}
	if err := out.text("retry: " + strconv.Itoa(streamRetry) + "\n\n"); err != nil {
		return nil //nolint:nilerr // the client has gone
	}
	err = s.events.Stream(ctx, realtime.StreamConfig{
		Objects: query.objects, Types: query.types, After: query.after, QueueSize: s.cfg.StreamQueue,
		Patience: s.cfg.StreamPatience, Heartbeat: s.cfg.StreamHeartbeat,
	}, out.item)
	if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && cause != nil {
		err = cause
	}
	out.close(err)
	return nil
}

// sse writes server-sent events.
type sse struct {
	w   http.ResponseWriter
	r   *http.Request
	s   *Server
	ctx context.Context //nolint:containedctx // of one request
}

// errGone ends a stream whose client does not read any more.
var errGone = errors.New("the client has gone")

func (o *sse) text(text string) error {
	if _, err := o.w.Write([]byte(text)); err != nil {
		return errGone
	}
	if f, ok := o.w.(http.Flusher); ok {
		f.Flush()
	}
	return nil
}

// item writes one item of the stream, if its reader may see it.
func (o *sse) item(item realtime.StreamItem) error {
	switch {
	case item.Reset != "":
		return o.text("id: " + item.Cursor + "\nevent: reset\ndata: {\"reason\":\"" + string(item.Reset) + "\"}\n\n")
	case item.Event == nil:
		// Credentials that have ended are noticed here when nothing happens.
		if err := o.s.auth.Has(o.ctx, ""); err != nil {
			return err
		}
		// An id without data moves on where the client would come back, and is
		// no event to it; the comment keeps proxies from ending the connection.
		return o.text(": quiet\nid: " + item.Cursor + "\n\n")
	}
	shown, err := o.visible(item.Event)
	if err != nil || shown == nil {
		return err
	}
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(shown); err != nil {
		return err
	}
	// The encoder ends with the first of the two line ends, and JSON of one line
	// has no other.
	return o.text("id: " + item.Cursor + "\ndata: " + line.String() + "\n")
}

// visible is the event as the caller would read its record, nil for none.
func (o *sse) visible(e *event.Event) (*event.Event, error) {
	for _, method := range []string{"get", "list"} {
		if o.s.data.CheckMethod(e.Object, method) != nil {
			return nil, nil
		}
	}
	return o.s.data.Visible(o.ctx, e)
}

// close tells why the stream ends, unless it was the client that ended it.
func (o *sse) close(err error) {
	var engine *data.Error
	reason := closedUnavailable
	switch {
	case errors.Is(err, errGone), o.r.Context().Err() != nil:
		return
	case errors.Is(err, realtime.ErrTooSlow):
		reason = closedSlow
	case errors.Is(err, realtime.ErrStopped):
		reason = closedShutdown
	case errors.Is(err, identity.ErrUnauthenticated), errors.As(err, &engine) && engine.Code == data.CodeUnauthenticated:
		reason = closedUnauthenticated
	default:
		exchangeOf(o.r.Context()).cause = err
	}
	_ = o.text("event: closed\ndata: {\"reason\":\"" + reason + "\"}\n\n")
}
