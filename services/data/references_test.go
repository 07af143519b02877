package data_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
)

// family is a parent with children of every delete behaviour.
func family() []object.Schema {
	name := object.Field{Name: "name", Type: object.Text}
	child := func(name string, f object.Field) object.Schema {
		f.Name = "parent"
		if f.Type == "" {
			f.Type = object.Lookup
		}
		f.Reference = "parent"
		return object.Schema{Name: name, Fields: object.Fields{{Name: "name", Type: object.Text}, f}}
	}
	parent := object.Schema{Name: "parent", Fields: object.Fields{name}}
	part := child("part", object.Field{Type: object.MasterDetail, Required: true})
	piece := object.Schema{Name: "piece", Fields: object.Fields{{Name: "part", Type: object.Lookup, Reference: "part", DeleteBehavior: object.Cascade}, {Name: "next", Type: object.Lookup, Reference: "piece", DeleteBehavior: object.Cascade}}}
	return []object.Schema{
		parent, child("friend", object.Field{}), part, piece,
		child("guard", object.Field{Required: true}),
		child("fan", object.Field{Multiple: true}),
	}
}

func create(t testing.TB, b *bundle, object string, values data.Record) string {
	t.Helper()
	return must(b.Create(b.as, object, values))(t).ID
}

func TestDeleteFollowsReferences(t *testing.T) {
	t.Parallel()
	each(t, family(), func(t *testing.T, b *bundle) {
		p, other := create(t, b, "parent", data.Record{"name": "p"}), create(t, b, "parent", data.Record{"name": "other"})
		friend := create(t, b, "friend", data.Record{"parent": p})
		part := create(t, b, "part", data.Record{"parent": p})
		kept := create(t, b, "part", data.Record{"parent": other})
		first := create(t, b, "piece", data.Record{"part": part})
		second := create(t, b, "piece", data.Record{"next": first})
		must(b.Update(b.as, "piece", first, data.Record{"next": second}, data.Match{}))(t) // a ring
		fan := create(t, b, "fan", data.Record{"parent": []string{other, p}})
		guard := create(t, b, "guard", data.Record{"parent": p})

		refused(t, b.Delete(b.as, "parent", p, data.Match{}), `{"error":"The record cannot be deleted: 1 record(s) of 'guard' refer to it by 'parent'","code":"DELETE_RESTRICTED","object":"parent"}`)
		must(b.Get(b.as, "part", part))(t)
		if err := b.Delete(b.as, "guard", guard, data.Match{}); err != nil {
			t.Fatal(err)
		}

		b.log.clear(t)
		if err := b.Delete(b.as, "parent", p, data.Match{}); err != nil {
			t.Fatal(err)
		}
		equal(t, "set to null", must(b.Get(b.as, "friend", friend))(t)["parent"], nil)
		equal(t, "taken from the list", must(b.Get(b.as, "fan", fan))(t)["parent"], any([]any{other}))
		equal(t, "child of another", must(b.Get(b.as, "part", kept))(t)["parent"], any(other))
		for object, id := range map[string]string{"part": part, "piece": first} {
			if _, err := b.Get(b.as, object, id); !data.IsCode(err, data.CodeRecordNotFound) {
				t.Errorf("%s is still there: %v", object, err)
			}
		}
		var got []string
		for _, e := range b.log.all(t) {
			got = append(got, e.Type[len("data.record."):]+" "+e.Object)
			if e.UserID != "user1" {
				t.Errorf("%s of %s by %q", e.Type, e.Object, e.UserID)
			}
		}
		equal(t, "events", got, []string{"updated fan", "updated friend", "deleted piece", "deleted piece", "deleted part", "deleted parent"})
	})
}

func TestReferencesMustExist(t *testing.T) {
	t.Parallel()
	each(t, family(), func(t *testing.T, b *bundle) {
		_, err := b.Create(b.as, "friend", data.Record{"parent": "nobody"})
		refused(t, err, `{"error":"parent refers to a record that does not exist","code":"VALIDATION_FAILED","fields":[{"field":"parent","code":"reference_not_found","message":"parent refers to a record that does not exist","label":"parent","value":"nobody"}],"object":"friend"}`)
		p := create(t, b, "parent", data.Record{"name": "p"})
		_, err = b.Create(b.as, "fan", data.Record{"parent": []string{p, "nobody"}})
		if !data.IsCode(err, data.CodeValidationFailed) {
			t.Errorf("a list with an unknown id: %v", err)
		}
		friend := create(t, b, "friend", data.Record{"parent": p})
		_, err = b.Update(b.as, "friend", friend, data.Record{"parent": "nobody"}, data.Match{})
		if !data.IsCode(err, data.CodeValidationFailed) {
			t.Errorf("an update to an unknown id: %v", err)
		}
		_, err = b.UpdateWhere(b.as, "friend", data.Filter{}, data.Record{"parent": "nobody"})
		if !data.IsCode(err, data.CodeValidationFailed) {
			t.Errorf("a predicate write of an unknown id: %v", err)
		}
	})
}

func bin() []object.Schema {
	return []object.Schema{
		{Name: "folder", Trash: true, Fields: object.Fields{{Name: "name", Type: object.Text, Unique: object.UniqueGlobal}}},
		{Name: "page", Fields: object.Fields{{Name: "folder", Type: object.Lookup, Reference: "folder", DeleteBehavior: object.Cascade}}},
	}
}

func TestTrash(t *testing.T) {
	t.Parallel()
	each(t, bin(), func(t *testing.T, b *bundle) {
		id := create(t, b, "folder", data.Record{"name": "a"})
		page := create(t, b, "page", data.Record{"folder": id})
		b.log.clear(t)
		if err := b.Delete(b.as, "folder", id, data.Match{}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Get(b.as, "folder", id); !data.IsCode(err, data.CodeRecordNotFound) {
			t.Errorf("a deleted record is still read: %v", err)
		}
		must(b.Get(b.as, "page", page))(t)
		if _, err := b.Create(b.as, "page", data.Record{"folder": id}); !data.IsCode(err, data.CodeValidationFailed) {
			t.Errorf("a reference into the trash: %v", err)
		}
		trashed := must(b.Find(b.as, "folder", data.Query{Trash: true}))(t)
		if len(trashed.Records) != 1 || trashed.Records[0]["deleted_by"] != "user1" {
			t.Errorf("trash: %v", trashed.Records)
		}
		second := create(t, b, "folder", data.Record{"name": "a"}) // the name is free again
		if _, err := b.Undelete(b.as, "folder", id); !data.IsCode(err, data.CodeUniqueViolation) {
			t.Errorf("undelete of a taken name: %v", err)
		}
		if err := b.Delete(b.as, "folder", second, data.Match{}); err != nil {
			t.Fatal(err)
		}
		back := must(b.Undelete(b.as, "folder", id))(t)
		equal(t, "undeleted", []any{back.Record["name"], back.Record["updated_at"]}, []any{"a", "2026-11-30T17:02:15.227Z"})
		if err := b.Purge(b.as, "folder", id); !data.IsCode(err, data.CodeRecordNotFound) {
			t.Errorf("purge of a live record: %v", err)
		}
		if err := b.Delete(b.as, "folder", id, data.Match{}); err != nil {
			t.Fatal(err)
		}
		if err := b.Purge(b.as, "folder", id); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Get(b.as, "page", page); !data.IsCode(err, data.CodeRecordNotFound) {
			t.Errorf("the cascade of a purge: %v", err)
		}
		var got []string
		for _, e := range b.log.all(t) {
			got = append(got, strings.TrimPrefix(e.Type, "data.record.")+" "+e.Object)
		}
		equal(t, "events", got, []string{"deleted folder", "created folder", "deleted folder", "undeleted folder", "deleted folder", "deleted page"})
		if _, err := b.Undelete(b.as, "page", page); !data.IsCode(err, data.CodeInvalidRequest) {
			t.Errorf("undelete without a trash: %v", err)
		}
	})
}

func TestPredicateWrites(t *testing.T) {
	t.Parallel()
	each(t, append(family(), account()), func(t *testing.T, b *bundle) {
		must(b.CreateMany(b.as, "account", []data.Record{{"name": "a", "annual_revenue": 1}, {"name": "b", "annual_revenue": 2}, {"name": "c", "annual_revenue": 3}}))(t)
		b.log.clear(t)
		where := data.Where("annual_revenue", "$gte", 2)
		equal(t, "matched", must(b.UpdateWhere(b.as, "account", where, data.Record{"active": "false", "created_at": "2000-01-01"}))(t), int64(2))
		equal(t, "nothing matched", must(b.UpdateWhere(b.as, "account", data.Eq("name", "zz"), data.Record{"active": false}))(t), int64(0))
		page := must(b.Find(b.as, "account", data.Query{Where: data.Eq("active", false), Fields: []string{"name", "updated_at"}}))(t)
		if len(page.Records) != 2 || page.Records[0]["updated_at"] != "2026-11-30T17:02:15.226Z" {
			t.Errorf("after the write: %v", page.Records)
		}
		if _, err := b.UpdateWhere(b.as, "account", where, data.Record{"name": nil}); !data.IsCode(err, data.CodeValidationFailed) {
			t.Errorf("clearing a required field: %v", err)
		}
		equal(t, "deleted", must(b.DeleteWhere(b.as, "account", where))(t), int64(2))
		equal(t, "deleted again", must(b.DeleteWhere(b.as, "account", where))(t), int64(0))
		events := b.log.all(t)
		if len(events) != 2 {
			t.Fatalf("%d events, want 2", len(events))
		}
		equal(t, "types", []any{events[0].Type, events[0].Matched, events[0].RecordID, events[1].Type, events[1].Matched},
			[]any{event.RecordsUpdated, int64(2), "", event.RecordsDeleted, int64(2)})
		equal(t, "changes", string(events[0].Changes), `{"updated_by":"user1","active":false}`)

		p := create(t, b, "parent", data.Record{"name": "p"})
		part := create(t, b, "part", data.Record{"parent": p})
		b.log.clear(t)
		equal(t, "with a cascade", must(b.DeleteWhere(b.as, "parent", data.Eq("id", p)))(t), int64(1))
		if _, err := b.Get(b.as, "part", part); !data.IsCode(err, data.CodeRecordNotFound) {
			t.Errorf("the cascade of a predicate delete: %v", err)
		}
		events = b.log.all(t)
		equal(t, "events", []string{events[0].Type + " " + events[0].Object, events[1].Type + " " + events[1].Object},
			[]string{"data.record.deleted part", "data.records.deleted parent"})
		if e := must2[*data.Error](t, second(b.UpdateWhere(b.as, "account", data.Eq("nope", 1), nil))); e.Field != "nope" {
			t.Errorf("unknown field: %v", e)
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestAutonumber(t *testing.T) {
	t.Parallel()
	invoice := object.Schema{Name: "invoice", Fields: object.Fields{
		{Name: "number", Type: object.Autonumber, Format: "INV-{0000}", Required: true}, {Name: "n", Type: object.Autonumber}, {Name: "note", Type: object.Text, Required: true},
	}}
	each(t, []object.Schema{invoice}, func(t *testing.T, b *bundle) {
		if _, err := b.Create(b.as, "invoice", data.Record{}); !data.IsCode(err, data.CodeValidationFailed) {
			t.Fatal(err)
		}
		first := must(b.Create(b.as, "invoice", data.Record{"note": "x", "number": "INV-9999"}))(t)
		equal(t, "first", []any{first.Record["number"], first.Record["n"]}, []any{"INV-0001", json.Number("1")})
		equal(t, "dropped", first.Dropped, []data.Dropped{{Object: "invoice", Fields: []string{"number"}, Reason: "readonly"}})
		many := must(b.CreateMany(b.as, "invoice", []data.Record{{"note": "y"}, {"note": "z"}}))(t)
		equal(t, "many", []any{many.Records[0]["number"], many.Records[1]["number"]}, []any{"INV-0002", "INV-0003"})
	})
}
