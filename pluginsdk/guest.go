package pluginsdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/event"
)

// Guest is a plugin as a host calls it, whichever process it runs in. It
// belongs to hosts and test harnesses; plugins do not need it. Panics of the
// plugin are returned as errors.
type Guest struct {
	plugin      core.Plugin
	manifest    core.Manifest
	declaration Declaration
	events      map[string]EventHandler
	before      map[string]BeforeHook
	after       map[string]AfterHook
	services    map[string]Service
	nodes       map[string]FlowNode
	mux         *http.ServeMux

	stop    sync.Once
	stopErr error
}

// NewGuest validates a plugin and what it contributes.
func NewGuest(p core.Plugin) (g *Guest, err error) {
	defer recovered(&err)
	g = &Guest{
		plugin: p, manifest: p.Manifest(), events: map[string]EventHandler{}, before: map[string]BeforeHook{},
		after: map[string]AfterHook{}, services: map[string]Service{}, nodes: map[string]FlowNode{},
	}
	if err := errors.Join(core.ValidateManifest(g.manifest)...); err != nil {
		return nil, err
	}
	var c Contributions
	if contributor, ok := p.(Contributor); ok {
		c = contributor.Contributions()
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	for _, h := range c.Events {
		g.events[h.Name] = h
	}
	for _, h := range c.Before {
		if _, twice := g.before[h.Object]; twice {
			return nil, fmt.Errorf("pluginsdk: two before hooks of %q", h.Object)
		}
		g.before[h.Object] = h
	}
	for _, h := range c.After {
		if _, twice := g.after[h.Object]; twice {
			return nil, fmt.Errorf("pluginsdk: two after hooks of %q", h.Object)
		}
		g.after[h.Object] = h
	}
	for _, s := range c.Services {
		g.services[s.Name] = s
	}
	for _, n := range c.Nodes {
		g.nodes[n.Type] = n
	}
	g.mux = muxOf(g.manifest.Contributes.Routes)
	g.declaration = declare(g.manifest, c)
	return g, nil
}

// Manifest is the plugin's manifest.
func (g *Guest) Manifest() core.Manifest { return g.manifest }

// Declaration is what the plugin contributes.
func (g *Guest) Declaration() Declaration { return g.declaration }

// Init initializes the plugin.
func (g *Guest) Init(ctx context.Context, host core.Context) (err error) {
	defer recovered(&err)
	return g.plugin.Init(ctx, host)
}

// Start starts the plugin.
func (g *Guest) Start(ctx context.Context) (err error) {
	defer recovered(&err)
	if s, ok := g.plugin.(core.Starter); ok {
		return s.Start(ctx)
	}
	return nil
}

// Stop stops the plugin, once however often it is called.
func (g *Guest) Stop(ctx context.Context) error {
	g.stop.Do(func() {
		defer recovered(&g.stopErr)
		if s, ok := g.plugin.(core.Stopper); ok {
			g.stopErr = s.Stop(ctx)
		}
	})
	return g.stopErr
}

// CheckHealth asks the plugin how it is.
func (g *Guest) CheckHealth(ctx context.Context) (err error) {
	defer recovered(&err)
	if h, ok := g.plugin.(core.HealthChecker); ok {
		return h.CheckHealth(ctx)
	}
	return nil
}

// HandleEvents gives a batch to the named handler.
func (g *Guest) HandleEvents(ctx context.Context, handler string, events []*event.Event) (err error) {
	defer recovered(&err)
	h, ok := g.events[handler]
	if !ok {
		return &Error{Code: CodeInvalid, Message: fmt.Sprintf("there is no event handler %q", handler)}
	}
	return h.Handle(ctx, events)
}

// BeforeWrite runs the before hook of the object and operation, if there is
// one, and returns the values to set.
func (g *Guest) BeforeWrite(ctx context.Context, w Write) (changes Record, err error) {
	defer recovered(&err)
	h, ok := g.before[w.Object]
	if !ok || !(HookDeclaration{Operations: operations(h.Operations)}).Wants(w.Operation) {
		return nil, nil
	}
	return h.Run(ctx, w)
}

// AfterWrite runs the after hook of the object and operation, if there is one.
func (g *Guest) AfterWrite(ctx context.Context, w Write) (err error) {
	defer recovered(&err)
	h, ok := g.after[w.Object]
	if !ok || !(HookDeclaration{Operations: operations(h.Operations)}).Wants(w.Operation) {
		return nil
	}
	return h.Run(ctx, w)
}

// Handler serves the plugin's routes at their own patterns.
func (g *Guest) Handler() http.Handler { return g.mux }

// Call calls a service.
func (g *Guest) Call(ctx context.Context, service, method string, payload json.RawMessage) (answer json.RawMessage, err error) {
	defer recovered(&err)
	s, ok := g.services[service]
	if !ok {
		return nil, &Error{Code: CodeInvalid, Message: fmt.Sprintf("there is no service %q", service)}
	}
	return s.Call(ctx, method, payload)
}

// recovered turns a panic into an error and logs where it came from.
func recovered(err *error) {
	if v := recover(); v != nil {
		slog.Error("plugin panicked", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		*err = &Error{Code: CodeInternal, Message: fmt.Sprintf("panic: %v", v)}
	}
}
