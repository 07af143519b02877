// Package telemetry exports what the host measures: metrics for Prometheus at
// GET /metrics, and traces to wherever the settings say.
package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/objecthost/objecthost/core"
)

// PluginID is the id of the plugin that serves the metrics.
const PluginID = "com.objectstack.service.telemetry"

// PermissionRead is what GET /metrics asks for.
const PermissionRead = "metrics.read"

// flushTime bounds the export of the last spans at a stop.
const flushTime = 5 * time.Second

// Where spans go.
const (
	TracesNone   = "none"
	TracesStderr = "stderr"
	TracesOTLP   = "otlp"
)

// Config tells where spans go.
type Config struct {
	// Traces is TracesNone, TracesStderr or TracesOTLP.
	Traces string
	// Endpoint is the URL that OTLP over HTTP is posted to; when it is empty the
	// variables OTEL_EXPORTER_OTLP_* count, and without them
	// http://localhost:4318/v1/traces.
	Endpoint string
	// Version is the host's.
	Version string
	// Out takes the spans of TracesStderr, one JSON text per span.
	Out io.Writer
	Log *slog.Logger
}

// Telemetry is where the host's metrics and spans come together.
type Telemetry struct {
	// Tracer makes spans.
	Tracer   trace.TracerProvider
	registry *prometheus.Registry
}

// New makes the exports. Call the function that it returns at the end: it sends
// the spans that are left.
func New(ctx context.Context, cfg Config) (*Telemetry, func(), error) {
	t := &Telemetry{Tracer: noop.NewTracerProvider(), registry: prometheus.NewRegistry()}
	t.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := exporterOf(ctx, cfg)
	if err != nil || exporter == nil {
		return t, func() {}, err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(resource.NewSchemaless(
		attribute.String("service.name", "objecthost"), attribute.String("service.version", cfg.Version))))
	t.Tracer = provider
	return t, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			cfg.Log.Warn("the last spans were not exported", "error", err)
		}
	}, nil
}

// exporterOf is nil for none.
func exporterOf(ctx context.Context, cfg Config) (sdktrace.SpanExporter, error) {
	switch cfg.Traces {
	case TracesNone, "":
		return nil, nil
	case TracesStderr:
		return stdouttrace.New(stdouttrace.WithWriter(cfg.Out))
	case TracesOTLP:
		var options []otlptracehttp.Option
		if cfg.Endpoint != "" {
			options = append(options, otlptracehttp.WithEndpointURL(cfg.Endpoint))
		}
		return otlptracehttp.New(ctx, options...)
	}
	return nil, fmt.Errorf("telemetry: %q is no place for traces", cfg.Traces)
}

// Register adds metrics.
func (t *Telemetry) Register(c prometheus.Collector) error { return t.registry.Register(c) }

// Plugin serves the metrics.
func (t *Telemetry) Plugin() core.Plugin { return plugin{t} }

type plugin struct{ *Telemetry }

func (p plugin) Manifest() core.Manifest {
	return core.Manifest{ID: PluginID, Version: "1.0.0", Contributes: core.Contributions{
		Permissions: []core.Permission{{Name: PermissionRead, Description: "Read the host's metrics", Host: true}},
		Routes: []core.Route{{
			Method: http.MethodGet, Pattern: "/metrics", Permission: PermissionRead, Summary: "Read the metrics, in the form of Prometheus",
			Handler: promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{}),
		}},
	}}
}

func (p plugin) Init(context.Context, core.Context) error { return nil }
