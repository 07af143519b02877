package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/google/wire"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/examples/custom-host/orders"
	"github.com/objecthost/objecthost/services/auth"
	authdriver "github.com/objecthost/objecthost/services/auth/driver"
	authstore "github.com/objecthost/objecthost/services/auth/sqlstore"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	messagingdriver "github.com/objecthost/objecthost/services/messaging/driver"
	messagingstore "github.com/objecthost/objecthost/services/messaging/sqlstore"
	"github.com/objecthost/objecthost/services/realtime"
	realtimedriver "github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/services/realtime/sqllog"
	"github.com/objecthost/objecthost/services/rest"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/dsn"
)

// settings are what the command line says.
type settings struct {
	// DB is the database's DSN, Listen the address of the HTTP server.
	DB, Listen string
	// Warehouse is the URL that orders are told to.
	Warehouse string
	// Log takes the log.
	Log *slog.Logger
	// FirstKey gets the API key that is made on an empty database.
	FirstKey func(context.Context, auth.NewKey)
}

// host is the composed program.
type host struct {
	kernel *core.Kernel
	server *rest.Plugin
}

// hostSet builds the host. Most of it are the services' own constructors; what
// is bound to an interface here could be replaced by another implementation.
var hostSet = wire.NewSet(
	wire.FieldsOf(new(settings), "Log"),
	openDatabase, wire.Bind(new(storage.Transactor), new(*storage.DB)),
	sqllog.New, wire.Bind(new(realtimedriver.Log), new(*sqllog.Log)), realtimeConfig, realtime.New, realtime.NewPlugin,
	messagingstore.New, wire.Bind(new(messagingdriver.Store), new(*messagingstore.Store)), messagingConfig, messaging.New, messaging.NewPlugin,
	authstore.New, wire.Bind(new(authdriver.Store), new(*authstore.Store)), authConfig, auth.New, authPlugin,
	wire.Bind(new(identity.Authorizer), new(*auth.Service)),
	dataConfig, data.New, dataPlugin,
	restConfig, rest.NewPlugin,
	ordersPlugin,
	newKernel, wire.Struct(new(host), "*"),
)

// openDatabase opens the database, makes sure that no other host serves it
// where it takes one only, and migrates the tables of the services below. The
// returned function closes it, after the kernel's stop.
func openDatabase(ctx context.Context, cfg settings) (*storage.DB, func(), error) {
	db, err := dsn.Open(ctx, cfg.DB, storage.Config{})
	if err != nil {
		return nil, nil, err
	}
	release, err := db.Lock(ctx)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	closeAll := func() error { return errors.Join(db.Close(), release()) }
	if err := db.Migrate(ctx, sqllog.Migrations(), messagingstore.Migrations(), authstore.Migrations()); err != nil {
		return nil, nil, errors.Join(err, closeAll())
	}
	return db, func() {
		if err := closeAll(); err != nil {
			cfg.Log.Error("close the database", "error", err)
		}
	}, nil
}

func realtimeConfig(log *slog.Logger) realtime.Config { return realtime.Config{Logger: log} }

// messagingConfig lets the outbox call this machine, where the warehouse of
// the example is. Signed deliveries would need a Sealer as well.
func messagingConfig(db *storage.DB, store messagingdriver.Store, events *realtime.Service, log *slog.Logger) (messaging.Config, error) {
	allow, err := messaging.ParseEgressAllow([]string{"127.0.0.1"})
	return messaging.Config{
		Store: store, Tx: db, Events: events, Logger: log, Exclusive: db.Dialect() == storage.SQLite,
		Sender: messaging.SenderConfig{Egress: messaging.EgressConfig{Allow: allow}},
	}, err
}

func authConfig(log *slog.Logger) auth.Config { return auth.Config{Logger: log} }

func authPlugin(service *auth.Service, cfg settings) *auth.Plugin {
	return auth.NewPlugin(service, cfg.FirstKey)
}

func dataConfig(events *realtime.Service, access identity.Authorizer, log *slog.Logger) data.Config {
	return data.Config{Events: events, Authorizer: access, Log: log}
}

func dataPlugin(engine *data.Engine) *data.Plugin { return data.NewPlugin(engine) }

func restConfig(cfg settings, log *slog.Logger) rest.Config {
	return rest.Config{Addr: cfg.Listen, Logger: log}
}

func ordersPlugin(cfg settings) *orders.Plugin { return orders.New(cfg.Warehouse) }

// newKernel hands all plugins to a kernel, which orders them itself.
func newKernel(log *slog.Logger, events *realtime.Plugin, outbox *messaging.Plugin, access *auth.Plugin, engine *data.Plugin,
	server *rest.Plugin, shop *orders.Plugin,
) (*core.Kernel, error) {
	kernel := core.New(core.Config{Logger: log})
	return kernel, kernel.Use(events, outbox, access, engine, server, shop)
}
