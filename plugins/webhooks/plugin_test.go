package webhooks

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/messaging/messagingtest"
	messagingsql "github.com/objecthost/objecthost/services/messaging/sqlstore"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/services/realtime/sqllog"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// crm is a plugin that brings an object and a webhook along.
type crm struct{ url string }

func (crm) Manifest() core.Manifest {
	return core.Manifest{
		ID: "com.example.crm", After: []string{PluginID}, Requires: []string{ServiceKey.Name()},
		Contributes: core.Contributions{Objects: []object.Schema{accountSchema()}},
	}
}

func (c crm) Init(ctx context.Context, host core.Context) error {
	service, err := core.Lookup(ctx, host, ServiceKey)
	if err != nil {
		return err
	}
	return service.Declare("com.example.crm", json.RawMessage(
		`{"name":"crm_accounts","object":"account","triggers":["create"],"url":"`+c.url+`"}`))
}

func TestPluginInAKernel(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		ctx, r, key := t.Context(), messagingtest.New(t), keyOf(t)
		logger := slog.New(slog.NewJSONHandler(&lines{}, nil))
		fatal(t, db.Migrate(ctx, sqllog.Migrations(), messagingsql.Migrations()))
		events, err := realtime.New(db, sqllog.New(db, logger), realtime.Config{PollInterval: 100 * time.Millisecond})
		fatal(t, err)
		allow, err := messaging.ParseEgressAllow([]string{"127.0.0.0/8"})
		fatal(t, err)
		outbox, err := messaging.New(messaging.Config{
			Store: messagingsql.New(db), Tx: db, Events: events, Sealer: key,
			Sender: messaging.SenderConfig{Egress: messaging.EgressConfig{Allow: allow}},
		})
		fatal(t, err)
		engine, err := data.New(ctx, db, data.Config{Events: events, Keyring: key})
		fatal(t, err)
		plugin, err := NewPlugin(db, Config{})
		fatal(t, err)
		k := core.New(core.Config{Logger: logger})
		fatal(t, k.Use(crm{r.URL}, plugin, data.NewPlugin(engine), messaging.NewPlugin(outbox, allowed{}), realtime.NewPlugin(events)))
		fatal(t, k.Start(ctx))
		_, err = engine.Create(system(t), "account", data.Record{"name": "a"})
		fatal(t, err)
		got, err := waitFor(t, r, 1)
		fatal(t, err)
		if in := body(t, got[0]); in["action"] != "created" || in["object"] != "account" {
			t.Errorf("body %s", got[0].Body)
		}
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), wide)
		defer cancel()
		fatal(t, k.Stop(stop))
		fatal(t, plugin.Stop(stop)) // a second time
	})
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	if _, err := NewPlugin(nil, Config{HealthInterval: time.Millisecond}); err == nil {
		t.Error("an interval of 1 ms was taken")
	}
}

func TestSchemaIsValid(t *testing.T) {
	t.Parallel()
	s := Schema()
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	for _, f := range s.Fields {
		if f.Label == "" {
			t.Errorf("field %s has no label", f.Name)
		}
	}
}
