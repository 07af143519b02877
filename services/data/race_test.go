package data_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
)

// A child that is written while its parent is deleted either sees that the
// parent is gone, or is found by the delete: nothing is left dangling.
func TestReferencesHoldUnderConcurrency(t *testing.T) {
	t.Parallel()
	each(t, family(), func(t *testing.T, b *bundle) {
		for round := range 15 {
			p := create(t, b, "parent", data.Record{"name": "p"})
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					_, err := b.Create(b.as, "part", data.Record{"parent": p})
					if err != nil && !data.IsCode(err, data.CodeValidationFailed) {
						t.Errorf("round %d: create: %v", round, err)
					}
				})
			}
			wg.Go(func() {
				if err := b.Delete(b.as, "parent", p, data.Match{}); err != nil {
					t.Errorf("round %d: delete: %v", round, err)
				}
			})
			wg.Wait()
			if left := must(b.Find(b.as, "part", data.Query{Where: data.Eq("parent", p)}))(t); len(left.Records) != 0 {
				t.Fatalf("round %d: %d records point at a deleted parent", round, len(left.Records))
			}
		}
	})
}

// Batches that lock the same records in opposite orders come through.
func TestBatchesDoNotDeadlock(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account()}, func(t *testing.T, b *bundle) {
		var forth, back []data.RowUpdate
		for i := range 20 {
			id := create(t, b, "account", data.Record{"name": fmt.Sprint(i)})
			forth = append(forth, data.RowUpdate{ID: id, Data: data.Record{"annual_revenue": 1}})
			back = append([]data.RowUpdate{{ID: id, Data: data.Record{"annual_revenue": 2}}}, back...)
		}
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				result, err := b.UpdateMany(b.as, "account", [][]data.RowUpdate{forth, back}[i%2], data.BatchOptions{Atomic: i < 3})
				if err != nil || !result.Success {
					t.Errorf("batch %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		equal(t, "events", len(b.log.all(t)), 20+6*20)
	})
}

func TestClone(t *testing.T) {
	t.Parallel()
	schema := account()
	schema.Fields = append(schema.Fields, object.Field{Name: "pin", Type: object.Secret})
	locked := account()
	locked.Name, locked.Enable.Clone = "locked", ptr(false)
	each(t, []object.Schema{schema, locked}, func(t *testing.T, b *bundle) {
		source := create(t, b, "account", data.Record{"name": "a", "code": "c", "industry": "retail", "active": false, "pin": "1234"})
		record := must(b.Clone(b.as, "account", source, data.Record{"name": "copy"}))(t).Record
		equal(t, "copy", []any{record["name"], record["code"], record["industry"], record["active"], record["pin"]}, []any{"copy", nil, "retail", false, nil})
		if _, err := b.Clone(b.as, "locked", "x", nil); !data.IsCode(err, data.CodeMethodNotAllowed) {
			t.Errorf("clone where it is off: %v", err)
		}
	})
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	schema := hook()
	schema.Fields = append(schema.Fields, object.Field{Name: "dull", Type: object.Text, Sortable: ptr(false)})
	each(t, []object.Schema{schema, account()}, func(t *testing.T, b *bundle) {
		d := must(b.Describe("sys_hook"))(t)
		var names []string
		for _, f := range d.Schema.Fields {
			names = append(names, f.Name)
		}
		equal(t, "fields", names, []string{"id", "created_at", "updated_at", "organization_id", "created_by", "updated_by", "name", "token", "word", "dull"})
		equal(t, "sortable", []bool{d.Sortable["name"], d.Sortable["token"], d.Sortable["dull"]}, []bool{true, false, false})
		app := must(b.Object("account"))(t)
		if _, ok := app.Field("owner_id"); !ok {
			t.Error("an app object lacks owner_id")
		}
		before := must(b.Describe("account"))(t).ETag
		changed := account()
		changed.Label = "Company"
		if err := b.Define(t.Context(), changed); err != nil {
			t.Fatal(err)
		}
		if must(b.Describe("account"))(t).ETag == before {
			t.Error("the ETag did not change with the label")
		}
	})
}
