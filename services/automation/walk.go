package automation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/automation/sqlstore"
)

// walk is the execution of one run in this process. It belongs to one
// goroutine.
type walk struct {
	s       *Service
	row     *sqlstore.Run
	st      *state
	trigger *trigger
	flows   map[string]*flow // by name and version
	// token is the claim under which the run is saved; stored tells that the
	// run has a row.
	token  string
	stored bool
	// before marks a run inside a write: nothing of it is saved on the way.
	before bool
	began  time.Time
	// active is ActiveMs as of began.
	active int64
}

// outcome is how far a walk came.
type outcome int

const (
	outcomeDone outcome = iota
	outcomeFailed
	outcomeWaiting
)

// refusal ends a run that an end node refuses.
type refusal struct{ message string }

func (e *refusal) Error() string { return e.message }

// walk goes on until the run ends or waits. The error of outcomeFailed is why the run
// failed; with any other outcome an error tells that the run could not be
// carried on with now, and what was saved last counts.
func (w *walk) walk(ctx context.Context) (outcome, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, w.timeLeft(), &LimitError{
		"RunTime", w.s.cfg.Limits.RunTime.Milliseconds(),
		fmt.Sprintf("The run takes longer than %s", w.s.cfg.Limits.RunTime),
	})
	defer cancel()
	for {
		if err := w.interrupted(ctx); err != nil {
			var limit *LimitError
			if errors.As(err, &limit) {
				return outcomeFailed, err
			}
			return outcomeWaiting, err
		}
		f := w.st.top()
		if len(f.Queue) == 0 {
			if len(w.st.Frames) == 1 {
				return outcomeDone, nil
			}
		}
		err := w.next(ctx, f)
		var fatal *fatalError
		switch {
		case errors.As(err, &fatal):
			return outcomeWaiting, fatal.err
		case err != nil:
			return outcomeFailed, err
		case w.st.Wait != nil:
			return outcomeWaiting, nil
		}
	}
}

// next does the next thing in a frame.
func (w *walk) next(ctx context.Context, f *frame) error {
	if len(f.Queue) == 0 {
		return w.close(ctx, f)
	}
	it := f.Queue[0]
	f.Queue = slices.Clone(f.Queue[1:])
	if it.Leave {
		return w.leave(ctx, f, it)
	}
	return w.enter(ctx, f, it)
}

// fatalError is trouble of the host's own: the run is not to blame.
type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }

func (w *walk) timeLeft() time.Duration {
	return max(0, w.s.cfg.Limits.RunTime-time.Duration(w.active)*time.Millisecond)
}

// interrupted tells why the walk must not go on.
func (w *walk) interrupted(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if w.stored && w.s.draining() {
		return errStopped
	}
	return nil
}

// flow returns the definition of the innermost flow of frame i.
func (w *walk) flowAt(f *frame) (*flow, error) {
	for i := len(w.st.Frames) - 1; i >= 0; i-- {
		if w.st.Frames[i] == f {
			owner := w.st.flowFrame(i)
			return w.flow(owner.Flow, owner.Version)
		}
	}
	return nil, fmt.Errorf("automation: a frame is lost")
}

func (w *walk) flow(name string, version int) (*flow, error) {
	key := fmt.Sprintf("%s@%d", name, version)
	if f := w.flows[key]; f != nil {
		return f, nil
	}
	f, err := w.s.flows.version(context.Background(), name, version)
	if err != nil {
		return nil, err
	}
	w.flows[key] = f
	return f, nil
}

// enter executes a node.
func (w *walk) enter(ctx context.Context, f *frame, it item) error {
	fl, err := w.flowAt(f)
	if err != nil {
		return &fatalError{err}
	}
	n := fl.nodes[it.Node]
	if n == nil {
		return &fatalError{fmt.Errorf("automation: flow %s has no node %s", fl.def.Name, it.Node)}
	}
	if n.Type == "end" {
		return w.finish(n)
	}
	if err := w.bounds(f, n); err != nil {
		return err
	}
	number := w.st.begin(w.newStep(f, fl, n), w.s.cfg.Now())
	if w.summarized() {
		w.st.node(n).Runs++
	}
	if n.typ == nil {
		// A type whose plugin has come since the flow was compiled.
		late := *n
		n = &late
		if n.typ = w.s.nodes.get(n.Type); n.typ == nil {
			return w.fail(ctx, f, n, number, Result{}, &NodeError{n.ID, CodeNoExecutor, fmt.Errorf("No executor registered for node type '%s'", n.Type)}) //nolint:revive,staticcheck // a sentence of the wire protocol
		}
	}
	return w.execute(ctx, f, n, number)
}

// bounds refuses runs that would never end.
func (w *walk) bounds(f *frame, n *compiledNode) error {
	limits := &w.s.cfg.Limits
	if f.Entries == nil {
		f.Entries = map[string]int{}
	}
	key := f.Region + "/" + n.ID
	if f.Entries[key]++; f.Entries[key] > limits.NodeEntries {
		return &LimitError{"NodeEntries", int64(limits.NodeEntries), fmt.Sprintf("Node '%s' was entered more than %d times", n.ID, limits.NodeEntries)}
	}
	if w.st.StepCount >= limits.Steps {
		return &LimitError{"Steps", int64(limits.Steps), fmt.Sprintf("The run has more than %d steps, the last is '%s'", limits.Steps, n.ID)}
	}
	return nil
}

func (w *walk) newStep(f *frame, fl *flow, n *compiledNode) *step {
	s := &step{NodeID: n.ID, NodeType: n.Type, Status: stepRunning, Retry: w.st.Retries[w.key(n)]}
	if len(w.st.Frames) > 1 {
		s.ParentNodeID = f.Node
		if f.Kind == frameLoop {
			s.Iteration = count(f.Index)
		}
		if w.st.flowFrame(len(w.st.Frames)-1) != w.st.Frames[0] {
			s.FlowName = fl.def.Name
		}
	}
	return s
}

// summarized reports whether the nodes of a frame are counted one by one:
// those of subflows are part of their subflow node.
func (w *walk) summarized() bool {
	return w.st.flowFrame(len(w.st.Frames)-1) == w.st.Frames[0]
}

// key is a node's name within the run.
func (w *walk) key(n *compiledNode) string {
	return w.st.flowFrame(len(w.st.Frames)-1).Prefix + n.ID
}

// execute fills in a node's config and runs it the way its effect asks for.
func (w *walk) execute(ctx context.Context, f *frame, n *compiledNode, number int) error {
	config, err := w.config(n)
	if err != nil {
		return w.fail(ctx, f, n, number, Result{}, nodeError(n, err))
	}
	bounded := ctx
	if n.TimeoutMs > 0 && n.typ.container == nil {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeoutCause(ctx, time.Duration(n.TimeoutMs)*time.Millisecond, fmt.Errorf("timeout after %dms", n.TimeoutMs))
		defer cancel()
	}
	if n.typ.container != nil {
		if err := n.typ.container(ctx, w, n, config); err != nil {
			return w.fail(ctx, f, n, number, Result{}, nodeError(n, err))
		}
		if top := w.st.top(); top != f {
			top.Step = number
			for _, above := range w.st.Frames[slices.Index(w.st.Frames, f)+1:] {
				above.Step = number
			}
		}
		return nil
	}
	ex := &execution{w: w, f: f, n: n, number: number, step: &Step{
		RunID: w.row.ID, FlowName: w.st.flowFrame(len(w.st.Frames) - 1).Flow, FlowVersion: w.st.flowFrame(len(w.st.Frames) - 1).Version,
		NodeID: n.ID, Iteration: w.st.Executions[w.key(n)], Retry: w.st.Retries[w.key(n)],
		Config: config, Node: n.Node, OrganizationID: w.row.OrganizationID, walk: w,
	}}
	return ex.run(w.as(bounded), ctx)
}

// nodeError sorts out an error of a node.
func nodeError(n *compiledNode, err error) *NodeError {
	var known *NodeError
	if errors.As(err, &known) && known.NodeID == n.ID {
		return known
	}
	var inner *NodeError
	if errors.As(err, &inner) {
		return &NodeError{n.ID, CodeNodeFailure, err}
	}
	return &NodeError{n.ID, CodeExecutionError, err}
}

// config fills in the templates of a node's config and checks the result.
func (w *walk) config(n *compiledNode) (map[string]any, error) {
	config := make(map[string]any, len(n.Config))
	for key, value := range n.Config {
		if slices.Contains(n.typ.Raw, key) {
			config[key] = value
			continue
		}
		var missing []string
		var hear func(string)
		if key == "filter" && n.typ.Effect != EffectExternal {
			hear = func(token string) { missing = append(missing, token) }
		}
		filled, err := interpolate(value, w, hear)
		if err != nil {
			return nil, err
		}
		if len(missing) > 0 {
			return nil, &GuardError{fmt.Sprintf("the filter's {%s} resolves to nothing, which would select other records than meant", missing[0])}
		}
		config[key] = filled
	}
	if problems := n.typ.schema.check(config, "config", false); len(problems) > 0 {
		texts := make([]string, len(problems))
		for i, p := range problems {
			texts[i] = p.Field + ": " + p.Message
		}
		return nil, &GuardError{n.Type + ": " + strings.Join(texts, "; ")}
	}
	return config, nil
}

// leave goes along the edges of a node that has succeeded.
func (w *walk) leave(ctx context.Context, f *frame, it item) error {
	fl, err := w.flowAt(f)
	if err != nil {
		return &fatalError{err}
	}
	targets, err := w.route(ctx, fl, fl.regions[f.Region].out[it.Node], it)
	if err != nil {
		failure := &NodeError{it.Node, CodeExecutionError, err}
		if stopped := w.ended(ctx, failure); stopped != nil {
			return stopped
		}
		return failure
	}
	next := make([]item, 0, len(targets)+len(f.Queue))
	for _, target := range targets {
		next = append(next, item{Node: target})
	}
	f.Queue = append(next, f.Queue...)
	return nil
}

// ended tells a stop of the host or the end of the run's time from the failure
// of a node: nil when err is the node's own.
func (w *walk) ended(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if ctx.Err() == nil || !errors.Is(err, cause) {
		return nil
	}
	var limit *LimitError
	if errors.As(cause, &limit) {
		return cause
	}
	return &fatalError{cause}
}

// route chooses the edges to follow: those that the label claims, or all when
// it claims none; of these first the conditional ones, in their order, then the
// default one when no condition held, then the others.
func (w *walk) route(ctx context.Context, fl *flow, edges []*compiledEdge, it item) ([]string, error) {
	claimed := false
	if it.Label != "" {
		var mine []*compiledEdge
		for _, e := range edges {
			if e.Type != EdgeFault && (e.Label == it.Label || it.Label == "default" && e.IsDefault) {
				mine = append(mine, e)
			}
		}
		if claimed = len(mine) > 0; claimed {
			edges = mine
		} else if len(edges) > 0 {
			w.s.log.WarnContext(ctx, "no edge takes the branch, all are followed", "flow", fl.def.Name, "node", it.Node, "label", it.Label, "run_id", w.row.ID)
		}
	}
	var held, fallback, rest []string
	for _, e := range edges {
		switch {
		case e.Type == EdgeFault:
		case e.condition != nil:
			ok, err := w.truth(ctx, e.condition)
			if err != nil {
				return nil, err
			}
			if ok {
				held = append(held, e.Target)
			}
		case e.IsDefault && !claimed:
			fallback = append(fallback, e.Target)
		default:
			rest = append(rest, e.Target)
		}
	}
	if len(held) == 0 {
		held = fallback
	}
	return append(held, rest...), nil
}

func (w *walk) truth(ctx context.Context, c *condition) (bool, error) {
	if c.cel == nil {
		return legacyCondition(c.source, w)
	}
	return c.cel.truth(ctx, w.lookup)
}

// lookup is how CEL sees the variables: declared ones, outputs by node, the
// fields of the record, and all of them under vars.
func (w *walk) lookup(name string) (any, bool) {
	scope := w.st.scope()
	if name == "vars" {
		if _, own := scope.Vars["vars"]; !own {
			all := map[string]any{}
			for node, output := range scope.Outputs {
				all[node] = output
			}
			for name, value := range scope.Vars {
				all[name] = value
			}
			return all, true
		}
	}
	if _, declared := scope.Vars[name]; !declared {
		if fl, err := w.flowAt(w.st.top()); err == nil && slices.ContainsFunc(fl.def.Variables, func(v Variable) bool { return v.Name == name }) {
			return nil, true
		}
	}
	return scope.resolve([]string{name}, w.trigger.Principal)
}

// path implements scope.
func (w *walk) path(names []string) (any, bool) {
	return w.st.scope().resolve(names, w.trigger.Principal)
}

// now implements scope.
func (w *walk) now() time.Time { return w.s.cfg.Now() }

// finish ends one path of a flow.
func (w *walk) finish(n *compiledNode) error {
	message, ok := n.Config["refuse"].(string)
	if !ok {
		return nil
	}
	filled, err := interpolateText(message, w, nil)
	if err != nil {
		return &NodeError{n.ID, CodeExecutionError, err}
	}
	return &NodeError{n.ID, CodeNodeFailure, &refusal{textOf(filled)}}
}

// actor is who data nodes act for in the current flow.
func (w *walk) actor() identity.Principal {
	caller := w.trigger.Principal
	fl, err := w.flowAt(w.st.top())
	if err == nil && fl.def.RunAs == RunAsSystem {
		return identity.Principal{System: true, UserID: caller.UserID, OrganizationID: w.row.OrganizationID}
	}
	return onBehalf(caller)
}

// onBehalf is who a flow acts for: never the host itself, always within one
// organization, and also after the caller has signed out. What the user may do is
// asked at every step.
func onBehalf(caller identity.Principal) identity.Principal {
	caller.System, caller.Everywhere, caller.SessionID = false, false, ""
	return caller
}

// as puts the actor into the context, and the run, so that writes know what
// made them.
func (w *walk) as(ctx context.Context) context.Context {
	return identity.With(context.WithValue(ctx, runKey{}, w), w.actor())
}

type runKey struct{}

// walkOf is the run that a context belongs to, nil for none.
func walkOf(ctx context.Context) *walk {
	w, _ := ctx.Value(runKey{}).(*walk)
	return w
}
