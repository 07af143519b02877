package plugintest

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/pluginsdk"
)

// Config is what a plugin under test gets. The zero value works.
type Config struct {
	// Host is the fake host, a new one when nil.
	Host *Host
	// Config is the plugin's configuration as JSON.
	Config json.RawMessage
	// Log takes the plugin's log; nil discards it.
	Log *slog.Logger
}

// Harness is a plugin that runs.
type Harness struct {
	Host  *Host
	guest *pluginsdk.Guest
	t     testing.TB
}

// Start initializes and starts a plugin, and stops it when the test ends. The
// test fails when one of them does.
func Start(t testing.TB, p core.Plugin, cfg Config) *Harness {
	t.Helper()
	if cfg.Host == nil {
		cfg.Host = &Host{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	guest, err := pluginsdk.NewGuest(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := guest.Init(t.Context(), pluginsdk.NewContext(guest.Manifest(), cfg.Config, cfg.Log, cfg.Host)); err != nil {
		t.Fatalf("init: %v", err)
	}
	t.Cleanup(func() {
		if err := guest.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	if err := guest.Start(t.Context()); err != nil {
		t.Fatalf("start: %v", err)
	}
	return &Harness{Host: cfg.Host, guest: guest, t: t}
}

// BeforeWrite runs the plugin's before hook on a write.
func (h *Harness) BeforeWrite(w pluginsdk.Write) (pluginsdk.Record, error) {
	return h.guest.BeforeWrite(h.t.Context(), w)
}

// AfterWrite runs the plugin's after hook on a write.
func (h *Harness) AfterWrite(w pluginsdk.Write) error { return h.guest.AfterWrite(h.t.Context(), w) }

// HandleEvents gives events to an event handler of the plugin.
func (h *Harness) HandleEvents(handler string, events ...*event.Event) error {
	return h.guest.HandleEvents(h.t.Context(), handler, events)
}

// Call calls a service of the plugin.
func (h *Harness) Call(service, method string, payload json.RawMessage) (json.RawMessage, error) {
	return h.guest.Call(h.t.Context(), service, method, payload)
}

// RunNode executes a node of one of the plugin's types.
func (h *Harness) RunNode(step pluginsdk.NodeStep) (pluginsdk.NodeResult, error) {
	return h.guest.RunNode(h.t.Context(), step)
}

// Do sends a request to the plugin's routes in the name of a principal.
func (h *Harness) Do(as identity.Principal, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.guest.Handler().ServeHTTP(w, r.WithContext(identity.With(r.Context(), as)))
	return w
}

// CheckHealth asks the plugin how it is.
func (h *Harness) CheckHealth() error { return h.guest.CheckHealth(h.t.Context()) }
