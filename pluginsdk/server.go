package pluginsdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"google.golang.org/grpc"

	"github.com/objecthost/objecthost/core/event"
	pluginv1 "github.com/objecthost/objecthost/pluginsdk/proto/v1"
)

// server serves a guest over gRPC.
type server struct {
	pluginv1.UnimplementedPluginServer
	guest *Guest
	log   *slog.Logger

	mu    sync.Mutex
	close func() error // of the connection to the host
}

func (s *server) Describe(context.Context, *pluginv1.DescribeRequest) (*pluginv1.Description, error) {
	text, err := json.Marshal(s.guest.Declaration())
	if err != nil {
		return nil, err
	}
	m := s.guest.Manifest()
	return &pluginv1.Description{Id: m.ID, Version: m.Version, Contributions: text, Sdk: "objecthost/pluginsdk for Go"}, nil
}

func (s *server) Init(ctx context.Context, req *pluginv1.InitRequest) (*pluginv1.InitResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.close != nil {
		return nil, &Error{Code: CodeInvalid, Message: "Init comes once"}
	}
	api, closeHost, err := dialHost(req.HostAddress, req.HostToken)
	if err != nil {
		return nil, err
	}
	s.close = closeHost
	return &pluginv1.InitResponse{}, s.guest.Init(ctx, NewContext(s.guest.Manifest(), req.Config, s.log, api))
}

func (s *server) Start(ctx context.Context, _ *pluginv1.StartRequest) (*pluginv1.StartResponse, error) {
	return &pluginv1.StartResponse{}, s.guest.Start(ctx)
}

func (s *server) Stop(ctx context.Context, _ *pluginv1.StopRequest) (*pluginv1.StopResponse, error) {
	return &pluginv1.StopResponse{}, s.guest.Stop(ctx)
}

func (s *server) Health(ctx context.Context, _ *pluginv1.HealthRequest) (*pluginv1.HealthResponse, error) {
	if err := s.guest.CheckHealth(ctx); err != nil {
		return &pluginv1.HealthResponse{Problem: err.Error()}, nil
	}
	return &pluginv1.HealthResponse{}, nil
}

func (s *server) HandleEvents(stream grpc.BidiStreamingServer[pluginv1.EventBatch, pluginv1.EventAck]) error {
	for {
		batch, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		handleErr := s.handle(stream.Context(), batch)
		if err := stream.Send(&pluginv1.EventAck{Number: batch.Number, Error: ToWire(handleErr)}); err != nil {
			return err
		}
	}
}

func (s *server) handle(ctx context.Context, batch *pluginv1.EventBatch) error {
	events := make([]*event.Event, len(batch.Events))
	for i, text := range batch.Events {
		events[i] = &event.Event{}
		if err := json.Unmarshal(text, events[i]); err != nil {
			return fmt.Errorf("event %d of the batch: %w", i, err)
		}
	}
	return s.guest.HandleEvents(ctx, batch.Handler, events)
}

func (s *server) BeforeWrite(ctx context.Context, call *pluginv1.WriteCall) (*pluginv1.WriteDecision, error) {
	w, err := writeOf(call)
	if err != nil {
		return nil, err
	}
	changes, err := s.guest.BeforeWrite(ctx, w)
	var refusal *Error
	switch {
	case errors.As(err, &refusal) && refusal.Code != CodeInternal:
		return &pluginv1.WriteDecision{Refusal: ToWire(refusal)}, nil
	case err != nil:
		return nil, err
	}
	text, err := EncodeRecord(changes)
	if err != nil {
		return nil, err
	}
	return &pluginv1.WriteDecision{Changes: text}, nil
}

func (s *server) AfterWrite(ctx context.Context, call *pluginv1.WriteCall) (*pluginv1.AfterWriteResponse, error) {
	w, err := writeOf(call)
	if err != nil {
		return nil, err
	}
	return &pluginv1.AfterWriteResponse{}, s.guest.AfterWrite(ctx, w)
}

func writeOf(c *pluginv1.WriteCall) (Write, error) {
	values, err := DecodeRecord(c.Values)
	if err != nil {
		return Write{}, err
	}
	before, err := DecodeRecord(c.Before)
	if err != nil {
		return Write{}, err
	}
	return Write{Object: c.Object, Operation: c.Operation, ID: c.Id, Values: values, Before: before, UserID: c.UserId, OrganizationID: c.OrganizationId}, nil
}

func (s *server) Call(ctx context.Context, call *pluginv1.ServiceCall) (*pluginv1.ServiceAnswer, error) {
	answer, err := s.guest.Call(ctx, call.Service, call.Method, call.Payload)
	if err != nil {
		return nil, err
	}
	return &pluginv1.ServiceAnswer{Payload: answer}, nil
}
