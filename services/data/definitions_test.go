package data_test

import (
	"context"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/services/realtime/sqllog"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

func ticket(fields ...object.Field) object.Schema {
	return object.Schema{
		Name: "ticket", Label: "Ticket", SharingModel: "public_read_write",
		Fields: append(object.Fields{{Name: "title", Type: object.Text, Required: true}}, fields...),
	}
}

func TestSaveDefinition(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account()}, func(t *testing.T, b *bundle) {
		saved := must(b.SaveDefinition(b.as, ticket(), ""))(t)
		equal(t, "first", saved, data.Saved{Version: 1, Created: true})
		id := create(t, b, "ticket", data.Record{"title": "first"})
		// What a client reads and writes back has the columns of every object.
		described := must(b.Object("ticket"))(t)
		again := *described
		again.Fields = append(object.Fields{}, described.Fields...)
		again.Fields = append(again.Fields, object.Field{Name: "account", Type: object.Lookup, Reference: "account"})
		equal(t, "second", must(b.SaveDefinition(b.as, again, "1"))(t), data.Saved{Version: 2})
		equal(t, "the old record", must(b.Get(b.as, "ticket", id))(t)["account"], nil)
		events := b.log.all(t)
		var types []string
		for _, e := range events {
			types = append(types, e.Type+" "+e.Object)
		}
		equal(t, "events", types, []string{
			event.ObjectCreated + " ticket", event.RecordCreated + " ticket", event.ObjectUpdated + " ticket",
		})
		_, err := b.SaveDefinition(b.as, ticket(), "1")
		refused(t, err, `{"error":"The definition of 'ticket' was changed meanwhile (current version 2, expected 1)","code":"CONCURRENT_UPDATE","object":"ticket","currentVersion":"2"}`)
		version, stored := b.Stored("ticket")
		equal(t, "stored", []any{version, stored}, []any{int64(2), true})
		if _, stored := b.Stored("account"); stored {
			t.Error("account is stored")
		}
	})
}

func TestSaveDefinitionRefuses(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account()}, func(t *testing.T, b *bundle) {
		must(b.SaveDefinition(b.as, ticket(), ""))(t)
		sys, external := ticket(), ticket()
		sys.Name, external.External, external.Name = "sys_ticket", true, "outer"
		for name, test := range map[string]struct {
			schema object.Schema
			want   string
		}{
			"of files": {account(), `{"error":"Object 'account' is defined by the host's files or by a plugin; change it there","code":"RESOURCE_CONFLICT","object":"account"}`},
			"host's":   {sys, `{"error":"Object 'sys_ticket' would be the host's own; names under sys_ cannot be defined through the API","code":"RESOURCE_CONFLICT","object":"sys_ticket"}`},
			"external": {external, `{"error":"Object 'outer' cannot be external: tables that others migrate are declared by the host's files or plugins","code":"RESOURCE_CONFLICT","object":"outer"}`},
			"another kind": {
				object.Schema{Name: "ticket", Fields: object.Fields{{Name: "title", Type: object.Number}}},
				`{"error":"object \"ticket\": field \"title\" keeps text values and cannot become decimal (type number): define a new field instead","code":"INVALID_DEFINITION","object":"ticket"}`,
			},
			"unknown target": {
				ticket(object.Field{Name: "owner", Type: object.Lookup, Reference: "nobody"}),
				`{"error":"object \"ticket\": fields.owner.reference: object \"nobody\" is not defined","code":"INVALID_DEFINITION","object":"ticket"}`,
			},
		} {
			t.Log(name)
			_, err := b.SaveDefinition(b.as, test.schema, "")
			refused(t, err, test.want)
		}
		if version, _ := b.Stored("ticket"); version != 1 {
			t.Errorf("version %d after refusals", version)
		}
		closed := must(data.New(t.Context(), b.db, data.Config{Events: b.log}))(t)
		_, err := closed.SaveDefinition(b.as, ticket(), "")
		refused(t, err, `{"error":"metadata.manage is not permitted","code":"PERMISSION_DENIED"}`)
		_, err = closed.SaveDefinition(t.Context(), ticket(), "")
		refused(t, err, `{"error":"authentication is required","code":"UNAUTHENTICATED"}`)
	})
}

// TestStoredDefinitionsComeBack starts a second engine on the same database.
func TestStoredDefinitionsComeBack(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account()}, func(t *testing.T, b *bundle) {
		must(b.SaveDefinition(b.as, ticket(object.Field{Name: "account", Type: object.Lookup, Reference: "account"}), ""))(t)
		task := ticket(object.Field{Name: "ticket", Type: object.MasterDetail, Reference: "ticket"})
		task.Name = "a_task" // read before what it points at
		must(b.SaveDefinition(b.as, task, ""))(t)
		create(t, b, "ticket", data.Record{"title": "kept"})

		second := must(data.New(t.Context(), b.db, data.Config{Events: b.log, Authorizer: allowAll{}}))(t)
		// Without account, both hang in the air and are left out.
		if err := second.LoadDefinitions(t.Context()); err != nil {
			t.Fatal(err)
		}
		equal(t, "without account", len(second.Objects()), 0)
		if err := second.Define(t.Context(), account()); err != nil {
			t.Fatal(err)
		}
		if err := second.LoadDefinitions(t.Context()); err != nil {
			t.Fatal(err)
		}
		equal(t, "records", len(must(second.Find(b.as, "ticket", data.Query{}))(t).Records), 1)
		must(second.Object("a_task"))(t)

		// A third one's files define the object: they win.
		third := must(data.New(t.Context(), b.db, data.Config{Events: b.log, Authorizer: allowAll{}}))(t)
		own := object.Schema{Name: "ticket", Label: "Own", Fields: object.Fields{{Name: "title", Type: object.Text}}}
		if err := third.Define(t.Context(), account(), own); err != nil {
			t.Fatal(err)
		}
		if err := third.LoadDefinitions(t.Context()); err != nil {
			t.Fatal(err)
		}
		equal(t, "label", must(third.Object("ticket"))(t).Label, "Own")
	})
}

// TestDefinitionsReachOtherHosts saves on one host while another runs.
func TestDefinitionsReachOtherHosts(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		if err := db.Migrate(t.Context(), sqllog.Migrations()); err != nil {
			t.Fatal(err)
		}
		boot := func() *data.Engine {
			events := must(realtime.New(db, sqllog.New(db, nil), realtime.Config{PollInterval: 100 * time.Millisecond}))(t)
			engine := must(data.New(t.Context(), db, data.Config{Events: events, Authorizer: allowAll{}}))(t)
			kernel := core.New(core.Config{})
			if err := kernel.Use(realtime.NewPlugin(events), data.NewPlugin(engine, account())); err != nil {
				t.Fatal(err)
			}
			if err := kernel.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = kernel.Stop(context.Background()) })
			return engine
		}
		one, two := boot(), boot()
		admin := identity.With(t.Context(), identity.Principal{UserID: "admin"})
		must(one.SaveDefinition(admin, ticket(), ""))(t)
		eventually(t, "the other host knows the object", func() bool { _, err := two.Object("ticket"); return err == nil })
		must(two.SaveDefinition(admin, ticket(object.Field{Name: "size", Type: object.Number}), "1"))(t)
		eventually(t, "the first host knows the field", func() bool {
			_, err := one.Create(admin, "ticket", data.Record{"title": "x", "size": 3})
			return err == nil
		})
	})
}

// eventually asks again and again, for what no signal tells.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline, tick := time.After(30*time.Second), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}
