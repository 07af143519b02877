package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
)

// importPoll is how often a host looks for jobs of hosts that have died.
const importPoll = 30 * time.Second

// wakeImports lets the runner of this host look for a job.
func (e *Engine) wakeImports() {
	select {
	case e.imports <- struct{}{}:
	default:
	}
}

// RunImports runs import jobs, one after the other, until ctx ends. A job under
// way is handed back then, and goes on at the next start or on another host. A
// batch's records and the job's progress commit together, so that no row is
// imported twice, whatever ends a host.
func (e *Engine) RunImports(ctx context.Context) {
	tick := time.NewTicker(importPoll)
	defer tick.Stop()
	for ctx.Err() == nil {
		ran, err := e.runNextImport(ctx)
		if err != nil && ctx.Err() == nil {
			e.log.Error("an import was interrupted, it goes on later", "error", err)
		}
		if ran && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-e.imports:
		case <-tick.C:
		}
	}
}

// runNextImport claims a job and runs it. ran tells that there was one.
func (e *Engine) runNextImport(ctx context.Context) (ran bool, err error) {
	host := asHost(ctx)
	job, err := e.claimImport(host)
	if err != nil || job == nil {
		return false, err
	}
	run := &jobRun{engine: e, job: job}
	err = run.do(ctx)
	var known *Error
	switch {
	case err == nil:
	case ctx.Err() != nil:
		err = run.release(context.WithoutCancel(host))
	case IsCode(err, CodeConcurrentUpdate) && errors.Is(err, errLostJob):
		err = nil // cancelled, or another host has it
	case errors.As(err, &known):
		// Nothing that a later attempt would mend.
		err = run.finish(host, JobFailed, known.Message)
	}
	return true, err
}

// claimImport takes the oldest job that nobody works on; nil for none. The
// record's version keeps two hosts from taking the same.
func (e *Engine) claimImport(ctx context.Context) (*storedJob, error) {
	t, err := e.table(ImportJobObject)
	if err != nil {
		return nil, err
	}
	now := e.now()
	free := &group{or: true, parts: []predicate{
		&leaf{column: t.byName["lease_until"], test: testNull}, &leaf{column: t.byName["lease_until"], test: testLt, value: now.UnixMilli()},
	}}
	open := &leaf{column: t.byName["status"], test: testIn, values: []any{string(JobPending), string(JobRunning)}}
	one := 1
	page, err := e.page(ctx, t, Query{Limit: &one, NoCount: true}, &group{parts: []predicate{open, free}}, []Sort{{Field: "created_at"}, {Field: "id"}})
	if err != nil || len(page.Records) == 0 {
		return nil, err
	}
	found := readJob(page.Records[0])
	values := Record{"status": string(JobRunning), "lease_until": event.FormatTime(now.Add(importLease))}
	if found.StartedAt == "" {
		values["started_at"] = event.FormatTime(now)
	}
	_, err = e.Update(ctx, ImportJobObject, found.ID, values, Match{IfMatch: found.version})
	if IsCode(err, CodeConcurrentUpdate) {
		return e.claimImport(ctx)
	}
	if err != nil {
		return nil, err
	}
	claimed, err := e.importJob(ctx, found.ID)
	return &claimed, err
}

// errLostJob marks a conflict over the job itself, not over a record.
var errLostJob = errors.New("data: the import job is somebody else's")

// jobRun is a claimed job under way.
type jobRun struct {
	engine  *Engine
	job     *storedJob
	results []ImportRow
	undo    []undoRow
	undoAll bool // undo holds every row that was written
}

// undoRow takes one row back: it deletes the record, or restores the values.
type undoRow struct {
	ID     string `json:"id"`
	Before Record `json:"before,omitempty"`
}

func (r *jobRun) do(ctx context.Context) error {
	var (
		who    identity.Principal
		req    ImportRequest
		source ImportSource
		log    struct {
			All  bool      `json:"all"`
			Rows []undoRow `json:"rows"`
		}
	)
	log.All = true
	for name, into := range map[string]any{"principal": &who, "request": &req, "payload": &source, "results": &r.results, "undo": &log} {
		if err := r.job.decode(name, into); err != nil {
			return &Error{Code: CodeInvalidRequest, Message: "the stored job cannot be read", cause: err}
		}
	}
	r.undo, r.undoAll = log.Rows, log.All
	ctx = identity.With(ctx, who)
	i, err := r.engine.NewImport(ctx, r.job.Object, req)
	if err != nil {
		return err
	}
	i.row = r.job.Processed
	next, err := source.from(r.job.Processed)
	if err != nil {
		return err
	}
	for {
		rows, err := next(MaxBatch)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return r.finish(asHost(ctx), JobSucceeded, "")
		}
		if err := r.batch(ctx, i, rows); err != nil {
			return err
		}
	}
}

// from returns what reads the rows behind the first n, up to so many at once,
// none at the end.
func (s *ImportSource) from(n int) (func(most int) ([]Record, error), error) {
	if s.CSV == "" {
		rest := s.Rows[min(n, len(s.Rows)):]
		return func(most int) ([]Record, error) {
			rows := rest[:min(most, len(rest))]
			rest = rest[len(rows):]
			return rows, nil
		}, nil
	}
	table, err := NewTable(strings.NewReader(s.CSV))
	if err != nil {
		return nil, err
	}
	return func(most int) (rows []Record, err error) {
		for len(rows) < most {
			row, err := table.Next()
			if errors.Is(err, io.EOF) {
				return rows, nil
			}
			if err != nil {
				return nil, err
			}
			if n > 0 {
				n--
				continue
			}
			rows = append(rows, row)
		}
		return rows, nil
	}, nil
}

// batch writes rows and the progress in one transaction.
func (r *jobRun) batch(ctx context.Context, i *Import, rows []Record) error {
	before := i.row
	var job ImportJob
	var results []ImportRow
	var undo []undoRow
	undoAll := r.undoAll
	var version string
	err := r.engine.db.InTx(ctx, func(ctx context.Context) error {
		i.row, undoAll = before, r.undoAll
		written, err := i.Batch(ctx, rows)
		if err != nil {
			return err
		}
		job = counted(r.job.ImportJob, written)
		results = report(r.results, written)
		undo, undoAll = r.undone(written)
		result, err := r.engine.Update(asHost(ctx), ImportJobObject, r.job.ID, r.progress(job, results, undo, undoAll), Match{IfMatch: r.job.version})
		if IsCode(err, CodeConcurrentUpdate) {
			return fmt.Errorf("%w: %w", errLostJob, err)
		}
		version, _ = result.Record["updated_at"].(string)
		return err
	})
	if err != nil {
		return err
	}
	r.job.ImportJob, r.job.version, r.results, r.undo, r.undoAll = job, version, results, undo, undoAll
	return nil
}

// counted adds rows to a job's counts.
func counted(job ImportJob, rows []ImportRow) ImportJob {
	job.Processed += len(rows)
	for _, row := range rows {
		switch row.Action {
		case ActionCreated:
			job.Created++
		case ActionUpdated:
			job.Updated++
		case ActionSkipped:
			job.Skipped++
		default:
			job.Errors++
		}
	}
	return job
}

// report keeps a bounded part of all rows: failures push others out.
func report(kept, rows []ImportRow) []ImportRow {
	kept = slices.Concat(kept, rows)
	for over := len(kept) - maxImportResults; over > 0; over-- {
		at := len(kept) - 1
		for at >= 0 && !kept[at].OK {
			at--
		}
		if at < 0 {
			return kept[:maxImportResults]
		}
		kept = slices.Delete(kept, at, at+1)
	}
	return kept
}

// undone adds rows to what an undo takes back.
func (r *jobRun) undone(rows []ImportRow) ([]undoRow, bool) {
	if r.job.DryRun || !r.undoAll {
		return nil, r.undoAll
	}
	undo := slices.Clone(r.undo)
	for _, row := range rows {
		switch row.Action {
		case ActionCreated:
			undo = append(undo, undoRow{ID: row.ID})
		case ActionUpdated:
			undo = append(undo, undoRow{ID: row.ID, Before: row.before})
		}
	}
	if len(undo) > maxImportUndo {
		return nil, false
	}
	return undo, true
}

// progress is what is stored of it.
func (r *jobRun) progress(job ImportJob, results []ImportRow, undo []undoRow, undoAll bool) Record {
	report, _ := encodeJSON(results)
	log, _ := encodeJSON(map[string]any{"all": undoAll, "rows": undo})
	return Record{
		"processed": job.Processed, "created_count": job.Created, "updated_count": job.Updated, "skipped_count": job.Skipped, "error_count": job.Errors,
		"results": string(report), "undo": string(log), "lease_until": event.FormatTime(r.engine.now().Add(importLease)),
	}
}

// finish ends the job and forgets what is no longer needed.
func (r *jobRun) finish(ctx context.Context, status JobStatus, reason string) error {
	values := Record{
		"status": string(status), "completed_at": event.FormatTime(r.engine.now()), "lease_until": nil, "payload": nil,
		"undoable": r.undoAll && len(r.undo) > 0,
	}
	if reason != "" {
		values["error"] = reason
	}
	_, err := r.engine.Update(ctx, ImportJobObject, r.job.ID, values, Match{IfMatch: r.job.version})
	if IsCode(err, CodeConcurrentUpdate) {
		return nil // cancelled in this moment
	}
	if err != nil {
		return err
	}
	_, err = r.engine.DeleteWhere(ctx, ImportJobObject, Where("completed_at", "$lt", event.FormatTime(r.engine.now().Add(-importKept))))
	return err
}

// release hands the job back.
func (r *jobRun) release(ctx context.Context) error {
	_, err := r.engine.Update(ctx, ImportJobObject, r.job.ID, Record{"lease_until": nil}, Match{IfMatch: r.job.version})
	if IsCode(err, CodeConcurrentUpdate) {
		return nil
	}
	return err
}

// Undone is what an undo has done.
type Undone struct {
	Deleted  int `json:"deleted"`
	Restored int `json:"restored"`
	Failed   int `json:"failed"`
}

// UndoImport takes one of the caller's jobs back, as the caller: it deletes the
// records that the job has created and gives those that it has updated the
// values that it replaced, the last row first. A job that is not undoable is
// refused with CodeNotUndoable. What cannot be taken back is counted as failed.
func (e *Engine) UndoImport(ctx context.Context, id string) (ImportJob, Undone, error) {
	job, err := e.ownJob(ctx, id)
	if err != nil {
		return ImportJob{}, Undone{}, err
	}
	if !job.Undoable || job.RevertedAt != "" {
		return ImportJob{}, Undone{}, &Error{Code: CodeNotUndoable, Message: fmt.Sprintf("Import %s cannot be undone: it wrote nothing, wrote more than %d records, still runs, or is undone already", id, maxImportUndo)}
	}
	var log struct{ Rows []undoRow }
	if err := job.decode("undo", &log); err != nil {
		return ImportJob{}, Undone{}, fmt.Errorf("read the undo of import %s: %w", id, err)
	}
	// Who asks at the same time finds the job reverted.
	_, err = e.Update(asHost(ctx), ImportJobObject, id, Record{
		"reverted_at": event.FormatTime(e.now()), "undoable": false, "undo": nil,
	}, Match{IfMatch: job.version})
	if err != nil {
		return ImportJob{}, Undone{}, err
	}
	var done Undone
	for _, row := range slices.Backward(log.Rows) {
		if err := e.undo(ctx, job.Object, row, &done); err != nil {
			return ImportJob{}, done, err
		}
	}
	reverted, err := e.ImportJob(ctx, id)
	return reverted, done, err
}

func (e *Engine) undo(ctx context.Context, objectName string, row undoRow, done *Undone) error {
	var err error
	if row.Before == nil {
		err = e.Delete(ctx, objectName, row.ID, Match{})
	} else {
		_, err = e.Update(ctx, objectName, row.ID, row.Before, Match{})
	}
	var known *Error
	switch {
	case errors.As(err, &known):
		done.Failed++
	case err != nil:
		return err
	case row.Before == nil:
		done.Deleted++
	default:
		done.Restored++
	}
	return nil
}
