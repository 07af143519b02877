package data

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
)

// Match is the condition of an update or delete.
type Match struct {
	// IfMatch, unless empty, must be the record's updated_at; quotes of an
	// HTTP entity tag around it do not matter.
	IfMatch string
}

// maxMoves bounds how often a write starts anew because its record changed
// under the handlers.
const maxMoves = 5

// Update changes the given fields of a record and returns it as a whole.
// updated_at always grows. Errors are those of [Engine.Create], and *[Error]
// with CodeRecordNotFound or CodeConcurrentUpdate.
func (e *Engine) Update(ctx context.Context, object, id string, values Record, match Match) (Result, error) {
	t, err := e.open(ctx, identity.OperationUpdate, object)
	if err != nil {
		return Result{}, err
	}
	var p *prepared
	outcomes, err := e.settle(ctx, t, id, func(ctx context.Context) (*prepared, error) {
		p, err = e.prepareUpdate(ctx, t, id, values, match)
		return p, err
	})
	if err != nil {
		return Result{}, err
	}
	return Result{ID: id, Record: t.present(outcomes.record, true), Dropped: p.draft.report(object)}, nil
}

// settle prepares and applies one write, anew when its record moved meanwhile.
func (e *Engine) settle(ctx context.Context, t *table, id string, prepare func(context.Context) (*prepared, error)) (outcome, error) {
	for range maxMoves {
		p, err := prepare(ctx)
		if err != nil {
			return outcome{}, err
		}
		var out []outcome
		err = e.db.InTx(ctx, func(ctx context.Context) error {
			out, err = e.applySet(ctx, t, []*prepared{p})
			if err == nil {
				err = out[0].err
			}
			return err
		})
		if err == nil {
			return out[0], nil
		}
		if !errors.Is(err, errMoved) {
			return outcome{}, unrow(err)
		}
	}
	record, err := e.one(ctx, t, id)
	if err != nil {
		return outcome{}, err
	}
	current, _ := version(record)
	at := event.FormatTime(time.UnixMilli(current))
	return outcome{}, errStale(t.name(), id, at, "an earlier one", t.present(record, false))
}

// one reads a whole record that the principal may see.
func (e *Engine) one(ctx context.Context, t *table, id string) (Record, error) {
	records, err := e.load(ctx, t, t.scope(ctx, t.byID(id), false), false)
	if err != nil {
		return nil, err
	}
	if len(records) == 0 {
		return nil, errRecord(t.name(), id)
	}
	return records[0], nil
}

// prepareUpdate runs the handlers on the stored record and validates.
func (e *Engine) prepareUpdate(ctx context.Context, t *table, id string, values Record, match Match) (*prepared, error) {
	p := &prepared{op: OpUpdate, id: id, ifMatch: match.IfMatch}
	values = clone(values)
	if own, ok := values["id"].(string); ok && own == id {
		delete(values, "id")
	}
	if e.hasBefore(t.name()) {
		w := &Write{Object: t.name(), Operation: OpUpdate, ID: id, Values: values}
		if err := e.runBeforeStored(ctx, t, w, p); err != nil {
			return nil, err
		}
		values = w.Values
	}
	var err error
	p.draft, err = e.validator(ctx, t).update(values)
	return p, err
}

// runBeforeStored shows the stored record to the handlers and remembers its
// version.
func (e *Engine) runBeforeStored(ctx context.Context, t *table, w *Write, p *prepared) error {
	record, err := e.one(ctx, t, w.ID)
	if err != nil {
		return err
	}
	p.seen = versionText(record)
	w.Before = record
	return e.runBefore(ctx, w)
}

// versionText is a record's version as text; records without updated_at have
// none.
func versionText(record Record) string {
	ms, ok := version(record)
	if !ok {
		return "none"
	}
	return event.FormatTime(time.UnixMilli(ms))
}

// outcome is what became of one row of a set.
type outcome struct {
	record Record
	err    error
}

// applySet applies a set of prepared updates, or of deletes or undeletes, in
// the transaction of ctx. Rows that are not there or moved get an error of
// their own and leave the others untouched; any other error means that the
// transaction has to be rolled back.
func (e *Engine) applySet(ctx context.Context, t *table, set []*prepared) ([]outcome, error) {
	out := make([]outcome, len(set))
	ids := make([]string, len(set))
	for i, p := range set {
		ids[i] = p.id
	}
	fromTrash := set[0].op == OpUndelete || set[0].op == OpPurge
	records, err := e.load(ctx, t, t.scope(ctx, t.byID(ids...), fromTrash), true)
	if err != nil {
		return nil, err
	}
	found := make(map[string]Record, len(records))
	for _, record := range records {
		found[record["id"].(string)] = record
	}
	var rows []*row
	for i, p := range set {
		record := found[p.id]
		if out[i].err = t.admit(record, p); out[i].err == nil {
			rows = append(rows, &row{prepared: p, before: record, index: i})
		}
	}
	if len(rows) == 0 {
		return out, nil
	}
	switch set[0].op {
	case OpDelete, OpPurge:
		err = e.deleteRows(ctx, t, rows, deleting{})
	default:
		err = e.updateRows(ctx, t, rows)
	}
	for _, r := range rows {
		out[r.index].record = r.after
	}
	return out, err
}

// row is a locked record and what is to become of it.
type row struct {
	*prepared
	index         int
	before, after Record
	changes       Record
}

// admit checks a locked record against the conditions of its write.
func (t *table) admit(record Record, p *prepared) error {
	if record == nil {
		return errRecord(t.name(), p.id)
	}
	current := versionText(record)
	if p.ifMatch != "" {
		expected := strings.Trim(strings.TrimPrefix(p.ifMatch, "W/"), `"`)
		ms, ok := instant(expected, epoch)
		if now, _ := version(record); !ok || ms != now {
			return errStale(t.name(), p.id, current, expected, t.present(record, false))
		}
	}
	if p.seen != "" && p.seen != current {
		return errMoved
	}
	return nil
}

// updateRows writes locked records with their secrets and events.
func (e *Engine) updateRows(ctx context.Context, t *table, rows []*row) error {
	now := e.now()
	var secrets []secretRow
	var replaced []string
	afters := make([]Record, len(rows))
	for i, r := range rows {
		if err := t.change(ctx, r, now); err != nil {
			return &rowError{r.index, err}
		}
		sealed, err := e.seal(t.name(), r.id, r.draft.secrets, r.changes)
		if err != nil {
			return &rowError{r.index, err}
		}
		secrets = append(secrets, sealed...)
		r.after = clone(r.before)
		for name, value := range r.changes {
			r.after[name] = value
		}
		for _, ref := range t.refsOf(r.before) {
			if !slices.Contains(t.refsOf(r.after), ref) {
				replaced = append(replaced, ref)
			}
		}
		afters[i] = r.after
	}
	if err := e.checkReferences(ctx, t, afters, rows); err != nil {
		return err
	}
	if err := e.insertSecrets(ctx, t.name(), secrets, now); err != nil {
		return err
	}
	if err := e.writeRows(ctx, t, rows); err != nil {
		return err
	}
	if err := e.dropSecrets(ctx, replaced); err != nil {
		return err
	}
	changes := make([]*Change, len(rows))
	for i, r := range rows {
		changes[i] = &Change{Object: t.name(), Operation: r.op, ID: r.id, Before: r.before, After: r.after, Changes: r.changes}
		if r.op == OpUndelete {
			changes[i].Changes = nil
		}
	}
	return e.announce(ctx, t, now, changes)
}

// change works out the columns that an update writes.
func (t *table) change(ctx context.Context, r *row, now time.Time) error {
	r.changes = Record{}
	if r.draft == nil {
		r.draft = &draft{}
	}
	for name, value := range r.draft.values {
		r.changes[name] = value
	}
	for name, w := range r.draft.secrets {
		if w.keep != "" && r.before[name] != w.keep {
			return Invalid(t.name(), *fail(t.byName[name], "invalid_value", "cannot take over a stored secret"))
		}
	}
	if r.op == OpUndelete {
		r.changes["deleted_at"], r.changes["deleted_by"] = nil, nil
	}
	if c := t.byName["updated_at"]; c != nil {
		r.changes["updated_at"] = apiInstant(c, after(r.before, now))
	}
	if t.byName["updated_by"] != nil {
		r.changes["updated_by"] = userOf(ctx)
	}
	return nil
}

// after is the next version of a record: now, but later than the last one,
// also when the clock stands still or another host's runs ahead.
func after(record Record, now time.Time) int64 {
	last, _ := version(record)
	return max(now.UnixMilli(), last+1)
}

// writeRows updates locked rows, those that change the same columns in one
// statement.
func (e *Engine) writeRows(ctx context.Context, t *table, rows []*row) error {
	groups := map[string][]*row{}
	var order []string
	for _, r := range rows {
		key := strings.Join(sortedKeys(r.changes), ",")
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], r)
	}
	for _, key := range order {
		names := sortedKeys(groups[key][0].changes)
		if len(names) == 0 {
			continue
		}
		columns := make([]*column, len(names))
		for i, name := range names {
			columns[i] = t.byName[name]
		}
		for chunk := range slices.Chunk(groups[key], max(1, maxParameters/(len(names)+1))) {
			if err := e.writeSame(ctx, t, chunk, columns); err != nil {
				return e.writeError(t, err)
			}
		}
	}
	return nil
}

// writeSame updates rows that change the same columns: one row by its id,
// several from a list of values.
func (e *Engine) writeSame(ctx context.Context, t *table, rows []*row, columns []*column) error {
	b := e.builder()
	b.text("UPDATE ", quote(t.name()), " SET ")
	if len(rows) == 1 {
		for i, c := range columns {
			if i > 0 {
				b.text(", ")
			}
			b.text(quote(c.Name), " = ")
			if err := b.stored(c, rows[0].changes[c.Name]); err != nil {
				return err
			}
		}
		b.text(" WHERE id = ")
		b.arg(kindText, rows[0].id)
	} else {
		for i, c := range columns {
			if i > 0 {
				b.text(", ")
			}
			b.text(quote(c.Name), " = v.column", itoa(i+2))
		}
		b.text(" FROM (VALUES ")
		for i, r := range rows {
			if i > 0 {
				b.text(", ")
			}
			b.text("(")
			b.arg(kindText, r.id)
			for _, c := range columns {
				b.text(", ")
				if err := b.stored(c, r.changes[c.Name]); err != nil {
					return err
				}
			}
			b.text(")")
		}
		b.text(") AS v WHERE ", quote(t.name()), ".id = v.column1")
	}
	_, err := e.db.Write(ctx).ExecContext(ctx, b.String(), b.args...)
	return err
}

// Undelete takes a record out of the trash. Errors are those of
// [Engine.Update], and CodeInvalidRequest for an object without a trash.
func (e *Engine) Undelete(ctx context.Context, objectName, id string) (Result, error) {
	t, err := e.openTrash(ctx, objectName, identity.OperationUpdate)
	if err != nil {
		return Result{}, err
	}
	w := &Write{Object: objectName, Operation: OpUndelete, ID: id}
	if err := e.runBefore(ctx, w); err != nil {
		return Result{}, err
	}
	out, err := e.settle(ctx, t, id, func(context.Context) (*prepared, error) {
		return &prepared{op: OpUndelete, id: id}, nil
	})
	if err != nil {
		return Result{}, err
	}
	return Result{ID: id, Record: t.present(out.record, true)}, nil
}

// openTrash is open for operations that need a trash.
func (e *Engine) openTrash(ctx context.Context, objectName string, op identity.Operation) (*table, error) {
	t, err := e.open(ctx, op, objectName)
	if err != nil {
		return nil, err
	}
	if !t.trash {
		return nil, &Error{Code: CodeInvalidRequest, Object: objectName, Message: "Object '" + objectName + "' keeps no trash"}
	}
	return t, nil
}

// isAutonumber reports whether the engine counts the field up.
func isAutonumber(c *column) bool { return c.Type == object.Autonumber }
