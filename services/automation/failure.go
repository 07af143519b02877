package automation

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// fail deals with the failure of a node in the frame f. It returns nil when the
// run goes on: with another try, along a fault edge, into a catch region, or
// because the flow's strategy is to continue.
func (w *walk) fail(ctx context.Context, f *frame, n *compiledNode, number int, r Result, failure *NodeError) error {
	if stopped := w.ended(ctx, failure); stopped != nil {
		return stopped
	}
	if s := w.st.step(number); s != nil {
		s.end(stepFailure, w.s.cfg.Now(), failure, r)
	}
	if w.summarized() {
		sum := w.st.node(n)
		sum.Failures++
		sum.Status = stepFailure
	}
	w.count(n, r, 1)
	if final(failure) {
		return failure
	}
	fl, err := w.flowAt(f)
	if err != nil {
		return &fatalError{err}
	}
	if !permanent(failure) && w.retry(fl.def.ErrorHandling, f, n) {
		return nil
	}
	w.st.Executions[w.key(n)]++
	delete(w.st.Retries, w.key(n))
	for _, e := range fl.regions[f.Region].out[n.ID] {
		if e.Type == EdgeFault {
			w.setError("$error", n, failure, r)
			f.Queue = append([]item{{Node: e.Target}}, f.Queue...)
			return nil
		}
	}
	if h := fl.def.ErrorHandling; h != nil && h.Strategy == StrategyContinue {
		w.setError("$error", n, failure, r)
		f.Queue = append([]item{{Node: n.ID, Leave: true}}, f.Queue...)
		return nil
	}
	return w.propagate(ctx, f, n, r, failure)
}

// final reports failures that nothing in a flow can catch: refusals before
// anything was done, refusals by an end node, and limits.
func final(err error) bool {
	var guard *GuardError
	var limit *LimitError
	var refused *refusal
	return errors.As(err, &guard) || errors.As(err, &limit) || errors.As(err, &refused)
}

// permanent reports failures that another try would meet again.
func permanent(err error) bool {
	var p *PermanentError
	return errors.As(err, &p)
}

func (w *walk) setError(name string, n *compiledNode, failure *NodeError, r Result) {
	value := map[string]any{"nodeId": n.ID, "message": failure.Err.Error()}
	if r.Output != nil {
		if output, err := plain(r.Output); err == nil {
			value["output"] = output
		}
	}
	w.st.scope().Vars[name] = value
}

// retry puts the node back when the flow has tries left.
func (w *walk) retry(h *ErrorHandling, f *frame, n *compiledNode) bool {
	key := w.key(n)
	if h == nil || h.Strategy != StrategyRetry || w.st.Retries[key] >= h.MaxRetries {
		return false
	}
	w.again(f, n.ID, key, h.delay(w.st.Retries[key]))
	return true
}

func (w *walk) again(f *frame, node, key string, delay time.Duration) {
	if w.st.Retries == nil {
		w.st.Retries = map[string]int{}
	}
	w.st.Retries[key]++
	f.Queue = append([]item{{Node: node}}, f.Queue...)
	w.st.Wait = &waitState{Kind: waitRetry, Node: node, Delay: delay}
}

// delay is the pause before another try, after so many tries.
func (h *ErrorHandling) delay(tries int) time.Duration {
	ms := float64(h.BackoffMs) * math.Pow(h.BackoffMultiplier, float64(tries))
	if h.MaxRetryDelayMs > 0 {
		ms = min(ms, float64(h.MaxRetryDelayMs))
	}
	if h.Jitter {
		ms *= 0.5 + rand.Float64()/2
	}
	return time.Duration(ms * float64(time.Millisecond))
}

// propagate carries a failure out of the frame f: into the catch region of a
// try, or to the container around, whose failure it becomes. At the bottom the
// run fails.
func (w *walk) propagate(ctx context.Context, f *frame, n *compiledNode, r Result, failure *NodeError) error {
	at := slices.Index(w.st.Frames, f)
	if at <= 0 {
		return failure
	}
	below := w.st.Frames[at-1]
	if f.Kind == frameTry {
		if handled, err := w.rescue(f, at, n, r, failure); handled || err != nil {
			return err
		}
	}
	w.st.Frames = w.st.Frames[:at]
	fl, err := w.flowAt(below)
	if err != nil {
		return &fatalError{err}
	}
	if f.Kind == frameFlow && below.Kind == frameMap {
		return w.propagate(ctx, below, n, r, failure)
	}
	container := fl.nodes[f.Node]
	return w.fail(ctx, below, container, f.Step, Result{}, &NodeError{container.ID, CodeNodeFailure, failure})
}

// rescue tries a try region again or enters its catch region.
func (w *walk) rescue(f *frame, at int, n *compiledNode, r Result, failure *NodeError) (bool, error) {
	fl, err := w.flowAt(f)
	if err != nil {
		return false, &fatalError{err}
	}
	container := fl.nodes[f.Node]
	if h := retryOf(container); h != nil && f.Tries < h.MaxRetries && !permanent(failure) {
		f.Tries++
		f.Queue, f.Entries = entryItems(fl, f.Region), nil
		w.st.Wait = &waitState{Kind: waitRetry, Node: container.ID, Delay: h.delay(f.Tries - 1)}
		return true, nil
	}
	region := container.ID + ".catch"
	if fl.regions[region] == nil {
		return false, nil
	}
	w.setError("$error", n, failure, r)
	if name, ok := container.Config["errorVariable"].(string); ok && name != "" {
		w.setError(name, n, failure, r)
	}
	w.st.Frames = append(w.st.Frames[:at], &frame{Kind: frameCatch, Node: f.Node, Step: f.Step, Region: region, Queue: entryItems(fl, region)})
	return true, nil
}

// retryOf reads the retry of a try_catch node, which has the keys of a flow's
// errorHandling.
func retryOf(n *compiledNode) *ErrorHandling {
	d := &decoder{}
	h := d.errorHandling(n.Config, "retry")
	if h == nil || len(d.problems) > 0 {
		return nil
	}
	return h
}

func entryItems(fl *flow, region string) []item {
	var out []item
	for _, id := range fl.regions[region].entry {
		out = append(out, item{Node: id})
	}
	return out
}
