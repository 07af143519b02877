package automation

import (
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
)

// trigger is what started a run. It is kept with the run.
type trigger struct {
	// Type is manual, record_change, schedule or api.
	Type string `json:"type"`
	// Event is the caller's own name of what happened.
	Event    string         `json:"event,omitempty"`
	Object   string         `json:"object,omitempty"`
	RecordID string         `json:"recordId,omitempty"`
	Params   map[string]any `json:"params,omitempty"`
	Record   map[string]any `json:"record,omitempty"`
	Previous map[string]any `json:"previous,omitempty"`
	// Principal is who is behind it. It is kept by the ids that permissions
	// are looked up by, never with what they allow.
	Principal identity.Principal `json:"principal"`
}

// The types of triggers.
const (
	triggerManual   = "manual"
	triggerRecord   = "record_change"
	triggerSchedule = "schedule"
	triggerAPI      = "api"
)

// state is all that a run needs to go on: where it stands in which graphs, and
// the values of its variables. It is kept as JSON.
type state struct {
	// Frames is a stack: the flow at the bottom, what it is inside of above.
	Frames []*frame `json:"frames"`
	// Steps is the log, of which the table keeps the latest. FirstStep is the
	// number of Steps[0], StepCount the number of all.
	Steps     []*step        `json:"steps"`
	FirstStep int            `json:"firstStep,omitempty"`
	StepCount int            `json:"stepCount"`
	Nodes     []*nodeSummary `json:"nodes"`
	// Executions counts how often each node was executed, Retries how often
	// its current execution was tried again. Keys are paths of subflow nodes.
	Executions map[string]int `json:"executions"`
	Retries    map[string]int `json:"retries,omitempty"`
	// Busy is the node that reaches outside now.
	Busy *busy `json:"busy,omitempty"`
	// Wait is what the run waits for.
	Wait *waitState `json:"wait,omitempty"`
	// ActiveMs is how long the run was executed, pauses left out.
	ActiveMs int64 `json:"activeMs,omitempty"`
}

// busy is an execution that began.
type busy struct {
	Node string `json:"node"`
	Step int    `json:"step"`
}

// The kinds of waits.
const (
	waitTimer    = "timer"
	waitSignal   = "signal"
	waitDelivery = "delivery"
	waitRetry    = "retry"
)

// waitState is why a run pauses.
type waitState struct {
	Kind string `json:"kind"`
	Node string `json:"node,omitempty"`
	// Key is the signal's name or the delivery's id.
	Key string `json:"key,omitempty"`
	// Delay is how long a timer or retry takes.
	Delay time.Duration `json:"delay,omitempty"`
}

// The kinds of frames.
const (
	frameFlow  = "flow"
	frameLoop  = "loop"
	frameTry   = "try"
	frameCatch = "catch"
	frameMap   = "map"
)

// frame is one graph that is being walked.
type frame struct {
	Kind string `json:"kind"`
	// Flow and Version are set for a flow. Prefix tells its nodes from those
	// of the same name in other flows of the run.
	Flow    string      `json:"flow,omitempty"`
	Version int         `json:"version,omitempty"`
	Prefix  string      `json:"prefix,omitempty"`
	Scope   *scopeState `json:"scope,omitempty"`
	// Node is the container in the frame below, Step the number of its step.
	Node string `json:"node,omitempty"`
	Step int    `json:"step,omitempty"`
	// Region is the graph.
	Region string `json:"region,omitempty"`
	// Queue is what comes next, the first item first.
	Queue   []item         `json:"queue"`
	Entries map[string]int `json:"entries,omitempty"`
	// Items, Index and Results belong to loops and maps.
	Items   []any `json:"items,omitempty"`
	Index   int   `json:"index,omitempty"`
	Results []any `json:"results,omitempty"`
	// Tries counts how often a try region was entered.
	Tries int `json:"tries,omitempty"`
	// Selected and Acted sum up a subflow.
	Selected int `json:"selected,omitempty"`
	Acted    int `json:"acted,omitempty"`
}

// item is a node to execute, or one that was executed and is to be left along
// its edges.
type item struct {
	Node  string `json:"node"`
	Leave bool   `json:"leave,omitempty"`
	Label string `json:"label,omitempty"`
}

// scopeState are the variables of one flow. Outputs are by node.
type scopeState struct {
	Vars    map[string]any            `json:"vars"`
	Outputs map[string]map[string]any `json:"outputs,omitempty"`
	Params  map[string]any            `json:"params,omitempty"`
}

// step is one entry of the run log.
type step struct {
	NodeID       string     `json:"nodeId"`
	NodeType     string     `json:"nodeType"`
	Status       string     `json:"status"`
	StartedAt    string     `json:"startedAt"`
	CompletedAt  string     `json:"completedAt,omitempty"`
	DurationMs   int64      `json:"durationMs"`
	Error        *stepError `json:"error,omitempty"`
	ParentNodeID string     `json:"parentNodeId,omitempty"`
	Iteration    *int       `json:"iteration,omitempty"`
	// FlowName is set for steps of a subflow.
	FlowName string       `json:"flowName,omitempty"`
	Retry    int          `json:"retry,omitempty"`
	Metrics  *stepMetrics `json:"metrics,omitempty"`
	// DeliveryID links the step to the delivery that it enqueued.
	DeliveryID string `json:"deliveryId,omitempty"`

	began time.Time
}

type stepError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type stepMetrics struct {
	Selected   *int `json:"selected,omitempty"`
	Acted      *int `json:"acted,omitempty"`
	Unmeasured *int `json:"unmeasured,omitempty"`
}

// The states of a step.
const (
	stepRunning = "running"
	stepSuccess = "success"
	stepFailure = "failure"
)

// keptSteps is how many steps the table keeps of a run, ringSteps how many the
// memory does.
const (
	keptSteps = 200
	ringSteps = 2000
)

// nodeSummary counts what became of one node.
type nodeSummary struct {
	NodeID     string `json:"nodeId"`
	NodeType   string `json:"nodeType"`
	Status     string `json:"status"`
	Runs       int    `json:"runs"`
	Failures   int    `json:"failures"`
	Skipped    int    `json:"skipped"`
	Selected   *int   `json:"selected,omitempty"`
	Acted      *int   `json:"acted,omitempty"`
	Unmeasured *int   `json:"unmeasured,omitempty"`
}

// Summary counts what a run did.
type Summary struct {
	Selected   int            `json:"selected"`
	Acted      int            `json:"acted"`
	Skipped    int            `json:"skipped"`
	Unmeasured int            `json:"unmeasured"`
	Failed     int            `json:"failed"`
	Nodes      []*nodeSummary `json:"nodes"`
	Gates      []any          `json:"gates"`
}

func (st *state) summary() *Summary {
	sum := &Summary{Nodes: st.Nodes, Gates: []any{}}
	if sum.Nodes == nil {
		sum.Nodes = []*nodeSummary{}
	}
	for _, n := range st.Nodes {
		sum.Selected += value(n.Selected)
		sum.Acted += value(n.Acted)
		sum.Unmeasured += value(n.Unmeasured)
		sum.Failed += n.Failures
	}
	return sum
}

func value(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

func addTo(sum **int, n *int, sign int) {
	if n != nil {
		*sum = count(value(*sum) + sign**n)
	}
}

// node is the summary of a node, made at its first execution.
func (st *state) node(n *compiledNode) *nodeSummary {
	for _, s := range st.Nodes {
		if s.NodeID == n.ID {
			return s
		}
	}
	s := &nodeSummary{NodeID: n.ID, NodeType: n.Type, Status: stepSuccess}
	st.Nodes = append(st.Nodes, s)
	return s
}

// top is the frame that is being walked.
func (st *state) top() *frame { return st.Frames[len(st.Frames)-1] }

// flowFrame is the frame of the flow around the frame at index i.
func (st *state) flowFrame(i int) *frame {
	for ; i > 0; i-- {
		if st.Frames[i].Kind == frameFlow {
			break
		}
	}
	return st.Frames[i]
}

func (st *state) scope() *scopeState { return st.flowFrame(len(st.Frames) - 1).Scope }

// step returns a step by its number, nil when the log has dropped it.
func (st *state) step(number int) *step {
	if i := number - st.FirstStep; i >= 0 && i < len(st.Steps) {
		return st.Steps[i]
	}
	return nil
}

// begin adds a step to the log and returns its number.
func (st *state) begin(s *step, at time.Time) int {
	s.began, s.StartedAt = at, event.FormatTime(at)
	st.Steps = append(st.Steps, s)
	if len(st.Steps) > ringSteps {
		st.FirstStep += len(st.Steps) - ringSteps
		st.Steps = st.Steps[len(st.Steps)-ringSteps:]
	}
	st.StepCount++
	return st.FirstStep + len(st.Steps) - 1
}

// end completes a step.
func (s *step) end(status string, at time.Time, failure *NodeError, r Result) {
	s.Status, s.CompletedAt = status, event.FormatTime(at)
	if s.began.IsZero() { // the run went on after a pause or crash
		s.began, _ = time.Parse(event.TimeLayout, s.StartedAt)
	}
	s.DurationMs = max(0, at.Sub(s.began).Milliseconds())
	if failure != nil {
		s.Error = &stepError{failure.Code, failure.Err.Error()}
	}
	if r.Selected != nil || r.Acted != nil || r.Unmeasured != nil {
		s.Metrics = &stepMetrics{r.Selected, r.Acted, r.Unmeasured}
	}
	if id, ok := r.Output["deliveryId"].(string); ok {
		s.DeliveryID = id
	}
}

// kept is the part of the log that the table takes.
func (st *state) kept() []*step {
	if n := len(st.Steps); n > keptSteps {
		return st.Steps[n-keptSteps:]
	}
	return st.Steps
}

// snapshot is the state as it is saved: with the steps that the table takes.
func (st *state) snapshot() ([]byte, error) {
	copied := *st
	copied.Steps = st.kept()
	copied.FirstStep = st.FirstStep + len(st.Steps) - len(copied.Steps)
	return encodeJSON(&copied)
}

// resolve finds the value of a path of names among the variables.
func (sc *scopeState) resolve(names []string, principal identity.Principal) (any, bool) {
	switch names[0] {
	case "$User":
		return dig(map[string]any{"Id": orNull(principal.UserID), "id": orNull(principal.UserID)}, names[1:])
	case "$params":
		return dig(sc.Params, names[1:])
	case "vars":
		if _, own := sc.Vars["vars"]; !own && len(names) > 1 {
			return sc.resolve(names[1:], principal)
		}
	case "$record":
		names = append([]string{"record"}, names[1:]...)
	}
	root, declared := sc.Vars[names[0]]
	if declared {
		if value, ok := dig(root, names[1:]); ok {
			return value, true
		}
	}
	if output, ok := sc.Outputs[names[0]]; ok {
		if value, ok := dig(output, names[1:]); ok {
			return value, true
		}
	}
	if record, ok := sc.Vars["record"].(map[string]any); ok && !declared {
		return dig(record, names)
	}
	return nil, false
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// dig follows names through objects and numbers through lists.
func dig(value any, names []string) (any, bool) {
	for _, name := range names {
		switch v := value.(type) {
		case map[string]any:
			next, ok := v[name]
			if !ok {
				return nil, false
			}
			value = next
		case []any:
			i, ok := index(name, len(v))
			if !ok {
				return nil, false
			}
			value = v[i]
		default:
			return nil, false
		}
	}
	return value, true
}

// index reads a place in a list; length is the list's own.
func index(name string, length int) (int, bool) {
	i := 0
	for _, c := range name {
		if c < '0' || c > '9' || i > length {
			return 0, false
		}
		i = i*10 + int(c-'0')
	}
	return i, name != "" && i < length
}

// set assigns a variable; a dotted name changes a part of one. What is changed
// is copied, because values may be shared.
func (sc *scopeState) set(names []string, value any) {
	if names[0] == "$record" {
		names[0] = "record"
	}
	if len(names) == 1 {
		sc.Vars[names[0]] = value
		return
	}
	sc.Vars[names[0]] = setIn(sc.Vars[names[0]], names[1:], value)
}

func setIn(container any, names []string, value any) any {
	if list, ok := container.([]any); ok {
		if i, ok := index(names[0], len(list)); ok {
			copied := append([]any(nil), list...)
			if len(names) == 1 {
				copied[i] = value
			} else {
				copied[i] = setIn(list[i], names[1:], value)
			}
			return copied
		}
	}
	old, _ := container.(map[string]any)
	copied := make(map[string]any, len(old)+1)
	for key, item := range old {
		copied[key] = item
	}
	if len(names) == 1 {
		copied[names[0]] = value
	} else {
		copied[names[0]] = setIn(old[names[0]], names[1:], value)
	}
	return copied
}
