package pluginsdk

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Traces cross the boundary as W3C Trace Context in the metadata of calls.
var propagator = propagation.TraceContext{}

// carrier reads and writes the metadata of a call.
type carrier metadata.MD

func (c carrier) Get(key string) string {
	if values := metadata.MD(c).Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

func (c carrier) Set(key, value string) { metadata.MD(c).Set(key, value) }

func (c carrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for key := range c {
		keys = append(keys, key)
	}
	return keys
}

// InjectTrace adds the trace of ctx to the metadata of the calls that are made
// with it.
func InjectTrace(ctx context.Context) context.Context {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	md = md.Copy()
	propagator.Inject(ctx, carrier(md))
	return metadata.NewOutgoingContext(ctx, md)
}

// ExtractTrace is ctx in the trace that the metadata of an incoming call names.
func ExtractTrace(ctx context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(ctx)
	return propagator.Extract(ctx, carrier(md))
}

// EndSpan ends a span with the error that its work ended in, nil for none.
func EndSpan(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// span begins the plugin's part of a trace. Without a tracer provider in the
// plugin's process (otel.SetTracerProvider) nothing is recorded here, and the
// trace goes on in the host all the same.
func (s *server) span(ctx context.Context, method string) (context.Context, trace.Span) {
	return otel.Tracer("github.com/objecthost/objecthost/pluginsdk").Start(ExtractTrace(ctx), method,
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attribute.String("objecthost.plugin.id", s.guest.Manifest().ID)))
}

// tracedStream is a stream whose context is in a trace.
type tracedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (t tracedStream) Context() context.Context { return t.ctx }
