package webhooks

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/plugins/webhooks/sqlstore"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/storage"
)

// PluginID is the plugin's id.
const PluginID = "com.objectstack.plugin-webhook-outbox"

// ConsumerName names the position of the enqueuer in the event log.
const ConsumerName = "webhooks.enqueuer"

// The services that the plugin finds by their names.
const (
	dataPlugin      = "com.objectstack.service.data"
	realtimePlugin  = "com.objectstack.service.realtime"
	messagingPlugin = "com.objectstack.service.messaging"
	authPlugin      = "com.objectstack.service.auth"
)

var (
	dataKey       = core.NewKey[*data.Engine]("data")
	realtimeKey   = core.NewKey[*realtime.Service]("realtime")
	messagingKey  = core.NewKey[*messaging.Service]("messaging")
	authorizerKey = core.NewKey[identity.Authorizer]("auth")
)

// Config is what the plugin may be given besides its database.
type Config struct {
	// Dir is a folder of declared webhooks in YAML or JSON; empty for none.
	Dir string
	// Getenv finds the variables that declarations refer to, os.LookupEnv when
	// nil.
	Getenv func(name string) (value string, set bool)
	// HealthInterval is the time between updates of failing_since and
	// last_success_at, a minute when 0, at least a second.
	HealthInterval time.Duration
}

func (c Config) withDefaults() Config {
	if c.Getenv == nil {
		c.Getenv = os.LookupEnv
	}
	if c.HealthInterval == 0 {
		c.HealthInterval = time.Minute
	}
	return c
}

// Plugin runs the webhooks in a kernel.
type Plugin struct {
	db      *storage.DB
	cfg     Config
	service *Service
	health  *health
	log     *slog.Logger

	mu     sync.Mutex
	cancel context.CancelFunc // nil unless the health loop runs
	done   chan struct{}
}

var (
	_ core.Plugin  = (*Plugin)(nil)
	_ core.Starter = (*Plugin)(nil)
	_ core.Stopper = (*Plugin)(nil)
)

// NewPlugin returns the plugin on the database that the data service, the
// event log and the outbox keep their tables in.
func NewPlugin(db *storage.DB, cfg Config) (*Plugin, error) {
	cfg = cfg.withDefaults()
	if cfg.HealthInterval < time.Second {
		return nil, fmt.Errorf("webhooks: Config.HealthInterval is %s, at least 1s", cfg.HealthInterval)
	}
	return &Plugin{db: db, cfg: cfg, log: slog.New(slog.DiscardHandler)}, nil
}

// Migrations are the migrations of the plugin's own tables. Start runs them.
func Migrations() storage.Migrations { return sqlstore.Migrations() }

// Manifest implements core.Plugin.
func (p *Plugin) Manifest() core.Manifest {
	routes := &routes{service: func() *Service { return p.service }, log: func() *slog.Logger { return p.log }}
	return core.Manifest{
		ID:        PluginID,
		Version:   "1.0.0",
		DependsOn: []string{dataPlugin, realtimePlugin, messagingPlugin},
		After:     []string{authPlugin},
		Requires:  []string{dataKey.Name(), realtimeKey.Name(), messagingKey.Name()},
		Provides:  []string{ServiceKey.Name()},
		Contributes: core.Contributions{
			Objects:    []object.Schema{Schema()},
			Routes:     routes.list(),
			Navigation: []core.NavigationItem{{ID: "webhooks", Label: "Webhooks", ObjectName: ObjectName, Icon: "webhook"}},
			Permissions: []core.Permission{
				{Name: PermissionManage, Description: "Write and test webhooks"},
				{Name: PermissionRedeliver, Description: "Send finished deliveries once more"},
				{Name: PermissionRotate, Description: "Rotate the signing secrets of webhooks"},
			},
		},
	}
}

// Init finds the services, guards the writes of webhooks and registers the
// consumer.
func (p *Plugin) Init(ctx context.Context, host core.Context) error {
	engine, err := core.Lookup(ctx, host, dataKey)
	if err != nil {
		return err
	}
	events, err := core.Lookup(ctx, host, realtimeKey)
	if err != nil {
		return err
	}
	outbox, err := core.Lookup(ctx, host, messagingKey)
	if err != nil {
		return err
	}
	authorizer, err := core.Lookup(ctx, host, authorizerKey)
	if err != nil && !core.IsServiceNotFound(err) {
		return err
	}
	p.log = host.Log()
	p.assemble(engine, events, outbox, authorizer)
	if err := events.Consume(realtime.ConsumerConfig{Name: ConsumerName}, p.consumer()); err != nil {
		return err
	}
	return core.Provide(host, ServiceKey, p.service)
}

// assemble makes the parts and hooks them into the data service.
func (p *Plugin) assemble(engine *data.Engine, events history, outbox *messaging.Service, authorizer identity.Authorizer) {
	store := sqlstore.New(p.db)
	lookup := func(name string) (*object.Schema, bool) {
		schema, err := engine.Object(name)
		return schema, err == nil
	}
	door := &door{store: store, targets: outbox, vault: engine, authorizer: authorizer, lookup: lookup, objects: engine.Objects, log: p.log}
	engine.BeforeWrite(ObjectName, door.before)
	engine.WithinWrite(ObjectName, door.within)
	p.health = &health{store: store, targets: outbox, engine: engine, log: p.log}
	p.service = &Service{
		db: p.db, store: store, engine: engine, outbox: outbox, door: door, history: events, log: p.log,
		enqueuer: &enqueuer{
			subs: newSubscriptions(store), outbox: outbox, vault: engine, lookup: lookup,
			log: p.log, enqueued: p.health.watch,
		},
	}
	outbox.RegisterJobs(jobReplay, p.service.replayStep)
}

// consumer is the one durable consumer of the plugin.
func (p *Plugin) consumer() realtime.Handler {
	return func(ctx context.Context, events []*event.Event) error {
		if err := p.service.enqueuer.handle(ctx, events); err != nil {
			return err
		}
		return p.health.handle(ctx, events)
	}
}

// Start migrates the plugin's tables and writes the declared webhooks. It runs
// after the data service has defined the objects.
func (p *Plugin) Start(ctx context.Context) error {
	if err := p.db.Migrate(ctx, Migrations()); err != nil {
		return err
	}
	var declared []declaration
	if p.cfg.Dir != "" {
		var err error
		if declared, err = loadDir(p.cfg.Dir, p.cfg.Getenv); err != nil {
			return err
		}
	}
	if err := p.service.plant(ctx, declared); err != nil {
		return err
	}
	if err := p.service.sweep(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancel != nil {
		return nil
	}
	var run context.Context
	run, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	p.done = done
	go func() {
		defer close(done)
		p.health.run(run, p.cfg.HealthInterval)
	}()
	return nil
}

// Stop ends the plugin's own work. It may be called more than once, and
// without Start.
func (p *Plugin) Stop(ctx context.Context) error {
	p.mu.Lock()
	cancel, done := p.cancel, p.done
	p.cancel = nil
	p.mu.Unlock()
	if cancel == nil {
		return nil
	}
	cancel()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
