package data

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/objecthost/objecthost/core/identity"
)

// MaxBatch is how many records one batch may hold.
const MaxBatch = 200

// Batch is a request to write several records of one object.
type Batch struct {
	// Operation is create, update, upsert or delete.
	Operation string       `json:"operation"`
	Records   []BatchItem  `json:"records"`
	Options   BatchOptions `json:"options"`
}

// BatchItem is one record of a batch. Upserts find the record by ID, or by
// ExternalID in the field that the object marks as externalId.
type BatchItem struct {
	ID         string `json:"id,omitempty"`
	ExternalID string `json:"externalId,omitempty"`
	Data       Record `json:"data,omitempty"`
}

// BatchOptions tell what one failure means for the others. Without options a
// batch stops at the first failure and keeps what was written before.
type BatchOptions struct {
	// Atomic writes all records or none.
	Atomic bool `json:"atomic"`
	// ReturnRecords leaves out the records of the answer when false; nil
	// means true.
	ReturnRecords *bool `json:"returnRecords,omitempty"`
	// ContinueOnError goes on after a failure.
	ContinueOnError bool `json:"continueOnError"`
}

// BatchResult is the answer to a batch: one entry per record, in their order.
type BatchResult struct {
	Success   bool       `json:"success"`
	Operation string     `json:"operation"`
	Total     int        `json:"total"`
	Succeeded int        `json:"succeeded"`
	Failed    int        `json:"failed"`
	Results   []BatchRow `json:"results"`
}

// BatchRow is what became of one record of a batch.
type BatchRow struct {
	ID      string       `json:"id,omitempty"`
	Success bool         `json:"success"`
	Data    Record       `json:"data,omitempty"`
	Index   int          `json:"index"`
	Errors  []BatchError `json:"errors,omitempty"`
	Dropped []Dropped    `json:"droppedFields,omitempty"`
}

// BatchError is why a record of a batch was not written.
type BatchError struct {
	Code       string `json:"code"`
	Message    string `json:"message"`
	HTTPStatus int    `json:"httpStatus,omitempty"`

	field string // the first that is to blame, "" for none
}

// Batch writes up to [MaxBatch] records. A record that fails is told in the
// answer; an error is returned only when the batch as a whole cannot be done:
// CodeBatchTooLarge, CodeInvalidRequest, the codes of refused callers, or a
// database that is gone.
func (e *Engine) Batch(ctx context.Context, objectName string, request Batch) (*BatchResult, error) {
	ops, ok := map[string][]identity.Operation{
		"create": {identity.OperationCreate}, "update": {identity.OperationUpdate}, "delete": {identity.OperationDelete},
		"upsert": {identity.OperationCreate, identity.OperationUpdate},
	}[request.Operation]
	if !ok {
		return nil, &Error{Code: CodeInvalidRequest, Object: objectName, Message: fmt.Sprintf("operation must be create, update, upsert or delete, not %q", request.Operation)}
	}
	var t *table
	for _, op := range ops {
		var err error
		if t, err = e.open(ctx, op, objectName); err != nil {
			return nil, err
		}
	}
	if n := len(request.Records); n > MaxBatch {
		return nil, &Error{Code: CodeBatchTooLarge, Object: objectName, Count: n, Max: MaxBatch, Message: fmt.Sprintf("A batch holds at most %d records, got %d", MaxBatch, n)}
	}
	run := &batchRun{engine: e, table: t, request: request, rows: make([]BatchRow, len(request.Records)), prepared: make([]*prepared, len(request.Records))}
	if err := run.do(ctx); err != nil {
		return nil, err
	}
	return run.result(), nil
}

// batchRun is a batch under way.
type batchRun struct {
	engine   *Engine
	table    *table
	request  Batch
	rows     []BatchRow
	prepared []*prepared
	// failed is the index of the failure that ended the batch, -1 for none.
	failed int
}

// do prepares all records first: a batch whose records are wrong costs no
// transaction, and handlers run outside of one.
func (r *batchRun) do(ctx context.Context) error {
	r.failed = -1
	stop := r.request.Options.Atomic || !r.request.Options.ContinueOnError
	end := len(r.rows)
	for i := range r.rows {
		r.rows[i].Index = i
		r.rows[i].ID = r.request.Records[i].ID
	}
	for i := range r.rows {
		p, err := r.prepare(ctx, i)
		if err != nil {
			if err := r.fail(i, err); err != nil {
				return err
			}
			if stop {
				r.failed, end = i, i
				break
			}
			continue
		}
		r.prepared[i] = p
	}
	if r.request.Options.Atomic {
		return r.atomic(ctx)
	}
	return r.each(ctx, end, stop)
}

// prepare runs the handlers of a record and validates it.
func (r *batchRun) prepare(ctx context.Context, i int) (*prepared, error) {
	item, e, t := r.request.Records[i], r.engine, r.table
	op := r.request.Operation
	if op == "upsert" {
		var err error
		if op, item, err = e.resolve(ctx, t, item); err != nil {
			return nil, err
		}
	}
	switch {
	case op == "create":
		values := clone(item.Data)
		if item.ID != "" {
			values["id"] = item.ID
		}
		return e.prepareCreate(ctx, t, values)
	case item.ID == "":
		return nil, &Error{Code: CodeInvalidRequest, Object: t.name(), Message: fmt.Sprintf("record %d: an id is required", i)}
	case op == "delete":
		return e.prepareDelete(ctx, t, item.ID, Match{})
	default:
		return e.prepareUpdate(ctx, t, item.ID, item.Data, Match{})
	}
}

// resolve tells whether an upsert creates or updates.
func (e *Engine) resolve(ctx context.Context, t *table, item BatchItem) (string, BatchItem, error) {
	p := t.byID(item.ID)
	if item.ID == "" {
		if item.ExternalID == "" {
			return "create", item, nil
		}
		i := slices.IndexFunc(t.columns, func(c column) bool { return c.Field.ExternalID })
		if i < 0 {
			return "", item, &Error{Code: CodeInvalidRequest, Object: t.name(), Message: fmt.Sprintf("Object '%s' has no externalId field", t.name())}
		}
		var err error
		if p, err = t.compile(Eq(t.columns[i].Name, item.ExternalID), "externalId", e.now()); err != nil {
			return "", item, err
		}
		item.Data = clone(item.Data)
		item.Data[t.columns[i].Name] = item.ExternalID
	}
	found, err := e.load(ctx, t, t.scope(ctx, p, false), false)
	if err != nil || len(found) == 0 {
		return "create", item, err
	}
	item.ID = found[0]["id"].(string)
	return "update", item, nil
}

// fail notes a record's failure. An error that is nobody's fault ends the
// whole batch.
func (r *batchRun) fail(i int, err error) error {
	var known *Error
	if !errors.As(unrow(err), &known) {
		return err
	}
	r.rows[i].Success, r.rows[i].Data = false, nil
	r.rows[i].Errors = []BatchError{{Code: known.Code, Message: known.Message, HTTPStatus: known.HTTPStatus(), field: blamed(known)}}
	return nil
}

// blamed is the first field that an error names.
func blamed(e *Error) string {
	if e.Field == "" && len(e.Fields) > 0 {
		return e.Fields[0].Field
	}
	return e.Field
}

// each writes every record for itself: first all of them in one transaction,
// and when the database refuses that, one by one.
func (r *batchRun) each(ctx context.Context, end int, stop bool) error {
	var live []int
	for i := range end {
		if r.prepared[i] != nil {
			live = append(live, i)
		}
	}
	if !r.distinct(live) || stop && r.request.Operation != "create" && len(live) > 1 && !r.allThere(ctx, live) {
		return r.oneByOne(ctx, live, stop)
	}
	err := r.engine.db.InTx(ctx, func(ctx context.Context) error {
		failed, err := r.apply(ctx, live)
		if err == nil && failed >= 0 && stop {
			err = &Error{Code: CodeRecordNotFound}
		}
		return err
	})
	var known *Error
	if err != nil && (errors.As(unrow(err), &known) || errors.Is(err, errMoved)) {
		return r.oneByOne(ctx, live, stop)
	}
	return err
}

// allThere is a cheap look that spares a transaction bound to fail.
func (r *batchRun) allThere(ctx context.Context, live []int) bool {
	ids := make([]string, len(live))
	for i, index := range live {
		ids[i] = r.prepared[index].id
	}
	b := r.engine.builder()
	b.text("SELECT id FROM ", quote(r.table.name()), " WHERE ")
	b.where(r.table.scope(ctx, r.table.byID(ids...), false))
	records, err := r.engine.query(ctx, b, r.table.pick([]string{"id"}))
	return err == nil && len(records) == len(ids)
}

// distinct reports whether no record comes twice.
func (r *batchRun) distinct(live []int) bool {
	seen := map[string]bool{}
	for _, i := range live {
		if seen[r.prepared[i].id] {
			return false
		}
		seen[r.prepared[i].id] = true
	}
	return true
}

// oneByOne writes every record in a transaction of its own. It is the slow way
// that finds out which records are to blame.
func (r *batchRun) oneByOne(ctx context.Context, live []int, stop bool) error {
	for _, i := range live {
		var failed int
		err := r.engine.db.InTx(ctx, func(ctx context.Context) error {
			var err error
			failed, err = r.apply(ctx, []int{i})
			return err
		})
		for range maxMoves {
			if !errors.Is(err, errMoved) {
				break
			}
			if r.prepared[i], err = r.prepare(ctx, i); err == nil {
				err = r.engine.db.InTx(ctx, func(ctx context.Context) error {
					failed, err = r.apply(ctx, []int{i})
					return err
				})
			}
		}
		if errors.Is(err, errMoved) {
			err = errStale(r.table.name(), r.prepared[i].id, "a later one", "an earlier one", nil)
		}
		if err != nil {
			if err := r.fail(i, err); err != nil {
				return err
			}
			failed = i
		}
		if stop && failed >= 0 {
			r.failed = i
			return nil
		}
	}
	return nil
}

// apply writes the records at the given indexes, all of one batch, in the
// transaction of ctx, and notes what became of them. failed is the first that
// is not there, -1 for none.
func (r *batchRun) apply(ctx context.Context, indexes []int) (failed int, err error) {
	groups := map[Operation][]int{}
	for _, i := range indexes {
		op := r.prepared[i].op
		groups[op] = append(groups[op], i)
	}
	failed = -1
	for _, op := range []Operation{OpCreate, OpUpdate, OpDelete} {
		group := groups[op]
		if len(group) == 0 {
			continue
		}
		set := make([]*prepared, len(group))
		for j, i := range group {
			set[j] = r.prepared[i]
		}
		outcomes, err := r.engine.applyAny(ctx, r.table, set)
		if err != nil {
			return -1, err
		}
		for j, i := range group {
			if errors.Is(outcomes[j].err, errMoved) {
				return -1, errMoved
			}
			if outcomes[j].err != nil {
				if err := r.fail(i, outcomes[j].err); err != nil {
					return -1, err
				}
				if failed < 0 {
					failed = i
				}
				continue
			}
			r.done(i, outcomes[j].record)
		}
	}
	return failed, nil
}

// done notes a written record. The note stands even when a rollback follows;
// result blames such rows afterwards.
func (r *batchRun) done(i int, record Record) {
	p := r.prepared[i]
	r.rows[i] = BatchRow{ID: p.id, Success: true, Index: i}
	if p.draft != nil {
		r.rows[i].Dropped = p.draft.report(r.table.name())
	}
	if want := r.request.Options.ReturnRecords; record != nil && (want == nil || *want) {
		r.rows[i].Data = r.table.present(record, true)
	}
}

// applyAny applies a set of one operation.
func (e *Engine) applyAny(ctx context.Context, t *table, set []*prepared) ([]outcome, error) {
	if set[0].op != OpCreate {
		return e.applySet(ctx, t, set)
	}
	records, err := e.insert(ctx, t, set)
	if err != nil {
		return nil, err
	}
	out := make([]outcome, len(set))
	for i, record := range records {
		out[i].record = record
	}
	return out, nil
}

// errAtomic rolls an atomic batch back.
var errAtomic = errors.New("data: the batch is rolled back")

// atomic writes all records or none. When the set as a whole is refused, it
// is written one by one in one transaction to find the record to blame.
func (r *batchRun) atomic(ctx context.Context) error {
	if r.failed >= 0 {
		return nil
	}
	all := make([]int, len(r.rows))
	for i := range all {
		all[i] = i
	}
	err := errAtomic
	if r.distinct(all) && len(all) > 0 {
		err = r.engine.db.InTx(ctx, func(ctx context.Context) error {
			failed, err := r.apply(ctx, all)
			if err == nil && failed >= 0 {
				r.failed, err = failed, errAtomic
			}
			return err
		})
	}
	var known *Error
	if err == nil || r.failed >= 0 || !errors.As(unrow(err), &known) && !errors.Is(err, errAtomic) && !errors.Is(err, errMoved) {
		return ignore(err, errAtomic)
	}
	err = r.engine.db.InTx(ctx, func(ctx context.Context) error {
		for i := range r.rows {
			failed, err := r.apply(ctx, []int{i})
			if errors.Is(err, errMoved) {
				err = errStale(r.table.name(), r.prepared[i].id, "a later one", "an earlier one", nil)
			}
			if err != nil || failed >= 0 {
				r.failed = i
				if err != nil {
					err = r.fail(i, err)
				}
				return firstError(err, errAtomic)
			}
		}
		return nil
	})
	return ignore(err, errAtomic)
}

// ignore swallows one expected error.
func ignore(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return err
}

// result tells the rows that a failure kept from being written.
func (r *batchRun) result() *BatchResult {
	out := &BatchResult{Operation: r.request.Operation, Total: len(r.rows), Results: r.rows}
	for i := range r.rows {
		row := &r.rows[i]
		if r.failed >= 0 && i != r.failed {
			cause := fmt.Sprintf("record %d failed — %s", r.failed, r.rows[r.failed].Errors[0].Message)
			switch {
			case r.request.Options.Atomic && i < r.failed:
				row.blame(CodeRolledBack, cause)
				if r.prepared[i] != nil {
					row.ID = r.prepared[i].id
				}
			case r.request.Options.Atomic:
				row.blame(CodeNotAttempted, cause+"; the batch stopped there and was rolled back.")
			case i > r.failed:
				row.blame(CodeNotAttempted, cause+"; the batch stopped there. Set options.continueOnError to process the remaining records.")
			}
		}
		if row.Success {
			out.Succeeded++
		} else {
			out.Failed++
		}
	}
	out.Success = out.Failed == 0
	return out
}

// blame marks a row as not written for a reason that lies elsewhere, which is
// why it carries no HTTP status.
func (row *BatchRow) blame(code, message string) {
	row.Success, row.Data = false, nil
	row.Errors = []BatchError{{Code: code, Message: message}}
}

// RowUpdate is one record of [Engine.UpdateMany].
type RowUpdate struct {
	ID   string `json:"id"`
	Data Record `json:"data"`
}

// UpdateMany is a [Engine.Batch] of updates.
func (e *Engine) UpdateMany(ctx context.Context, objectName string, updates []RowUpdate, options BatchOptions) (*BatchResult, error) {
	request := Batch{Operation: "update", Records: make([]BatchItem, len(updates)), Options: options}
	for i, u := range updates {
		request.Records[i] = BatchItem{ID: u.ID, Data: u.Data}
	}
	return e.Batch(ctx, objectName, request)
}

// DeleteMany is a [Engine.Batch] of deletes.
func (e *Engine) DeleteMany(ctx context.Context, objectName string, ids []string, options BatchOptions) (*BatchResult, error) {
	request := Batch{Operation: "delete", Records: make([]BatchItem, len(ids)), Options: options}
	for i, id := range ids {
		request.Records[i] = BatchItem{ID: id}
	}
	return e.Batch(ctx, objectName, request)
}
