package pluginsdk

import (
	"context"
	"encoding/json"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	pluginv1 "github.com/objecthost/objecthost/pluginsdk/proto/v1"
)

// dialHost connects to the host's API. The socket lies in a folder that only
// the host's user can enter, and each call carries the token.
func dialHost(address, token string) (*remoteHost, func() error, error) {
	authorize := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		pairs := []string{MetadataToken, token}
		if in, ok := metadata.FromIncomingContext(ctx); ok {
			for _, id := range in.Get(MetadataCall) {
				pairs = append(pairs, MetadataCall, id)
			}
		}
		return FromStatus(invoke(InjectTrace(metadata.AppendToOutgoingContext(ctx, pairs...)), method, req, reply, cc, opts...))
	}
	conn, err := grpc.NewClient("unix://"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(authorize),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage), grpc.MaxCallSendMsgSize(MaxMessage)))
	if err != nil {
		return nil, nil, err
	}
	return &remoteHost{pluginv1.NewHostClient(conn)}, conn.Close, nil
}

// remoteHost is a [Host] over gRPC.
type remoteHost struct{ client pluginv1.HostClient }

var _ Host = (*remoteHost)(nil)

func (h *remoteHost) Records() Records     { return remoteRecords{h.client} }
func (h *remoteHost) Events() Events       { return remoteEvents{h.client} }
func (h *remoteHost) Messaging() Messaging { return remoteMessaging{h.client} }
func (h *remoteHost) Services() Services   { return remoteServices{h.client} }
func (h *remoteHost) KV() KV               { return remoteKV{h.client} }

type remoteRecords struct{ client pluginv1.HostClient }

func (r remoteRecords) Find(ctx context.Context, object string, query json.RawMessage) (Page, error) {
	answer, err := r.client.Find(ctx, &pluginv1.FindRequest{Object: object, Query: query})
	if err != nil {
		return Page{}, err
	}
	page := Page{HasMore: answer.HasMore, Total: answer.Total, Records: make([]Record, len(answer.Records))}
	for i, text := range answer.Records {
		if page.Records[i], err = DecodeRecord(text); err != nil {
			return Page{}, err
		}
	}
	return page, nil
}

func (r remoteRecords) Get(ctx context.Context, object, id string) (Record, error) {
	return recordOf(r.client.Get(ctx, &pluginv1.GetRequest{Object: object, Id: id}))
}

func (r remoteRecords) Create(ctx context.Context, object string, values Record) (Record, error) {
	text, err := EncodeRecord(values)
	if err != nil {
		return nil, err
	}
	return recordOf(r.client.Create(ctx, &pluginv1.CreateRequest{Object: object, Values: text}))
}

func (r remoteRecords) Update(ctx context.Context, object, id string, values Record, ifMatch string) (Record, error) {
	text, err := EncodeRecord(values)
	if err != nil {
		return nil, err
	}
	return recordOf(r.client.Update(ctx, &pluginv1.UpdateRequest{Object: object, Id: id, Values: text, IfMatch: ifMatch}))
}

func (r remoteRecords) Delete(ctx context.Context, object, id, ifMatch string) error {
	_, err := r.client.Delete(ctx, &pluginv1.DeleteRequest{Object: object, Id: id, IfMatch: ifMatch})
	return err
}

func (r remoteRecords) Transaction(ctx context.Context, steps []Step) ([]Record, error) {
	req := &pluginv1.TransactionRequest{}
	for _, s := range steps {
		text, err := EncodeRecord(s.Values)
		if err != nil {
			return nil, err
		}
		req.Steps = append(req.Steps, &pluginv1.Step{Object: s.Object, Action: s.Action, Id: s.ID, Values: text})
	}
	answer, err := r.client.Transaction(ctx, req)
	if err != nil {
		return nil, err
	}
	records := make([]Record, len(answer.Records))
	for i, text := range answer.Records {
		if records[i], err = DecodeRecord(text); err != nil {
			return nil, err
		}
	}
	return records, nil
}

func recordOf(answer *pluginv1.RecordResponse, err error) (Record, error) {
	if err != nil {
		return nil, err
	}
	return DecodeRecord(answer.Record)
}

type remoteEvents struct{ client pluginv1.HostClient }

func (r remoteEvents) Publish(ctx context.Context, e NewEvent) (string, error) {
	answer, err := r.client.Publish(ctx, &pluginv1.PublishRequest{Type: e.Type, Object: e.Object, RecordId: e.RecordID, Payload: e.Payload})
	return answer.GetId(), err
}

type remoteMessaging struct{ client pluginv1.HostClient }

func (r remoteMessaging) Enqueue(ctx context.Context, d Delivery) (Enqueued, error) {
	req := &pluginv1.EnqueueRequest{
		Url: d.URL, Method: d.Method, Payload: d.Payload, DedupKey: d.DedupKey, Label: d.Label,
		TimeoutMs: d.Timeout.Milliseconds(), EventId: d.EventID,
	}
	for name, value := range d.Headers {
		req.Headers = append(req.Headers, &pluginv1.Header{Name: name, Value: value})
	}
	answer, err := r.client.Enqueue(ctx, req)
	return Enqueued{ID: answer.GetId(), New: answer.GetCreated()}, err
}

func (r remoteMessaging) Send(ctx context.Context, q Request) (Response, error) {
	answer, err := r.client.Send(ctx, &pluginv1.SendRequest{Url: q.URL, Method: q.Method, Headers: EncodeHeader(q.Header), Body: q.Body})
	if err != nil {
		return Response{}, err
	}
	return Response{Status: int(answer.Status), Header: DecodeHeader(answer.Headers), Body: answer.Body, Truncated: answer.Truncated}, nil
}

type remoteServices struct{ client pluginv1.HostClient }

func (r remoteServices) Call(ctx context.Context, service, method string, payload json.RawMessage) (json.RawMessage, error) {
	answer, err := r.client.CallService(ctx, &pluginv1.ServiceCall{Service: service, Method: method, Payload: payload})
	return answer.GetPayload(), err
}

type remoteKV struct{ client pluginv1.HostClient }

func (r remoteKV) Get(ctx context.Context, key string) ([]byte, bool, error) {
	answer, err := r.client.GetValue(ctx, &pluginv1.GetValueRequest{Key: key})
	return answer.GetValue(), answer.GetFound(), err
}

func (r remoteKV) Set(ctx context.Context, key string, value []byte) error {
	_, err := r.client.SetValue(ctx, &pluginv1.SetValueRequest{Key: key, Value: value})
	return err
}

func (r remoteKV) Delete(ctx context.Context, key string) error {
	_, err := r.client.DeleteValue(ctx, &pluginv1.DeleteValueRequest{Key: key})
	return err
}

func (r remoteKV) Keys(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	answer, err := r.client.ListKeys(ctx, &pluginv1.ListKeysRequest{Prefix: prefix, After: after, Limit: int32(min(limit, 1000))})
	return answer.GetKeys(), err
}
