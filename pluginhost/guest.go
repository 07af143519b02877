package pluginhost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/pluginsdk"
	pluginv1 "github.com/objecthost/objecthost/pluginsdk/proto/v1"
)

// guest is a plugin that runs, in whichever process. Errors are *pluginsdk.Error
// or those of the context.
type guest interface {
	// before returns the values to set or why the write is refused; an error
	// is a failure.
	before(ctx context.Context, w pluginsdk.Write, inTransaction bool) (changes pluginsdk.Record, refusal *pluginsdk.Error, err error)
	after(ctx context.Context, w pluginsdk.Write) error
	// handle opens a session in which batches for an event handler are handed
	// over one after the other.
	handle(ctx context.Context, handler string) (session, error)
	call(ctx context.Context, service, method string, payload json.RawMessage) (json.RawMessage, error)
	runNode(ctx context.Context, step pluginsdk.NodeStep, inTransaction bool) (pluginsdk.NodeResult, error)
	// serve answers a request at one of the plugin's own patterns. An error
	// means that nothing was written yet.
	serve(w http.ResponseWriter, r *http.Request, pattern, target string) error
}

// session hands over batches of events. After an error that is no
// *pluginsdk.Error from the handler it is of no more use; close it in any case.
type session interface {
	hand(events [][]byte, timeout time.Duration) error
	close()
}

var _ guest = (*remote)(nil)

// remote is a guest in a process of its own.
type remote struct{ *instance }

func (r remote) before(ctx context.Context, w pluginsdk.Write, inTransaction bool) (pluginsdk.Record, *pluginsdk.Error, error) {
	message, err := writeCall(w)
	if err != nil {
		return nil, nil, err
	}
	ctx, end := r.instance.call(ctx, inTransaction)
	defer end()
	answer, err := r.plugin.BeforeWrite(ctx, message)
	if err != nil {
		return nil, nil, r.callError(ctx, err)
	}
	if answer.Refusal != nil {
		return nil, pluginsdk.AsError(pluginsdk.FromWire(answer.Refusal)), nil
	}
	changes, err := pluginsdk.DecodeRecord(answer.Changes)
	return changes, nil, err
}

func (r remote) after(ctx context.Context, w pluginsdk.Write) error {
	message, err := writeCall(w)
	if err != nil {
		return err
	}
	ctx, end := r.instance.call(ctx, false)
	defer end()
	_, err = r.plugin.AfterWrite(ctx, message)
	return r.callError(ctx, err)
}

func writeCall(w pluginsdk.Write) (*pluginv1.WriteCall, error) {
	values, err := pluginsdk.EncodeRecord(w.Values)
	if err != nil {
		return nil, err
	}
	before, err := pluginsdk.EncodeRecord(w.Before)
	if err != nil {
		return nil, err
	}
	return &pluginv1.WriteCall{
		Object: w.Object, Operation: w.Operation, Id: w.ID, Values: values, Before: before, UserId: w.UserID, OrganizationId: w.OrganizationID,
	}, nil
}

func (r remote) call(ctx context.Context, service, method string, payload json.RawMessage) (json.RawMessage, error) {
	ctx, end := r.instance.call(ctx, false)
	defer end()
	answer, err := r.plugin.Call(ctx, &pluginv1.ServiceCall{Service: service, Method: method, Payload: payload})
	return answer.GetPayload(), r.callError(ctx, err)
}

// remoteSession is a stream of batches.
type remoteSession struct {
	instance *instance
	handler  string
	stream   pluginv1.Plugin_HandleEventsClient
	// ctx is the caller's; the stream's own ends with the stream.
	ctx    context.Context
	cancel context.CancelFunc
	end    func()
	number uint64
}

func (r remote) handle(ctx context.Context, handler string) (session, error) {
	ctx, cancel := context.WithCancel(ctx)
	ctx, span := r.meter.span(ctx, pluginv1.Plugin_HandleEvents_FullMethodName, trace.SpanKindClient)
	ctx, endCall := r.instance.call(ctx, false)
	end := func() { endCall(); span.End() }
	stream, err := r.plugin.HandleEvents(ctx)
	if err != nil {
		err = r.callError(ctx, err)
		end()
		cancel()
		return nil, err
	}
	return &remoteSession{instance: r.instance, handler: handler, stream: stream, ctx: ctx, cancel: cancel, end: end}, nil
}

// errSession is the failure of a session itself.
type errSession struct{ error }

func (e errSession) Unwrap() error { return e.error }

func (s *remoteSession) hand(events [][]byte, timeout time.Duration) error {
	began := time.Now()
	err := s.handOver(events, timeout)
	s.instance.meter.observe("HandleEvents", began, err)
	return err
}

func (s *remoteSession) handOver(events [][]byte, timeout time.Duration) error {
	s.number++
	var late atomic.Bool
	timer := time.AfterFunc(timeout, func() { late.Store(true); s.cancel() })
	defer timer.Stop()
	fail := func(err error) error {
		if late.Load() {
			return errSession{&pluginsdk.Error{Code: pluginsdk.CodeTimeout, Message: fmt.Sprintf("a batch was not handled within %s", timeout), Retryable: true}}
		}
		return errSession{s.instance.callError(s.ctx, err)}
	}
	err := s.stream.Send(&pluginv1.EventBatch{Handler: s.handler, Number: s.number, Events: events})
	if err != nil && !errors.Is(err, io.EOF) { // the cause of EOF comes from Recv
		return fail(err)
	}
	ack, err := s.stream.Recv()
	switch {
	case err != nil:
		return fail(err)
	case ack.Number != s.number:
		return errSession{&pluginsdk.Error{Code: pluginsdk.CodeInvalid, Message: "the plugin answered another batch"}}
	}
	return pluginsdk.FromWire(ack.Error)
}

func (s *remoteSession) close() {
	s.cancel()
	s.end()
}

// credentials are headers that no plugin gets to see.
var credentials = []string{"Authorization", "Cookie", "Proxy-Authorization", "X-Api-Key"}

func (r remote) serve(w http.ResponseWriter, request *http.Request, pattern, target string) (err error) {
	began := time.Now()
	ctx := propagation.TraceContext{}.Extract(request.Context(), propagation.HeaderCarrier(request.Header))
	ctx, span := r.meter.span(ctx, pluginv1.Plugin_ServeHTTP_FullMethodName, trace.SpanKindClient)
	defer func() { pluginsdk.EndSpan(span, err); r.meter.observe("ServeHTTP", began, err) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx, end := r.instance.call(ctx, false)
	defer end()
	stream, err := r.plugin.ServeHTTP(ctx)
	if err != nil {
		return r.callError(ctx, err)
	}
	header := request.Header.Clone()
	for _, name := range credentials {
		header.Del(name)
	}
	header.Set("Host", request.Host)
	who := identity.From(ctx)
	err = stream.Send(&pluginv1.HTTPRequest{Head: &pluginv1.HTTPRequestHead{
		Method: request.Method, Pattern: pattern, Target: target, Headers: pluginsdk.EncodeHeader(header),
		UserId: who.UserID, OrganizationId: who.OrganizationID,
	}})
	if err != nil && !errors.Is(err, io.EOF) {
		return r.callError(ctx, err)
	}
	sent := make(chan struct{})
	go func() { defer close(sent); sendBody(stream, request) }()
	err = r.copyAnswer(ctx, w, stream)
	cancel()
	endBody(w, sent)
	return err
}

// endBody waits for the end of the body, which is the server's again when the
// handler returns. When a plugin answered without reading it all, the wait for
// the caller's next byte is broken off, which costs the connection.
func endBody(w http.ResponseWriter, sent <-chan struct{}) {
	timer := time.NewTimer(100 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-sent:
		return
	case <-timer.C:
	}
	if http.NewResponseController(w).SetReadDeadline(time.Now()) == nil {
		<-sent
	}
}

// sendBody sends the request's body in parts. An error ends the stream, which
// the other side reports.
func sendBody(stream pluginv1.Plugin_ServeHTTPClient, r *http.Request) {
	if r.ContentLength == 0 || r.Body == nil {
		_ = stream.Send(&pluginv1.HTTPRequest{End: true})
		return
	}
	buffer := make([]byte, 64<<10)
	for {
		n, err := r.Body.Read(buffer)
		end := errors.Is(err, io.EOF)
		if n > 0 || end {
			if stream.Send(&pluginv1.HTTPRequest{Body: bytes.Clone(buffer[:n]), End: end}) != nil {
				return
			}
		}
		if err != nil {
			_ = stream.CloseSend()
			return
		}
	}
}

// copyAnswer writes the plugin's answer and flushes each part, so that streams
// of events arrive as they come. When the answer breaks off after its head the
// connection is cut, which is how HTTP tells that.
func (i *instance) copyAnswer(ctx context.Context, w http.ResponseWriter, stream pluginv1.Plugin_ServeHTTPClient) error {
	first, err := stream.Recv()
	if err != nil {
		return i.callError(ctx, err)
	}
	status := int(first.Head.GetStatus())
	if status < 200 || status > 599 {
		return &pluginsdk.Error{Code: pluginsdk.CodeInternal, Message: "the plugin answered without a status"}
	}
	for name, values := range pluginsdk.DecodeHeader(first.Head.Headers) {
		if name != "Set-Cookie" && name != "Connection" && name != "Transfer-Encoding" {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(status)
	flush := http.NewResponseController(w)
	part := first
	for {
		if _, err := w.Write(part.Body); err != nil {
			return nil // the caller has gone; the deferred cancel tells the plugin
		}
		_ = flush.Flush()
		if part, err = stream.Recv(); errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

// local is a guest in the host's process.
type local struct{ guest *pluginsdk.Guest }

var _ guest = local{}

func (l local) before(ctx context.Context, w pluginsdk.Write, _ bool) (pluginsdk.Record, *pluginsdk.Error, error) {
	changes, err := l.guest.BeforeWrite(ctx, w)
	var refusal *pluginsdk.Error
	if errors.As(err, &refusal) && refusal.Code != pluginsdk.CodeInternal {
		return nil, refusal, nil
	}
	return changes, nil, err
}

func (l local) after(ctx context.Context, w pluginsdk.Write) error { return l.guest.AfterWrite(ctx, w) }

func (l local) call(ctx context.Context, service, method string, payload json.RawMessage) (json.RawMessage, error) {
	return l.guest.Call(ctx, service, method, payload)
}

func (l local) handle(ctx context.Context, handler string) (session, error) {
	return localSession{ctx, l.guest, handler}, nil
}

// localSession lives as long as the loop that opened it, whose context it
// keeps.
type localSession struct {
	ctx     context.Context
	guest   *pluginsdk.Guest
	handler string
}

func (s localSession) hand(texts [][]byte, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	defer cancel()
	events := make([]*event.Event, len(texts))
	for i, text := range texts {
		events[i] = &event.Event{}
		if err := json.Unmarshal(text, events[i]); err != nil {
			return err
		}
	}
	return s.guest.HandleEvents(ctx, s.handler, events)
}

func (s localSession) close() {}

func (l local) serve(w http.ResponseWriter, r *http.Request, _, target string) error {
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return &pluginsdk.Error{Code: pluginsdk.CodeInvalid, Message: err.Error()}
	}
	inner := r.Clone(r.Context())
	inner.URL, inner.RequestURI, inner.Pattern = u, target, ""
	for _, name := range credentials {
		inner.Header.Del(name)
	}
	l.guest.Handler().ServeHTTP(w, inner)
	return nil
}
