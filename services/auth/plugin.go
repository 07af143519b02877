package auth

import (
	"context"
	"net/http"
	"sync"

	"github.com/objecthost/objecthost/core"
)

// PluginID is the id of the auth service's plugin.
const PluginID = "com.objectstack.service.auth"

// Plugin runs a Service in a kernel.
type Plugin struct {
	service    *Service
	onFirstKey func(context.Context, NewKey)

	mu     sync.Mutex
	cancel context.CancelFunc // nil unless the loop runs
	done   chan struct{}
}

var (
	_ core.Plugin  = (*Plugin)(nil)
	_ core.Starter = (*Plugin)(nil)
	_ core.Stopper = (*Plugin)(nil)
)

// NewPlugin returns the plugin of a service. onFirstKey gets the key that is
// made when the store has never held one, to show it once; nil makes none.
func NewPlugin(service *Service, onFirstKey func(context.Context, NewKey)) *Plugin {
	return &Plugin{service: service, onFirstKey: onFirstKey}
}

// Manifest implements core.Plugin.
func (p *Plugin) Manifest() core.Manifest {
	return core.Manifest{
		ID:       PluginID,
		Version:  "1.0.0",
		Provides: []string{ServiceKey.Name()},
		Contributes: core.Contributions{
			Routes: p.routes(),
			Permissions: []core.Permission{
				{Name: PermissionManageKeys, Description: "Make, list and revoke API keys"},
			},
		},
	}
}

func (p *Plugin) routes() []core.Route {
	return []core.Route{
		{
			Method: http.MethodPost, Pattern: "/api/v1/keys", Permission: PermissionManageKeys,
			Summary: "Make an API key, which is shown once", Handler: http.HandlerFunc(p.service.serveCreate),
		},
		{
			Method: http.MethodGet, Pattern: "/api/v1/keys", Permission: PermissionManageKeys,
			Summary: "List the API keys of the organization", Handler: http.HandlerFunc(p.service.serveList),
		},
		{
			Method: http.MethodDelete, Pattern: "/api/v1/keys/{id}", Permission: PermissionManageKeys,
			Summary: "Revoke an API key", Handler: http.HandlerFunc(p.service.serveRevoke),
		},
	}
}

// Init provides the service.
func (p *Plugin) Init(_ context.Context, host core.Context) error {
	return core.Provide(host, ServiceKey, p.service)
}

// Start brings the tables up to date, makes the first key where one is wanted,
// and begins to write times of last use.
func (p *Plugin) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancel != nil {
		return nil
	}
	if err := p.service.store.Migrate(ctx); err != nil {
		return err
	}
	if p.onFirstKey != nil {
		key, made, err := p.service.EnsureFirstKey(ctx)
		if err != nil {
			return err
		}
		if made {
			p.onFirstKey(ctx, key)
		}
	}
	loop, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.cancel, p.done = cancel, make(chan struct{})
	go func(done chan struct{}) {
		defer close(done)
		p.service.flushLoop(loop)
	}(p.done)
	return nil
}

// Stop ends the loop and writes what it had not written yet.
func (p *Plugin) Stop(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancel == nil {
		return nil
	}
	p.cancel()
	p.cancel = nil
	select {
	case <-p.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	return p.service.FlushUse(ctx)
}
