package automation

import (
	"context"
	"log/slog"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/storage"
)

// PluginID is the plugin's id.
const PluginID = "com.objectstack.service.automation"

// ConsumerName names the position of the triggers in the event log.
const ConsumerName = "automation.triggers"

var authorizerKey = core.NewKey[identity.Authorizer]("auth")

// Plugin makes a [Service] of the host's services and puts it into the host.
type Plugin struct {
	db         *storage.DB
	cfg        Config
	service    *Service
	authorizer identity.Authorizer
	log        *slog.Logger
}

var (
	_ core.Plugin        = (*Plugin)(nil)
	_ core.Starter       = (*Plugin)(nil)
	_ core.Stopper       = (*Plugin)(nil)
	_ core.HealthChecker = (*Plugin)(nil)
)

// NewPlugin returns the plugin on the database that the data service, the event
// log and the outbox keep their tables in. A nil Logger is the host's.
func NewPlugin(db *storage.DB, cfg Config) *Plugin {
	return &Plugin{db: db, cfg: cfg, log: slog.New(slog.DiscardHandler)}
}

// Manifest implements core.Plugin.
func (p *Plugin) Manifest() core.Manifest {
	return core.Manifest{
		ID: PluginID, Version: "1.0.0",
		DependsOn: []string{data.PluginID, messaging.PluginID, "com.objectstack.service.realtime"},
		After:     []string{"com.objectstack.service.auth"},
		Requires:  []string{data.ServiceKey.Name(), messaging.ServiceKey.Name(), realtime.ServiceKey.Name()},
		Provides:  []string{ServiceKey.Name()},
		Contributes: core.Contributions{
			Objects:    Objects(),
			Routes:     routes{p}.list(),
			Navigation: []core.NavigationItem{{ID: "flow-runs", Label: "Flow Runs", ObjectName: RunObject, Icon: "workflow"}},
			Permissions: []core.Permission{
				{Name: PermissionManage, Description: "Register, change, switch and remove flows", Host: true},
				{Name: PermissionRun, Description: "Run flows and let paused runs go on"},
				{Name: PermissionReadData, Description: "Read the variables and outputs of flow runs"},
			},
		},
	}
}

// Init makes the service, hooks it into the writes of records, and registers
// the consumer of record events.
func (p *Plugin) Init(ctx context.Context, host core.Context) error {
	engine, err := core.Lookup(ctx, host, data.ServiceKey)
	if err != nil {
		return err
	}
	events, err := core.Lookup(ctx, host, realtime.ServiceKey)
	if err != nil {
		return err
	}
	outbox, err := core.Lookup(ctx, host, messaging.ServiceKey)
	if err != nil {
		return err
	}
	if p.authorizer, err = core.Lookup(ctx, host, authorizerKey); err != nil && !core.IsServiceNotFound(err) {
		return err
	}
	p.log = host.Log()
	if p.cfg.Logger == nil {
		p.cfg.Logger = p.log
	}
	if p.service, err = New(p.db, engine, outbox, p.cfg); err != nil {
		return err
	}
	if err := events.Consume(realtime.ConsumerConfig{Name: ConsumerName}, p.service.handle); err != nil {
		return err
	}
	// Runs begin when every plugin has registered its node types and ends
	// before the first service that they use is stopped.
	host.On(core.HookReady, func(ctx context.Context, _ any) error { return p.service.Start(ctx) })
	host.On(core.HookShutdown, func(ctx context.Context, _ any) error { return p.service.Stop(ctx) })
	return core.Provide(host, ServiceKey, p.service)
}

// Start migrates the tables and registers the flows of the folder.
func (p *Plugin) Start(ctx context.Context) error {
	if err := p.db.Migrate(ctx, Migrations()); err != nil {
		return err
	}
	if p.cfg.Dir != "" {
		if err := p.service.LoadDir(ctx, p.cfg.Dir); err != nil {
			return err
		}
	}
	return p.service.flows.refresh(ctx, 0)
}

// Stop implements core.Stopper.
func (p *Plugin) Stop(ctx context.Context) error {
	if p.service == nil {
		return nil
	}
	return p.service.Stop(ctx)
}

// CheckHealth implements core.HealthChecker.
func (p *Plugin) CheckHealth(ctx context.Context) error { return p.service.CheckHealth(ctx) }

// can asks for a permission on the run log. Without an auth service the caller
// has to be authenticated.
func (p *Plugin) can(ctx context.Context, op identity.Operation) error {
	if p.authorizer != nil {
		return p.authorizer.Can(ctx, op, RunObject)
	}
	if !identity.From(ctx).Authenticated() {
		return identity.ErrUnauthenticated
	}
	return nil
}
