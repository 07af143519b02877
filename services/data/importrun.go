package data

import (
	"context"
	"errors"
	"fmt"
	"maps"
)

// importRun is one batch under way. Rows wait until they are written together;
// those whose key a waiting row has too are written after it.
type importRun struct {
	*Import
	out     []ImportRow
	waiting []pendingRow
	keys    map[string]bool
}

type pendingRow struct {
	index  int
	values Record
	key    []any // operands of the match fields
}

// add puts a row among the waiting ones, or notes why it fails.
func (r *importRun) add(ctx context.Context, n int, row Record) error {
	values, failed := r.mapped(row)
	if failed == nil && r.req.Mode != ImportInsert {
		var key []any
		if key, failed = r.key(values); failed == nil {
			name := keyText(key)
			if r.keys[name] {
				if err := r.flush(ctx); err != nil {
					return err
				}
			}
			if r.keys == nil {
				r.keys = map[string]bool{}
			}
			r.keys[name] = true
			r.waiting = append(r.waiting, pendingRow{n, values, key})
			return nil
		}
		if failed.Code == codeBlankKey && r.req.SkipBlankMatchKey {
			r.out[n].Action = ActionSkipped
			return nil
		}
	}
	if failed != nil {
		r.fail(n, failed.Field, failed.Code, failed.Message)
		return nil
	}
	r.waiting = append(r.waiting, pendingRow{index: n, values: values})
	return nil
}

func (r *importRun) fail(n int, field, code, message string) {
	row := &r.out[n]
	row.Action, row.Field, row.Code, row.Error = ActionFailed, field, code, message
}

// flush writes the waiting rows.
func (r *importRun) flush(ctx context.Context) error {
	waiting := r.waiting
	r.waiting, r.keys = nil, nil
	var creates, updates []pendingRow
	if r.req.Mode == ImportInsert {
		creates = waiting
	} else {
		found, err := r.find(ctx, waiting)
		if err != nil {
			return err
		}
		for n, p := range waiting {
			switch matches := found[n]; {
			case len(matches) > 1:
				r.fail(p.index, r.req.MatchFields[0], codeAmbiguous, fmt.Sprintf("%d records have the values of the match fields", len(matches)))
			case len(matches) == 1:
				r.out[p.index].ID, _ = matches[0]["id"].(string)
				r.out[p.index].before = r.table.replacedBy(matches[0], p.values)
				updates = append(updates, p)
			case r.req.Mode == ImportUpsert:
				creates = append(creates, p)
			default:
				r.out[p.index].Action = ActionSkipped
			}
		}
	}
	return errors.Join(r.write(ctx, "create", ActionCreated, creates), r.write(ctx, "update", ActionUpdated, updates))
}

// replacedBy is what an update of a record takes away. Secrets are gone with it.
func (t *table) replacedBy(record, values Record) Record {
	before := Record{}
	for name := range values {
		c := t.byName[name]
		if old, ok := record[name]; ok && name != "id" && c != nil && c.kind != kindSealed && !c.Readonly {
			before[name] = old
		}
	}
	return before
}

// find looks for the records of all keys at once.
func (r *importRun) find(ctx context.Context, waiting []pendingRow) ([][]Record, error) {
	found := make([][]Record, len(waiting))
	if len(waiting) == 0 {
		return found, nil
	}
	any := &group{or: true}
	byKey := map[string]int{}
	for n, p := range waiting {
		all := &group{}
		for k, name := range r.req.MatchFields {
			all.parts = append(all.parts, &leaf{column: r.table.byName[name], test: testEq, value: p.key[k]})
		}
		any.parts = append(any.parts, simplify(all))
		byKey[keyText(p.key)] = n
	}
	records, err := r.engine.load(ctx, r.table, r.table.scope(ctx, simplify(any), false), false)
	if err != nil {
		return nil, err
	}
	for _, record := range records {
		key, failed := r.key(record)
		if failed != nil {
			continue
		}
		if n, ok := byKey[keyText(key)]; ok {
			found[n] = append(found[n], record)
		}
	}
	return found, nil
}

// write hands rows to a batch that goes on after failures.
func (r *importRun) write(ctx context.Context, operation, action string, rows []pendingRow) error {
	if len(rows) == 0 {
		return nil
	}
	no := false
	batch := Batch{Operation: operation, Options: BatchOptions{ContinueOnError: true, ReturnRecords: &no}}
	for _, p := range rows {
		item := BatchItem{Data: p.values}
		if operation == "update" {
			item.ID, item.Data = r.out[p.index].ID, maps.Clone(p.values)
			delete(item.Data, "id")
		}
		batch.Records = append(batch.Records, item)
	}
	result, err := r.engine.Batch(ctx, r.table.name(), batch)
	if err != nil {
		return err
	}
	for n, row := range result.Results {
		p := rows[n]
		if row.Success {
			r.out[p.index].Action, r.out[p.index].ID = action, row.ID
			continue
		}
		r.fail(p.index, row.Errors[0].field, row.Errors[0].Code, row.Errors[0].Message)
	}
	return nil
}

// keyText makes a map's key of the operands of match fields.
func keyText(key []any) string {
	text, _ := encodeJSON(key) // operands are texts, numbers and booleans
	return string(text)
}
