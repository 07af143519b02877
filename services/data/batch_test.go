package data_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
)

// answer is a batch's answer without records.
func answer(t testing.TB, r *data.BatchResult, ids ...string) string {
	t.Helper()
	for i := range r.Results {
		r.Results[i].Data = nil
	}
	text := jsonOf(t, r)
	for i, id := range ids {
		text = strings.ReplaceAll(text, id, fmt.Sprintf("#%d", i))
	}
	return text
}

func TestBatchAnswersAsCaptured(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account()}, func(t *testing.T, b *bundle) {
		m1, m2 := create(t, b, "account", data.Record{"name": "M1", "code": "x"}), create(t, b, "account", data.Record{"name": "M2"})
		updates := []data.RowUpdate{{ID: m1, Data: data.Record{"annual_revenue": 11}}, {ID: "nope", Data: data.Record{"annual_revenue": 1}}, {ID: m2, Data: data.Record{"annual_revenue": 21}}}
		b.log.clear(t)
		result := must(b.UpdateMany(b.as, "account", updates, data.BatchOptions{ContinueOnError: true}))(t)
		equal(t, "record", result.Results[2].Data["annual_revenue"], any(jsonNumber("21")))
		equal(t, "go on", answer(t, result, m1, m2), `{"success":false,"operation":"update","total":3,"succeeded":2,"failed":1,"results":[{"id":"#0","success":true,"index":0},{"id":"nope","success":false,"index":1,"errors":[{"code":"RECORD_NOT_FOUND","message":"Record nope not found in account","httpStatus":404}]},{"id":"#1","success":true,"index":2}]}`)
		equal(t, "events", len(b.log.all(t)), 2)

		result = must(b.UpdateMany(b.as, "account", updates[1:], data.BatchOptions{}))(t)
		equal(t, "stop", answer(t, result, m1, m2), `{"success":false,"operation":"update","total":2,"succeeded":0,"failed":2,"results":[{"id":"nope","success":false,"index":0,"errors":[{"code":"RECORD_NOT_FOUND","message":"Record nope not found in account","httpStatus":404}]},{"id":"#1","success":false,"index":1,"errors":[{"code":"NOT_ATTEMPTED","message":"record 0 failed — Record nope not found in account; the batch stopped there. Set options.continueOnError to process the remaining records."}]}]}`)
		equal(t, "not attempted", must(b.Get(b.as, "account", m2))(t)["annual_revenue"], any(jsonNumber("21")))

		batch := func(operation string, options data.BatchOptions, items ...data.BatchItem) *data.BatchResult {
			return must(b.Batch(b.as, "account", data.Batch{Operation: operation, Records: items, Options: options}))(t)
		}
		result = batch("create", data.BatchOptions{ContinueOnError: true}, data.BatchItem{Data: data.Record{"name": "B1"}}, data.BatchItem{})
		equal(t, "create", answer(t, result, result.Results[0].ID), `{"success":false,"operation":"create","total":2,"succeeded":1,"failed":1,"results":[{"id":"#0","success":true,"index":0},{"success":false,"index":1,"errors":[{"code":"VALIDATION_FAILED","message":"Name is required","httpStatus":400}]}]}`)

		b.log.clear(t)
		result = batch("create", data.BatchOptions{Atomic: true}, data.BatchItem{Data: data.Record{"name": "B3"}}, data.BatchItem{}, data.BatchItem{Data: data.Record{"name": "B4"}})
		equal(t, "atomic", answer(t, result, result.Results[0].ID), `{"success":false,"operation":"create","total":3,"succeeded":0,"failed":3,"results":[{"id":"#0","success":false,"index":0,"errors":[{"code":"ROLLED_BACK","message":"record 1 failed — Name is required"}]},{"success":false,"index":1,"errors":[{"code":"VALIDATION_FAILED","message":"Name is required","httpStatus":400}]},{"success":false,"index":2,"errors":[{"code":"NOT_ATTEMPTED","message":"record 1 failed — Name is required; the batch stopped there and was rolled back."}]}]}`)

		// A failure that only the database sees.
		result = batch("create", data.BatchOptions{Atomic: true}, data.BatchItem{Data: data.Record{"name": "B5"}}, data.BatchItem{Data: data.Record{"name": "B6", "code": "x"}})
		equal(t, "atomic unique", answer(t, result, result.Results[0].ID), `{"success":false,"operation":"create","total":2,"succeeded":0,"failed":2,"results":[{"id":"#0","success":false,"index":0,"errors":[{"code":"ROLLED_BACK","message":"record 1 failed — A record with this value already exists"}]},{"success":false,"index":1,"errors":[{"code":"UNIQUE_VIOLATION","message":"A record with this value already exists","httpStatus":409}]}]}`)
		equal(t, "events of what rolled back", len(b.log.all(t)), 0)
		result = batch("create", data.BatchOptions{ContinueOnError: true}, data.BatchItem{Data: data.Record{"name": "B7", "code": "x"}}, data.BatchItem{Data: data.Record{"name": "B8", "code": "y"}})
		equal(t, "go on after unique", []any{result.Succeeded, result.Results[0].Errors[0].Code, result.Results[1].Data["name"]}, []any{1, "UNIQUE_VIOLATION", "B8"})
		if page := must(b.Find(b.as, "account", data.Query{Where: data.In("name", "B3", "B4", "B5", "B6", "B7", "B8")}))(t); len(page.Records) != 1 {
			t.Errorf("left: %v", page.Records)
		}

		result = batch("update", data.BatchOptions{Atomic: true, ReturnRecords: ptr(false)}, data.BatchItem{ID: m1, Data: data.Record{"annual_revenue": 1}}, data.BatchItem{ID: m1, Data: data.Record{"annual_revenue": 2}})
		if !result.Success || result.Results[1].Data != nil {
			t.Errorf("one record twice: %s", jsonOf(t, result))
		}
		equal(t, "the last wins", must(b.Get(b.as, "account", m1))(t)["annual_revenue"], any(jsonNumber("2")))

		result = must(b.DeleteMany(b.as, "account", []string{m1, "nope"}, data.BatchOptions{ContinueOnError: true}))(t)
		equal(t, "delete", answer(t, result, m1), `{"success":false,"operation":"delete","total":2,"succeeded":1,"failed":1,"results":[{"id":"#0","success":true,"index":0},{"id":"nope","success":false,"index":1,"errors":[{"code":"RECORD_NOT_FOUND","message":"Record nope not found in account","httpStatus":404}]}]}`)

		_, err := b.Batch(b.as, "account", data.Batch{Operation: "create", Records: make([]data.BatchItem, 201)})
		refused(t, err, `{"error":"A batch holds at most 200 records, got 201","code":"BATCH_TOO_LARGE","count":201,"max":200,"object":"account"}`)
		if _, err := b.Batch(b.as, "account", data.Batch{Operation: "merge"}); !data.IsCode(err, data.CodeInvalidRequest) {
			t.Errorf("unknown operation: %v", err)
		}
	})
}

func TestUpsert(t *testing.T) {
	t.Parallel()
	schema := account()
	schema.Fields[1].ExternalID = true
	each(t, []object.Schema{schema}, func(t *testing.T, b *bundle) {
		old := create(t, b, "account", data.Record{"name": "old", "code": "k1"})
		result := must(b.Batch(b.as, "account", data.Batch{Operation: "upsert", Records: []data.BatchItem{
			{ExternalID: "k1", Data: data.Record{"name": "renamed"}}, {ExternalID: "k2", Data: data.Record{"name": "new"}}, {ID: "mine", Data: data.Record{"name": "by id"}}, {ID: old, Data: data.Record{"active": false}},
		}}))(t)
		if !result.Success {
			t.Fatal(jsonOf(t, result))
		}
		equal(t, "ids", []string{result.Results[0].ID, result.Results[2].ID, result.Results[3].ID}, []string{old, "mine", old})
		record := must(b.Get(b.as, "account", old))(t)
		equal(t, "updated", []any{record["name"], record["active"]}, []any{"renamed", false})
		equal(t, "created", must(b.Find(b.as, "account", data.Query{Where: data.Eq("code", "k2")}))(t).Records[0]["name"], any("new"))
	})
}

func TestHooks(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account()}, func(t *testing.T, b *bundle) {
		refusal := data.Refuse("VALIDATION_ERROR", "account", "no such name")
		var before, within []string
		b.BeforeWrite("account", func(ctx context.Context, w *data.Write) error {
			before = append(before, fmt.Sprintf("%s id=%t before=%v", w.Operation, w.ID != "", w.Before["name"]))
			if w.Values["name"] == "bad" {
				return refusal
			}
			if w.Values["name"] != nil {
				w.Values["code"] = "set"
			}
			return nil
		})
		boom := errors.New("boom")
		fail := false
		b.WithinWrite("", func(ctx context.Context, c *data.Change) error {
			within = append(within, fmt.Sprintf("%s %v→%v matched=%d", c.Operation, c.Before["name"], c.After["name"], c.Matched))
			if _, err := b.db.Write(ctx).ExecContext(ctx, "INSERT INTO test_event (body) VALUES ('{}')"); err != nil {
				return err
			}
			if fail {
				return boom
			}
			return nil
		})
		values := data.Record{"name": "a"}
		created := must(b.Create(b.as, "account", values))(t)
		equal(t, "what the handler set", created.Record["code"], any("set"))
		equal(t, "the caller's map", values, data.Record{"name": "a"})
		must(b.Update(b.as, "account", created.ID, data.Record{"name": "b"}, data.Match{}))(t)
		if _, err := b.Create(b.as, "account", data.Record{"name": "bad"}); err != error(refusal) {
			t.Errorf("refusal: %v", err)
		}
		b.log.clear(t)
		fail = true
		if _, err := b.Update(b.as, "account", created.ID, data.Record{"active": false}, data.Match{}); !errors.Is(err, boom) {
			t.Errorf("got %v, want boom", err)
		}
		equal(t, "rolled back", must(b.Get(b.as, "account", created.ID))(t)["active"], any(true))
		equal(t, "events of what rolled back", len(b.log.all(t)), 0)
		fail = false
		must(b.UpdateWhere(b.as, "account", data.Filter{}, data.Record{"active": false}))(t)
		if err := b.Delete(b.as, "account", created.ID, data.Match{}); err != nil {
			t.Fatal(err)
		}
		equal(t, "before", before, []string{"create id=false before=<nil>", "update id=true before=a", "create id=false before=<nil>", "update id=true before=b", "update_where id=false before=<nil>", "delete id=true before=b"})
		equal(t, "within", within, []string{"create <nil>→a matched=0", "update a→b matched=0", "update b→b matched=0", "update_where <nil>→<nil> matched=1", "delete b→<nil> matched=0"})
	})
}

// A record that changes between the handlers and its lock makes the write
// start anew; when it never rests, the write gives up.
func TestWritesStartAnewWhenTheRecordMoves(t *testing.T) {
	t.Parallel()
	each(t, []object.Schema{account()}, func(t *testing.T, b *bundle) {
		id := create(t, b, "account", data.Record{"name": "a", "annual_revenue": 0})
		calls, moves := 0, 2
		b.BeforeWrite("account", func(ctx context.Context, w *data.Write) error {
			if w.Values["name"] == nil {
				return nil // the move itself
			}
			calls++
			if calls <= moves {
				_, err := b.Update(ctx, "account", id, data.Record{"annual_revenue": calls}, data.Match{})
				return err
			}
			w.Values["code"] = fmt.Sprint(w.Before["annual_revenue"])
			return nil
		})
		record := must(b.Update(b.as, "account", id, data.Record{"name": "b"}, data.Match{}))(t).Record
		equal(t, "saw the last state", []any{calls, record["code"]}, []any{3, "2"})
		calls, moves = 0, 1000
		_, err := b.Update(b.as, "account", id, data.Record{"name": "c"}, data.Match{})
		if !data.IsCode(err, data.CodeConcurrentUpdate) || calls != 5 {
			t.Errorf("after %d calls: %v", calls, err)
		}
		result := must(b.UpdateMany(b.as, "account", []data.RowUpdate{{ID: id, Data: data.Record{"name": "d"}}}, data.BatchOptions{}))(t)
		if result.Success || result.Results[0].Errors[0].Code != data.CodeConcurrentUpdate {
			t.Errorf("in a batch: %s", jsonOf(t, result))
		}
	})
}
