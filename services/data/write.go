package data

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/storage"
)

// Result is what a write of one record answers.
type Result struct {
	ID string
	// Record is the whole record as stored, secrets as their references.
	Record Record
	// Dropped tells which values were not written because they are readonly.
	Dropped []Dropped
}

// prepared is a write of one record that passed the handlers and validation.
type prepared struct {
	op      Operation
	id      string
	draft   *draft
	ifMatch string
	// seen is the version that the handlers saw, "" when there were none.
	seen string
}

// errMoved tells that a record changed between the handlers and its lock.
var errMoved = errors.New("data: the record changed meanwhile")

// rowError tells which row of a set is to blame.
type rowError struct {
	index int
	err   error
}

// Error and Unwrap hand through: callers look at the row's own error.
func (e *rowError) Error() string { return e.err.Error() }
func (e *rowError) Unwrap() error { return e.err }

// unrow strips a rowError: callers that wrote one row know which it was.
func unrow(err error) error {
	var row *rowError
	if errors.As(err, &row) {
		return row.err
	}
	return err
}

// maxParameters keeps statements below SQLite's 32,766 parameters.
const maxParameters = 30_000

// prepareCreate runs the handlers and validates a new record.
func (e *Engine) prepareCreate(ctx context.Context, t *table, values Record) (*prepared, error) {
	w := &Write{Object: t.name(), Operation: OpCreate, Values: clone(values)}
	var dropped []string
	if w.Values["id"] != nil {
		may, err := e.mayChooseID(ctx)
		if err != nil {
			return nil, err
		}
		if !may {
			delete(w.Values, "id")
			dropped = []string{"id"}
		}
	}
	w.ID, _ = w.Values["id"].(string)
	if err := e.runBefore(ctx, w); err != nil {
		return nil, err
	}
	d, err := e.validator(ctx, t).create(w.Values)
	if err != nil {
		return nil, err
	}
	d.dropped = append(dropped, d.dropped...)
	id, _ := d.values["id"].(string)
	if id == "" {
		id = newID()
	}
	return &prepared{op: OpCreate, id: id, draft: d}, nil
}

// clone copies a record, with room for what the engine adds. Values are shared:
// nobody changes them in place.
func clone(values Record) Record {
	out := make(Record, len(values)+2)
	maps.Copy(out, values)
	return out
}

// validator checks a write in the name of the context's principal.
func (e *Engine) validator(ctx context.Context, t *table) *validator {
	who := identity.From(ctx)
	return &validator{table: t, now: e.now(), privileged: who.System, everywhere: who.Everywhere, keyring: e.keyring != nil}
}

// userOf is the value of created_by and updated_by.
func userOf(ctx context.Context) any {
	if id := identity.From(ctx).UserID; id != "" {
		return id
	}
	return nil
}

// stamp fills the columns of a new record that the engine writes. A system
// principal's own values for the creation stay.
func (t *table) stamp(ctx context.Context, values Record, now time.Time) {
	p := identity.From(ctx)
	at := event.FormatTime(now)
	set := func(name string, value any, force bool) {
		if c := t.byName[name]; c != nil && (force || values[name] == nil) {
			if c.kind == kindInstant {
				value = apiInstant(c, now.UnixMilli())
			}
			values[name] = value
		}
	}
	set("created_at", at, false)
	set("updated_at", at, true)
	set("created_by", userOf(ctx), false)
	set("updated_by", userOf(ctx), true)
	set("owner_id", userOf(ctx), false)
	set("organization_id", organizationOf(p), !p.Everywhere || p.OrganizationID != "")
}

// insert writes a set of new records in the transaction of ctx, with their
// secrets and events.
func (e *Engine) insert(ctx context.Context, t *table, set []*prepared) ([]Record, error) {
	now := e.now()
	records := make([]Record, len(set))
	var secrets []secretRow
	for i, p := range set {
		records[i] = clone(p.draft.values)
		records[i]["id"] = p.id
		t.stamp(ctx, records[i], now)
		sealed, err := e.seal(t.name(), p.id, p.draft.secrets, records[i])
		if err != nil {
			return nil, &rowError{i, err}
		}
		secrets = append(secrets, sealed...)
	}
	if err := e.checkReferences(ctx, t, records, nil); err != nil {
		return nil, err
	}
	if err := e.number(ctx, t, records); err != nil {
		return nil, err
	}
	if err := e.insertSecrets(ctx, t.name(), secrets, now); err != nil {
		return nil, err
	}
	for chunk := range slices.Chunk(records, max(1, maxParameters/len(t.columns))) {
		if err := e.insertRows(ctx, t, chunk); err != nil {
			return nil, e.writeError(t, err)
		}
	}
	changes := make([]*Change, len(set))
	for i, record := range records {
		changes[i] = &Change{Object: t.name(), Operation: OpCreate, ID: set[i].id, After: record}
	}
	return records, e.announce(ctx, t, now, changes)
}

// insertRows writes rows in one statement.
func (e *Engine) insertRows(ctx context.Context, t *table, records []Record) error {
	b := e.builder()
	b.text("INSERT INTO ", quote(t.name()), " (", strings.Join(t.names, ", "), ") VALUES ")
	for i, record := range records {
		if i > 0 {
			b.text(", ")
		}
		b.text("(")
		for j := range t.columns {
			if j > 0 {
				b.text(", ")
			}
			c := &t.columns[j]
			if err := b.stored(c, record[c.Name]); err != nil {
				return err
			}
		}
		b.text(")")
	}
	_, err := e.db.Write(ctx).ExecContext(ctx, b.String(), b.args...)
	return err
}

// announce runs the handlers of WithinWrite and appends one event per change.
func (e *Engine) announce(ctx context.Context, t *table, now time.Time, changes []*Change) error {
	if len(changes) == 0 {
		return nil
	}
	if err := e.runWithin(ctx, changes...); err != nil {
		return err
	}
	if err := e.audit(ctx, t, changes); err != nil {
		return err
	}
	events := make([]*event.Event, 0, len(changes))
	for _, change := range changes {
		ev, err := e.event(ctx, t, now, change)
		if err != nil {
			return err
		}
		events = append(events, ev)
	}
	if err := e.events.Append(ctx, events...); err != nil {
		return fmt.Errorf("append events of %s: %w", t.name(), err)
	}
	return nil
}

var eventTypes = map[Operation]string{
	OpCreate: event.RecordCreated, OpUpdate: event.RecordUpdated, OpDelete: event.RecordDeleted,
	OpUndelete: event.RecordUndeleted, OpUpdateWhere: event.RecordsUpdated, OpDeleteWhere: event.RecordsDeleted,
}

// event tells of a change. Its time is the record's new updated_at where there
// is one, so that two changes of a record never carry the same time.
func (e *Engine) event(ctx context.Context, t *table, now time.Time, change *Change) (*event.Event, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make an event id: %w", err)
	}
	p := identity.From(ctx)
	ev := &event.Event{
		ID: id.String(), Type: eventTypes[change.Operation], Object: t.name(), RecordID: change.ID, Matched: change.Matched,
		UserID: p.UserID, OrganizationID: p.OrganizationID, Timestamp: now,
	}
	record := change.After
	if record == nil {
		record = change.Before
	}
	if organization, ok := record["organization_id"].(string); ok && organization != "" {
		ev.OrganizationID = organization
	}
	if at, ok := version(change.After); ok {
		ev.Timestamp = time.UnixMilli(at).UTC()
	}
	for _, part := range []struct {
		record Record
		json   *[]byte
		want   bool
	}{
		{change.Changes, (*[]byte)(&ev.Changes), true},
		{change.Before, (*[]byte)(&ev.Before), change.Operation == OpDelete},
		{change.After, (*[]byte)(&ev.After), true},
	} {
		if part.record == nil || !part.want {
			continue
		}
		if *part.json, err = t.eventJSON(part.record); err != nil {
			return nil, err
		}
	}
	return ev, nil
}

// version is a record's updated_at in milliseconds.
func version(record Record) (int64, bool) {
	value, ok := record["updated_at"]
	if !ok || value == nil {
		return 0, false
	}
	return instant(value, epoch)
}

// writeError turns a unique violation into the error that callers know.
func (e *Engine) writeError(t *table, err error) error {
	constraint, ok := storage.IsUniqueViolation(err)
	if !ok {
		return fmt.Errorf("write %s: %w", t.name(), err)
	}
	return &Error{
		Code: CodeUniqueViolation, Object: t.name(), Field: t.violated(constraint), cause: err,
		Message:          "A record with this value already exists",
		DeveloperMessage: fmt.Sprintf("Duplicate record refused on '%s': a unique constraint already holds these values. No record was written.", t.name()),
	}
}

// Create writes a new record and returns it. Errors are *[Error] with
// CodeValidationFailed (all failing fields), CodeInvalidField,
// CodeUniqueViolation, CodeObjectNotFound and the codes of refused callers,
// and what handlers return.
func (e *Engine) Create(ctx context.Context, object string, values Record) (Result, error) {
	t, err := e.open(ctx, identity.OperationCreate, object)
	if err != nil {
		return Result{}, err
	}
	p, err := e.prepareCreate(ctx, t, values)
	if err != nil {
		return Result{}, err
	}
	var records []Record
	err = e.db.InTx(ctx, func(ctx context.Context) error {
		records, err = e.insert(ctx, t, []*prepared{p})
		return err
	})
	if err != nil {
		return Result{}, unrow(err)
	}
	return Result{ID: p.id, Record: t.present(records[0], true), Dropped: p.draft.report(t.name())}, nil
}

// Many is what a write of several records answers.
type Many struct {
	Records []Record
	Dropped []Dropped
}

// CreateMany writes new records, all or none, in one statement where the
// dialect's limits allow it. The error is that of the first record that is
// refused.
func (e *Engine) CreateMany(ctx context.Context, object string, rows []Record) (Many, error) {
	t, err := e.open(ctx, identity.OperationCreate, object)
	if err != nil {
		return Many{}, err
	}
	many := Many{Records: make([]Record, len(rows))}
	set := make([]*prepared, len(rows))
	dropped := map[string]bool{}
	for i, values := range rows {
		if set[i], err = e.prepareCreate(ctx, t, values); err != nil {
			return Many{}, err
		}
		for _, name := range set[i].draft.dropped {
			dropped[name] = true
		}
	}
	if len(rows) == 0 {
		return many, nil
	}
	var records []Record
	err = e.db.InTx(ctx, func(ctx context.Context) error {
		records, err = e.insert(ctx, t, set)
		return err
	})
	if err != nil {
		return Many{}, unrow(err)
	}
	for i, record := range records {
		many.Records[i] = t.present(record, true)
	}
	if len(dropped) > 0 {
		many.Dropped = []Dropped{{Object: object, Fields: sortedKeys(dropped), Reason: "readonly"}}
	}
	return many, nil
}
