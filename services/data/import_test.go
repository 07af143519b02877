package data_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
)

// rows reads a JSON array of rows.
func rows(t *testing.T, text string) []data.Record {
	t.Helper()
	var out []data.Record
	for _, item := range must(data.DecodeJSON([]byte(text)))(t).([]any) {
		out = append(out, item.(map[string]any))
	}
	return out
}

// outcomes writes rows as "1 created, 2 failed name VALIDATION_FAILED".
func outcomes(list []data.ImportRow) string {
	parts := make([]string, len(list))
	for i, r := range list {
		parts[i] = strings.TrimSpace(fmt.Sprintf("%d %s %s %s", r.Row, r.Action, r.Field, r.Code))
	}
	return strings.Join(parts, ", ")
}

func TestImportInserts(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account()}, func(t *testing.T, b *bundle) {
		i := must(b.NewImport(b.as, "account", data.ImportRequest{Mode: data.ImportInsert, Text: true, NullValues: []string{"n/a"}}))(t)
		got := must(i.Batch(b.as, rows(t, `[{"name":" Acme ","annual_revenue":"12.50","active":"false","industry":"n/a","code":"A"},
			{"name":"","code":"B"},{"name":"Dup","code":"A"},{"name":"Bad","annual_revenue":"many"},{"name":"Last"}]`)))(t)
		equal(t, "rows", outcomes(got), "1 created, 2 failed name VALIDATION_FAILED, 3 failed code UNIQUE_VIOLATION, 4 failed annual_revenue VALIDATION_FAILED, 5 created")
		record := must(b.Get(b.as, "account", got[0].ID))(t)
		equal(t, "record", fmt.Sprint(record["name"], record["annual_revenue"], record["active"], record["industry"]), fmt.Sprint("Acme", "12.5", false, nil))
		// The next batch counts on.
		equal(t, "next", outcomes(must(i.Batch(b.as, rows(t, `[{"name":"More"}]`)))(t)), "6 created")
	})
}

func TestImportUpserts(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account()}, func(t *testing.T, b *bundle) {
		id := create(t, b, "account", data.Record{"name": "Old", "code": "A", "industry": "retail"})
		twin := data.Record{"name": "Twin", "annual_revenue": 7}
		create(t, b, "account", twin)
		create(t, b, "account", twin)
		by := func(mode data.ImportMode, field string) *data.Import {
			return must(b.NewImport(b.as, "account", data.ImportRequest{Mode: mode, MatchFields: []string{field}}))(t)
		}
		// The third row finds what the second has created.
		got := must(by(data.ImportUpsert, "code").Batch(b.as, rows(t, `[{"code":"A","name":"New"},{"code":"B","name":"First"},{"code":"B","name":"Second"},{"name":"no key"}]`)))(t)
		equal(t, "upsert", outcomes(got), "1 updated, 2 created, 3 updated, 4 failed code MISSING_REQUIRED_FIELD")
		equal(t, "same record", got[1].ID, got[2].ID)
		record := must(b.Get(b.as, "account", id))(t)
		equal(t, "updated", []any{record["name"], record["industry"]}, []any{"New", "retail"})
		equal(t, "update", outcomes(must(by(data.ImportUpdate, "code").Batch(b.as, rows(t, `[{"code":"B","name":"Third"},{"code":"C","name":"nobody"}]`)))(t)), "1 updated, 2 skipped")
		equal(t, "ambiguous", outcomes(must(by(data.ImportUpdate, "annual_revenue").Batch(b.as, rows(t, `[{"annual_revenue":7.0,"name":"x"},{"annual_revenue":"seven"}]`)))(t)),
			"1 failed annual_revenue AMBIGUOUS_MATCH, 2 failed annual_revenue INVALID_FILTER")
		blank := must(b.NewImport(b.as, "account", data.ImportRequest{Mode: data.ImportUpsert, MatchFields: []string{"code"}, SkipBlankMatchKey: true}))(t)
		equal(t, "blank key", outcomes(must(blank.Batch(b.as, rows(t, `[{"name":"x"}]`)))(t)), "1 skipped")
	})
}

func TestImportMaps(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account()}, func(t *testing.T, b *bundle) {
		i := must(b.NewImport(b.as, "account", data.ImportRequest{Mode: data.ImportInsert, Mapping: []data.ImportMapping{
			{Source: "Company", Target: "name", Required: true}, {Source: "Key", Target: "code", Transform: "uppercase"},
			{Source: "Sector", Target: "industry", Transform: "lowercase", Default: "retail"},
		}}))(t)
		got := must(i.Batch(b.as, rows(t, `[{"Company":"Acme","Key":"ab","Sector":"FINANCE","Other":1},{"Company":"Beta"},{"Key":"x"}]`)))(t)
		equal(t, "rows", outcomes(got), "1 created, 2 created, 3 failed name MISSING_REQUIRED_FIELD")
		first, second := must(b.Get(b.as, "account", got[0].ID))(t), must(b.Get(b.as, "account", got[1].ID))(t)
		equal(t, "mapped", []any{first["name"], first["code"], first["industry"], second["industry"]}, []any{"Acme", "AB", "finance", "retail"})
	})
}

func TestImportDryRunWritesNothing(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account()}, func(t *testing.T, b *bundle) {
		i := must(b.NewImport(b.as, "account", data.ImportRequest{Mode: data.ImportInsert, DryRun: true}))(t)
		got := must(i.Batch(b.as, rows(t, `[{"name":"a"},{"industry":"finance"}]`)))(t)
		equal(t, "rows", outcomes(got), "1 created, 2 failed name VALIDATION_FAILED")
		equal(t, "id", got[0].ID, "")
		equal(t, "records", len(must(b.Find(b.as, "account", data.Query{}))(t).Records), 0)
		equal(t, "events", len(b.log.all(t)), 0)
	})
}

func TestImportRefuses(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account()}, func(t *testing.T, b *bundle) {
		for want, req := range map[string]data.ImportRequest{
			`{"error":"writeMode must be insert, update or upsert, not \"merge\"","code":"INVALID_REQUEST","object":"account"}`:                     {Mode: "merge"},
			`{"error":"writeMode upsert needs matchFields","code":"INVALID_REQUEST","object":"account"}`:                                            {Mode: data.ImportUpsert},
			`{"error":"Unknown field 'nope' on object 'account'","code":"INVALID_FIELD","field":"nope","object":"account"}`:                         {Mode: data.ImportUpdate, MatchFields: []string{"nope"}},
			`{"error":"the mapping names field 'name' twice","code":"INVALID_REQUEST","object":"account"}`:                                          {Mode: data.ImportInsert, Mapping: []data.ImportMapping{{Source: "a", Target: "name"}, {Source: "b", Target: "name"}}},
			`{"error":"transform \"rot13\" of field 'name' is not none, uppercase, lowercase or trim","code":"INVALID_REQUEST","object":"account"}`: {Mode: data.ImportInsert, Mapping: []data.ImportMapping{{Source: "a", Target: "name", Transform: "rot13"}}},
		} {
			_, err := b.NewImport(b.as, "account", req)
			refused(t, err, want)
		}
	})
}

func TestExportReadsEverything(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{mixed()}, func(t *testing.T, b *bundle) {
		var list []data.Record
		for i := range 2345 {
			list = append(list, data.Record{"id": fmt.Sprintf("i%04d", i), "size": i % 7})
		}
		must(b.CreateMany(b.as, "mixed", list))(t)
		read := func(q data.Query) (ids []string, pages int) {
			err := b.Export(b.as, "mixed", q, func(page []data.Record) error {
				pages++
				for _, r := range page {
					ids = append(ids, r["id"].(string))
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return ids, pages
		}
		all, pages := read(data.Query{})
		equal(t, "all", []any{len(all), all[0], all[2344], pages}, []any{2345, "i0000", "i2344", 3})
		some, _ := read(data.Query{Where: data.Eq("size", 3), OrderBy: []data.Sort{{Field: "size"}, {Field: "id", Desc: true}}, Limit: ptr(2)})
		equal(t, "some", some, []string{"i2341", "i2334"})
	})
}
