package pluginhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/pluginsdk"
	"github.com/objecthost/objecthost/services/data"
)

// board is where the contributions of all plugins are tied to the host, and
// changed while it runs. What the host itself cannot take back (hooks of the
// data service, names of services) is registered once and looks here what there
// is at the moment.
type board struct {
	mu      sync.Mutex
	members []*wiring // in the order in which they came
	before  map[string]bool
	after   map[string]bool
	handles map[string]*handle

	hooks atomic.Pointer[hooks]
}

// hooks are the hooks of all plugins by object. It is replaced, never changed.
type hooks struct {
	before, after map[string][]boundHook
}

// boundHook is a hook and the contract that it belongs to.
type boundHook struct {
	pluginsdk.HookDeclaration
	wiring   *wiring
	contract *contract
}

func newBoard() *board {
	b := &board{before: map[string]bool{}, after: map[string]bool{}, handles: map[string]*handle{}}
	b.hooks.Store(&hooks{})
	return b
}

// apply puts what next contributes in the place of what the plugin contributed
// until now; nil removes it. On an error nothing has changed.
func (b *board) apply(ctx context.Context, w *wiring, next *contract) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := w.current.Load()
	was, is := w.tied, next.granted()
	var undo []func()
	defer func() {
		if err != nil {
			for _, f := range slices.Backward(undo) {
				f()
			}
		}
	}()
	if err := b.claim(w, is.Services); err != nil {
		return err
	}
	if w.server != nil && (len(was.Routes) > 0 || len(is.Routes) > 0) {
		if err := w.server.SetRoutes(w.id, w.routes(next, is)); err != nil {
			return err
		}
		undo = append(undo, func() { _ = w.server.SetRoutes(w.id, w.routes(old, was)) }) // they were served before
	}
	if w.flows != nil && (len(was.Nodes) > 0 || len(is.Nodes) > 0) {
		if err := w.flows.ReplaceNodes(typesOf(was.Nodes), w.nodes(next, is)); err != nil {
			return err
		}
		undo = append(undo, func() { _ = w.flows.ReplaceNodes(typesOf(is.Nodes), w.nodes(old, was)) })
	}
	w.current.Store(next) // which consumers look into from the moment that they join
	undo = append(undo, func() { w.current.Store(old) })
	for _, e := range is.Events {
		if _, known := old.event(e.Name); known {
			continue
		}
		if err := w.join(ctx, e.Name); err != nil {
			return err
		}
		undo = append(undo, func() { _ = w.events.Leave(context.WithoutCancel(ctx), consumerName(w.name, e.Name)) })
	}
	b.provide(w, was.Services, is.Services)
	b.enroll(w, is)
	w.tied = is
	b.index()
	w.syncPumps()
	w.forget(ctx, old, next)
	return nil
}

// claim checks that the names of services are free.
func (b *board) claim(w *wiring, names []string) error {
	for _, name := range names {
		h := b.handles[name]
		if h == nil {
			h = &handle{service: name}
			if err := core.Provide(w.host, core.NewKey[Caller](name), Caller(h)); err != nil {
				return err
			}
			b.handles[name] = h
		}
		if owner := h.owner.Load(); owner != nil && owner != w {
			return &core.DuplicateServiceError{Service: name, Provider: owner.id, Plugin: w.id}
		}
	}
	return nil
}

// provide hands the handles over.
func (b *board) provide(w *wiring, was, is []string) {
	for _, name := range was {
		if !slices.Contains(is, name) {
			b.handles[name].owner.Store(nil)
		}
	}
	for _, name := range is {
		b.handles[name].owner.Store(w)
	}
}

// enroll notes the plugin among the members and makes the data service call us
// for the objects that it hooks.
func (b *board) enroll(w *wiring, d pluginsdk.Declaration) {
	if !slices.Contains(b.members, w) {
		b.members = append(b.members, w)
	}
	for _, h := range d.Before {
		if !b.before[h.Object] {
			b.before[h.Object] = true
			w.engine.BeforeWrite(h.Object, b.beforeWrite)
		}
	}
	for _, h := range d.After {
		if !b.after[h.Object] {
			b.after[h.Object] = true
			w.engine.WithinWrite(h.Object, b.withinWrite)
		}
	}
}

// index makes the table of hooks anew.
func (b *board) index() {
	t := &hooks{before: map[string][]boundHook{}, after: map[string][]boundHook{}}
	b.members = slices.DeleteFunc(b.members, func(w *wiring) bool { return w.current.Load() == nil })
	for _, w := range b.members {
		for _, h := range w.tied.Before {
			t.before[h.Object] = append(t.before[h.Object], boundHook{h, w, w.current.Load()})
		}
		for _, h := range w.tied.After {
			t.after[h.Object] = append(t.after[h.Object], boundHook{h, w, w.current.Load()})
		}
	}
	b.hooks.Store(t)
}

// beforeWrite is the before hook of the data service.
func (b *board) beforeWrite(ctx context.Context, d *data.Write) error {
	for _, h := range b.hooks.Load().before[d.Object] {
		if err := h.wiring.beforeWrite(ctx, h, d); err != nil {
			return err
		}
	}
	return nil
}

// withinWrite is the data service's hook inside of the transaction.
func (b *board) withinWrite(ctx context.Context, c *data.Change) error {
	for _, h := range b.hooks.Load().after[c.Object] {
		h.wiring.withinWrite(ctx, h, c)
	}
	return nil
}

func typesOf(nodes []pluginsdk.NodeDeclaration) []string {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Type
	}
	return names
}

// routeServer is what is needed of the HTTP server.
type routeServer interface {
	SetRoutes(plugin string, routes []core.Route) error
	OnShutdown(f func())
}

var serverKey = core.NewKey[routeServer]("http-server")

// optional finds a service that a host need not have.
func optional[T any](ctx context.Context, host core.Context, key core.Key[T]) (T, error) {
	value, err := core.Lookup(ctx, host, key)
	if core.IsServiceNotFound(err) {
		err = nil
	}
	return value, err
}

// handle is a named service of a plugin. It stays the same whatever becomes of
// the plugin behind it.
type handle struct {
	service string
	owner   atomic.Pointer[wiring]
}

// Call implements Caller.
func (h *handle) Call(ctx context.Context, method string, payload json.RawMessage) (json.RawMessage, error) {
	w := h.owner.Load()
	if w == nil {
		return nil, &pluginsdk.Error{Code: pluginsdk.CodeUnavailable, Retryable: true, Message: fmt.Sprintf("no plugin offers the service %s at the moment", h.service)}
	}
	g, release, err := w.target(w.current.Load())
	if err != nil {
		return nil, err
	}
	defer release()
	answer, err := g.call(ctx, h.service, method, payload)
	var e *pluginsdk.Error
	if err != nil && !errors.As(err, &e) && ctx.Err() == nil {
		err = pluginsdk.AsError(err)
	}
	return answer, err
}
