package data_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
)

func TestCreateGetUpdateDelete(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account()}, func(t *testing.T, b *bundle) {
		created := must(b.Create(b.as, "account", data.Record{"name": "Acme", "industry": "technology", "annual_revenue": json.Number("1500.50"), "code": "A1"}))(t)
		want := data.Record{
			"id": created.ID, "created_at": "2026-11-30T17:02:15.225Z", "updated_at": "2026-11-30T17:02:15.225Z", "organization_id": nil,
			"created_by": "user1", "updated_by": "user1", "owner_id": "user1", "owning_business_unit_id": nil,
			"name": "Acme", "code": "A1", "industry": "technology", "annual_revenue": json.Number("1500.5"), "active": true,
		}
		equal(t, "created", created.Record, want)
		if len(created.ID) != 16 {
			t.Errorf("id %q is not 16 characters long", created.ID)
		}
		equal(t, "read", must(b.Get(b.as, "account", created.ID))(t), want)

		// The clock stands still, the version grows all the same.
		updated := must(b.Update(b.as, "account", created.ID, data.Record{"annual_revenue": 99, "active": false, "created_at": "2000-01-01T00:00:00Z"}, data.Match{}))(t)
		want["annual_revenue"], want["active"], want["updated_at"] = json.Number("99"), false, "2026-11-30T17:02:15.226Z"
		equal(t, "updated", updated.Record, want)
		equal(t, "dropped", updated.Dropped, []data.Dropped{{Object: "account", Fields: []string{"created_at"}, Reason: "readonly"}})

		_, err := b.Update(b.as, "account", created.ID, data.Record{"annual_revenue": 98}, data.Match{IfMatch: "2020-01-01T00:00:00.000Z"})
		stale := must2[*data.Error](t, err)
		equal(t, "stale", stale.Message, "Record account/"+created.ID+" was modified by another user (current version 2026-11-30T17:02:15.226Z, expected 2020-01-01T00:00:00.000Z)")
		equal(t, "stale code", []any{stale.Code, stale.CurrentVersion, stale.HTTPStatus()}, []any{"CONCURRENT_UPDATE", "2026-11-30T17:02:15.226Z", 409})
		equal(t, "current record", stale.CurrentRecord, want)

		b.clock.advance(time.Second)
		again := must(b.Update(b.as, "account", created.ID, data.Record{"annual_revenue": 100}, data.Match{IfMatch: `"2026-11-30T17:02:15.226Z"`}))(t)
		equal(t, "version", again.Record["updated_at"], any("2026-11-30T17:02:16.225Z"))

		if err := b.Delete(b.as, "account", created.ID, data.Match{}); err != nil {
			t.Fatal(err)
		}
		refused(t, b.Delete(b.as, "account", created.ID, data.Match{}), `{"error":"Record `+created.ID+` not found in account","code":"RECORD_NOT_FOUND","object":"account"}`)

		events := b.log.all(t)
		if len(events) != 4 {
			t.Fatalf("%d events, want 4", len(events))
		}
		equal(t, "types", []string{events[0].Type, events[1].Type, events[2].Type, events[3].Type},
			[]string{event.RecordCreated, event.RecordUpdated, event.RecordUpdated, event.RecordDeleted})
		equal(t, "changes", string(events[1].Changes), `{"updated_at":"2026-11-30T17:02:15.226Z","updated_by":"user1","annual_revenue":99,"active":false}`)
		equal(t, "after", jsonOf(t, decode(t, events[1].After)), jsonOf(t, want))
		equal(t, "event time", event.FormatTime(events[1].Timestamp), "2026-11-30T17:02:15.226Z")
		equal(t, "user", events[1].UserID, "user1")
		if events[3].Before == nil || events[3].After != nil {
			t.Errorf("a deleted event holds before only, got %+v", events[3])
		}
	})
}

func decode(t testing.TB, text []byte) any {
	t.Helper()
	return must(data.DecodeJSON(text))(t)
}

func must2[E error](t testing.TB, err error) E {
	t.Helper()
	e, ok := err.(E)
	if !ok {
		t.Fatalf("got %v (%T)", err, err)
	}
	return e
}

func TestRefusalsReadAsCaptured(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account()}, func(t *testing.T, b *bundle) {
		id := must(b.Create(b.as, "account", data.Record{"name": "M1", "code": "c1"}))(t).ID
		create := func(text string) error {
			_, err := b.Create(b.as, "account", must(data.DecodeRecord([]byte(text)))(t))
			return err
		}
		refused(t, create(`{"industry":"zzz","annual_revenue":"x"}`), `{"error":"Name is required; Industry must be one of: technology, finance, retail; Annual Revenue must be a number","code":"VALIDATION_FAILED","fields":[{"field":"name","code":"required","message":"Name is required","label":"Name"},{"field":"industry","code":"invalid_option","message":"Industry must be one of: technology, finance, retail","label":"Industry","constraint":{"allowed":"technology, finance, retail"},"options":["technology","finance","retail"]},{"field":"annual_revenue","code":"invalid_number","message":"Annual Revenue must be a number","label":"Annual Revenue"}],"object":"account"}`)
		refused(t, create(`{"name":"x","annual_revenue":-1}`), `{"error":"Annual Revenue must be ≥ 0","code":"VALIDATION_FAILED","fields":[{"field":"annual_revenue","code":"min_value","message":"Annual Revenue must be ≥ 0","label":"Annual Revenue","constraint":{"min":0}}],"object":"account"}`)
		refused(t, create(`{"name":"x","code":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}`), `{"error":"Code must be ≤ 20 characters (got 40)","code":"VALIDATION_FAILED","fields":[{"field":"code","code":"max_length","message":"Code must be ≤ 20 characters (got 40)","label":"Code","constraint":{"maxLength":20,"actual":40}}],"object":"account"}`)
		refused(t, create(`{"name":"dup","code":"c1"}`), `{"error":"A record with this value already exists","code":"UNIQUE_VIOLATION","field":"code","developerMessage":"Duplicate record refused on 'account': a unique constraint already holds these values. No record was written.","object":"account"}`)
		refused(t, create(`{"name":"x","nope_field":1}`), `{"error":"Unknown field 'nope_field' on object 'account'","code":"INVALID_FIELD","field":"nope_field","object":"account"}`)
		_, err := b.Update(b.as, "account", id, data.Record{"name": nil}, data.Match{})
		refused(t, err, `{"error":"Name is required and cannot be cleared","code":"VALIDATION_FAILED","fields":[{"field":"name","code":"required","message":"Name is required and cannot be cleared","label":"Name"}],"object":"account"}`)
		_, err = b.Get(b.as, "account", "doesnotexist")
		refused(t, err, `{"error":"Record doesnotexist not found in account","code":"RECORD_NOT_FOUND","object":"account"}`)
		_, err = b.Get(b.as, "no_such_object", "x")
		refused(t, err, `{"error":"Object 'no_such_object' is not registered","code":"OBJECT_NOT_FOUND","object":"no_such_object"}`)
		_, err = b.CreateMany(b.as, "account", []data.Record{{"name": "aon"}, {"industry": "zz"}})
		if e := must2[*data.Error](t, err); e.Message != "Name is required; Industry must be one of: technology, finance, retail" {
			t.Errorf("createMany: %s", e.Message)
		}
		if page := must(b.Find(b.as, "account", data.Query{Where: data.Eq("name", "aon")}))(t); len(page.Records) != 0 {
			t.Errorf("createMany left %d rows behind", len(page.Records))
		}
	})
}

func TestRequiredTextIsMoreThanSpace(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account()}, func(t *testing.T, b *bundle) {
		for _, name := range []string{"", "   ", "\t\n"} {
			_, err := b.Create(b.as, "account", data.Record{"name": name})
			refused(t, err, `{"error":"Name is required","code":"VALIDATION_FAILED","object":"account","fields":[{"field":"name","code":"required","message":"Name is required","label":"Name"}]}`)
		}
		id := create(t, b, "account", data.Record{"name": " a "})
		equal(t, "kept", must(b.Get(b.as, "account", id))(t)["name"], " a ")
		_, err := b.Update(b.as, "account", id, data.Record{"name": " "}, data.Match{})
		equal(t, "cleared", data.IsCode(err, data.CodeValidationFailed), true)
	})
}
