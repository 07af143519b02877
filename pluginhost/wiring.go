package pluginhost

import (
	"context"
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
	"github.com/objecthost/objecthost/pluginsdk"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/storage"
)

// RouteBase is where the routes of plugins begin; their names follow.
const RouteBase = "/api/v1/plugins/"

// afterQueue is how many committed writes wait for a plugin's after hooks.
const afterQueue = 1024

// wiring ties what a plugin contributes to the host. It lives as long as the
// plugin is installed and finds the running generation at each call.
type wiring struct {
	services
	board *board
	name  string // in routes and commands
	id    string
	log   *slog.Logger
	// target is the generation that serves calls bound to a contract, or an
	// error with CodeUnavailable. release is called when the call has ended; an
	// upgrade waits for that.
	target func(*contract) (g guest, release func(), err error)
	// disabled tells that the operator switched the plugin off.
	disabled func() bool

	current atomic.Pointer[contract] // nil before and after
	tied    pluginsdk.Declaration    // what of it was granted; under the board's lock

	queue   chan afterCall
	dropped atomic.Int64

	mu     sync.Mutex
	run    context.Context // of pumps, from start to stop
	cancel context.CancelFunc
	pumps  map[string]*pump // by handler
	work   sync.WaitGroup
}

func newWiring(b *board, name, id string) *wiring {
	return &wiring{board: b, name: name, id: id, log: slog.New(slog.DiscardHandler), queue: make(chan afterCall, afterQueue), pumps: map[string]*pump{}}
}

// afterCall is a committed write that waits for an after hook.
type afterCall struct {
	hook  boundHook
	write pluginsdk.Write
}

// start begins to hand over events and committed writes.
func (w *wiring) start() {
	w.mu.Lock()
	if w.cancel == nil {
		w.run, w.cancel = context.WithCancel(context.Background())
		run := w.run
		w.work.Go(func() { w.afterWrites(run) })
	}
	w.mu.Unlock()
	w.syncPumps()
}

// stop ends that and waits within ctx.
func (w *wiring) stop(ctx context.Context) error {
	w.mu.Lock()
	if w.cancel == nil {
		w.cancel = func() {} // nothing begins any more
	}
	w.cancel()
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

// beforeWrite runs a before hook.
func (w *wiring) beforeWrite(ctx context.Context, h boundHook, d *data.Write) error {
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

func (w *wiring) runBefore(ctx context.Context, h boundHook, d *data.Write) (pluginsdk.Record, *pluginsdk.Error, error) {
	g, release, err := w.target(h.contract)
	if err != nil {
		return nil, nil, err
	}
	defer release()
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
func (w *wiring) withinWrite(ctx context.Context, h boundHook, c *data.Change) {
	if w.disabled() || !h.Wants(string(c.Operation)) {
		return
	}
	who := identity.From(ctx)
	call := afterCall{hook: h, write: pluginsdk.Write{
		Object: c.Object, Operation: string(c.Operation), ID: c.ID, Values: w.shown(c.Object, c.After), Before: w.shown(c.Object, c.Before),
		UserID: who.UserID, OrganizationID: who.OrganizationID,
	}}
	storage.AfterCommit(ctx, func(context.Context) {
		select {
		case w.queue <- call:
		default:
			if n := w.dropped.Add(1); n&(n-1) == 0 {
				w.log.Warn("after hooks are too slow, writes were left out", "dropped", n)
			}
		}
	})
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
			if err := w.runAfter(ctx, call); err != nil && ctx.Err() == nil {
				w.log.Warn("after hook failed", "object", call.write.Object, "operation", call.write.Operation, "error", err)
			}
		}
	}
}

func (w *wiring) runAfter(ctx context.Context, call afterCall) error {
	g, release, err := w.target(call.hook.contract)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(call.hook.DeadlineMS)*time.Millisecond)
	defer cancel()
	return g.after(ctx, call.write)
}

// routes are the routes of a contract under the plugin's name.
func (w *wiring) routes(c *contract, d pluginsdk.Declaration) []core.Route {
	var routes []core.Route
	for _, r := range d.Routes {
		routes = append(routes, core.Route{
			Method: r.Method, Pattern: RouteBase + w.name + r.Pattern, Permission: r.Permission, Anonymous: r.Anonymous, Summary: r.Summary,
			Handler: http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) { w.serve(out, in, c, r.Pattern) }),
		})
	}
	return routes
}

func (w *wiring) serve(out http.ResponseWriter, in *http.Request, c *contract, pattern string) {
	target := strings.TrimPrefix(in.URL.RequestURI(), RouteBase+w.name)
	if !strings.HasPrefix(target, "/") {
		target = "/" + target
	}
	g, release, err := w.target(c)
	if err == nil {
		defer release()
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
