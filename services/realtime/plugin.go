package realtime

import (
	"context"

	"github.com/objecthost/objecthost/core"
)

// PluginID is the plugin's id.
const PluginID = "com.objectstack.service.realtime"

// HookLagged is emitted with a [ConsumerStatus] when a consumer becomes lagged.
const HookLagged = "realtime:consumer-lagged"

// Plugin puts a [Service] into a host. The log's tables are migrated before the
// host starts.
//
// Positions of new consumers are stored when the plugin starts; consumers begin
// to work when all plugins have started (kernel:ready), and stop before the
// first is stopped (kernel:shutdown), so that handlers find the services they use.
type Plugin struct{ service *Service }

var (
	_ core.Plugin        = (*Plugin)(nil)
	_ core.Starter       = (*Plugin)(nil)
	_ core.Stopper       = (*Plugin)(nil)
	_ core.HealthChecker = (*Plugin)(nil)
)

// NewPlugin returns the plugin of service.
func NewPlugin(service *Service) *Plugin { return &Plugin{service: service} }

// Manifest implements core.Plugin.
func (p *Plugin) Manifest() core.Manifest {
	return core.Manifest{ID: PluginID, Version: "1.0.0", Provides: []string{ServiceKey.Name()}}
}

// Init registers the service.
func (p *Plugin) Init(_ context.Context, host core.Context) error {
	s := p.service
	own := s.cfg.OnLagged
	s.cfg.OnLagged = func(ctx context.Context, status ConsumerStatus) {
		if own != nil {
			own(ctx, status)
		}
		if err := host.Emit(ctx, HookLagged, status); err != nil {
			host.Log().WarnContext(ctx, "handler of a hook failed", "hook", HookLagged, "error", err)
		}
	}
	host.On(core.HookReady, func(ctx context.Context, _ any) error { return s.Start(ctx) })
	host.On(core.HookShutdown, func(ctx context.Context, _ any) error { return s.Stop(ctx) })
	return core.Provide(host, ServiceKey, s)
}

// Start stores where new consumers begin.
func (p *Plugin) Start(ctx context.Context) error { return p.service.Prepare(ctx) }

// Stop implements core.Stopper.
func (p *Plugin) Stop(ctx context.Context) error { return p.service.Stop(ctx) }

// CheckHealth returns a *[StuckError] while consumers are stuck.
func (p *Plugin) CheckHealth(context.Context) error {
	if stuck := p.service.Stuck(); len(stuck) > 0 {
		return &StuckError{Stuck: stuck}
	}
	return nil
}
