package pluginhost_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/objecthost/objecthost/pluginhost"
	"github.com/objecthost/objecthost/pluginhost/hosttest"
	"github.com/objecthost/objecthost/services/data"
)

// TestOneTrace: a request's trace runs from the caller through the host into the
// plugin and back into the host.
func TestOneTrace(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	h := start(t, "", func(c *hosttest.Config) {
		c.PluginHost.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	})
	wantState(t, h, pluginhost.StateReady)
	const traceID, callerID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	request, err := http.NewRequestWithContext(t.Context(), "POST", h.URL+"/api/v1/plugins/fixture/do/trace", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+h.Key)
	request.Header.Set("traceparent", "00-"+traceID+"-"+callerID+"-01")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	pluginTrace, pluginSpan, _ := strings.Cut(string(body), " ")
	if pluginTrace != traceID {
		t.Errorf("the plugin is in the trace %s, want %s", pluginTrace, traceID)
	}
	parents := map[string][2]string{} // by name: trace and parent
	ids := map[string]string{}
	eventually(t, "the span of the request", func() bool {
		for _, s := range spans.Ended() {
			name := s.Name()[strings.LastIndex(s.Name(), "/")+1:]
			parents[name] = [2]string{s.SpanContext().TraceID().String(), s.Parent().SpanID().String()}
			ids[name] = s.SpanContext().SpanID().String()
		}
		return ids["ServeHTTP"] != ""
	})
	if got := parents["ServeHTTP"]; got != [2]string{traceID, callerID} {
		t.Errorf("the host's call has trace and parent %v", got)
	}
	if pluginSpan == ids["ServeHTTP"] {
		t.Error("the plugin has no span of its own")
	}
	if got := parents["Find"]; got != [2]string{traceID, pluginSpan} {
		t.Errorf("the plugin's call has trace and parent %v, want %s %s", got, traceID, pluginSpan)
	}
}

func TestMetrics(t *testing.T) {
	h := start(t, "", nil)
	s := wantState(t, h, pluginhost.StateReady)
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(h.Manager.Metrics()); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Engine.Create(h.Context(), "fix_account", data.Record{"name": "Ada"}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Engine.Create(h.Context(), "fix_open", data.Record{"name": "hang"}); err != nil {
		t.Fatal(err)
	}
	h.Do(t, "GET", helloPath, nil)
	h.Do(t, "POST", "/api/v1/plugins/fixture/do/read-denied", nil)
	id := noted(t, h)
	eventually(t, "the note", func() bool { return notes(t, h, id) == 1 })
	kill(t, s.PID)
	eventually(t, "the next generation", func() bool { return h.Status(t, "fixture").Generation == 2 })
	wantState(t, h, pluginhost.StateReady)
	found := gathered(t, registry)
	for series, least := range map[string]float64{
		"call_seconds{method=BeforeWrite,outcome=ok,plugin=fixture}": 1, "call_seconds{method=BeforeWrite,outcome=timeout,plugin=fixture}": 1,
		"call_seconds{method=ServeHTTP,outcome=ok,plugin=fixture}": 2, "call_seconds{method=HandleEvents,outcome=ok,plugin=fixture}": 1,
		"info{plugin=fixture,version=1.0.0}": 1, "state{plugin=fixture,state=ready}": 1, "restarts_total{plugin=fixture}": 1,
		"memory_bytes{plugin=fixture}": 1 << 20, "log_lines_total{plugin=fixture}": 2, "denied_total{capability=objects.fix_secret read,plugin=fixture}": 1,
	} {
		if found[series] < least {
			t.Errorf("%s = %v, want at least %v", series, found[series], least)
		}
	}
	for series := range found { // go-plugin's own calls are not the plugin's
		if strings.Contains(series, "method=Shutdown") {
			t.Errorf("%s is measured", series)
		}
	}
	if err := h.Manager.Uninstall(t.Context(), "fixture", false); err != nil {
		t.Fatal(err)
	}
	if left := gathered(t, registry); len(left) != 0 {
		t.Errorf("after the uninstall: %v", left)
	}
}

// gathered are the values of a registry by series, of histograms the counts.
func gathered(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := strings.TrimPrefix(family.GetName(), "objecthost_plugin_") + "{" + strings.Join(labels, ",") + "}"
			values[name] = valueOf(m)
		}
	}
	return values
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.Histogram != nil:
		return float64(m.Histogram.GetSampleCount())
	case m.Counter != nil:
		return m.Counter.GetValue()
	}
	return m.GetGauge().GetValue()
}
