package pluginsdk

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"

	"github.com/objecthost/objecthost/core"
)

// NewContext makes the [core.Context] of a plugin that has no kernel around it:
// in a process of its own or under test. HostKey leads to api. Services and
// hooks reach no further than the plugin itself; factories, scopes and
// replacement are refused with a *core.UsageError.
func NewContext(m core.Manifest, config json.RawMessage, log *slog.Logger, api Host) core.Context {
	return &processContext{manifest: m, config: config, log: log, services: map[string]any{HostKey.Name(): api}, hooks: map[string][]*core.HookHandler{}}
}

type processContext struct {
	manifest core.Manifest
	config   json.RawMessage
	log      *slog.Logger

	mu       sync.Mutex
	services map[string]any
	hooks    map[string][]*core.HookHandler
}

func (c *processContext) PluginID() string           { return c.manifest.ID }
func (c *processContext) Config() json.RawMessage    { return slices.Clone(c.config) }
func (c *processContext) Log() *slog.Logger          { return c.log }
func (c *processContext) Manifests() []core.Manifest { return []core.Manifest{c.manifest} }

func (c *processContext) On(hook string, handler core.HookHandler) (remove func()) {
	if handler == nil {
		panic("pluginsdk: nil handler for hook " + hook)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := &handler
	c.hooks[hook] = append(c.hooks[hook], entry)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.hooks[hook] = slices.DeleteFunc(slices.Clone(c.hooks[hook]), func(e *core.HookHandler) bool { return e == entry })
	}
}

func (c *processContext) Emit(ctx context.Context, hook string, payload any) error {
	c.mu.Lock()
	handlers := slices.Clone(c.hooks[hook])
	c.mu.Unlock()
	for _, h := range handlers {
		if err := (*h)(ctx, payload); err != nil {
			return err
		}
	}
	return nil
}

func (c *processContext) ProvideService(name string, value any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, taken := c.services[name]; taken {
		return c.refuse(name, "is registered already")
	}
	c.services[name] = value
	return nil
}

func (c *processContext) LookupService(_ context.Context, name string) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	value, ok := c.services[name]
	if !ok {
		return nil, &core.ServiceNotFoundError{Service: name}
	}
	return value, nil
}

func (c *processContext) ProvideServiceFactory(name string, _ core.Factory) error {
	return c.refuse(name, "factories need a kernel, which is in another process")
}

func (c *processContext) ScopedService(_ context.Context, name, _ string) (any, error) {
	return nil, c.refuse(name, "scopes need a kernel, which is in another process")
}

func (c *processContext) ClearServiceScope(_ context.Context, scope string) error {
	return c.refuse(scope, "scopes need a kernel, which is in another process")
}

func (c *processContext) ReplaceService(name string, _ func(any) (any, error)) error {
	return c.refuse(name, "services of the kernel cannot be replaced from another process")
}

func (c *processContext) Services() []core.ServiceInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []core.ServiceInfo
	for name := range c.services {
		all = append(all, core.ServiceInfo{Name: name, Provider: c.manifest.ID})
	}
	slices.SortFunc(all, func(a, b core.ServiceInfo) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return all
}

func (c *processContext) refuse(service, reason string) error {
	return &core.UsageError{Service: service, Plugin: c.manifest.ID, Reason: reason}
}
