package pluginhost

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/objecthost/objecthost/pluginsdk"
	pluginv1 "github.com/objecthost/objecthost/pluginsdk/proto/v1"
)

// instrumentation is the name of the host's spans.
const instrumentation = "github.com/objecthost/objecthost/pluginhost"

// meter measures and traces the calls between the host and one plugin, over all
// generations.
type meter struct {
	plugin  string
	metrics *metrics
	tracer  trace.Tracer

	calls, errors, nanos atomic.Int64
}

// span begins the host's part of a call to the plugin, or, as a server, of one
// by the plugin.
func (m *meter) span(ctx context.Context, method string, kind trace.SpanKind) (context.Context, trace.Span) {
	return m.tracer.Start(ctx, method, trace.WithSpanKind(kind), trace.WithAttributes(attribute.String("objecthost.plugin", m.plugin)))
}

// observe counts a call to the plugin.
func (m *meter) observe(method string, began time.Time, err error) {
	took := time.Since(began)
	m.calls.Add(1)
	m.nanos.Add(int64(took))
	if err != nil {
		m.errors.Add(1)
	}
	m.metrics.seconds.WithLabelValues(m.plugin, method, outcome(err)).Observe(took.Seconds())
}

// outcome sorts errors into a bounded number of kinds.
func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case pluginsdk.IsCode(err, pluginsdk.CodeUnavailable):
		return "unavailable"
	case pluginsdk.IsCode(err, pluginsdk.CodeTimeout), errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return "error"
}

// service begins the names of the protocol's own methods; go-plugin has some
// besides.
var service = "/" + pluginv1.Plugin_ServiceDesc.ServiceName + "/"

// unary measures calls with one answer.
func (m *meter) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if !strings.HasPrefix(method, service) {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	began := time.Now()
	ctx, span := m.span(ctx, method, trace.SpanKindClient)
	err := invoke(pluginsdk.InjectTrace(ctx), method, req, reply, cc, opts...)
	pluginsdk.EndSpan(span, err)
	m.observe(path.Base(method), began, pluginsdk.FromStatus(err))
	return err
}

// stream takes the trace along. What a stream carries is measured where it is
// handed over: batches of events and requests.
func (m *meter) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return open(pluginsdk.InjectTrace(ctx), desc, cc, method, opts...)
}

func (m *meter) status(to *Status) {
	to.Calls, to.Errors = m.calls.Load(), m.errors.Load()
	if to.Calls > 0 {
		to.Latency = float64(m.nanos.Load()) / float64(to.Calls) / 1e6
	}
}

// metrics are the metrics of all plugins. What a plugin is at the moment is read
// when it is asked for.
type metrics struct {
	manager *Manager
	seconds *prometheus.HistogramVec
}

var _ prometheus.Collector = (*metrics)(nil)

func newMetrics(m *Manager) *metrics {
	return &metrics{manager: m, seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "objecthost_plugin_call_seconds",
		Help:    "Duration of the host's calls to plugins, by method and outcome (ok, error, unavailable, timeout, cancelled).",
		Buckets: []float64{0.0002, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
	}, []string{"plugin", "method", "outcome"})}
}

func description(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("objecthost_plugin_"+name, help, append([]string{"plugin"}, labels...), nil)
}

var (
	infoMetric     = description("info", "Version of a plugin; always 1.", "version")
	stateMetric    = description("state", "1 for the state that a plugin is in.", "state")
	restartsMetric = description("restarts_total", "Restarts of a plugin after failures.")
	memoryMetric   = description("memory_bytes", "Resident memory of a plugin's process.")
	linesMetric    = description("log_lines_total", "Lines of a plugin's log.")
	droppedMetric  = description("log_lines_dropped_total", "Lines of a plugin's log that were dropped because it writes too much.")
	deniedMetric   = description("denied_total", "Calls that were refused for want of a capability.", "capability")
)

// Describe implements prometheus.Collector.
func (x *metrics) Describe(to chan<- *prometheus.Desc) {
	x.seconds.Describe(to)
	for _, d := range []*prometheus.Desc{infoMetric, stateMetric, restartsMetric, memoryMetric, linesMetric, droppedMetric, deniedMetric} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (x *metrics) Collect(to chan<- prometheus.Metric) {
	x.seconds.Collect(to)
	for _, s := range x.manager.Status() {
		gauge := func(d *prometheus.Desc, value float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{s.Name}, labels...)...)
		}
		counter := func(d *prometheus.Desc, value int64, labels ...string) {
			to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), append([]string{s.Name}, labels...)...)
		}
		gauge(infoMetric, 1, s.Version)
		gauge(stateMetric, 1, string(s.State))
		gauge(memoryMetric, float64(s.Memory))
		counter(restartsMetric, int64(s.Restarts))
		counter(linesMetric, s.LogLines)
		counter(droppedMetric, s.LogDropped)
		for capability, times := range s.Denied {
			counter(deniedMetric, times, capability)
		}
	}
}

// forget drops the series of a plugin that is gone.
func (x *metrics) forget(plugin string) {
	x.seconds.DeletePartialMatch(prometheus.Labels{"plugin": plugin})
}

// Metrics are the metrics of all plugins, to be registered with Prometheus:
// calls with their durations and outcomes, states, restarts, memory, log lines
// and denials.
func (m *Manager) Metrics() prometheus.Collector { return m.metrics }
