package data

import (
	"context"
	"fmt"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
)

// UpdateWhere changes the given fields of all records that where selects, in
// one statement, and returns how many there were. It appends one event of type
// data.records.updated with that number instead of one per record, and none
// when nothing matched; a write of the host over several organizations is one
// for each of them. Sealed fields cannot be written this way.
func (e *Engine) UpdateWhere(ctx context.Context, objectName string, where Filter, values Record) (int64, error) {
	t, err := e.open(ctx, identity.OperationUpdate, objectName)
	if err != nil {
		return 0, err
	}
	w := &Write{Object: objectName, Operation: OpUpdateWhere, Values: clone(values), Where: where}
	if err := e.runBefore(ctx, w); err != nil {
		return 0, err
	}
	p, err := t.compile(w.Where, "where", e.now())
	if err != nil {
		return 0, err
	}
	for _, c := range t.sealed {
		if _, given := w.Values[c.Name]; given {
			return 0, Invalid(objectName, *fail(c, "invalid_value", "can only be written one record at a time"))
		}
	}
	d, err := e.validator(ctx, t).update(w.Values)
	if err != nil {
		return 0, err
	}
	var matched int64
	err = e.db.InTx(ctx, func(ctx context.Context) error {
		matched, err = e.eachOrganization(ctx, t, p, func(ctx context.Context) (int64, error) {
			return e.updateWhere(ctx, t, t.scope(ctx, p, false), d)
		})
		return err
	})
	return matched, unrow(err)
}

// updateWhere runs the one statement. Versions grow per record also here: a
// record whose version is ahead of the clock goes one further, which SQL has to
// work out because no record is read.
func (e *Engine) updateWhere(ctx context.Context, t *table, p predicate, d *draft) (int64, error) {
	now := e.now()
	changes := clone(d.values)
	probe := &row{prepared: &prepared{}, changes: changes}
	if err := e.checkReferences(ctx, t, []Record{changes}, []*row{probe}); err != nil {
		return 0, err
	}
	if t.byName["updated_by"] != nil {
		changes["updated_by"] = userOf(ctx)
	}
	b := e.builder()
	b.text("UPDATE ", quote(t.name()), " SET ")
	for i, name := range sortedKeys(changes) {
		if i > 0 {
			b.text(", ")
		}
		b.text(quote(name), " = ")
		if err := b.stored(t.byName[name], changes[name]); err != nil {
			return 0, err
		}
	}
	if t.byName["updated_at"] != nil {
		if len(changes) > 0 {
			b.text(", ")
		}
		b.text("updated_at = CASE WHEN updated_at >= ")
		b.arg(kindInstant, now.UnixMilli())
		b.text(" THEN updated_at + 1 ELSE ")
		b.arg(kindInstant, now.UnixMilli())
		b.text(" END")
	}
	b.text(" WHERE ")
	b.where(p)
	result, err := e.db.Write(ctx).ExecContext(ctx, b.String(), b.args...)
	if err != nil {
		return 0, e.writeError(t, err)
	}
	matched, err := result.RowsAffected()
	if err != nil || matched == 0 {
		return 0, err
	}
	change := &Change{Object: t.name(), Operation: OpUpdateWhere, Matched: matched, Changes: changes}
	return matched, e.announce(ctx, t, now, []*Change{change})
}

// DeleteWhere deletes all records that where selects, as [Engine.Delete] does
// with one, and returns how many there were. It appends one event of type
// data.records.deleted with that number, none when nothing matched; records
// that a cascade reaches have events of their own.
func (e *Engine) DeleteWhere(ctx context.Context, objectName string, where Filter) (int64, error) {
	t, err := e.open(ctx, identity.OperationDelete, objectName)
	if err != nil {
		return 0, err
	}
	w := &Write{Object: objectName, Operation: OpDeleteWhere, Where: where}
	if err := e.runBefore(ctx, w); err != nil {
		return 0, err
	}
	p, err := t.compile(w.Where, "where", e.now())
	if err != nil {
		return 0, err
	}
	var matched int64
	err = e.db.InTx(ctx, func(ctx context.Context) error {
		matched, err = e.eachOrganization(ctx, t, p, func(ctx context.Context) (int64, error) {
			return e.deleteWhere(ctx, t, t.scope(ctx, p, false))
		})
		return err
	})
	return matched, unrow(err)
}

// deleteWhere is one statement as well where nothing hangs on the records.
// Else they are read and locked first, so that references are followed.
func (e *Engine) deleteWhere(ctx context.Context, t *table, p predicate) (int64, error) {
	now := e.now()
	var matched int64
	if e.plain(t) {
		b := e.builder()
		b.text("DELETE FROM ", quote(t.name()), " WHERE ")
		b.where(p)
		result, err := e.db.Write(ctx).ExecContext(ctx, b.String(), b.args...)
		if err != nil {
			return 0, fmt.Errorf("delete from %s: %w", t.name(), err)
		}
		if matched, err = result.RowsAffected(); err != nil {
			return 0, err
		}
	} else {
		records, err := e.load(ctx, t, p, true)
		if err != nil {
			return 0, err
		}
		matched = int64(len(records))
		if err := e.deleteLoaded(ctx, t, records); err != nil {
			return 0, err
		}
	}
	if matched == 0 {
		return 0, nil
	}
	change := &Change{Object: t.name(), Operation: OpDeleteWhere, Matched: matched}
	return matched, e.announce(ctx, t, now, []*Change{change})
}

// plain reports whether rows can go without anybody looking at them: nothing
// points at them or hangs on them.
func (e *Engine) plain(t *table) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return !t.trash && len(t.sealed) == 0 && len(e.parents[t.name()]) == 0
}

// deleteLoaded deletes locked records without events of their own.
func (e *Engine) deleteLoaded(ctx context.Context, t *table, records []Record) error {
	if len(records) == 0 {
		return nil
	}
	rows := make([]*row, len(records))
	ids := make([]string, len(records))
	gone := deleting{}
	for i, record := range records {
		ids[i] = record["id"].(string)
		gone.add(t.name(), ids[i])
		rows[i] = &row{prepared: &prepared{op: OpDelete, id: ids[i]}, index: i, before: record}
	}
	if err := e.followReferences(ctx, t, ids, t.trash, gone); err != nil {
		return err
	}
	if t.trash {
		return e.trashRows(ctx, t, rows, e.now())
	}
	return e.removeRows(ctx, t, rows)
}

// Clone writes a new record with the values of another one, other than its
// readonly, unique, sealed and system fields, and the overrides on top. The
// object must not have cloning switched off.
func (e *Engine) Clone(ctx context.Context, objectName, id string, overrides Record) (Result, error) {
	t, err := e.open(ctx, identity.OperationRead, objectName)
	if err != nil {
		return Result{}, err
	}
	if off := t.schema.Enable.Clone; off != nil && !*off {
		return Result{}, &Error{Code: CodeMethodNotAllowed, Object: objectName, Allowed: t.schema.APIMethods(), Message: fmt.Sprintf("Object '%s' does not allow cloning", objectName)}
	}
	source, err := e.one(ctx, t, id)
	if err != nil {
		return Result{}, err
	}
	values := Record{}
	for i := range t.columns {
		c := &t.columns[i]
		if c.System || c.Readonly || c.Internal || t.byName[c.Name].restricted || c.kind == kindSealed || c.Unique != object.NotUnique || isAutonumber(c) {
			continue
		}
		values[c.Name] = source[c.Name]
	}
	for name, value := range overrides {
		values[name] = value
	}
	return e.Create(ctx, objectName, values)
}
