package pluginhost

import (
	"context"
	"net"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/objecthost/objecthost/pluginsdk"
	pluginv1 "github.com/objecthost/objecthost/pluginsdk/proto/v1"
)

// stuck is a plugin that takes every call and answers none.
type stuck struct {
	pluginv1.UnimplementedPluginServer
	entered chan struct{}
}

func (s stuck) wait(ctx context.Context) error {
	s.entered <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

func (s stuck) BeforeWrite(ctx context.Context, _ *pluginv1.WriteCall) (*pluginv1.WriteDecision, error) {
	return nil, s.wait(ctx)
}

func (s stuck) AfterWrite(ctx context.Context, _ *pluginv1.WriteCall) (*pluginv1.AfterWriteResponse, error) {
	return nil, s.wait(ctx)
}

func (s stuck) Call(ctx context.Context, _ *pluginv1.ServiceCall) (*pluginv1.ServiceAnswer, error) {
	return nil, s.wait(ctx)
}

func (s stuck) HandleEvents(stream pluginv1.Plugin_HandleEventsServer) error {
	return s.wait(stream.Context())
}

func (s stuck) ServeHTTP(stream pluginv1.Plugin_ServeHTTPServer) error {
	return s.wait(stream.Context())
}

// stuckRemote connects to a stuck plugin.
func stuckRemote(t *testing.T) (remote, stuck, *grpc.ClientConn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s, server := stuck{entered: make(chan struct{}, 1)}, grpc.NewServer()
	pluginv1.RegisterPluginServer(server, s)
	go func() { _ = server.Serve(listener) }() // ends with Stop
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	meter := &meter{plugin: "stuck", metrics: newMetrics(nil), tracer: noop.NewTracerProvider().Tracer("")}
	return remote{&instance{name: "stuck", meter: meter, plugin: pluginv1.NewPluginClient(conn), host: &hostServer{calls: map[string]bool{}}}}, s, conn
}

// remoteCalls are all ways of calling a plugin.
var remoteCalls = map[string]func(ctx context.Context, r remote) error{
	"before": func(ctx context.Context, r remote) error {
		_, _, err := r.before(ctx, pluginsdk.Write{}, false)
		return err
	},
	"after": func(ctx context.Context, r remote) error { return r.after(ctx, pluginsdk.Write{}) },
	"call": func(ctx context.Context, r remote) error {
		_, err := r.call(ctx, "s", "m", nil)
		return err
	},
	"hand": func(ctx context.Context, r remote) error {
		s, err := r.handle(ctx, "h")
		if err != nil {
			return err
		}
		defer s.close()
		return s.hand(nil, time.Hour)
	},
	"serve": func(ctx context.Context, r remote) error {
		return r.serve(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/x", nil), "/x", "/x")
	},
}

// TestClosedUnderACall: when the supervisor closes the connection of a plugin
// that has died before a call in flight has met its end, the call ends in the
// same retryable error.
func TestClosedUnderACall(t *testing.T) {
	for name, call := range remoteCalls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, s, conn := stuckRemote(t)
			go func() { <-s.entered; _ = conn.Close() }()
			if err := call(t.Context(), r); !pluginsdk.IsCode(err, pluginsdk.CodeUnavailable) || !pluginsdk.Retryable(err) {
				t.Errorf("a call in flight = %v", err)
			}
		})
	}
}

// TestCancelledCall: a caller that has gone is no fault of the plugin.
func TestCancelledCall(t *testing.T) {
	for name, call := range remoteCalls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, s, _ := stuckRemote(t)
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-s.entered; cancel() }()
			if err := call(ctx, r); err == nil || pluginsdk.IsCode(err, pluginsdk.CodeUnavailable) {
				t.Errorf("a cancelled call = %v", err)
			}
		})
	}
}

func TestHandTimeout(t *testing.T) {
	r, _, _ := stuckRemote(t)
	s, err := r.handle(t.Context(), "h")
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if err := s.hand(nil, time.Millisecond); !pluginsdk.IsCode(err, pluginsdk.CodeTimeout) {
		t.Errorf("a batch that is not answered = %v", err)
	}
}
