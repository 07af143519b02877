package data

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/objecthost/objecthost/core/identity"
)

// ImportMode is what an import does with its rows.
type ImportMode string

// The modes. Update and upsert find records by [ImportRequest] MatchFields.
const (
	ImportInsert ImportMode = "insert"
	ImportUpdate ImportMode = "update"
	ImportUpsert ImportMode = "upsert"
)

// ImportRequest says how rows become records.
type ImportRequest struct {
	Mode        ImportMode `json:"writeMode"`
	MatchFields []string   `json:"matchFields,omitempty"`
	// Mapping names the field of each column; without one, columns are named
	// like fields. Columns that a mapping does not name are left out.
	Mapping []ImportMapping `json:"mapping,omitempty"`
	// DryRun validates and writes nothing.
	DryRun bool `json:"dryRun,omitempty"`
	// KeepSpace leaves spaces around texts as they are.
	KeepSpace bool `json:"keepSpace,omitempty"`
	// NullValues are texts that mean null besides the empty one.
	NullValues []string `json:"nullValues,omitempty"`
	// SkipBlankMatchKey skips rows without a value in a match field, which
	// fail otherwise.
	SkipBlankMatchKey bool `json:"skipBlankMatchKey,omitempty"`
	// Text tells that all values are texts, as in CSV: JSON fields are parsed.
	Text bool `json:"text,omitempty"`
}

// ImportMapping is where one field's values come from.
type ImportMapping struct {
	Source string `json:"sourceField"`
	Target string `json:"targetField"`
	// Transform is none, uppercase, lowercase or trim.
	Transform string `json:"transform,omitempty"`
	// Default stands for a value that is missing or null.
	Default any `json:"defaultValue,omitempty"`
	// Required makes a row without a value fail.
	Required bool `json:"required,omitempty"`
}

// What became of a row.
const (
	ActionCreated = "created"
	ActionUpdated = "updated"
	ActionSkipped = "skipped"
	ActionFailed  = "failed"
)

// ImportRow is what became of one row; Row counts from 1.
type ImportRow struct {
	Row    int    `json:"row"`
	OK     bool   `json:"ok"`
	Action string `json:"action"`
	ID     string `json:"id,omitempty"`
	Field  string `json:"field,omitempty"`
	Code   string `json:"code,omitempty"`
	Error  string `json:"error,omitempty"`

	// before holds what an update has replaced, for undo.
	before Record
}

// Import turns rows into records, batch by batch. It is for one goroutine.
type Import struct {
	engine *Engine
	table  *table
	req    ImportRequest
	row    int // the last row that was read
}

// NewImport checks a request. Errors are *[Error] with CodeInvalidRequest,
// CodeInvalidField, CodeObjectNotFound and those of refused callers.
func (e *Engine) NewImport(ctx context.Context, objectName string, req ImportRequest) (*Import, error) {
	var t *table
	var err error
	for _, op := range req.operations() {
		if t, err = e.open(ctx, op, objectName); err != nil {
			return nil, err
		}
	}
	if t == nil {
		return nil, &Error{Code: CodeInvalidRequest, Object: objectName, Message: fmt.Sprintf("writeMode must be insert, update or upsert, not %q", req.Mode)}
	}
	i := &Import{engine: e, table: t, req: req}
	return i, i.check()
}

// operations are what the caller has to be permitted.
func (r *ImportRequest) operations() []identity.Operation {
	switch r.Mode {
	case ImportInsert:
		return []identity.Operation{identity.OperationCreate}
	case ImportUpdate:
		return []identity.Operation{identity.OperationList, identity.OperationUpdate}
	case ImportUpsert:
		return []identity.Operation{identity.OperationList, identity.OperationCreate, identity.OperationUpdate}
	default:
		return nil
	}
}

func (i *Import) check() error {
	bad := func(format string, args ...any) error {
		return &Error{Code: CodeInvalidRequest, Object: i.table.name(), Message: fmt.Sprintf(format, args...)}
	}
	if i.req.Mode != ImportInsert && len(i.req.MatchFields) == 0 {
		return bad("writeMode %s needs matchFields", i.req.Mode)
	}
	for _, name := range i.req.MatchFields {
		c, ok := i.table.visible(name)
		if !ok {
			return errUnknownField(i.table.name(), name)
		}
		if !c.filterable() || !c.sortableKind() {
			return bad("field '%s' of type %s cannot be a match field", name, c.Type)
		}
	}
	seen := map[string]bool{}
	for _, m := range i.req.Mapping {
		if _, ok := i.table.visible(m.Target); !ok {
			return errUnknownField(i.table.name(), m.Target)
		}
		if seen[m.Target] {
			return bad("the mapping names field '%s' twice", m.Target)
		}
		seen[m.Target] = true
		if !slices.Contains([]string{"", "none", "uppercase", "lowercase", "trim"}, m.Transform) {
			return bad("transform %q of field '%s' is not none, uppercase, lowercase or trim", m.Transform, m.Target)
		}
	}
	return nil
}

// CheckColumns refuses columns of a table of texts that lead nowhere, so that a
// wrong heading is told once and not with every row.
func (i *Import) CheckColumns(columns []string) error {
	if len(i.req.Mapping) > 0 {
		for _, m := range i.req.Mapping {
			if !slices.Contains(columns, m.Source) && m.Default == nil {
				return &Error{Code: CodeInvalidRequest, Object: i.table.name(), Message: fmt.Sprintf("the rows have no column '%s', which the mapping names", m.Source)}
			}
		}
		return nil
	}
	for _, name := range columns {
		if _, ok := i.table.visible(name); !ok {
			return errUnknownField(i.table.name(), name)
		}
	}
	return nil
}

// errDry rolls a dry run back.
var errDry = errors.New("data: a dry run writes nothing")

// Batch writes up to [MaxBatch] rows and tells what became of each. Rows that
// fail are told, not returned as an error; an error means that nothing of the
// batch was written. It joins the transaction of ctx. A dry run does not see the
// rows of earlier batches.
func (i *Import) Batch(ctx context.Context, rows []Record) ([]ImportRow, error) {
	if len(rows) > MaxBatch {
		return nil, &Error{Code: CodeBatchTooLarge, Object: i.table.name(), Count: len(rows), Max: MaxBatch, Message: fmt.Sprintf("A batch holds at most %d rows", MaxBatch)}
	}
	var out []ImportRow
	err := i.engine.db.InTx(ctx, func(ctx context.Context) error {
		out = make([]ImportRow, len(rows))
		run := importRun{Import: i, out: out}
		for n, row := range rows {
			out[n].Row = i.row + n + 1
			if err := run.add(ctx, n, row); err != nil {
				return err
			}
		}
		if err := run.flush(ctx); err != nil {
			return err
		}
		if i.req.DryRun {
			return errDry
		}
		return nil
	})
	if err != nil && !errors.Is(err, errDry) {
		return nil, err
	}
	i.row += len(rows)
	for n := range out {
		out[n].OK = out[n].Action != ActionFailed
		if i.req.DryRun && out[n].Action == ActionCreated {
			out[n].ID = "" // it names nothing
		}
	}
	return out, nil
}

const (
	codeBlankKey  = "MISSING_REQUIRED_FIELD"
	codeAmbiguous = "AMBIGUOUS_MATCH"
)

// mapped makes the values of a record out of a row.
func (i *Import) mapped(row Record) (Record, *FieldError) {
	values := Record{}
	if len(i.req.Mapping) == 0 {
		for name, value := range row {
			values[name] = i.clean(name, value, "")
		}
		return values, nil
	}
	for _, m := range i.req.Mapping {
		value := i.clean(m.Target, row[m.Source], m.Transform)
		if value == nil {
			value = m.Default
		}
		if value == nil && m.Required {
			return nil, &FieldError{Field: m.Target, Code: codeBlankKey, Message: fmt.Sprintf("Column '%s' is required", m.Source)}
		}
		values[m.Target] = value
	}
	return values, nil
}

// clean brings one value into the form that a writer would give.
func (i *Import) clean(field string, value any, transform string) any {
	text, ok := value.(string)
	if !ok {
		return value
	}
	if !i.req.KeepSpace || transform == "trim" {
		text = strings.TrimSpace(text)
	}
	switch transform {
	case "uppercase":
		text = strings.ToUpper(text)
	case "lowercase":
		text = strings.ToLower(text)
	}
	if text == "" && i.req.Text || slices.Contains(i.req.NullValues, text) {
		return nil
	}
	if c := i.table.byName[field]; i.req.Text && c != nil && c.kind == kindJSON {
		if parsed, err := DecodeJSON([]byte(text)); err == nil {
			return parsed
		}
	}
	return text
}

// key reads the match fields of a row as operands of a filter.
func (i *Import) key(values Record) ([]any, *FieldError) {
	key := make([]any, len(i.req.MatchFields))
	for n, name := range i.req.MatchFields {
		c := i.table.byName[name]
		if values[name] == nil {
			return nil, &FieldError{Field: name, Code: codeBlankKey, Message: c.DisplayLabel() + " is needed to find the record"}
		}
		compile := compiler{table: i.table, slot: "matchFields", now: i.engine.now()}
		operand, err := compile.value(&comparison{field: name, op: "$eq"}, c, values[name])
		var known *Error
		switch {
		case errors.As(err, &known):
			return nil, &FieldError{Field: name, Code: known.Code, Message: known.Message}
		case err != nil:
			return nil, &FieldError{Field: name, Code: CodeInvalidField, Message: "the value cannot be looked for"}
		}
		key[n] = operand
	}
	return key, nil
}
