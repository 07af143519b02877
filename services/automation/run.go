package automation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/automation/sqlstore"
	"github.com/objecthost/objecthost/storage"
)

// The states of a run that has ended.
const (
	RunCompleted = "completed"
	RunFailed    = "failed"
)

// Trigger starts a run by hand.
type Trigger struct {
	// Event names what happened; empty means manual.
	Event string
	// Object and RecordID name a record that the run is about.
	Object, RecordID string
	// Params are the values of the flow's inputs.
	Params map[string]any
	// Record and Previous are the record's values, where the caller has them.
	Record, Previous map[string]any
}

// RunResult is what became of a run that a caller waited for.
type RunResult struct {
	RunID string
	// Skipped tells that the start condition was false: there was no run.
	Skipped bool
	// Status is completed or paused.
	Status         string
	Output         map[string]any
	DurationMs     int64
	SuccessMessage string
	Summary        *Summary
}

// FailedError is returned for a run that failed.
type FailedError struct {
	RunID string
	// ErrorMessage is the flow's own.
	ErrorMessage string
	Summary      *Summary
	DurationMs   int64
	Err          error
}

func (e *FailedError) Error() string { return e.Err.Error() }

// Unwrap returns why the run failed.
func (e *FailedError) Unwrap() error { return e.Err }

// Execute runs a flow and waits until it ends or pauses. The principal of ctx
// is who triggers it. Once it has begun the run does not end with ctx. Errors
// are ErrFlowNotFound, ErrFlowDisabled, ErrNoStartNode, and *FailedError.
func (s *Service) Execute(ctx context.Context, name string, t Trigger) (*RunResult, error) {
	end, err := s.begin()
	if err != nil {
		return nil, err
	}
	defer end()
	fl, err := s.flows.runnable(ctx, name)
	if err != nil {
		return nil, err
	}
	tr := &trigger{
		Type: triggerManual, Event: orDefault(t.Event, triggerManual), Object: t.Object, RecordID: t.RecordID,
		Params: t.Params, Record: t.Record, Previous: t.Previous, Principal: identity.From(ctx),
	}
	w := s.newWalk(fl, s.newRow(fl, tr), tr)
	ctx, cancel := s.detach(ctx)
	defer cancel()
	return w.first(ctx, fl)
}

// detach keeps a run from ending with its caller, and ends it with the host.
func (s *Service) detach(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	release := context.AfterFunc(s.running, func() { cancel(context.Cause(s.running)) })
	return ctx, func() {
		release()
		cancel(nil)
	}
}

// newRow is a run that has not begun.
func (s *Service) newRow(fl *flow, tr *trigger) *sqlstore.Run {
	now := s.cfg.Now().UnixMilli()
	return &sqlstore.Run{
		ID: "run_" + uuid.Must(uuid.NewV7()).String(), FlowName: fl.def.Name, FlowVersion: fl.def.Version, Status: sqlstore.StatusRunning,
		TriggerType: tr.Type, ObjectName: tr.Object, RecordID: tr.RecordID, UserID: tr.Principal.UserID,
		OrganizationID: tr.Principal.OrganizationID, StartedAt: now, CreatedAt: now, UpdatedAt: now,
	}
}

func (s *Service) newWalk(fl *flow, row *sqlstore.Run, tr *trigger) *walk {
	w := &walk{
		s: s, row: row, trigger: tr, token: uuid.NewString(), began: s.cfg.Now(),
		flows: map[string]*flow{fmt.Sprintf("%s@%d", fl.def.Name, fl.def.Version): fl},
	}
	w.st = &state{
		Executions: map[string]int{}, Steps: []*step{},
		Frames: []*frame{{
			Kind: frameFlow, Flow: fl.def.Name, Version: fl.def.Version, Scope: newScope(fl, tr, row.ID), Queue: []item{{Node: fl.start.ID}},
		}},
	}
	return w
}

// newScope holds the variables with which a flow begins.
func newScope(fl *flow, tr *trigger, runID string) *scopeState {
	vars := map[string]any{"previous": nil, "$runId": runID, "$flowName": fl.def.Name, "$flowLabel": fl.def.Label}
	params := tr.Params
	if tr.Record != nil {
		vars["record"] = tr.Record
		if params == nil {
			params = tr.Record
		}
	}
	if tr.Previous != nil {
		vars["previous"] = tr.Previous
	}
	for _, v := range fl.def.Variables {
		value, given := params[v.Name]
		switch {
		case v.IsInput && given:
			vars[v.Name] = value
		case v.HasDefault:
			vars[v.Name] = v.DefaultValue
		}
	}
	return &scopeState{Vars: vars, Params: params}
}

// output is what a flow hands back: its output variables that are set.
func (fl *flow) output(scope *scopeState) map[string]any {
	out := map[string]any{}
	for _, v := range fl.def.Variables {
		if value, ok := scope.Vars[v.Name]; ok && v.IsOutput {
			out[v.Name] = value
		}
	}
	return out
}

// first begins a run: the start condition, then the walk.
func (w *walk) first(ctx context.Context, fl *flow) (*RunResult, error) {
	if fl.condition != nil {
		ok, err := w.truth(ctx, fl.condition)
		if err != nil {
			return w.end(ctx, &NodeError{fl.start.ID, CodeExecutionError, err})
		}
		if !ok {
			return w.skip(ctx)
		}
	}
	return w.drive(ctx)
}

// skip ends a run whose start condition is false. A run that has a row already
// completes.
func (w *walk) skip(ctx context.Context) (*RunResult, error) {
	result := &RunResult{Skipped: true, Output: map[string]any{"skipped": true, "reason": conditionNotMet}}
	if !w.stored {
		return result, nil
	}
	w.row.Output = `{"skipped":true,"reason":"` + conditionNotMet + `"}`
	return result, w.closeRow(ctx, RunCompleted)
}

// longestRetry is how long a run waits for another try without giving its place
// away.
const longestRetry = 5 * time.Second

// drive executes a run until it ends or waits.
func (w *walk) drive(ctx context.Context) (*RunResult, error) {
	for {
		out, err := w.walk(ctx)
		w.st.ActiveMs = w.active + w.s.cfg.Now().Sub(w.began).Milliseconds()
		switch {
		case out == outcomeDone:
			return w.end(ctx, nil)
		case out == outcomeFailed:
			return w.end(ctx, err)
		case err != nil:
			return nil, w.giveBack(err)
		}
		if wait := w.st.Wait; wait.Kind == waitRetry && (wait.Delay <= longestRetry || w.before) {
			w.st.Wait = nil
			if err := w.sleep(ctx, wait.Delay); err != nil {
				if w.before {
					return w.end(ctx, err)
				}
				return nil, w.giveBack(err)
			}
			continue
		}
		if w.before {
			return w.end(ctx, errors.New("a flow that runs before a write cannot wait"))
		}
		return w.pause(ctx)
	}
}

func (w *walk) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.s.stop:
		if w.stored {
			return errStopped
		}
	}
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pause saves a run that waits and gives it up.
func (w *walk) pause(ctx context.Context) (*RunResult, error) {
	if w.token != "" { // a delivery's wait was saved along with the delivery
		ctx = context.WithoutCancel(ctx)
		if err := w.saveNow(ctx); err != nil {
			return nil, w.giveBack(err)
		}
	}
	w.s.ring.put(w.log())
	w.s.poke()
	return &RunResult{RunID: w.row.ID, Status: sqlstore.StatusPaused, DurationMs: w.row.DurationMs}, nil
}

// end writes the end of a run.
func (w *walk) end(ctx context.Context, failure error) (*RunResult, error) {
	root := w.st.Frames[0]
	fl, err := w.flow(root.Flow, root.Version)
	if err != nil {
		return nil, w.giveBack(err)
	}
	status := RunCompleted
	output := fl.output(root.Scope)
	if failure != nil {
		status = RunFailed
		w.row.Error = failure.Error()
		var at *NodeError
		if errors.As(failure, &at) {
			w.row.ErrorNode = at.NodeID
		} else if n := len(w.st.Steps); n > 0 {
			w.row.ErrorNode = w.st.Steps[n-1].NodeID
		}
		w.s.log.WarnContext(ctx, "flow run failed", "flow", w.row.FlowName, "run_id", w.row.ID, "node", w.row.ErrorNode,
			"trigger", w.row.TriggerType, "error", failure)
	} else if text, err := encodeJSON(output); err == nil {
		w.row.Output = string(text)
	}
	if err := w.closeRow(ctx, status); err != nil {
		return nil, err
	}
	if failure != nil {
		return nil, &FailedError{w.row.ID, fl.def.ErrorMessage, w.st.summary(), w.row.DurationMs, failure}
	}
	return &RunResult{
		RunID: w.row.ID, Status: status, Output: output, DurationMs: w.row.DurationMs,
		SuccessMessage: fl.def.SuccessMessage, Summary: w.st.summary(),
	}, nil
}

// closeRow saves the end of a run. Runs before a write are noted after it: they
// must not wait for, or vanish with, what the write's caller has open.
func (w *walk) closeRow(ctx context.Context, status string) error {
	now := w.s.cfg.Now().UnixMilli()
	w.st.Wait, w.st.Busy = nil, nil
	w.row.Status, w.row.CompletedAt = status, now
	w.s.ring.put(w.log())
	ctx = context.WithoutCancel(ctx)
	if w.before {
		storage.AfterCommit(ctx, func(ctx context.Context) {
			if err := w.write(ctx); err != nil {
				w.s.log.WarnContext(ctx, "run before a write could not be logged", "run_id", w.row.ID, "error", err)
			}
		})
		return nil
	}
	if err := w.write(ctx); err != nil {
		return w.giveBack(fmt.Errorf("save the end of a run: %w", err))
	}
	w.s.poke() // the next run of its queue may begin
	return nil
}

// save writes the run as it stands, in the transaction of ctx.
func (w *walk) save(ctx context.Context) error {
	if w.before {
		return nil
	}
	w.row.Status = sqlstore.StatusRunning
	if wait := w.st.Wait; wait != nil {
		w.row.Status = sqlstore.StatusPaused
		if wait.Kind == waitRetry {
			w.row.Status = sqlstore.StatusRetrying
		}
		if wait.Kind == waitTimer || wait.Kind == waitRetry {
			now, err := w.s.store.Now(ctx)
			if err != nil {
				return err
			}
			w.row.WakeAt = now + wait.Delay.Milliseconds()
		}
	}
	return w.write(ctx)
}

// write puts the row together and writes it.
func (w *walk) write(ctx context.Context) error {
	row := w.row
	row.UpdatedAt = w.s.cfg.Now().UnixMilli()
	row.DurationMs = max(0, row.UpdatedAt-row.StartedAt)
	row.ClaimedBy, row.ClaimToken, row.WaitKind, row.WaitKey, row.Resume = w.s.node, w.token, "", "", ""
	if row.Status != sqlstore.StatusRunning {
		row.ClaimedBy, row.ClaimToken = "", ""
	}
	if wait := w.st.Wait; wait != nil {
		row.WaitKind, row.WaitKey = wait.Kind, wait.Key
	} else {
		row.WakeAt = 0
	}
	if err := w.encode(); err != nil {
		return err
	}
	if w.stored {
		ok, err := w.s.store.Save(ctx, row, w.token)
		if err == nil && !ok {
			return errLost
		}
		return err
	}
	now, err := w.s.store.Now(ctx)
	if err != nil {
		return err
	}
	row.ClaimEnds = now + w.s.cfg.Lease.Milliseconds()
	added, err := w.s.store.Insert(ctx, row)
	if err == nil && added == 0 {
		return errLost
	}
	return err
}

func (w *walk) encode() error {
	row := w.row
	for _, part := range []struct {
		into  *string
		value any
	}{{&row.Trigger, w.trigger}, {&row.Steps, w.st.kept()}, {&row.Summary, w.st.summary()}, {&row.Variables, w.variables()}} {
		text, err := encodeJSON(part.value)
		if err != nil {
			return err
		}
		*part.into = string(text)
	}
	row.State = ""
	if row.CompletedAt != 0 {
		row.Variables = ""
		return nil
	}
	text, err := w.st.snapshot()
	row.State = string(text)
	return err
}

// variables are what the log shows of a run that goes on.
func (w *walk) variables() map[string]any { return w.st.Frames[0].Scope.Vars }

// saved notes that what save wrote has committed.
func (w *walk) saved() {
	w.stored = !w.before
	if w.row.Status != sqlstore.StatusRunning && !w.before {
		w.token = ""
	}
}

// saveNow is save in a transaction of its own.
func (w *walk) saveNow(ctx context.Context) error {
	if w.before {
		return nil
	}
	if err := w.s.db.InTx(storage.Named(ctx, "flow run"), w.save); err != nil {
		return err
	}
	w.saved()
	return nil
}

// giveBack leaves a run to whoever claims it next, from where it was saved.
func (w *walk) giveBack(cause error) error {
	if w.stored && w.token != "" && !errors.Is(cause, errLost) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := w.s.store.Release(ctx, w.row.ID, w.token); err != nil {
			w.s.log.Warn("run could not be given back, its claim has to run out", "run_id", w.row.ID, "error", err)
		}
	}
	return fmt.Errorf("run %s: %w", w.row.ID, cause)
}
