package auth

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"

	"github.com/objecthost/objecthost/core"
)

// PluginID is the id of the auth service's plugin.
const PluginID = "com.objectstack.service.auth"

// Plugin runs a Service in a kernel.
type Plugin struct {
	service    *Service
	onFirstKey func(context.Context, NewKey)
	host       core.Context
	// known are the names of all system permissions, in their order.
	known []string

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
	m := core.Manifest{
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
	if p.service.dir == nil {
		return m
	}
	m.Contributes.Objects = Objects()
	m.Contributes.Routes = append(m.Contributes.Routes, p.userRoutes()...)
	m.Contributes.Navigation = []core.NavigationItem{
		{ID: "users", Label: "Users", ObjectName: UserObject, Icon: "user"}, {ID: "members", Label: "Members", ObjectName: MemberObject, Icon: "users"},
		{ID: "audit-log", Label: "Audit Log", ObjectName: AuditObject, Icon: "history"},
	}
	m.Contributes.Permissions = append(m.Contributes.Permissions,
		core.Permission{Name: PermissionManageMembers, Description: "Manage the members, roles and invitations of the organization"},
		core.Permission{Name: PermissionReadAudit, Description: "Read the audit log of the organization"},
		core.Permission{Name: PermissionManageUsers, Description: "Make, change and shut out users", Host: true},
		core.Permission{Name: PermissionManageOrganizations, Description: "Make organizations", Host: true},
	)
	return m
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

// Init provides the service, and learns the permissions of all plugins.
func (p *Plugin) Init(_ context.Context, host core.Context) error {
	p.host = host
	for _, m := range host.Manifests() {
		for _, permission := range m.Contributes.Permissions {
			p.known = append(p.known, permission.Name)
			if permission.Host {
				p.service.hostPermissions[permission.Name] = true
			}
		}
	}
	slices.Sort(p.known)
	p.known = slices.Compact(p.known)
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
	if err := p.ensureUsers(ctx); err != nil {
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

// ensureUsers sees to it that somebody can sign in.
func (p *Plugin) ensureUsers(ctx context.Context) error {
	s := p.service
	switch {
	case s.dir == nil:
		return nil
	case s.cfg.Administrator != nil:
		_, err := s.EnsureAdministrator(ctx, *s.cfg.Administrator)
		return err
	case s.cfg.OnSetupToken == nil:
		return nil
	}
	token, made, err := s.EnsureSetupToken(ctx)
	if made {
		s.cfg.OnSetupToken(ctx, token)
	}
	return err
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
	return errors.Join(p.service.FlushUse(ctx), p.service.FlushSessions(ctx))
}
