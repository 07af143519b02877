package pluginhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/pluginhost/bundle"
	"github.com/objecthost/objecthost/pluginsdk"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/storage"
)

// RouteBase is where the routes of plugins begin; their names follow.
const RouteBase = "/api/v1/plugins/"

// afterQueue is how many committed writes wait for a plugin's after hooks.
const afterQueue = 1024

// wiring ties what a plugin contributes to the host. It lives as long as the
// host and finds the running plugin at each call.
type wiring struct {
	services
	name   string
	decl   pluginsdk.Declaration
	policy *policy
	log    *slog.Logger
	// target is the plugin that runs, or an error with CodeUnavailable.
	target func() (guest, error)
	// disabled tells that the operator switched the plugin off.
	disabled func() bool

	queue   chan afterCall
	dropped atomic.Int64
	wakes   map[string]chan struct{}

	mu     sync.Mutex
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// afterCall is a committed write that waits for an after hook.
type afterCall struct {
	write    pluginsdk.Write
	deadline time.Duration
}

// install registers hooks, consumers and services; what was not granted is left
// out with a warning. It is called in Init.
func (w *wiring) install(host core.Context) error {
	w.queue, w.wakes = make(chan afterCall, afterQueue), map[string]chan struct{}{}
	for _, h := range w.decl.Before {
		if w.policy.check("hooks "+h.Object, func(c bundle.Capabilities) bool { return c.CanHook(h.Object) }) == nil {
			w.engine.BeforeWrite(h.Object, w.beforeWrite(h))
		}
	}
	for _, h := range w.decl.After {
		if w.policy.check("hooks "+h.Object, func(c bundle.Capabilities) bool { return c.CanHook(h.Object) }) == nil {
			w.engine.WithinWrite(h.Object, w.withinWrite(h))
		}
	}
	for _, e := range w.decl.Events {
		if err := w.consume(e); err != nil {
			return err
		}
	}
	for _, name := range w.decl.Services {
		if w.policy.check("provides "+name, func(c bundle.Capabilities) bool { return c.CanProvide(name) }) != nil {
			continue
		}
		if err := core.Provide(host, core.NewKey[Caller](name), Caller(&handle{wiring: w, service: name})); err != nil {
			return err
		}
	}
	return nil
}

// start begins to hand over events and committed writes.
func (w *wiring) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	for _, e := range w.decl.Events {
		w.work.Go(func() { w.pump(ctx, e) })
	}
	if len(w.decl.After) > 0 {
		w.work.Go(func() { w.afterWrites(ctx) })
	}
}

// stop ends that and waits within ctx.
func (w *wiring) stop(ctx context.Context) error {
	w.mu.Lock()
	if w.cancel != nil {
		w.cancel()
	}
	w.mu.Unlock()
	done := make(chan struct{})
	go func() { defer close(done); w.work.Wait() }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// beforeWrite is a before hook of the data service.
func (w *wiring) beforeWrite(h pluginsdk.HookDeclaration) func(context.Context, *data.Write) error {
	return func(ctx context.Context, d *data.Write) error {
		if w.disabled() || !h.Wants(string(d.Operation)) {
			return nil
		}
		changes, refusal, err := w.runBefore(ctx, h, d)
		switch {
		case refusal != nil:
			return refused(d.Object, refusal)
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && h.OnError == pluginsdk.FailOpen:
			w.log.Warn("before hook failed, the write goes on", "object", d.Object, "operation", d.Operation, "error", err)
			return nil
		case err != nil:
			w.log.Warn("before hook failed, the write is refused", "object", d.Object, "operation", d.Operation, "error", err)
			return data.Refuse(pluginsdk.CodeUnavailable, d.Object, fmt.Sprintf("the plugin %s, which checks these writes, does not answer", w.name))
		}
		if d.Values != nil {
			maps.Copy(d.Values, changes)
		}
		return nil
	}
}

func (w *wiring) runBefore(ctx context.Context, h pluginsdk.HookDeclaration, d *data.Write) (pluginsdk.Record, *pluginsdk.Error, error) {
	g, err := w.target()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(h.DeadlineMS)*time.Millisecond)
	defer cancel()
	who := identity.From(ctx)
	return g.before(ctx, pluginsdk.Write{
		Object: d.Object, Operation: string(d.Operation), ID: d.ID, Values: w.shown(d.Object, d.Values), Before: w.shown(d.Object, d.Before),
		UserID: who.UserID, OrganizationID: who.OrganizationID,
	}, storage.InTransaction(ctx))
}

// refused is the data service's error for a refusal. The plugin's own code goes
// with the field, because the codes of the wire protocol are a closed set.
func refused(object string, e *pluginsdk.Error) error {
	if e.Field != "" {
		return data.Invalid(object, data.FieldError{Field: e.Field, Code: e.Code, Message: e.Message})
	}
	out := data.Refuse(data.CodeValidationFailed, object, e.Message)
	out.DeveloperMessage = e.Code
	return out
}

// shown is a copy of a record without secrets.
func (w *wiring) shown(object string, r data.Record) pluginsdk.Record {
	if r == nil {
		return nil
	}
	out := maps.Clone(r)
	if schema, err := w.engine.Object(object); err == nil {
		for _, f := range schema.Fields {
			if f.IsSealed() {
				delete(out, f.Name)
			}
		}
	}
	return out
}

// withinWrite queues a write for an after hook once it has been committed.
func (w *wiring) withinWrite(h pluginsdk.HookDeclaration) func(context.Context, *data.Change) error {
	return func(ctx context.Context, c *data.Change) error {
		if w.disabled() || !h.Wants(string(c.Operation)) {
			return nil
		}
		who := identity.From(ctx)
		call := afterCall{
			write: pluginsdk.Write{
				Object: c.Object, Operation: string(c.Operation), ID: c.ID, Values: w.shown(c.Object, c.After), Before: w.shown(c.Object, c.Before),
				UserID: who.UserID, OrganizationID: who.OrganizationID,
			},
			deadline: time.Duration(h.DeadlineMS) * time.Millisecond,
		}
		storage.AfterCommit(ctx, func(context.Context) {
			select {
			case w.queue <- call:
			default:
				if n := w.dropped.Add(1); n&(n-1) == 0 {
					w.log.Warn("after hooks are too slow, writes were left out", "dropped", n)
				}
			}
		})
		return nil
	}
}

// afterWrites runs after hooks, one at a time and in the order of the commits.
func (w *wiring) afterWrites(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case call := <-w.queue:
			if w.disabled() {
				continue
			}
			g, err := w.target()
			if err == nil {
				hookCtx, cancel := context.WithTimeout(ctx, call.deadline)
				err = g.after(hookCtx, call.write)
				cancel()
			}
			if err != nil && ctx.Err() == nil {
				w.log.Warn("after hook failed", "object", call.write.Object, "operation", call.write.Operation, "error", err)
			}
		}
	}
}

// routes are the plugin's routes under its name.
func (w *wiring) routes() []core.Route {
	var routes []core.Route
	for _, r := range w.decl.Routes {
		if !w.policy.allows(func(c bundle.Capabilities) bool { return c.Routes }) {
			continue
		}
		routes = append(routes, core.Route{
			Method: r.Method, Pattern: RouteBase + w.name + r.Pattern, Permission: r.Permission, Anonymous: r.Anonymous, Summary: r.Summary,
			Handler: http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) { w.serve(out, in, r.Pattern) }),
		})
	}
	return routes
}

func (w *wiring) serve(out http.ResponseWriter, in *http.Request, pattern string) {
	target := strings.TrimPrefix(in.URL.RequestURI(), RouteBase+w.name)
	if !strings.HasPrefix(target, "/") {
		target = "/" + target
	}
	g, err := w.target()
	if err == nil {
		err = g.serve(out, in, pattern, target)
	}
	if err == nil {
		return
	}
	e := pluginsdk.AsError(err)
	status := http.StatusBadGateway
	if e.Retryable {
		status = http.StatusServiceUnavailable
		out.Header().Set("Retry-After", "1")
	}
	w.log.Warn("plugin did not serve a request", "pattern", pattern, "error", err)
	answerError(out, status, e.Code, fmt.Sprintf("the plugin %s does not answer", w.name))
}

// handle is a named service of a plugin. It stays the same whatever becomes of
// the process behind it.
type handle struct {
	wiring  *wiring
	service string
}

// Call implements Caller.
func (h *handle) Call(ctx context.Context, method string, payload json.RawMessage) (json.RawMessage, error) {
	g, err := h.wiring.target()
	if err != nil {
		return nil, err
	}
	answer, err := g.call(ctx, h.service, method, payload)
	var e *pluginsdk.Error
	if err != nil && !errors.As(err, &e) && ctx.Err() == nil {
		err = pluginsdk.AsError(err)
	}
	return answer, err
}
