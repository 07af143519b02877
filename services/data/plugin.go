package data

import (
	"context"
	"errors"
	"fmt"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/realtime"
)

// PluginID is the id of the data service's plugin.
const PluginID = "com.objectstack.service.data"

// Metadata is the service of object definitions.
type Metadata interface {
	Define(ctx context.Context, schemas ...object.Schema) error
	Object(name string) (*object.Schema, error)
	Objects() []*object.Schema
	Describe(name string) (Description, error)
}

// The services that the plugin provides.
var (
	ServiceKey  = core.NewKey[*Engine]("data")
	MetadataKey = core.NewKey[Metadata]("metadata")
)

// Plugin puts an [Engine] into a host and defines the objects that plugins
// contribute. Plugins that work with records in their Start depend on
// [PluginID]: then their objects are defined.
type Plugin struct {
	engine  *Engine
	objects []object.Schema
	host    core.Context
	// late are External objects whose tables their owners had not made yet.
	late []object.Schema
	// cancel ends the subscription to definitions; nil without one.
	cancel func()
	// stop ends the runner of imports, which closes done; nil without one.
	stop context.CancelFunc
	done chan struct{}
}

var (
	_ core.Plugin        = (*Plugin)(nil)
	_ core.Starter       = (*Plugin)(nil)
	_ core.Stopper       = (*Plugin)(nil)
	_ core.HealthChecker = (*Plugin)(nil)
	_ Metadata           = (*Engine)(nil)
)

// NewPlugin returns the plugin of an engine. objects are definitions of the
// host itself, for example from [DecodeYAML].
func NewPlugin(engine *Engine, objects ...object.Schema) *Plugin {
	return &Plugin{engine: engine, objects: objects}
}

// Manifest implements core.Plugin. The services that keep tables of their own
// start earlier, so that their objects find them.
func (p *Plugin) Manifest() core.Manifest {
	const family = "com.objectstack.service."
	return core.Manifest{
		ID: PluginID, Version: "1.0.0",
		After:    []string{family + "realtime", family + "messaging", family + "auth"},
		Provides: []string{ServiceKey.Name(), MetadataKey.Name()},
		Contributes: core.Contributions{
			Objects:     append([]object.Schema{ImportJobSchema()}, p.objects...),
			Permissions: []core.Permission{{Name: PermissionManageMetadata, Description: "Define objects through the API", Host: true}},
		},
	}
}

// Init provides the services.
func (p *Plugin) Init(_ context.Context, host core.Context) error {
	p.host = host
	host.On(core.HookReady, func(ctx context.Context, _ any) error {
		err := p.engine.Define(ctx, p.late...)
		p.late = nil
		if err := errors.Join(err, p.follow(ctx)); err != nil {
			return err
		}
		p.runImports(ctx)
		return nil
	})
	host.On(core.HookShutdown, func(ctx context.Context, _ any) error { return p.stopImports(ctx) })
	return errors.Join(core.Provide(host, ServiceKey, p.engine), core.Provide(host, MetadataKey, Metadata(p.engine)))
}

// Start defines the objects of all manifests, in one step, so that they may
// refer to each other. An External object whose table is not there yet is
// defined when every plugin has started, and has to be there then.
func (p *Plugin) Start(ctx context.Context) error {
	var all []object.Schema
	for _, m := range p.host.Manifests() {
		all = append(all, m.Contributes.Objects...)
	}
	found, err := p.engine.inspect(ctx, all)
	if err != nil {
		return err
	}
	var now []object.Schema
	p.late = nil
	for _, s := range all {
		if s.External && !found[s.Name].exists {
			p.late = append(p.late, s)
			continue
		}
		now = append(now, s)
	}
	if err := p.engine.Define(ctx, now...); err != nil {
		return err
	}
	return p.engine.LoadDefinitions(ctx)
}

// follow takes over the definitions that other hosts save. An event only says
// that there is something to load, so that a lost one costs a delay until the
// next and no definition.
func (p *Plugin) follow(ctx context.Context) error {
	events, err := core.Lookup(ctx, p.host, realtime.ServiceKey)
	if err != nil {
		// The host's log is one of its own, and with it the host is alone.
		return nil //nolint:nilerr // there is nothing to follow
	}
	load := func(ctx context.Context) {
		if err := p.engine.LoadDefinitions(ctx); err != nil && ctx.Err() == nil {
			p.host.Log().Error("definitions of other hosts cannot be loaded", "error", err)
		}
	}
	p.cancel, err = events.Subscribe(realtime.Filter{Types: []string{event.ObjectCreated, event.ObjectUpdated}},
		func(ctx context.Context, _ *event.Event) { load(ctx) })
	if err != nil {
		return fmt.Errorf("follow definitions of objects: %w", err)
	}
	load(ctx) // what was saved since Start
	return nil
}

// runImports begins to run import jobs. It ends with the hook that announces the
// stop, while the services that records need are still there.
func (p *Plugin) runImports(ctx context.Context) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.stop, p.done = stop, make(chan struct{})
	go func() {
		defer close(p.done)
		p.engine.RunImports(ctx)
	}()
}

// stopImports waits until the batch under way has ended.
func (p *Plugin) stopImports(ctx context.Context) error {
	if p.stop == nil {
		return nil
	}
	p.stop()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stop implements core.Stopper.
func (p *Plugin) Stop(ctx context.Context) error {
	if p.cancel != nil {
		p.cancel()
	}
	return p.stopImports(ctx)
}

// CheckHealth implements core.HealthChecker.
func (p *Plugin) CheckHealth(ctx context.Context) error { return p.engine.db.Ping(ctx) }
