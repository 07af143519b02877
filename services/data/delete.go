package data

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
)

// Delete removes a record; an object with a trash keeps it there. What points
// at the record is set to null, deleted with it, or keeps it from being
// deleted, as the pointing field says; records in the trash keep what points
// at them until [Engine.Purge]. References from External tables are their
// owners' affair. Errors are *[Error] with CodeRecordNotFound,
// CodeConcurrentUpdate or CodeDeleteRestricted.
func (e *Engine) Delete(ctx context.Context, objectName, id string, match Match) error {
	t, err := e.open(ctx, identity.OperationDelete, objectName)
	if err != nil {
		return err
	}
	_, err = e.settle(ctx, t, id, func(ctx context.Context) (*prepared, error) {
		return e.prepareDelete(ctx, t, id, match)
	})
	return err
}

// prepareDelete runs the handlers on the stored record.
func (e *Engine) prepareDelete(ctx context.Context, t *table, id string, match Match) (*prepared, error) {
	p := &prepared{op: OpDelete, id: id, ifMatch: match.IfMatch}
	if !e.hasBefore(t.name()) {
		return p, nil
	}
	w := &Write{Object: t.name(), Operation: OpDelete, ID: id}
	return p, e.runBeforeStored(ctx, t, w, p)
}

// Purge removes a record from the trash for good. It raises no event: the
// record's deletion already did.
func (e *Engine) Purge(ctx context.Context, objectName, id string) error {
	t, err := e.openTrash(ctx, objectName, identity.OperationDelete)
	if err != nil {
		return err
	}
	if err := e.runBefore(ctx, &Write{Object: objectName, Operation: OpPurge, ID: id}); err != nil {
		return err
	}
	_, err = e.settle(ctx, t, id, func(context.Context) (*prepared, error) {
		return &prepared{op: OpPurge, id: id}, nil
	})
	return err
}

// deleting holds, by object, the ids of a delete and its cascades, so that
// records that point at each other come to an end.
type deleting map[string]map[string]bool

// add reports whether the record was not yet among those to be deleted.
func (d deleting) add(object, id string) bool {
	if d[object][id] {
		return false
	}
	if d[object] == nil {
		d[object] = map[string]bool{}
	}
	d[object][id] = true
	return true
}

// deleteRows deletes locked records and follows what points at them.
func (e *Engine) deleteRows(ctx context.Context, t *table, rows []*row, gone deleting) error {
	now := e.now()
	ids := make([]string, 0, len(rows))
	for _, r := range rows {
		if gone.add(t.name(), r.id) {
			ids = append(ids, r.id)
		}
	}
	toTrash := t.trash && rows[0].op == OpDelete
	if err := e.followReferences(ctx, t, ids, toTrash, gone); err != nil {
		return err
	}
	var err error
	if toTrash {
		err = e.trashRows(ctx, t, rows, now)
	} else {
		err = e.removeRows(ctx, t, rows)
	}
	if err != nil || rows[0].op == OpPurge {
		return firstError(err, e.runWithin(ctx, changesOf(t, rows)...))
	}
	return e.announce(ctx, t, now, changesOf(t, rows))
}

// changesOf are the changes that deletes tell of: the records as they were.
func changesOf(t *table, rows []*row) []*Change {
	changes := make([]*Change, len(rows))
	for i, r := range rows {
		changes[i] = &Change{Object: t.name(), Operation: r.op, ID: r.id, Before: r.before}
	}
	return changes
}

// trashRows marks records as deleted. The version grows, so that a later
// undelete never repeats one.
func (e *Engine) trashRows(ctx context.Context, t *table, rows []*row, now time.Time) error {
	for _, r := range rows {
		r.changes = Record{"deleted_at": event.FormatTime(now), "deleted_by": userOf(ctx)}
		r.changes["updated_at"] = apiInstant(t.byName["updated_at"], after(r.before, now))
		r.changes["updated_by"] = userOf(ctx)
	}
	return e.writeRows(ctx, t, rows)
}

// removeRows deletes the rows and the secrets that they hold.
func (e *Engine) removeRows(ctx context.Context, t *table, rows []*row) error {
	var refs []string
	for chunk := range slices.Chunk(rows, 5000) {
		b := e.builder()
		b.text("DELETE FROM ", quote(t.name()), " WHERE id IN (")
		for i, r := range chunk {
			if i > 0 {
				b.text(", ")
			}
			b.arg(kindText, r.id)
			refs = append(refs, t.refsOf(r.before)...)
		}
		b.text(")")
		if _, err := e.db.Write(ctx).ExecContext(ctx, b.String(), b.args...); err != nil {
			return fmt.Errorf("delete from %s: %w", t.name(), err)
		}
	}
	return e.dropSecrets(ctx, refs)
}

// followReferences applies the delete behaviour of every field that points at
// the records. A record that goes to the trash only asks whether it may.
func (e *Engine) followReferences(ctx context.Context, t *table, ids []string, toTrash bool, gone deleting) error {
	e.mu.RLock()
	refs := e.parents[t.name()]
	e.mu.RUnlock()
	// What one principal may not see still points at the record.
	system := identity.With(ctx, identity.Principal{System: true, Everywhere: true, UserID: identity.From(ctx).UserID})
	for chunk := range slices.Chunk(ids, 1000) {
		for _, ref := range refs {
			behavior := ref.column.OnDelete()
			if toTrash && behavior != object.Restrict {
				continue
			}
			if err := e.follow(system, t, ref, behavior, chunk, gone); err != nil {
				return err
			}
		}
	}
	return nil
}

// follow handles the records that point at any of ids by one field. They are
// locked before anything is decided; writers of new references hold a share of
// the target's lock, so none can slip in between.
func (e *Engine) follow(ctx context.Context, t *table, ref reference, behavior string, ids []string, gone deleting) error {
	values := make([]any, len(ids))
	for i, id := range ids {
		values[i] = id
	}
	points := &leaf{column: ref.column, test: testIn, values: values}
	if ref.column.kind == kindList {
		points.test = testHas
	}
	children, err := e.load(ctx, ref.table, ref.table.scope(ctx, points, false), true)
	if err != nil {
		return err
	}
	var rows []*row
	for i, child := range children {
		id := child["id"].(string)
		if gone[ref.table.name()][id] {
			continue
		}
		rows = append(rows, &row{prepared: &prepared{op: OpUpdate, id: id}, index: i, before: child})
	}
	if len(rows) > 0 {
		if err := e.followRows(ctx, t, ref, behavior, rows, ids, gone); err != nil {
			return err
		}
	}
	if !ref.table.trash || behavior == object.Restrict {
		return nil
	}
	return e.forget(ctx, ref, points)
}

// followRows applies the behaviour to the locked records, with an event for
// each of them.
func (e *Engine) followRows(ctx context.Context, t *table, ref reference, behavior string, rows []*row, ids []string, gone deleting) error {
	switch behavior {
	case object.Restrict:
		return &Error{
			Code: CodeDeleteRestricted, Object: t.name(),
			Message: fmt.Sprintf("The record cannot be deleted: %d record(s) of '%s' refer to it by '%s'", len(rows), ref.table.name(), ref.column.Name),
		}
	case object.Cascade:
		for _, r := range rows {
			r.op = OpDelete
		}
		return unrow(e.deleteRows(ctx, ref.table, rows, gone))
	}
	for _, r := range rows {
		r.draft = &draft{values: Record{ref.column.Name: without(r.before[ref.column.Name], ids)}}
	}
	return unrow(e.updateRows(ctx, ref.table, rows))
}

// without is a reference's value after the records ids are gone.
func without(value any, ids []string) any {
	list, ok := value.([]any)
	if !ok {
		return nil
	}
	left := slices.DeleteFunc(slices.Clone(list), func(item any) bool {
		id, _ := item.(string)
		return slices.Contains(ids, id)
	})
	if len(left) == 0 {
		return nil
	}
	return left
}

// forget clears references of records in the trash to records that are gone
// for good. Lists keep the ids: an undelete does not look at them.
func (e *Engine) forget(ctx context.Context, ref reference, points *leaf) error {
	if ref.column.kind == kindList {
		return nil
	}
	b := e.builder()
	b.text("UPDATE ", quote(ref.table.name()), " SET ", quote(ref.column.Name), " = NULL WHERE ")
	b.where(ref.table.scope(ctx, points, true))
	if _, err := e.db.Write(ctx).ExecContext(ctx, b.String(), b.args...); err != nil {
		return fmt.Errorf("clear references of %s: %w", ref.table.name(), err)
	}
	return nil
}
