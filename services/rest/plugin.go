package rest

import (
	"context"
	"errors"
	"sync"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/auth"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/realtime"
)

// PluginID is the id of the HTTP server's plugin.
const PluginID = "com.objectstack.service.rest"

// Service is the HTTP server as other plugins see it.
type Service interface {
	// Addr is the address that the server listens on, "" while it does not.
	Addr() string
	// AddReadinessCheck makes the host not ready while check returns an error,
	// until the returned function is called; see [Server.AddReadinessCheck].
	AddReadinessCheck(name string, check func(context.Context) error) (remove func())
	// SetRoutes serves the routes of a plugin that comes and goes while the
	// host runs, from its Init on; see [Server.SetRoutes].
	SetRoutes(plugin string, routes []core.Route) error
	// OnShutdown calls f when the server begins to shut down, from its Init
	// on; see [Server.OnShutdown].
	OnShutdown(f func())
}

// ServiceKey is the service's name in the kernel.
var ServiceKey = core.NewKey[Service]("http-server")

// authKey is the auth service by what the server needs of it.
var authKey = core.NewKey[Authenticator]("auth")

// packageStates knows the plugins in processes of their own.
type packageStates interface {
	PackageStatus(id string) (status string, known bool)
}

// packageLister knows which of them have come and gone since the boot.
type packageLister interface {
	// Current brings the manifests of the boot up to date.
	Current(boot []core.Manifest) []core.Manifest
}

// pluginsKey and listerKey are the manager of those, where the host has one.
var (
	pluginsKey = core.NewKey[packageStates]("pluginhost")
	listerKey  = core.NewKey[packageLister]("pluginhost")
)

// eventsKey is the event log by what the server needs of it. A host may be
// without.
var eventsKey = core.NewKey[Streamer](realtime.ServiceKey.Name())

// Plugin runs the HTTP server in a kernel: it collects the routes of all
// plugins, and opens its socket when everything else has started.
type Plugin struct {
	cfg    Config
	checks *readiness

	mu     sync.Mutex
	server *Server // nil before Init
}

var (
	_ core.Plugin  = (*Plugin)(nil)
	_ core.Stopper = (*Plugin)(nil)
	_ Service      = (*Plugin)(nil)
)

// NewPlugin returns the plugin of a server with the given settings, which Init
// checks.
func NewPlugin(cfg Config) *Plugin { return &Plugin{cfg: cfg, checks: &readiness{}} }

// Manifest implements core.Plugin.
func (p *Plugin) Manifest() core.Manifest {
	return core.Manifest{
		ID:      PluginID,
		Version: "1.0.0",
		// By name only: a host may bring services of its own.
		After:       []string{auth.PluginID, data.PluginID, realtime.PluginID},
		Requires:    []string{authKey.Name(), data.ServiceKey.Name()},
		Provides:    []string{ServiceKey.Name()},
		Contributes: core.Contributions{Objects: []object.Schema{notificationSchema()}},
	}
}

// Init builds the routes. Two plugins that contribute the same one fail the
// boot.
func (p *Plugin) Init(ctx context.Context, host core.Context) error {
	authenticator, err := core.Lookup(ctx, host, authKey)
	if err != nil {
		return err
	}
	engine, err := core.Lookup(ctx, host, data.ServiceKey)
	if err != nil {
		return err
	}
	events, err := core.Lookup(ctx, host, eventsKey)
	if missing := new(core.ServiceNotFoundError); err != nil && !errors.As(err, &missing) {
		return err
	}
	if err := p.build(host, Parts{
		Auth: authenticator, Data: engine, Events: events, Routes: contributed(host), Services: func() []string { return serviceNames(host) },
		Manifests:     func() []core.Manifest { return currentManifests(host) },
		PackageStatus: func(id string) (string, bool) { return packageStatus(host, id) },
	}); err != nil {
		return err
	}
	host.On(core.HookListening, func(ctx context.Context, _ any) error { return p.built().Listen(ctx) })
	host.On(core.HookShutdown, func(ctx context.Context, _ any) error { return p.built().drain(ctx) })
	return core.Provide(host, ServiceKey, Service(p))
}

func (p *Plugin) build(host core.Context, parts Parts) error {
	cfg := p.cfg
	if cfg.Logger == nil {
		cfg.Logger = host.Log()
	}
	server, err := newServer(cfg, parts, p.checks)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server = server
	return nil
}

func (p *Plugin) built() *Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.server
}

// contributed lists the routes of all plugins in start order.
func contributed(host core.Context) []OwnedRoute {
	var routes []OwnedRoute
	for _, manifest := range host.Manifests() {
		for _, route := range manifest.Contributes.Routes {
			routes = append(routes, OwnedRoute{Route: route, Plugin: manifest.ID})
		}
	}
	return routes
}

func serviceNames(host core.Context) []string {
	infos := host.Services()
	names := make([]string, len(infos))
	for i, info := range infos {
		names[i] = info.Name
	}
	return names
}

// Stop ends the server, which has drained already unless the boot failed: the
// kernel's shutdown hook comes before any plugin stops, and plugins that serve
// routes may well have started after this one.
func (p *Plugin) Stop(ctx context.Context) error {
	if server := p.built(); server != nil {
		return server.Shutdown(ctx)
	}
	return nil
}

// Routes lists all routes that the server serves, its own first; nil before
// Init.
func (p *Plugin) Routes() []OwnedRoute {
	if server := p.built(); server != nil {
		return server.Routes()
	}
	return nil
}

// Addr implements Service.
func (p *Plugin) Addr() string {
	if server := p.built(); server != nil {
		return server.Addr()
	}
	return ""
}

// SetRoutes implements Service.
func (p *Plugin) SetRoutes(plugin string, routes []core.Route) error {
	server := p.built()
	if server == nil {
		return errors.New("rest: routes are set from the server's Init on")
	}
	return server.SetRoutes(plugin, routes)
}

// OnShutdown implements Service. Before Init there is nothing to shut down.
func (p *Plugin) OnShutdown(f func()) {
	if server := p.built(); server != nil {
		server.OnShutdown(f)
	}
}

// AddReadinessCheck implements Service.
func (p *Plugin) AddReadinessCheck(name string, check func(context.Context) error) (remove func()) {
	return p.checks.add(name, check)
}

// currentManifests are those of the plugins that there are at the moment.
func currentManifests(host core.Context) []core.Manifest {
	boot := host.Manifests()
	manager, err := core.Lookup(context.Background(), host, listerKey)
	if err != nil {
		return boot // no plugin comes or goes in this host
	}
	return manager.Current(boot)
}

// packageStatus asks the manager, which may have come after this plugin.
func packageStatus(host core.Context, id string) (status string, known bool) {
	manager, err := core.Lookup(context.Background(), host, pluginsKey)
	if err != nil {
		return "", false // the host has no plugins in other processes
	}
	return manager.PackageStatus(id)
}
