package data

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
)

// ImportJobObject holds the import jobs as records: the runner's claims, its
// progress and the rows that it writes commit together.
const ImportJobObject = "sys_import_job"

// Limits of import jobs.
const (
	MaxImportRows    = 50_000
	maxImportResults = 1_000 // rows of a report that are kept, failures first
	maxImportUndo    = 5_000 // rows that an undo can take back
	importLease      = time.Minute
	importKept       = 30 * 24 * time.Hour
)

// JobStatus is where a job stands.
type JobStatus string

// The states of an import job.
const (
	JobPending   JobStatus = "pending"
	JobRunning   JobStatus = "running"
	JobSucceeded JobStatus = "succeeded"
	JobFailed    JobStatus = "failed"
	JobCancelled JobStatus = "cancelled"
)

// ended reports whether nothing more happens to the job.
func (s JobStatus) ended() bool { return s == JobSucceeded || s == JobFailed || s == JobCancelled }

// ImportJob tells how far a job is. Times are ISO 8601.
type ImportJob struct {
	ID        string     `json:"jobId"`
	Object    string     `json:"object"`
	Status    JobStatus  `json:"status"`
	DryRun    bool       `json:"dryRun"`
	Mode      ImportMode `json:"writeMode"`
	Total     int        `json:"total"`
	Processed int        `json:"processed"`
	Created   int        `json:"created"`
	Updated   int        `json:"updated"`
	Skipped   int        `json:"skipped"`
	Errors    int        `json:"errors"`
	// Percent is 0 to 100.
	Percent float64 `json:"percentComplete"`
	// Undoable tells that [Engine.UndoImport] can take the job back.
	Undoable    bool   `json:"undoable"`
	RevertedAt  string `json:"revertedAt,omitempty"`
	Error       string `json:"error,omitempty"`
	StartedAt   string `json:"startedAt,omitempty"`
	CompletedAt string `json:"completedAt,omitempty"`
	CreatedAt   string `json:"createdAt"`
}

// ImportJobSchema is the object behind the jobs. What is internal leaves the
// host in no answer and no event.
func ImportJobSchema() object.Schema {
	field := func(name, label string, kind object.FieldType) object.Field {
		return object.Field{Name: name, Label: label, Type: kind, Readonly: true}
	}
	internal := func(name string) object.Field {
		f := field(name, name, object.Textarea)
		f.Internal = true
		return f
	}
	status := field("status", "Status", object.Select)
	status.Index = true
	for _, s := range []JobStatus{JobPending, JobRunning, JobSucceeded, JobFailed, JobCancelled} {
		status.Options = append(status.Options, object.Option{Label: string(s), Value: string(s)})
	}
	lease, owner := field("lease_until", "Lease", object.Datetime), field("owner", "Owner", object.Text)
	lease.Internal, owner.Internal, owner.Index = true, true, true
	return object.Schema{
		Name: ImportJobObject, Label: "Import Job", PluralLabel: "Import Jobs", Icon: "upload", IsSystem: true, ManagedBy: "engine-owned",
		NameField: "object_name", Enable: object.Enable{APIMethods: []string{object.MethodGet, object.MethodList}},
		Fields: object.Fields{
			field("object_name", "Object", object.Text), status, field("write_mode", "Mode", object.Text), field("dry_run", "Dry run", object.Boolean),
			field("total", "Rows", object.Number), field("processed", "Processed", object.Number), field("created_count", "Created", object.Number),
			field("updated_count", "Updated", object.Number), field("skipped_count", "Skipped", object.Number), field("error_count", "Errors", object.Number),
			field("error", "Error", object.Textarea), field("started_at", "Started at", object.Datetime), field("completed_at", "Completed at", object.Datetime),
			field("reverted_at", "Reverted at", object.Datetime), field("undoable", "Undoable", object.Boolean),
			owner, lease, internal("principal"), internal("request"), internal("payload"), internal("results"), internal("undo"),
		},
	}
}

// asHost is the context of the engine's own work.
func asHost(ctx context.Context) context.Context { return identity.With(ctx, identity.System()) }

// jobOwner names who may see a job: the user, or the key of a caller without one.
func jobOwner(p identity.Principal) string {
	switch {
	case p.UserID != "":
		return "user:" + p.UserID
	case p.KeyID != "":
		return "key:" + p.KeyID
	default:
		return "host"
	}
}

// StartImport stores a job that imports rows, which are checked as far as that
// needs no write. It is run by one of the hosts, in the name of the caller, and
// goes on after a restart. Up to [MaxImportRows] rows are taken.
func (e *Engine) StartImport(ctx context.Context, objectName string, req ImportRequest, source ImportSource) (ImportJob, error) {
	i, err := e.NewImport(ctx, objectName, req)
	if err != nil {
		return ImportJob{}, err
	}
	i.req.Text = source.CSV != ""
	total, err := source.check(i)
	if err != nil {
		return ImportJob{}, err
	}
	who := identity.From(ctx)
	values := Record{
		"object_name": objectName, "status": string(JobPending), "write_mode": string(req.Mode), "dry_run": req.DryRun, "total": total,
		"processed": 0, "created_count": 0, "updated_count": 0, "skipped_count": 0, "error_count": 0, "undoable": false, "owner": jobOwner(who),
	}
	if who.OrganizationID != "" {
		values["organization_id"] = who.OrganizationID
	}
	for name, part := range map[string]any{"principal": who, "request": i.req, "payload": source} {
		text, err := encodeJSON(part)
		if err != nil {
			return ImportJob{}, fmt.Errorf("store the import: %w", err)
		}
		values[name] = string(text)
	}
	result, err := e.Create(asHost(ctx), ImportJobObject, values)
	if err != nil {
		return ImportJob{}, err
	}
	e.wakeImports()
	job, err := e.importJob(asHost(ctx), result.ID)
	return job.ImportJob, err
}

// ImportSource is where rows come from: a table in CSV whose first line names
// the columns, or objects.
type ImportSource struct {
	CSV  string   `json:"csv,omitempty"`
	Rows []Record `json:"rows,omitempty"`
}

// check counts the rows and looks at the columns.
func (s *ImportSource) check(i *Import) (total int, err error) {
	total = len(s.Rows)
	if s.CSV != "" {
		total = 0
		reader, err := NewTable(strings.NewReader(s.CSV))
		if err != nil {
			return 0, err
		}
		if err := i.CheckColumns(reader.Columns()); err != nil {
			return 0, err
		}
		for ; ; total++ {
			if _, err := reader.Next(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return 0, err
			}
		}
	}
	if total > MaxImportRows {
		return 0, &Error{Code: CodeBatchTooLarge, Object: i.table.name(), Count: total, Max: MaxImportRows, Message: fmt.Sprintf("An import job holds at most %d rows, got %d", MaxImportRows, total)}
	}
	return total, nil
}

// Table reads rows of CSV.
type Table struct {
	csv     *csv.Reader
	columns []string
}

// NewTable reads the heading. A byte order mark in front is passed over.
// Errors, also those of Next, are *[Error] with CodeInvalidRequest that name the
// line.
func NewTable(r io.Reader) (*Table, error) {
	t := &Table{csv: csv.NewReader(r)}
	t.csv.FieldsPerRecord = 0 // every row has as many cells as the heading
	columns, err := t.csv.Read()
	if errors.Is(err, io.EOF) {
		return nil, &Error{Code: CodeInvalidRequest, Message: "The CSV is empty: its first line names the columns."}
	}
	if err != nil {
		return nil, badCSV(err)
	}
	columns[0] = strings.TrimPrefix(columns[0], "\ufeff")
	seen := map[string]bool{}
	for i := range columns {
		columns[i] = strings.TrimSpace(columns[i])
		if columns[i] == "" || seen[columns[i]] {
			return nil, &Error{Code: CodeInvalidRequest, Message: fmt.Sprintf("Column %d of the CSV has no name of its own.", i+1)}
		}
		seen[columns[i]] = true
	}
	t.columns = columns
	return t, nil
}

// Columns are the names in the heading.
func (t *Table) Columns() []string { return t.columns }

// Next reads a row, io.EOF after the last.
func (t *Table) Next() (Record, error) {
	cells, err := t.csv.Read()
	if errors.Is(err, io.EOF) {
		return nil, err
	}
	if err != nil {
		return nil, badCSV(err)
	}
	row := make(Record, len(cells))
	for i, cell := range cells {
		row[t.columns[i]] = cell
	}
	return row, nil
}

func badCSV(err error) error {
	var wrong *csv.ParseError
	if errors.As(err, &wrong) {
		return &Error{Code: CodeInvalidRequest, Message: fmt.Sprintf("The CSV is wrong in line %d: %s.", wrong.Line, wrong.Err), cause: err}
	}
	return err
}

// storedJob is a job as its record holds it.
type storedJob struct {
	ImportJob
	owner, version string
	record         Record
}

// importJob reads one job as the host.
func (e *Engine) importJob(ctx context.Context, id string) (storedJob, error) {
	t, err := e.table(ImportJobObject)
	if err != nil {
		return storedJob{}, err
	}
	record, err := e.one(ctx, t, id)
	if err != nil {
		return storedJob{}, err
	}
	return readJob(record), nil
}

func readJob(r Record) storedJob {
	text := func(name string) string { s, _ := r[name].(string); return s }
	number := func(name string) int {
		n, _ := r[name].(json.Number)
		i, _ := strconv.Atoi(n.String())
		return i
	}
	flag := func(name string) bool { b, _ := r[name].(bool); return b }
	j := storedJob{record: r, owner: text("owner"), version: text("updated_at"), ImportJob: ImportJob{
		ID: text("id"), Object: text("object_name"), Status: JobStatus(text("status")), DryRun: flag("dry_run"), Mode: ImportMode(text("write_mode")),
		Total: number("total"), Processed: number("processed"), Created: number("created_count"), Updated: number("updated_count"),
		Skipped: number("skipped_count"), Errors: number("error_count"), Undoable: flag("undoable"), RevertedAt: text("reverted_at"), Error: text("error"),
		StartedAt: text("started_at"), CompletedAt: text("completed_at"), CreatedAt: text("created_at"),
	}}
	j.Percent = 100
	if j.Total > 0 && j.Status != JobSucceeded {
		j.Percent = float64(j.Processed*1000/j.Total) / 10
	}
	return j
}

// decode reads an internal part of the record.
func (j *storedJob) decode(name string, into any) error {
	text, _ := j.record[name].(string)
	if text == "" {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(text)))
	dec.UseNumber()
	return dec.Decode(into)
}

// ownJob finds a job of the caller. Those of others are not there.
func (e *Engine) ownJob(ctx context.Context, id string) (storedJob, error) {
	who := identity.From(ctx)
	if !who.Authenticated() {
		return storedJob{}, denied("", identity.ErrUnauthenticated)
	}
	j, err := e.importJob(asHost(ctx), id)
	if err == nil && j.owner != jobOwner(who) {
		err = errRecord(ImportJobObject, id)
	}
	return j, err
}

// ImportJob tells how far one of the caller's jobs is.
func (e *Engine) ImportJob(ctx context.Context, id string) (ImportJob, error) {
	j, err := e.ownJob(ctx, id)
	return j.ImportJob, err
}

// ImportResults is the report of one of the caller's jobs. It is cut at a
// thousand rows, in which failures come before the others.
func (e *Engine) ImportResults(ctx context.Context, id string) (ImportJob, []ImportRow, bool, error) {
	j, err := e.ownJob(ctx, id)
	if err != nil {
		return ImportJob{}, nil, false, err
	}
	rows := []ImportRow{}
	if err := j.decode("results", &rows); err != nil {
		return ImportJob{}, nil, false, fmt.Errorf("read the report of import %s: %w", id, err)
	}
	return j.ImportJob, rows, len(rows) < j.Processed, nil
}

// ImportJobs lists the caller's jobs, the newest first, of one object and in one
// state when those are not empty.
func (e *Engine) ImportJobs(ctx context.Context, objectName string, status JobStatus, limit, offset int) ([]ImportJob, error) {
	who := identity.From(ctx)
	if !who.Authenticated() {
		return nil, denied("", identity.ErrUnauthenticated)
	}
	t, err := e.table(ImportJobObject)
	if err != nil {
		return nil, err
	}
	parts := []predicate{&leaf{column: t.byName["owner"], test: testEq, value: jobOwner(who)}}
	if objectName != "" {
		parts = append(parts, &leaf{column: t.byName["object_name"], test: testEq, value: objectName})
	}
	if status != "" {
		parts = append(parts, &leaf{column: t.byName["status"], test: testEq, value: string(status)})
	}
	q := Query{Limit: &limit, Offset: offset, NoCount: true}
	page, err := e.page(asHost(ctx), t, q, &group{parts: parts}, []Sort{{Field: "created_at", Desc: true}, {Field: "id", Desc: true}})
	if err != nil {
		return nil, err
	}
	jobs := make([]ImportJob, len(page.Records))
	for i, record := range page.Records {
		jobs[i] = readJob(record).ImportJob
	}
	return jobs, nil
}

// CancelImport ends one of the caller's jobs; what it has written stays. A job
// that has ended already is refused with CodeConflict.
func (e *Engine) CancelImport(ctx context.Context, id string) (ImportJob, error) {
	j, err := e.ownJob(ctx, id)
	if err != nil {
		return ImportJob{}, err
	}
	if j.Status.ended() {
		return ImportJob{}, &Error{Code: CodeConflict, Message: fmt.Sprintf("Import %s has %s already", id, j.Status)}
	}
	result, err := e.Update(asHost(ctx), ImportJobObject, id, Record{
		"status": string(JobCancelled), "completed_at": event.FormatTime(e.now()), "lease_until": nil, "payload": nil,
	}, Match{IfMatch: j.version})
	if IsCode(err, CodeConcurrentUpdate) {
		return e.CancelImport(ctx, id) // it has made progress
	}
	if err != nil {
		return ImportJob{}, err
	}
	return e.ImportJob(ctx, result.ID)
}
