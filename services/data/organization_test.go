package data_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// shared is the authorizer of a host with several organizations.
type shared struct{ allowAll }

func (shared) SeveralOrganizations(context.Context) (bool, error) { return true, nil }

func in(t *testing.T, organization string) contextT {
	return identity.With(t.Context(), identity.Principal{UserID: "u", OrganizationID: organization})
}

// Callers without an organization id act in the default one; they do not see
// the others' records, nor does a flow with the host's rights.
func TestTheDefaultOrganizationIsOneOfThem(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account()}, func(t *testing.T, b *bundle) {
		old := create(t, b, "account", data.Record{"name": "old"})
		other := must(b.Create(in(t, "two"), "account", data.Record{"name": "other"}))(t).ID
		limited := identity.With(t.Context(), identity.Principal{System: true})
		for name, ctx := range map[string]contextT{"caller": b.as, "flow": limited} {
			page := must(b.Find(ctx, "account", data.Query{Limit: ptr(10)}))(t)
			if len(page.Records) != 1 || page.Records[0]["id"] != old || *page.Total != 1 {
				t.Errorf("%s: %v", name, page.Records)
			}
			if _, err := b.Get(ctx, "account", other); !data.IsCode(err, data.CodeRecordNotFound) {
				t.Errorf("%s reads the other organization's record: %v", name, err)
			}
			moved := must(b.Update(ctx, "account", old, data.Record{"organization_id": "two"}, data.Match{}))(t)
			equal(t, name+": organization", moved.Record["organization_id"], nil)
			made := must(b.Create(ctx, "account", data.Record{"name": "new", "organization_id": "two"}))(t)
			equal(t, name+": new record", made.Record["organization_id"], nil)
			if err := b.Delete(ctx, "account", made.ID, data.Match{}); err != nil {
				t.Fatal(err)
			}
		}
		equal(t, "host", len(must(b.Find(b.system, "account", data.Query{}))(t).Records), 2)
	})
}

// A table that does not tell whose its records are is the default
// organization's; others are scoped by another object, or by their own id.
func TestTablesWithoutAnOrganizationColumn(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		exec(t, db, `CREATE TABLE sys_log (id TEXT PRIMARY KEY, line TEXT)`)
		exec(t, db, `CREATE TABLE sys_person (id TEXT PRIMARY KEY, name TEXT)`)
		exec(t, db, `CREATE TABLE sys_place (id TEXT PRIMARY KEY, person_id TEXT, organization_id TEXT)`)
		exec(t, db, `CREATE TABLE sys_firm (id TEXT PRIMARY KEY, name TEXT)`)
		exec(t, db, `INSERT INTO sys_log VALUES ('l1', 'x')`)
		exec(t, db, `INSERT INTO sys_person VALUES ('p1', 'Ann'), ('p2', 'Bob')`)
		exec(t, db, `INSERT INTO sys_place VALUES ('a', 'p1', 'one'), ('b', 'p2', NULL)`)
		exec(t, db, `INSERT INTO sys_firm VALUES ('one', 'One'), ('default', 'Default')`)
		external := func(name, field string, by *object.ScopedBy) object.Schema {
			return object.Schema{
				Name: name, IsSystem: true, External: true, ScopedBy: by,
				Fields: object.Fields{{Name: field, Type: object.Text}},
			}
		}
		note := object.Schema{Name: "note", Fields: object.Fields{{Name: "person", Type: object.Lookup, Reference: "sys_person"}}}
		b := setup(t, db, external("sys_log", "line", nil), external("sys_person", "name", &object.ScopedBy{Object: "sys_place", Field: "person_id"}),
			external("sys_place", "person_id", nil), external("sys_firm", "name", &object.ScopedBy{}), note)
		ids := func(ctx contextT, name string) []any {
			out := []any{}
			for _, r := range must(b.Find(ctx, name, data.Query{}))(t).Records {
				out = append(out, r["id"])
			}
			return out
		}
		def, one := in(t, ""), in(t, "one")
		equal(t, "log, default", ids(def, "sys_log"), []any{"l1"})
		equal(t, "log, one", ids(one, "sys_log"), []any{})
		equal(t, "persons, default", ids(def, "sys_person"), []any{"p2"})
		equal(t, "persons, one", ids(one, "sys_person"), []any{"p1"})
		equal(t, "firms, default", ids(def, "sys_firm"), []any{"default"})
		equal(t, "firms, one", ids(one, "sys_firm"), []any{"one"})
		equal(t, "persons, host", ids(b.system, "sys_person"), []any{"p1", "p2"})
		must(b.Create(one, "note", data.Record{"person": "p1", "owner_id": nil}))(t)
		_, foreign := b.Create(one, "note", data.Record{"person": "p2"})
		_, missing := b.Create(one, "note", data.Record{"person": "p3"})
		if !data.IsCode(foreign, data.CodeValidationFailed) || foreign.(*data.Error).Message != missing.(*data.Error).Message {
			t.Errorf("a foreign reference: %v, a missing one: %v", foreign, missing)
		}
	})
}

// With several organizations nothing that a write answers tells of another
// one's records: not a taken id, not a counted-up number.
func TestWritesTellNothingOfOthers(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		schema := account()
		schema.Fields = append(schema.Fields, object.Field{Name: "no", Type: object.Autonumber, Format: "A-{000}"})
		b := setup(t, db, schema)
		e := must(data.New(t.Context(), db, data.Config{Events: b.log, Authorizer: shared{}, Now: b.clock.now}))(t)
		if err := e.Define(t.Context(), schema); err != nil {
			t.Fatal(err)
		}
		theirs := must(e.Create(in(t, "one"), "account", data.Record{"name": "a"}))(t)
		for _, id := range []string{theirs.ID, "fresh"} {
			mine := must(e.Create(in(t, "two"), "account", data.Record{"id": id, "name": "b"}))(t)
			if mine.ID == id || len(mine.Dropped) != 1 || mine.Dropped[0].Fields[0] != "id" {
				t.Errorf("id %q: got %q, dropped %v", id, mine.ID, mine.Dropped)
			}
			batch := must(e.Batch(in(t, "two"), "account", data.Batch{Operation: "upsert", Records: []data.BatchItem{{ID: id, Data: data.Record{"name": "c"}}}}))(t)
			if row := batch.Results[0]; !row.Success || row.ID == id || row.Dropped[0].Fields[0] != "id" {
				t.Errorf("upsert of %q: %+v", id, row)
			}
		}
		numbers := []any{}
		for _, r := range must(e.Find(in(t, "two"), "account", data.Query{OrderBy: []data.Sort{{Field: "no"}}}))(t).Records {
			numbers = append(numbers, r["no"])
		}
		equal(t, "numbers", numbers, []any{"A-001", "A-002", "A-003", "A-004"})
		host := must(e.Create(b.system, "account", data.Record{"id": "chosen", "name": "d", "organization_id": "three"}))(t)
		equal(t, "the host's own", []any{host.ID, host.Record["organization_id"], host.Record["no"]}, []any{"chosen", "three", "A-001"})
	})
}

// The host's predicate writes raise an event for each organization, which
// counts its records only.
func TestPredicateWritesOfTheHost(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account()}, func(t *testing.T, b *bundle) {
		for _, organization := range []string{"", "one", "one"} {
			must(b.Create(in(t, organization), "account", data.Record{"name": "a"}))(t)
		}
		b.log.clear(t)
		equal(t, "updated", must(b.UpdateWhere(b.system, "account", data.Filter{}, data.Record{"name": "b"}))(t), int64(3))
		equal(t, "deleted", must(b.DeleteWhere(b.system, "account", data.Filter{}))(t), int64(3))
		got := map[string]int64{}
		for _, e := range b.log.all(t) {
			got[e.Type+" "+e.OrganizationID] = e.Matched
		}
		equal(t, "events", got, map[string]int64{
			"data.records.updated ": 1, "data.records.updated one": 2, "data.records.deleted ": 1, "data.records.deleted one": 2,
		})
	})
}

// readers allows by a caller's user id: all, no field permissions, nothing,
// or refuses it as unauthenticated.
type readers struct{}

func (readers) Can(ctx context.Context, op identity.Operation, object string) error {
	switch identity.From(ctx).UserID {
	case "nothing":
		return &identity.DeniedError{Permission: string(op), Object: object}
	case "ended":
		return identity.ErrUnauthenticated
	}
	return nil
}

func (readers) Has(ctx context.Context, permission string) error {
	if identity.From(ctx).UserID != "all" {
		return &identity.DeniedError{Permission: permission}
	}
	return nil
}

func TestVisibleEvents(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		e := must(data.New(t.Context(), db, data.Config{Events: b.log, Authorizer: readers{}}))(t)
		note := object.Schema{Name: "note", Fields: object.Fields{
			{Name: "name", Type: object.Text}, {Name: "body", Type: object.Text, Permission: "notes.read_body"},
		}}
		closed := object.Schema{Name: "vault", Permission: "vault.open", Fields: object.Fields{{Name: "name", Type: object.Text}}}
		private := object.Schema{Name: "mail", Enable: object.Enable{APIMethods: []string{"create"}}, Fields: object.Fields{{Name: "name", Type: object.Text}}}
		if err := e.Define(t.Context(), note, closed, private); err != nil {
			t.Fatal(err)
		}
		made := &event.Event{
			ID: "1", Type: event.RecordUpdated, Object: "note", RecordID: "r", OrganizationID: "one",
			Changes: json.RawMessage(`{"body":"b"}`), After: json.RawMessage(`{"id":"r","name":"n","body":"b"}`),
		}
		of := func(change func(*event.Event)) *event.Event {
			e := *made
			change(&e)
			return &e
		}
		for name, test := range map[string]struct {
			user, organization string
			event              *event.Event
			want               string // changes and after, "" for nothing
		}{
			"everything":              {"all", "one", made, `{"body":"b"} {"id":"r","name":"n","body":"b"}`},
			"without the field":       {"some", "one", made, `{} {"id":"r","name":"n"}`},
			"another organization":    {"all", "two", made, ""},
			"the default one":         {"all", "", made, ""},
			"no permission":           {"nothing", "one", made, ""},
			"an unknown object":       {"all", "one", of(func(e *event.Event) { e.Object = "nope" }), ""},
			"no record, all":          {"all", "one", of(func(e *event.Event) { e.Type = "note.printed" }), `{"body":"b"} {"id":"r","name":"n","body":"b"}`},
			"no record, some":         {"some", "one", of(func(e *event.Event) { e.Type = "note.printed" }), ""},
			"an object nobody reads":  {"all", "one", of(func(e *event.Event) { e.Object = "mail" }), ""},
			"a closed object":         {"some", "one", of(func(e *event.Event) { e.Object = "vault" }), ""},
			"a closed object, opened": {"all", "one", of(func(e *event.Event) { e.Object = "vault" }), `{"body":"b"} {"id":"r","name":"n","body":"b"}`},
		} {
			ctx := identity.With(t.Context(), identity.Principal{UserID: test.user, OrganizationID: test.organization})
			got, err := e.Visible(ctx, test.event)
			if err != nil {
				t.Fatal(err)
			}
			text := ""
			if got != nil {
				text = string(got.Changes) + " " + string(got.After)
			}
			equal(t, name, text, test.want)
		}
		equal(t, "the event itself", string(made.After), `{"id":"r","name":"n","body":"b"}`)
		for _, organization := range []string{"one", "two"} {
			ctx := identity.With(t.Context(), identity.Principal{UserID: "ended", OrganizationID: organization})
			if _, err := e.Visible(ctx, made); !data.IsCode(err, data.CodeUnauthenticated) {
				t.Errorf("ended credentials: %v", err)
			}
		}
		if _, err := e.Find(identity.With(t.Context(), identity.Principal{UserID: "some"}), "vault", data.Query{}); !data.IsCode(err, data.CodePermissionDenied) {
			t.Errorf("a closed object: %v", err)
		}
	})
}
