package main

import (
	"context"
	"errors"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/services/auth"
	authstore "github.com/objecthost/objecthost/services/auth/sqlstore"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/services/realtime/sqllog"
	"github.com/objecthost/objecthost/services/rest"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/dsn"
)

// host is the program: records, their events, API keys, an HTTP server, and
// the plugins that it is opened with.
type host struct {
	db     *storage.DB
	kernel *core.Kernel
	events *realtime.Service
	server *rest.Plugin
	key    string
}

// openHost opens the database, puts services and plugins together and starts
// them. The kernel finds the order itself.
func openHost(ctx context.Context, name string, plugins ...core.Plugin) (_ *host, err error) {
	h := &host{}
	if h.db, err = dsn.Open(ctx, name, storage.Config{}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.db.Close())
		}
	}()
	if err := h.db.Migrate(ctx, sqllog.Migrations(), authstore.Migrations()); err != nil {
		return nil, err
	}
	if h.events, err = realtime.New(h.db, sqllog.New(h.db, nil), realtime.Config{}); err != nil {
		return nil, err
	}
	access, err := auth.New(authstore.New(h.db), auth.Config{})
	if err != nil {
		return nil, err
	}
	engine, err := data.New(ctx, h.db, data.Config{Events: h.events, Authorizer: access})
	if err != nil {
		return nil, err
	}
	h.server = rest.NewPlugin(rest.Config{Addr: "127.0.0.1:0"})
	h.kernel = core.New(core.Config{})
	services := []core.Plugin{
		realtime.NewPlugin(h.events), data.NewPlugin(engine), h.server,
		auth.NewPlugin(access, func(_ context.Context, first auth.NewKey) { h.key = first.Secret }),
	}
	if err := h.kernel.Use(append(services, plugins...)...); err != nil {
		return nil, err
	}
	return h, h.kernel.Start(ctx)
}

// Close stops the plugins, then closes the database.
func (h *host) Close(ctx context.Context) error {
	return errors.Join(h.kernel.Stop(ctx), h.db.Close())
}
