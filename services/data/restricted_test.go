package data_test

import (
	"context"
	"testing"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// lacking allows every operation and has no system permission.
type lacking struct{ allowAll }

func (lacking) Has(_ context.Context, permission string) error {
	return &identity.DeniedError{Permission: permission}
}

// A field with a permission is not there for callers without it: not in
// answers, and not as an oracle in filters, sorts, searches and groups.
func TestFieldsWithAPermission(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		schema := object.Schema{Name: "note", Label: "Note", Fields: object.Fields{
			{Name: "name", Type: object.Text, Required: true},
			{Name: "body", Type: object.Text, Permission: "notes.read_body"},
		}}
		full := setup(t, db, schema)
		id := create(t, full, "note", data.Record{"name": "a", "body": "the secret text"})
		equal(t, "with the permission", must(full.Get(full.as, "note", id))(t)["body"], any("the secret text"))

		less := must(data.New(t.Context(), db, data.Config{Events: full.log, Authorizer: lacking{}}))(t)
		if err := less.Define(t.Context(), schema); err != nil {
			t.Fatal(err)
		}
		record := must(less.Get(full.as, "note", id))(t)
		if _, there := record["body"]; there || record["name"] != "a" {
			t.Errorf("record = %v", record)
		}
		for what, query := range map[string]data.Query{
			"filter": {Where: data.Where("body", "$startsWith", "the")},
			"sort":   {OrderBy: []data.Sort{{Field: "body"}}},
			"select": {Fields: []string{"body"}},
		} {
			if _, err := less.Find(full.as, "note", query); !data.IsCode(err, data.CodeInvalidField) && !data.IsCode(err, data.CodeInvalidSort) {
				t.Errorf("%s: %v", what, err)
			}
		}
		equal(t, "search", len(must(less.Find(full.as, "note", data.Query{Search: "secret"}))(t).Records), 0)
		result := must(less.Update(full.as, "note", id, data.Record{"name": "b", "body": "overwritten"}, data.Match{}))(t)
		equal(t, "dropped", result.Dropped[0].Fields, []string{"body"})
		equal(t, "kept", must(full.Get(full.as, "note", id))(t)["body"], any("the secret text"))
		equal(t, "for the host", must(less.Get(full.system, "note", id))(t)["body"], any("the secret text"))
	})
}
