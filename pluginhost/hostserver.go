package pluginhost

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/objecthost/objecthost/pluginsdk"
	pluginv1 "github.com/objecthost/objecthost/pluginsdk/proto/v1"
)

// hostServer serves the host's API to one generation of a plugin, on a socket
// in its folder, to whoever has its token.
type hostServer struct {
	pluginv1.UnimplementedHostServer
	address, token string
	api            pluginsdk.Host
	meter          *meter
	server         *grpc.Server

	mu    sync.Mutex
	calls map[string]bool // calls to the plugin that are under way: whether a transaction is open
}

func serveHost(address string, api pluginsdk.Host, meter *meter) (*hostServer, error) {
	listener, err := listen(address)
	if err != nil {
		return nil, err
	}
	h := &hostServer{address: address, token: newToken(), api: api, meter: meter, calls: map[string]bool{}}
	h.server = grpc.NewServer(grpc.MaxRecvMsgSize(pluginsdk.MaxMessage), grpc.MaxSendMsgSize(pluginsdk.MaxMessage), grpc.UnaryInterceptor(h.admit))
	pluginv1.RegisterHostServer(h.server, h)
	go func() { _ = h.server.Serve(listener) }() // ends with close
	return h, nil
}

func (h *hostServer) close() { h.server.Stop() }

func (h *hostServer) began(id string, inTransaction bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls[id] = inTransaction
}

func (h *hostServer) ended(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.calls, id)
}

// reading are the methods that a hook inside a transaction may call: they do
// not wait for its locks.
var reading = map[string]bool{
	pluginv1.Host_Find_FullMethodName: true, pluginv1.Host_Get_FullMethodName: true,
	pluginv1.Host_GetValue_FullMethodName: true, pluginv1.Host_ListKeys_FullMethodName: true,
}

// admit checks the token and refuses writes that would wait for the
// transaction of the call that they belong to.
func (h *hostServer) admit(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (answer any, err error) {
	defer func() {
		if recover() != nil {
			err = status.Error(codes.Internal, "the host panicked")
		}
	}()
	md, _ := metadata.FromIncomingContext(ctx)
	if tokens := md.Get(pluginsdk.MetadataToken); len(tokens) != 1 || subtle.ConstantTimeCompare([]byte(tokens[0]), []byte(h.token)) != 1 {
		return nil, status.Error(codes.Unauthenticated, "the token of InitRequest is required")
	}
	if !reading[info.FullMethod] && h.inTransaction(md.Get(pluginsdk.MetadataCall)) {
		return nil, pluginsdk.ToStatus(&pluginsdk.Error{Code: pluginsdk.CodeInTransaction,
			Message: "the hook runs inside a transaction of several writes and cannot write itself"})
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 5*time.Minute)
		defer cancel()
	}
	ctx, span := h.meter.span(pluginsdk.ExtractTrace(ctx), info.FullMethod, trace.SpanKindServer)
	answer, err = next(ctx, req)
	pluginsdk.EndSpan(span, err)
	return answer, pluginsdk.ToStatus(err)
}

func (h *hostServer) inTransaction(ids []string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		if h.calls[id] {
			return true
		}
	}
	return false
}

func (h *hostServer) Find(ctx context.Context, r *pluginv1.FindRequest) (*pluginv1.FindResponse, error) {
	page, err := h.api.Records().Find(ctx, r.Object, r.Query)
	if err != nil {
		return nil, err
	}
	texts, err := encodeRecords(page.Records)
	return &pluginv1.FindResponse{Records: texts, HasMore: page.HasMore, Total: page.Total}, err
}

func encodeRecords(records []pluginsdk.Record) ([][]byte, error) {
	texts := make([][]byte, len(records))
	var errs error
	for i, r := range records {
		text, err := pluginsdk.EncodeRecord(r)
		texts[i], errs = text, errors.Join(errs, err)
	}
	return texts, errs
}

func encoded(r pluginsdk.Record, err error) (*pluginv1.RecordResponse, error) {
	if err != nil {
		return nil, err
	}
	text, err := pluginsdk.EncodeRecord(r)
	return &pluginv1.RecordResponse{Record: text}, err
}

func (h *hostServer) Get(ctx context.Context, r *pluginv1.GetRequest) (*pluginv1.RecordResponse, error) {
	return encoded(h.api.Records().Get(ctx, r.Object, r.Id))
}

func (h *hostServer) Create(ctx context.Context, r *pluginv1.CreateRequest) (*pluginv1.RecordResponse, error) {
	values, err := pluginsdk.DecodeRecord(r.Values)
	if err != nil {
		return nil, err
	}
	return encoded(h.api.Records().Create(ctx, r.Object, values))
}

func (h *hostServer) Update(ctx context.Context, r *pluginv1.UpdateRequest) (*pluginv1.RecordResponse, error) {
	values, err := pluginsdk.DecodeRecord(r.Values)
	if err != nil {
		return nil, err
	}
	return encoded(h.api.Records().Update(ctx, r.Object, r.Id, values, r.IfMatch))
}

func (h *hostServer) Delete(ctx context.Context, r *pluginv1.DeleteRequest) (*pluginv1.DeleteResponse, error) {
	return &pluginv1.DeleteResponse{}, h.api.Records().Delete(ctx, r.Object, r.Id, r.IfMatch)
}

func (h *hostServer) Transaction(ctx context.Context, r *pluginv1.TransactionRequest) (*pluginv1.TransactionResponse, error) {
	steps := make([]pluginsdk.Step, len(r.Steps))
	for i, s := range r.Steps {
		values, err := pluginsdk.DecodeRecord(s.Values)
		if err != nil {
			return nil, err
		}
		steps[i] = pluginsdk.Step{Object: s.Object, Action: s.Action, ID: s.Id, Values: values}
	}
	records, err := h.api.Records().Transaction(ctx, steps)
	if err != nil {
		return nil, err
	}
	texts, err := encodeRecords(records)
	return &pluginv1.TransactionResponse{Records: texts}, err
}

func (h *hostServer) Publish(ctx context.Context, r *pluginv1.PublishRequest) (*pluginv1.PublishResponse, error) {
	var payload json.RawMessage
	if len(r.Payload) > 0 {
		payload = r.Payload
	}
	id, err := h.api.Events().Publish(ctx, pluginsdk.NewEvent{Type: r.Type, Object: r.Object, RecordID: r.RecordId, Payload: payload})
	return &pluginv1.PublishResponse{Id: id}, err
}

func (h *hostServer) Enqueue(ctx context.Context, r *pluginv1.EnqueueRequest) (*pluginv1.EnqueueResponse, error) {
	headers := map[string]string{}
	for _, x := range r.Headers {
		headers[x.Name] = x.Value
	}
	done, err := h.api.Messaging().Enqueue(ctx, pluginsdk.Delivery{
		URL: r.Url, Method: r.Method, Headers: headers, Payload: r.Payload, DedupKey: r.DedupKey, Label: r.Label,
		Timeout: time.Duration(r.TimeoutMs) * time.Millisecond, EventID: r.EventId,
	})
	return &pluginv1.EnqueueResponse{Id: done.ID, Created: done.New}, err
}

func (h *hostServer) Send(ctx context.Context, r *pluginv1.SendRequest) (*pluginv1.SendResponse, error) {
	answer, err := h.api.Messaging().Send(ctx, pluginsdk.Request{Method: r.Method, URL: r.Url, Header: pluginsdk.DecodeHeader(r.Headers), Body: r.Body})
	if err != nil {
		return nil, err
	}
	return &pluginv1.SendResponse{Status: int32(answer.Status), Headers: pluginsdk.EncodeHeader(answer.Header), Body: answer.Body, Truncated: answer.Truncated}, nil
}

func (h *hostServer) CallService(ctx context.Context, r *pluginv1.ServiceCall) (*pluginv1.ServiceAnswer, error) {
	answer, err := h.api.Services().Call(ctx, r.Service, r.Method, r.Payload)
	return &pluginv1.ServiceAnswer{Payload: answer}, err
}

func (h *hostServer) GetValue(ctx context.Context, r *pluginv1.GetValueRequest) (*pluginv1.GetValueResponse, error) {
	value, found, err := h.api.KV().Get(ctx, r.Key)
	return &pluginv1.GetValueResponse{Value: value, Found: found}, err
}

func (h *hostServer) SetValue(ctx context.Context, r *pluginv1.SetValueRequest) (*pluginv1.SetValueResponse, error) {
	return &pluginv1.SetValueResponse{}, h.api.KV().Set(ctx, r.Key, r.Value)
}

func (h *hostServer) DeleteValue(ctx context.Context, r *pluginv1.DeleteValueRequest) (*pluginv1.DeleteValueResponse, error) {
	return &pluginv1.DeleteValueResponse{}, h.api.KV().Delete(ctx, r.Key)
}

func (h *hostServer) ListKeys(ctx context.Context, r *pluginv1.ListKeysRequest) (*pluginv1.ListKeysResponse, error) {
	keys, err := h.api.KV().Keys(ctx, r.Prefix, r.After, int(r.Limit))
	return &pluginv1.ListKeysResponse{Keys: keys}, err
}
