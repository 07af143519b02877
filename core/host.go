package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
)

// host is the Context of one plugin, or of the host program when member is nil.
type host struct {
	kernel *Kernel
	member *member
	id     string
	log    *slog.Logger

	// mu is held for reading while something is registered, so that nothing
	// slips in after sealing.
	mu     sync.RWMutex
	sealed bool // no registrations any more
	closed bool // nothing any more
}

var _ Context = (*host)(nil)

func (h *host) PluginID() string { return h.id }

func (h *host) Log() *slog.Logger { return h.log }

func (h *host) Config() json.RawMessage { return slices.Clone(h.kernel.config.PluginConfig[h.id]) }

func (h *host) Manifests() []Manifest {
	h.kernel.mu.Lock()
	defer h.kernel.mu.Unlock()
	manifests := make([]Manifest, len(h.kernel.members))
	for i, m := range h.kernel.members {
		manifests[i] = m.manifest
	}
	return manifests
}

func (h *host) On(hook string, handler HookHandler) (remove func()) {
	if handler == nil {
		panic("core: nil handler for hook " + hook)
	}
	remove = func() {}
	err := h.admit(func() error {
		remove = h.kernel.hooks.add(hook, h.id, handler)
		return nil
	})
	if err != nil {
		h.log.Warn("hook handler refused", "hook", hook, "error", err)
	}
	return remove
}

func (h *host) Emit(ctx context.Context, hook string, payload any) error {
	if reservedHook(hook) {
		return fmt.Errorf("%w: %q", ErrReservedHook, hook)
	}
	if err := h.open(); err != nil {
		return err
	}
	for s, ok := h.kernel.hooks.next(hook, 0); ok; s, ok = h.kernel.hooks.next(hook, s.number) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := protect(s.plugin, hookPhase(hook), func() error { return s.handle(ctx, payload) }); err != nil {
			return call{plugin: s.plugin, phase: hookPhase(hook)}.wrap(err)
		}
	}
	return nil
}

func (h *host) ProvideService(name string, value any) error {
	return h.admit(func() error { return h.kernel.registry.add(name, h.id, value, nil) })
}

func (h *host) ProvideServiceFactory(name string, factory Factory) error {
	factory.DependsOn = slices.Clone(factory.DependsOn)
	return h.admit(func() error { return h.kernel.registry.add(name, h.id, nil, &factory) })
}

func (h *host) LookupService(ctx context.Context, name string) (any, error) {
	return h.get(ctx, name, "", false)
}

func (h *host) ScopedService(ctx context.Context, name, scope string) (any, error) {
	return h.get(ctx, name, scope, true)
}

func (h *host) get(ctx context.Context, name, scope string, scoped bool) (any, error) {
	if err := h.open(); err != nil {
		return nil, err
	}
	value, err := h.kernel.registry.get(ctx, name, h.id, scope, scoped)
	return value, h.explain(err)
}

func (h *host) ClearServiceScope(ctx context.Context, scope string) error {
	if err := h.open(); err != nil {
		return err
	}
	if scope == "" {
		return &UsageError{Plugin: h.id, Reason: "a scope must not be empty"}
	}
	return h.kernel.disposeAll(ctx, h.kernel.registry.clearScope(scope))
}

func (h *host) ReplaceService(name string, wrap func(any) (any, error)) error {
	if err := h.open(); err != nil {
		return err
	}
	return h.explain(h.kernel.registry.replace(name, h.id, wrap, h.admit))
}

func (h *host) Services() []ServiceInfo { return h.kernel.registry.list() }

// explain completes an error about a missing service that the plugin itself
// asked for. One that comes out of a factory is already complete.
func (h *host) explain(err error) error {
	missing, ok := errors.AsType[*ServiceNotFoundError](err)
	if !ok || missing.During != "" {
		return err
	}
	h.kernel.mu.Lock()
	defer h.kernel.mu.Unlock()
	missing.During = PhaseRunning
	if h.member != nil {
		missing.During = h.member.phase
	}
	missing.DeclaredBy = h.kernel.declarer(missing.Service)
	return err
}

// admit makes a registration unless the context is sealed.
func (h *host) admit(register func() error) error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.sealed || h.closed {
		return &SealedError{Plugin: h.id}
	}
	return register()
}

// open returns an error when the context is closed.
func (h *host) open() error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.closed {
		return &SealedError{Plugin: h.id}
	}
	return nil
}

// seal ends registrations; close ends everything.
func (h *host) seal() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sealed = true
}

func (h *host) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
}
