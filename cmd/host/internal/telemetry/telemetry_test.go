package telemetry

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestTraces: a span arrives where the settings say, at the end at the latest.
func TestTraces(t *testing.T) {
	posted := make(chan string, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		posted <- r.URL.Path + " " + string(body)
	}))
	defer collector.Close()
	var out bytes.Buffer
	for _, tt := range []struct {
		traces string
		got    func() string
	}{
		{TracesOTLP, func() string { return <-posted }},
		{TracesStderr, func() string { return "/v1/traces " + out.String() }},
	} {
		tel, finish, err := New(t.Context(), Config{
			Traces: tt.traces, Endpoint: collector.URL + "/v1/traces", Version: "1.2.3", Out: &out, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		_, span := tel.Tracer.Tracer("test").Start(t.Context(), "the span's name")
		span.End()
		finish()
		if got := tt.got(); !strings.HasPrefix(got, "/v1/traces ") || !strings.Contains(got, "the span's name") || !strings.Contains(got, "objecthost") {
			t.Errorf("%s: %q", tt.traces, got)
		}
	}
	tel, finish, err := New(t.Context(), Config{Traces: TracesNone})
	if err != nil {
		t.Fatal(err)
	}
	defer finish()
	if _, span := tel.Tracer.Tracer("test").Start(t.Context(), "x"); span.IsRecording() {
		t.Error("a span is recorded although nobody wants it")
	}
	if _, _, err := New(t.Context(), Config{Traces: "paper"}); err == nil {
		t.Error("an unknown place was taken")
	}
}

func TestMetricsRoute(t *testing.T) {
	tel, finish, err := New(t.Context(), Config{Traces: TracesNone})
	if err != nil {
		t.Fatal(err)
	}
	defer finish()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "objecthost_test_total"})
	counter.Add(3)
	if err := tel.Register(counter); err != nil {
		t.Fatal(err)
	}
	route := tel.Plugin().Manifest().Contributes.Routes[0]
	if route.Permission != PermissionRead || route.Anonymous {
		t.Errorf("the route is open: %+v", route)
	}
	w := httptest.NewRecorder()
	route.Handler.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{"objecthost_test_total 3", "go_goroutines "} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("metrics without %q", want)
		}
	}
}
