package automation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/objecthost/objecthost/services/automation/sqlstore"
)

// Resume is what a paused run goes on with.
type Resume struct {
	// Inputs become variables, Output the output of the node that waited.
	Inputs, Output map[string]any
	// BranchLabel chooses the edges to follow.
	BranchLabel string
}

// resumption is a Resume as it is kept with a run.
type resumption struct {
	Inputs      map[string]any `json:"inputs,omitempty"`
	Output      map[string]any `json:"output,omitempty"`
	BranchLabel string         `json:"branchLabel,omitempty"`
}

// Resume lets a paused run go on and waits until it ends or pauses again.
// Errors are ErrFlowNotFound, ErrRunNotFound for a run that does not wait,
// ErrResumeInProgress for one that is being executed, and *FailedError.
func (s *Service) Resume(ctx context.Context, flow, id string, r Resume) (*RunResult, error) {
	end, err := s.begin()
	if err != nil {
		return nil, err
	}
	defer end()
	row, err := s.runOf(ctx, flow, id)
	if err != nil {
		return nil, err
	}
	switch row.Status {
	case sqlstore.StatusPaused:
	case sqlstore.StatusRunning, sqlstore.StatusRetrying, sqlstore.StatusPending:
		return nil, ErrResumeInProgress
	default:
		return nil, ErrRunNotFound
	}
	for name := range r.Inputs {
		if err := assignable(name); err != nil {
			return nil, &InvalidInputError{"inputs: " + err.Error()}
		}
	}
	row, err = s.store.ClaimPaused(ctx, flow, id, s.node, newToken(), s.cfg.Lease)
	if errors.Is(err, sqlstore.ErrNotFound) {
		return nil, ErrResumeInProgress
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.detach(ctx)
	defer cancel()
	return s.proceed(ctx, row, &resumption{r.Inputs, r.Output, r.BranchLabel})
}

// proceed goes on with a run that this node has claimed.
func (s *Service) proceed(ctx context.Context, row *sqlstore.Run, r *resumption) (*RunResult, error) {
	w := &walk{s: s, row: row, token: row.ClaimToken, stored: true, flows: map[string]*flow{}, began: s.cfg.Now(), trigger: &trigger{}}
	if err := decodeJSON([]byte(row.Trigger), w.trigger); err != nil {
		return nil, w.giveBack(fmt.Errorf("read trigger: %w", err))
	}
	fl, err := s.flows.version(ctx, row.FlowName, row.FlowVersion)
	if err != nil {
		return nil, w.giveBack(err)
	}
	fresh := row.State == ""
	if fresh {
		token := w.token
		w = s.newWalk(fl, row, w.trigger)
		w.token, w.stored = token, true
	} else {
		w.st = &state{}
		if err := decodeJSON([]byte(row.State), w.st); err != nil {
			return nil, w.giveBack(fmt.Errorf("read state: %w", err))
		}
		w.active = w.st.ActiveMs
	}
	if row.CrashCount >= s.cfg.Limits.Crashes {
		return w.end(ctx, &LimitError{"Crashes", int64(s.cfg.Limits.Crashes), fmt.Sprintf("The process ended %d times while it executed this run", row.CrashCount)})
	}
	if fresh {
		return w.first(ctx, fl)
	}
	if r == nil && row.Resume != "" {
		r = &resumption{}
		if err := decodeJSON([]byte(row.Resume), r); err != nil {
			return nil, w.giveBack(fmt.Errorf("read resume: %w", err))
		}
	}
	if err := w.wakeUp(r); err != nil {
		return nil, w.giveBack(err)
	}
	if err := w.recover(ctx); err != nil {
		return w.end(ctx, err)
	}
	return w.drive(ctx)
}

// wakeUp ends the wait of a run.
func (w *walk) wakeUp(r *resumption) error {
	wait := w.st.Wait
	w.st.Wait = nil
	if wait == nil || wait.Kind == waitRetry {
		return nil
	}
	f := w.st.top()
	scope := w.st.scope()
	label := ""
	if r != nil {
		label = r.BranchLabel
		for name, value := range r.Inputs {
			scope.set(splitName(name), value)
		}
		if len(r.Output) > 0 {
			merged := map[string]any{}
			for key, value := range scope.Outputs[wait.Node] {
				merged[key] = value
			}
			for key, value := range r.Output {
				merged[key] = value
			}
			if scope.Outputs == nil {
				scope.Outputs = map[string]map[string]any{}
			}
			scope.Outputs[wait.Node] = merged
		}
	}
	f.Queue = append([]item{{Node: wait.Node, Leave: true, Label: label}}, f.Queue...)
	return nil
}

// recover deals with a node that reached outside when the process ended: what
// became of it is not known.
func (w *walk) recover(ctx context.Context) error {
	busy := w.st.Busy
	if busy == nil {
		return nil
	}
	w.st.Busy = nil
	f := w.st.top()
	if len(f.Queue) > 0 && f.Queue[0].Node == busy.Node && !f.Queue[0].Leave {
		f.Queue = f.Queue[1:]
	}
	fl, err := w.flowAt(f)
	if err != nil {
		return err
	}
	n := fl.nodes[busy.Node]
	if n == nil {
		return fmt.Errorf("automation: flow %s has no node %s", fl.def.Name, busy.Node)
	}
	failure := &NodeError{n.ID, CodeExecutionError, errors.New("the host ended while the node was executed; whether it had its effect is not known")}
	if err := w.fail(ctx, f, n, busy.Step, Result{Unmeasured: count(1)}, failure); err != nil {
		return err
	}
	if wait := w.st.Wait; wait != nil && wait.Kind == waitRetry {
		w.st.Wait = nil
		return w.sleep(ctx, min(wait.Delay, longestRetry))
	}
	return nil
}

// RunLog is a run as the log shows it.
type RunLog struct {
	ID          string         `json:"id"`
	FlowName    string         `json:"flowName"`
	FlowVersion int            `json:"flowVersion"`
	Status      string         `json:"status"`
	StartedAt   string         `json:"startedAt"`
	CompletedAt string         `json:"completedAt,omitempty"`
	DurationMs  int64          `json:"durationMs"`
	Trigger     RunTrigger     `json:"trigger"`
	Steps       []*step        `json:"steps"`
	Output      any            `json:"output,omitempty"`
	Variables   map[string]any `json:"variables,omitempty"`
	Summary     *Summary       `json:"summary,omitempty"`
	Error       string         `json:"error,omitempty"`

	organization string
	updated      time.Time
}

// RunTrigger is what started a run, as the log shows it.
type RunTrigger struct {
	Type     string `json:"type"`
	UserID   string `json:"userId,omitempty"`
	Object   string `json:"object,omitempty"`
	RecordID string `json:"recordId,omitempty"`
}
