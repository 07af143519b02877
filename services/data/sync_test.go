package data_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

func TestDefineAddsColumnsAndIndexes(t *testing.T) {
	t.Parallel()
	first := object.Schema{Name: "item", Fields: object.Fields{{Name: "name", Type: object.Text}}}
	each(t, []object.Schema{first}, func(t *testing.T, b *bundle) {
		id := create(t, b, "item", data.Record{"name": "old"})
		second := first
		second.Fields = append(object.Fields{{Name: "size", Type: object.Number, Index: true, Required: true}, {Name: "code", Type: object.Text, Unique: object.UniqueDefault}}, first.Fields...)
		if err := b.Define(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		record := must(b.Get(b.as, "item", id))(t)
		equal(t, "old record", []any{record["name"], record["size"]}, []any{"old", nil})
		create(t, b, "item", data.Record{"size": 1, "code": "x"})
		if _, err := b.Create(b.as, "item", data.Record{"size": 1, "code": "x"}); !data.IsCode(err, data.CodeUniqueViolation) {
			t.Errorf("the added unique field: %v", err)
		}
		// Left out again, the column stays, and its values with it.
		if err := b.Define(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if err := b.Define(t.Context(), second); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDefineRefuses(t *testing.T) {
	t.Parallel()
	base := object.Schema{Name: "item", Fields: object.Fields{{Name: "name", Type: object.Text}, {Name: "day", Type: object.Date}}}
	each(t, []object.Schema{base}, func(t *testing.T, b *bundle) {
		create(t, b, "item", data.Record{"name": "a"})
		create(t, b, "item", data.Record{"name": "a"})
		with := func(f object.Field) object.Schema {
			return object.Schema{Name: "item", Fields: object.Fields{f}}
		}
		exec(t, b.db, "CREATE TABLE sys_ext (id TEXT PRIMARY KEY, name BIGINT)")
		for _, tc := range []struct {
			schemas []object.Schema
			want    string
		}{
			{[]object.Schema{with(object.Field{Name: "name", Type: object.Number})}, `object "item": field "name" keeps text values and cannot become decimal (type number): define a new field instead`},
			{[]object.Schema{with(object.Field{Name: "day", Type: object.Text})}, `object "item": field "day" keeps date values and cannot become text (type text): define a new field instead`},
			{[]object.Schema{with(object.Field{Name: "name", Type: object.Secret})}, `object "item": field "name" keeps text values and cannot become sealed (type secret): define a new field instead`},
			{[]object.Schema{with(object.Field{Name: "name", Type: object.Text, Unique: object.UniqueGlobal})}, `object "item": records already hold values twice that are to be unique`},
			{[]object.Schema{with(object.Field{Name: "f", Type: "formula"})}, `object "item" is invalid: fields.f.type: fields of type "formula" are not supported`},
			{[]object.Schema{with(object.Field{Name: "f", Type: object.Lookup, Reference: "nothing"})}, `object "item": fields.f.reference: object "nothing" is not defined`},
			{[]object.Schema{with(object.Field{Name: "f", Type: object.Number, DefaultValue: json.RawMessage(`"x"`)})}, `object "item": fields.f.defaultValue: f must be a number`},
			{[]object.Schema{base, base}, `object "item" is defined twice`},
			{[]object.Schema{{Name: "sys_secret", Fields: base.Fields}}, `object "sys_secret": the name belongs to a table of the data engine`},
			{[]object.Schema{{Name: "sys_none", External: true, Fields: base.Fields}}, `object "sys_none": its table does not exist; the owner has to migrate it first`},
			{[]object.Schema{{Name: "sys_ext", External: true, Fields: base.Fields}}, `object "sys_ext": field "name" of type text does not fit its column of type bigint; object "sys_ext": the table has no column "day"`},
		} {
			err := b.Define(t.Context(), tc.schemas...)
			if e := must2[*data.Error](t, err); e.Message != tc.want || e.Code != data.CodeInvalidDefinition {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		}
		create(t, b, "item", data.Record{"name": "a"}) // what was there still works
	})
}

// Index names of different tables that read alike stay apart.
func TestIndexNamesStayApart(t *testing.T) {
	t.Parallel()
	one := object.Schema{Name: "a", Fields: object.Fields{{Name: "b_c", Type: object.Text, Index: true}}}
	two := object.Schema{Name: "a_b", Fields: object.Fields{{Name: "c", Type: object.Text, Index: true}}}
	long := object.Schema{Name: strings.Repeat("n", 60), Fields: object.Fields{{Name: strings.Repeat("f", 60), Type: object.Text, Index: true, Unique: object.UniqueGlobal}, {Name: strings.Repeat("f", 59), Type: object.Text, Index: true}}}
	each(t, []object.Schema{one, two, long}, func(t *testing.T, b *bundle) {
		if err := b.Define(t.Context(), one, two, long); err != nil {
			t.Error(err)
		}
	})
}

// Many hosts that start at once agree on the tables.
func TestDefineByManyHostsAtOnce(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			engine := must(data.New(t.Context(), db, data.Config{Events: b.log, Authorizer: allowAll{}}))(t)
			wg.Go(func() { errs[i] = engine.Define(t.Context(), append(family(), account())...) })
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				t.Error(err)
			}
		}
	})
}

func TestExternalTable(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		flag := "INTEGER"
		if db.Dialect() == storage.Postgres {
			flag = "BOOLEAN"
		}
		exec(t, db, "CREATE TABLE sys_mail (id TEXT PRIMARY KEY, n BIGINT, sent "+flag+", at BIGINT, created_at BIGINT)")
		b := setup(t, db, object.Schema{Name: "sys_mail", External: true, Fields: object.Fields{
			{Name: "n", Type: object.Number}, {Name: "sent", Type: object.Boolean}, {Name: "at", Type: object.Datetime, Format: object.FormatEpochMillis},
		}})
		id := create(t, b, "sys_mail", data.Record{"n": "9007199254740993", "sent": true, "at": 1767225600120})
		record := must(b.Get(b.as, "sys_mail", id))(t)
		equal(t, "record", record, data.Record{"id": id, "created_at": "2026-11-30T17:02:15.225Z", "n": json.Number("9007199254740993"), "sent": true, "at": json.Number("1767225600120")})
		for filter, want := range map[string]int{
			`{"n":9007199254740993}`: 1, `{"n":{"$gt":9007199254740992.5}}`: 1, `{"n":9007199254740993.5}`: 0, `{"at":{"$gte":"2026-01-01T00:00:00.120Z"}}`: 1, `{"at":{"$gt":1767225600120}}`: 0, `{"sent":true}`: 1,
			`{"n":{"$lt":99999999999999999999}}`: 1, `{"n":{"$in":[1,9007199254740993]}}`: 1,
		} {
			f := must(data.ParseFilter(must(b.Object("sys_mail"))(t), json.RawMessage(filter)))(t)
			equal(t, filter, len(must(b.Find(b.as, "sys_mail", data.Query{Where: f}))(t).Records), want)
		}
		must(b.Update(b.as, "sys_mail", id, data.Record{"n": 2}, data.Match{}))(t)
		if _, err := b.Update(b.as, "sys_mail", id, data.Record{"n": "1.5"}, data.Match{}); !data.IsCode(err, data.CodeValidationFailed) {
			t.Errorf("a fraction in an integer column: %v", err)
		}
	})
}

// TestExternalValueMeans: a filter on values asks for what they mean, when all
// of them mean something.
func TestExternalValueMeans(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		exec(t, db, "CREATE TABLE sys_job (id TEXT PRIMARY KEY, state TEXT, ended BIGINT, created_at BIGINT)")
		b := setup(t, db, object.Schema{Name: "sys_job", External: true, Fields: object.Fields{{Name: "state", Type: object.Select, Options: []object.Option{
			{Value: "new", Means: "state = 'new' AND ended IS NULL"}, {Value: "busy", Means: "state = 'busy' AND ended IS NULL"}, {Value: "done", Means: "ended = 2"}, {Value: "odd"},
		}}}})
		for _, row := range []string{"('a', 'new', NULL, 1)", "('b', 'new', 1, 1)", "('c', 'busy', NULL, 1)", "('d', 'done', 2, 1)", "('e', 'done', NULL, 1)", "('f', 'odd', 1, 1)"} {
			exec(t, db, "INSERT INTO sys_job VALUES "+row)
		}
		for filter, want := range map[string]string{
			`{"state":"new"}`: "a", `{"state":"done"}`: "d", `{"state":"odd"}`: "f", `{"state":{"$in":["new","busy"]}}`: "ac",
			`{"state":{"$in":["new","done"]}}`: "ad", `{"state":{"$in":["new","odd"]}}`: "abf", `{"state":{"$ne":"new"}}`: "cdef",
		} {
			f := must(data.ParseFilter(must(b.Object("sys_job"))(t), json.RawMessage(filter)))(t)
			var got []string
			for _, r := range must(b.Find(b.as, "sys_job", data.Query{Where: f}))(t).Records {
				got = append(got, r["id"].(string))
			}
			slices.Sort(got)
			equal(t, filter, strings.Join(got, ""), want)
		}
	})
}

// plan is the database's plan of a statement.
func plan(t testing.TB, db *storage.DB, query string) string {
	t.Helper()
	if db.Dialect() == storage.Postgres {
		query = "EXPLAIN " + query
	} else {
		query = "EXPLAIN QUERY PLAN " + query
	}
	var text strings.Builder
	err := db.InTx(t.Context(), func(ctx contextT) error {
		if db.Dialect() == storage.Postgres {
			if _, err := db.Write(ctx).ExecContext(ctx, "SET LOCAL enable_seqscan = off"); err != nil {
				return err
			}
		}
		rows, err := db.Read(ctx).QueryContext(ctx, query)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		for rows.Next() {
			values := make([]any, len(columns))
			for i := range values {
				values[i] = new(any)
			}
			if err := rows.Scan(values...); err != nil {
				return err
			}
			for _, v := range values {
				fmt.Fprintf(&text, "%v ", *v.(*any))
			}
			text.WriteString("\n")
		}
		return rows.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// Sorts in both directions and ranges read the index as it lies.
func TestIndexesServeSorts(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{thing()}, func(t *testing.T, b *bundle) {
		nulls := map[bool][2]string{true: {" ASC NULLS FIRST", " DESC NULLS LAST"}, false: {"", " DESC"}}[b.db.Dialect() == storage.Postgres]
		for _, query := range []string{
			`SELECT name FROM thing ORDER BY size` + nulls[0] + `, id LIMIT 5`,
			`SELECT name FROM thing ORDER BY size` + nulls[1] + `, id DESC LIMIT 5`,
			`SELECT name FROM thing WHERE name >= 'a' AND name < 'b' ORDER BY name` + nulls[0] + `, id LIMIT 5`,
		} {
			got := strings.ToLower(plan(t, b.db, query))
			if !strings.Contains(got, "ix_thing_") || strings.Contains(got, "sort") || strings.Contains(got, "temp b-tree") {
				t.Errorf("%s:\n%s", query, got)
			}
		}
	})
}

func TestOrganizationsAreApart(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account()}, func(t *testing.T, b *bundle) {
		in := func(org string) contextT {
			return identity.With(t.Context(), identity.Principal{UserID: "u-" + org, OrganizationID: org})
		}
		one, two := in("one"), in("two")
		mine := must(b.Create(one, "account", data.Record{"name": "a", "code": "same", "organization_id": "two"}))(t)
		equal(t, "stamped", []any{mine.Record["organization_id"], mine.Dropped[0].Fields[0]}, []any{"one", "organization_id"})
		must(b.Create(two, "account", data.Record{"name": "b", "code": "same"}))(t)
		if _, err := b.Create(one, "account", data.Record{"name": "c", "code": "same"}); !data.IsCode(err, data.CodeUniqueViolation) {
			t.Errorf("the same code in one organization: %v", err)
		}
		if _, err := b.Get(two, "account", mine.ID); !data.IsCode(err, data.CodeRecordNotFound) {
			t.Errorf("read across organizations: %v", err)
		}
		if _, err := b.Update(two, "account", mine.ID, data.Record{"name": "x"}, data.Match{}); !data.IsCode(err, data.CodeRecordNotFound) {
			t.Errorf("update across organizations: %v", err)
		}
		if err := b.Delete(two, "account", mine.ID, data.Match{}); !data.IsCode(err, data.CodeRecordNotFound) {
			t.Errorf("delete across organizations: %v", err)
		}
		equal(t, "list", len(must(b.Find(two, "account", data.Query{}))(t).Records), 1)
		equal(t, "predicate", must(b.UpdateWhere(two, "account", data.Filter{}, data.Record{"active": false}))(t), int64(1))
		equal(t, "host", len(must(b.Find(b.system, "account", data.Query{}))(t).Records), 2)
		equal(t, "event", b.log.all(t)[0].OrganizationID, "one")
	})
}

// deny is an authorizer that remembers what it was asked and refuses.
type deny struct{ asked []string }

func (d *deny) Can(_ contextT, op identity.Operation, object string) error {
	d.asked = append(d.asked, string(op)+" "+object)
	return &identity.DeniedError{Permission: string(op), Object: object}
}
func (d *deny) Has(contextT, string) error { return nil }

func TestEveryPathAsksForPermission(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		schema := account()
		schema.Trash = true
		guard := &deny{}
		engine := must(data.New(t.Context(), db, data.Config{Events: b.log, Authorizer: guard}))(t)
		closed := must(data.New(t.Context(), db, data.Config{Events: b.log}))(t)
		for _, e := range []*data.Engine{engine, closed} {
			if err := e.Define(t.Context(), schema); err != nil {
				t.Fatal(err)
			}
		}
		calls := func(e *data.Engine) []error {
			return []error{
				second(e.Get(b.as, "account", "x")), second(e.Find(b.as, "account", data.Query{})), second(e.Create(b.as, "account", nil)), second(e.CreateMany(b.as, "account", nil)),
				second(e.Update(b.as, "account", "x", nil, data.Match{})), e.Delete(b.as, "account", "x", data.Match{}), second(e.Undelete(b.as, "account", "x")), e.Purge(b.as, "account", "x"),
				second(e.UpdateWhere(b.as, "account", data.Filter{}, nil)), second(e.DeleteWhere(b.as, "account", data.Filter{})), second(e.Clone(b.as, "account", "x", nil)),
				second(e.Batch(b.as, "account", data.Batch{Operation: "create"})), second(e.Batch(b.as, "account", data.Batch{Operation: "update"})), second(e.Batch(b.as, "account", data.Batch{Operation: "delete"})), second(e.Batch(b.as, "account", data.Batch{Operation: "upsert"})),
				second(e.Transaction(b.as, []data.Step{{Object: "account", Action: "create"}})),
			}
		}
		for i, err := range calls(engine) {
			if !data.IsCode(err, data.CodePermissionDenied) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		equal(t, "asked", strings.Join(guard.asked, ", "), "get account, list account, create account, create account, update account, delete account, update account, delete account, update account, delete account, get account, create account, update account, delete account, create account, create account")
		for i, err := range calls(closed) {
			if !data.IsCode(err, data.CodePermissionDenied) {
				t.Errorf("call %d without an authorizer: %v", i, err)
			}
		}
		if _, err := closed.Find(t.Context(), "account", data.Query{}); !data.IsCode(err, data.CodeUnauthenticated) {
			t.Errorf("nobody: %v", err)
		}
		must(closed.Create(b.system, "account", data.Record{"name": "host"}))(t)
	})
}

func TestCheckMethod(t *testing.T) {
	t.Parallel()
	schema := account()
	schema.Enable.APIMethods = []string{"list", "get"}
	each(t, []object.Schema{schema}, func(t *testing.T, b *bundle) {
		if err := b.CheckMethod("account", "aggregate"); err != nil {
			t.Error(err)
		}
		refused(t, b.CheckMethod("account", "create"), `{"error":"Operation 'create' is not allowed on object 'account' through the API","code":"OBJECT_API_METHOD_NOT_ALLOWED","allowed":["get","list"],"object":"account"}`)
	})
}

// updated_at grows with every write of a record, whichever engine writes.
func TestVersionsGrowUnderConcurrency(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account()}, func(t *testing.T, b *bundle) {
		id := create(t, b, "account", data.Record{"name": "a", "annual_revenue": 0})
		other := must(data.New(t.Context(), b.db, data.Config{Events: b.log, Authorizer: allowAll{}, Now: b.clock.now}))(t)
		if err := other.Define(t.Context(), account()); err != nil {
			t.Fatal(err)
		}
		const writers, writes = 6, 10
		var wg sync.WaitGroup
		for i := range writers {
			engine := []*data.Engine{b.Engine, other}[i%2]
			wg.Go(func() {
				for range writes {
					if _, err := engine.Update(b.as, "account", id, data.Record{"annual_revenue": i}, data.Match{}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		seen := map[string]bool{}
		for _, e := range b.log.all(t) {
			if seen[e.Timestamp.String()] {
				t.Errorf("two changes at %s", e.Timestamp)
			}
			seen[e.Timestamp.String()] = true
		}
		equal(t, "events", len(seen), writers*writes+1)
	})
}
