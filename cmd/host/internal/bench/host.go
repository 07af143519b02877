package bench

import (
	"context"
	_ "embed" // for the object that is written
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/plugins/webhooks"
	"github.com/objecthost/objecthost/services/auth"
	authstore "github.com/objecthost/objecthost/services/auth/sqlstore"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/services/rest"
)

// recordObject is the object whose records are written.
const recordObject = "bench_record"

//go:embed record.yaml
var recordYAML []byte

// host is a whole host: every plugin that the program serves with.
type host struct {
	kernel *core.Kernel
	engine *data.Engine
	server *rest.Plugin
	// key is an API key that may do everything.
	key string
	// meter is told of attempts; it may change between runs.
	meter atomic.Pointer[meter]
}

// startHost starts a host on the box's database, with more plugins than the
// usual ones. Stop it with stop.
func (b *box) startHost(ctx context.Context, more ...core.Plugin) (*host, error) {
	h := &host{}
	events, err := b.events()
	if err != nil {
		return nil, err
	}
	outbox, err := b.outbox(events, func(d messaging.Delivery, a messaging.Attempt) {
		if m := h.meter.Load(); m != nil {
			m.attempt(d, a)
		}
	})
	if err != nil {
		return nil, err
	}
	access, err := auth.New(authstore.New(b.db.DB), auth.Config{Logger: b.log})
	if err != nil {
		return nil, err
	}
	h.engine, err = data.New(ctx, b.db.DB, data.Config{Events: events, Authorizer: access, Keyring: b.keys, Log: b.log})
	if err != nil {
		return nil, err
	}
	objects, err := data.DecodeYAML("record.yaml", recordYAML)
	if err != nil {
		return nil, err
	}
	hooks, err := webhooks.NewPlugin(b.db.DB, webhooks.Config{})
	if err != nil {
		return nil, err
	}
	h.server = rest.NewPlugin(rest.Config{Addr: "127.0.0.1:0", Version: "bench", Logger: b.log})
	h.kernel = core.New(core.Config{Logger: b.log})
	err = h.kernel.Use(append([]core.Plugin{
		realtime.NewPlugin(events), messaging.NewPlugin(outbox, access),
		auth.NewPlugin(access, func(_ context.Context, made auth.NewKey) { h.key = made.Secret }),
		data.NewPlugin(h.engine, objects...), h.server, hooks,
	}, more...)...)
	if err != nil {
		return nil, err
	}
	if err := h.kernel.Start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start the host: %w", err), h.stop(ctx))
	}
	return h, nil
}

// stop ends the host also when the context has ended.
func (h *host) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanLimit)
	defer cancel()
	return h.kernel.Stop(ctx)
}

// addWebhook makes the webhook that turns records into deliveries.
func (b *box) addWebhook(ctx context.Context, h *host) error {
	_, err := h.engine.Create(system(ctx), webhooks.ObjectName, data.Record{
		"name": "bench", "object_name": recordObject, "url": b.url(0),
		"triggers": []any{"create"}, "signing_secret": string(b.receiver.secret),
	})
	if err != nil {
		return fmt.Errorf("make the webhook: %w", err)
	}
	return nil
}

// system is the context of the host's own writes.
func system(ctx context.Context) context.Context { return identity.With(ctx, identity.System()) }

// filler makes the body of a record's delivery about bodySize bytes.
var filler = strings.Repeat("x", 640)

// record is the i-th record.
func record(i int) data.Record {
	return data.Record{"name": "record " + strconv.Itoa(i), "number": i, "text": filler}
}
