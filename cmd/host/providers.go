package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/wire"

	"github.com/objecthost/objecthost/cmd/host/internal/definitions"
	"github.com/objecthost/objecthost/cmd/host/internal/pluginconfig"
	"github.com/objecthost/objecthost/cmd/host/internal/settings"
	"github.com/objecthost/objecthost/cmd/host/internal/telemetry"
	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/pluginhost"
	"github.com/objecthost/objecthost/plugins/webhooks"
	"github.com/objecthost/objecthost/services/auth"
	authdriver "github.com/objecthost/objecthost/services/auth/driver"
	authstore "github.com/objecthost/objecthost/services/auth/sqlstore"
	"github.com/objecthost/objecthost/services/automation"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	messagingdriver "github.com/objecthost/objecthost/services/messaging/driver"
	messagingstore "github.com/objecthost/objecthost/services/messaging/sqlstore"
	"github.com/objecthost/objecthost/services/realtime"
	realtimedriver "github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/services/realtime/sqllog"
	"github.com/objecthost/objecthost/services/rest"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/lease"
	"github.com/objecthost/objecthost/storage/seal"
)

// hostSet builds everything up to the kernel.
var hostSet = wire.NewSet(
	newLogger, openDatabase, ensureKeyring, newNode, newLeases, wire.Bind(new(storage.Transactor), new(*storage.DB)),
	sqllog.New, wire.Bind(new(realtimedriver.Log), new(*sqllog.Log)), newFanout, realtimeConfig, realtime.New, realtime.NewPlugin,
	messagingstore.New, wire.Bind(new(messagingdriver.Store), new(*messagingstore.Store)), messagingConfig, newOutbox, messaging.NewPlugin, wire.Bind(new(identity.Authorizer), new(*auth.Service)),
	authstore.New, wire.Bind(new(authdriver.Store), new(*authstore.Store)), authConfig, auth.New, authPlugin,
	dataConfig, data.New, dataPlugin,
	restConfig, rest.NewPlugin,
	webhookConfig, webhooks.NewPlugin,
	automationConfig, automation.NewPlugin,
	newTelemetry, pluginManager,
	newKernel, wire.Struct(new(host), "*"),
)

// envKeyring may hold the keyring itself, where there is no place for a file.
const envKeyring = "HOST_KEYRING"

// hookTimeout bounds the handlers of the kernel's hooks at the start.
const hookTimeout = 30 * time.Second

func newLogger(cfg settings.Settings, out console) *slog.Logger {
	options := &slog.HandlerOptions{Level: cfg.LogLevel}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(out.stderr, options))
	}
	return slog.New(slog.NewTextHandler(out.stderr, options))
}

// ensureKeyring reads the keyring, or makes one for a new database and says
// where.
func ensureKeyring(ctx context.Context, db *storage.DB, cfg settings.Settings, out console) (*seal.Keyring, error) {
	ensured, err := seal.Ensure(ctx, db, seal.Source{Env: envKeyring, File: cfg.KeyFile})
	if err != nil {
		return nil, err
	}
	if notice := ensured.Notice(); notice != "" {
		out.notice(notice)
	}
	return ensured.Keyring, nil
}

// node names this process among those that share the database.
type node string

// newNode makes a name that is never used again: a host that was restarted must
// not take the claims of its past life for its own.
func newNode() node {
	name, err := os.Hostname()
	if err != nil {
		name = "host"
	}
	return node(fmt.Sprintf("%.40s-%d-%s", name, os.Getpid(), strings.ToLower(rand.Text()[:6])))
}

func newLeases(db *storage.DB, name node, log *slog.Logger) (*lease.Holder, error) {
	return lease.New(db, lease.Config{Node: string(name), Logger: log})
}

func realtimeConfig(cfg settings.Settings, fanout realtimedriver.Fanout, leases *lease.Holder, log *slog.Logger) realtime.Config {
	return realtime.Config{
		Leases: leases, Logger: log, Retention: cfg.EventRetention, PollInterval: cfg.PollInterval, Fanout: fanout,
	}
}

func messagingConfig(cfg settings.Settings, db *storage.DB, store messagingdriver.Store, events *realtime.Service, keys *seal.Keyring, leases *lease.Holder, name node, log *slog.Logger) (messaging.Config, error) {
	allow, err := messaging.ParseEgressAllow(cfg.EgressAllow)
	if err != nil {
		return messaging.Config{}, err
	}
	return messaging.Config{
		Store: store, Tx: db, Events: events, Sealer: keys, Logger: log,
		Node: string(name), Leases: leases, Nodes: events,
		Exclusive: db.Dialect() == storage.SQLite,
		BatchSize: cfg.BatchSize, MaxInFlight: cfg.MaxInFlight, MaxPerTarget: cfg.MaxPerTarget, MaxPerHost: cfg.MaxPerHost,
		PollInterval: cfg.PollInterval, Retention: cfg.DeliveryRetention, EventRetention: cfg.EventRetention,
		Sender: messaging.SenderConfig{Egress: messaging.EgressConfig{Allow: allow, HTTPSOnly: cfg.HTTPSOnly}, Logger: log},
	}, nil
}

// newOutbox makes the outbox. Bounds were checked one by one before, so what it
// refuses is how settings go together.
func newOutbox(cfg messaging.Config) (*messaging.Service, error) {
	service, err := messaging.New(cfg)
	if err != nil {
		return nil, &settings.Error{Source: "settings", Message: err.Error()}
	}
	return service, nil
}

// The administrator may be given in the environment, where there is nobody to
// read the setup token. Secrets are no settings: command lines are seen by
// everybody on the machine.
const (
	envAdminEmail    = "HOST_ADMIN_EMAIL"
	envAdminPassword = "HOST_ADMIN_PASSWORD"
	envOIDCSecret    = "HOST_OIDC_CLIENT_SECRET"
)

func authConfig(cfg settings.Settings, log *slog.Logger, out console) (auth.Config, error) {
	c := auth.Config{
		Logger: log, PublicURL: cfg.PublicURL, AllowedOrigins: cfg.AllowedOrigins, OnSetupToken: out.setupToken,
	}
	if err := oidcProvider(cfg, &c); err != nil {
		return c, err
	}
	admin := auth.Administrator{Email: os.Getenv(envAdminEmail), Password: os.Getenv(envAdminPassword)}
	switch {
	case admin.Email == "" && admin.Password == "":
	case admin.Email == "":
		return c, &settings.Error{Source: envAdminEmail, Message: "is needed along with " + envAdminPassword}
	case admin.Password == "":
		return c, &settings.Error{Source: envAdminPassword, Message: "is needed along with " + envAdminEmail}
	default:
		c.Administrator = &admin
	}
	return c, nil
}

func authPlugin(service *auth.Service, out console) *auth.Plugin {
	return auth.NewPlugin(service, out.firstKey)
}

func dataConfig(events *realtime.Service, authorizer *auth.Service, keys *seal.Keyring, log *slog.Logger) data.Config {
	return data.Config{Events: events, Authorizer: authorizer, Keyring: keys, Log: log}
}

// oidcProvider adds the provider that the settings name.
func oidcProvider(cfg settings.Settings, c *auth.Config) error {
	secret := os.Getenv(envOIDCSecret)
	missing := func(name string) error {
		return &settings.Error{Source: name, Message: "is needed along with the other settings of the OpenID Connect provider"}
	}
	switch {
	case cfg.OIDCIssuer == "" && cfg.OIDCClientID == "" && secret == "":
		return nil
	case cfg.OIDCIssuer == "":
		return missing("oidc-issuer")
	case cfg.OIDCClientID == "":
		return missing("oidc-client-id")
	case cfg.PublicURL == "":
		return missing("public-url")
	}
	c.Providers = []auth.Provider{{
		ID: "oidc", Name: cfg.OIDCName, Issuer: cfg.OIDCIssuer, ClientID: cfg.OIDCClientID, ClientSecret: secret, CreateUsers: cfg.OIDCCreateUsers,
	}}
	return nil
}

// dataPlugin adds the objects of the folder that the settings name.
func dataPlugin(engine *data.Engine, cfg settings.Settings) (*data.Plugin, error) {
	objects, err := definitions.Objects(cfg.Objects)
	if err != nil {
		return nil, err
	}
	return data.NewPlugin(engine, objects...), nil
}

func restConfig(cfg settings.Settings, log *slog.Logger) rest.Config {
	return rest.Config{Addr: cfg.Listen, Version: version, Logger: log, AllowedOrigins: cfg.AllowedOrigins, Console: cfg.Console}
}

func webhookConfig(cfg settings.Settings) webhooks.Config { return webhooks.Config{Dir: cfg.Webhooks} }

func automationConfig(cfg settings.Settings, db *storage.DB, keys *seal.Keyring) automation.Config {
	return automation.Config{Sealer: keys, Dir: cfg.Flows, Exclusive: db.Dialect() == storage.SQLite}
}

// pluginManager finds the plugins that run in processes of their own; nil when
// the settings name no folder.
func pluginManager(cfg settings.Settings, db *storage.DB, tel *telemetry.Telemetry) (*pluginhost.Manager, error) {
	if cfg.PluginDir == "" {
		return nil, nil
	}
	// A plugin gets half of the grace time, so that the host's own work has
	// some left.
	manager, err := pluginhost.New(db, pluginhost.Config{
		Dir: cfg.PluginDir, RunDir: cfg.PluginRun, Cgroup: cfg.PluginCgroup, Dev: cfg.PluginsDev, StopGrace: cfg.Grace / 2,
		Validator: &pluginconfig.Validator{}, Tracer: tel.Tracer,
	})
	if err != nil {
		return nil, err
	}
	return manager, tel.Register(manager.Metrics())
}

func newTelemetry(ctx context.Context, cfg settings.Settings, out console, log *slog.Logger) (*telemetry.Telemetry, func(), error) {
	return telemetry.New(ctx, telemetry.Config{Traces: cfg.Traces, Endpoint: cfg.TracesEndpoint, Version: version, Out: out.stderr, Log: log})
}

// newKernel puts the plugins into a kernel, which orders them itself.
func newKernel(cfg settings.Settings, log *slog.Logger, events *realtime.Plugin, outbox *messaging.Plugin, access *auth.Plugin,
	engine *data.Plugin, server *rest.Plugin, hooks *webhooks.Plugin, flows *automation.Plugin,
	manager *pluginhost.Manager, tel *telemetry.Telemetry,
) (*core.Kernel, error) {
	kernel := core.New(core.Config{
		Logger: log, PluginConfig: cfg.Plugins, Validator: &pluginconfig.Validator{File: cfg.File},
		// Deliveries under way may use the whole grace time, in the hook that
		// announces the stop as well as in Stop.
		StopTimeout: cfg.Grace, HookTimeout: max(cfg.Grace, hookTimeout),
	})
	if err := kernel.Use(events, outbox, access, engine, server, hooks, flows, tel.Plugin()); err != nil {
		return nil, err
	}
	if manager != nil {
		if err := kernel.Use(manager.Plugins()...); err != nil {
			return nil, err
		}
	}
	return kernel, checkConfigured(cfg, kernel)
}

// checkConfigured refuses configuration that no plugin would read, where it
// stands.
func checkConfigured(cfg settings.Settings, kernel *core.Kernel) error {
	takes := map[string]bool{}
	for _, p := range kernel.Plugins() {
		takes[p.Manifest.ID] = p.Manifest.ConfigSchema != nil
	}
	for _, id := range slices.Sorted(maps.Keys(cfg.Plugins)) {
		switch configurable, known := takes[id]; {
		case !known:
			return cfg.File.Errorf([]string{"plugins", id}, "plugins.%s: there is no such plugin", id)
		case !configurable:
			return cfg.File.Errorf([]string{"plugins", id}, "plugins.%s: the plugin takes no configuration", id)
		}
	}
	return nil
}
