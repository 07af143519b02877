package automation

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/storage"
)

// execution is one try of a node that is no container.
type execution struct {
	w      *walk
	f      *frame
	n      *compiledNode
	number int
	step   *Step
	// applied tells that the node's result is in the state.
	applied bool
	// recorded tells that the write of a record node saved the step.
	recorded bool
	result   Result
}

// run executes the node and saves the run as the node's effect asks for. ctx
// carries the actor; save is the context in which the run is saved.
func (ex *execution) run(ctx, save context.Context) error {
	w := ex.w
	effect := ex.n.typ.Effect
	if ex.n.Type == "http" {
		effect = httpEffect(ex.step.Config)
	}
	if w.before && effect != EffectStore {
		effect = EffectNone
	}
	var err error
	switch effect {
	case EffectStore:
		err = ex.inStore(ctx)
	case effectRecord:
		err = ex.record(ctx, save)
	case EffectExternal:
		err = ex.external(ctx, save)
	default:
		if err = ex.call(ctx); err == nil {
			err = ex.apply()
		}
	}
	if err == nil {
		return nil
	}
	var fatal *fatalError
	if errors.As(err, &fatal) {
		return err
	}
	if !w.before && (storage.IsTransient(err) || errors.Is(err, errLost)) {
		return &fatalError{err} // the database's trouble is not the flow's
	}
	ex.unapply()
	if stopped := context.Cause(save); save.Err() != nil {
		var limit *LimitError
		if errors.As(stopped, &limit) {
			return stopped
		}
		if errors.Is(stopped, errStopped) || errors.Is(stopped, errLost) {
			return &fatalError{stopped}
		}
	}
	if ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		err = context.Cause(ctx)
	}
	return w.fail(save, ex.f, ex.n, ex.number, ex.result, nodeError(ex.n, err))
}

// call runs the node and turns a panic into an error.
func (ex *execution) call(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			ex.w.s.log.ErrorContext(ctx, "node panicked", "node_type", ex.n.Type, "run_id", ex.w.row.ID, "panic", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("the executor of node type '%s' panicked", ex.n.Type)
		}
	}()
	ex.result, err = ex.n.typ.Run(ctx, ex.step)
	return err
}

// inStore runs the node in the transaction that saves it.
func (ex *execution) inStore(ctx context.Context) error {
	var failed error
	err := ex.w.s.db.InTx(ctx, func(ctx context.Context) error {
		failed = nil
		if failed = ex.call(ctx); failed == nil {
			failed = ex.apply()
		}
		if failed != nil {
			return failed
		}
		return ex.w.save(ctx)
	})
	if err != nil && failed == nil {
		return &fatalError{err}
	}
	if err == nil {
		ex.w.saved()
	}
	return err
}

// external notes that the node begins, runs it, and saves what it gave.
func (ex *execution) external(ctx, save context.Context) error {
	w := ex.w
	w.st.Busy = &busy{ex.n.ID, ex.number}
	// The item goes back for as long as the node runs: a crash finds the node
	// where it was.
	ex.f.Queue = append([]item{{Node: ex.n.ID}}, ex.f.Queue...)
	err := w.saveNow(save)
	ex.f.Queue = ex.f.Queue[1:]
	if err != nil {
		return &fatalError{err}
	}
	err = ex.call(ctx)
	w.st.Busy = nil
	if err != nil {
		return err
	}
	if err := ex.apply(); err != nil {
		return err
	}
	if err := w.saveNow(context.WithoutCancel(save)); err != nil {
		return &fatalError{err}
	}
	return nil
}

type recordKey struct{}

// record runs a node that writes a record. The data engine opens the
// transaction after its hooks; the step is saved from within it.
func (ex *execution) record(ctx, save context.Context) error {
	err := ex.call(context.WithValue(ctx, recordKey{}, ex))
	if err != nil {
		return err
	}
	if ex.recorded {
		ex.w.saved()
		return nil
	}
	if err := ex.apply(); err != nil {
		return err
	}
	if err := ex.w.saveNow(save); err != nil {
		return &fatalError{err}
	}
	return nil
}

// within saves the step in the transaction of the write that it made.
func (ex *execution) within(ctx context.Context, change *data.Change) error {
	object, _ := ex.step.Config["objectName"].(string)
	if change.Object != object || ex.n.typ.Effect != effectRecord {
		return nil
	}
	result, ok, err := ex.w.s.changed(ex.step, change)
	if err != nil || !ok {
		return err
	}
	ex.result = result
	if err := ex.apply(); err != nil {
		return err
	}
	ex.recorded = true
	return ex.w.save(ctx)
}

// apply puts the node's result into the state. It may be called again with
// another result, when the transaction around it is tried again.
func (ex *execution) apply() error {
	w, r := ex.w, &ex.result
	output := map[string]any{}
	for key, item := range r.Output {
		var err error
		if output[key], err = plain(item); err != nil {
			return err
		}
	}
	scope := w.st.scope()
	if len(output) > 0 {
		if scope.Outputs == nil {
			scope.Outputs = map[string]map[string]any{}
		}
		scope.Outputs[ex.n.ID] = output
	}
	for _, name := range sortedKeys(r.Variables) {
		item, err := plain(r.Variables[name])
		if err != nil {
			return err
		}
		scope.set(splitName(name), item)
	}
	if name, ok := ex.step.Config["outputVariable"].(string); ok && name != "" && r.Output != nil {
		if main, ok := output["record"]; ok {
			scope.set(splitName(name), main)
		} else if main, ok := output["records"]; ok {
			scope.set(splitName(name), main)
		} else if main, ok := output["result"]; ok {
			scope.set(splitName(name), main)
		}
	}
	if s := w.st.step(ex.number); s != nil {
		s.end(stepSuccess, w.s.cfg.Now(), nil, *r)
	}
	if ex.applied {
		return nil
	}
	ex.applied = true
	w.count(ex.n, *r, 1)
	w.st.Executions[w.key(ex.n)]++
	delete(w.st.Retries, w.key(ex.n))
	if r.wait != nil {
		r.wait.Node = ex.n.ID
		w.st.Wait = r.wait
		return nil
	}
	ex.f.Queue = append([]item{{Node: ex.n.ID, Leave: true, Label: r.Label}}, ex.f.Queue...)
	return nil
}

// unapply takes back what apply counted, after the transaction around it was
// rolled back.
func (ex *execution) unapply() {
	if !ex.applied {
		return
	}
	ex.applied = false
	ex.w.count(ex.n, ex.result, -1)
	ex.w.st.Executions[ex.w.key(ex.n)]--
	if ex.result.wait != nil {
		ex.w.st.Wait = nil
		return
	}
	ex.f.Queue = ex.f.Queue[1:]
}

// count adds the metrics of a node to the summary, or takes them away.
func (w *walk) count(n *compiledNode, r Result, sign int) {
	owner := w.st.flowFrame(len(w.st.Frames) - 1)
	if owner != w.st.Frames[0] {
		owner.Selected += sign * value(r.Selected)
		owner.Acted += sign * value(r.Acted)
		return
	}
	sum := w.st.node(n)
	addTo(&sum.Selected, r.Selected, sign)
	addTo(&sum.Acted, r.Acted, sign)
	addTo(&sum.Unmeasured, r.Unmeasured, sign)
}
