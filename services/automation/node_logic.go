package automation

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// logicTypes are the nodes that only look at and set variables.
func logicTypes() []NodeType {
	return []NodeType{
		{
			Type: "start", Name: "Start", Category: "logic", Run: runNothing, Raw: []string{"condition", "schedule", "secret"},
			ConfigSchema: json.RawMessage(`{"type":"object","properties":{
				"objectName":{"type":"string"},"triggerType":{"type":"string"},"condition":{"type":["string","object"]},
				"schedule":{"type":["string","object"]},"hookId":{"type":"string"},"secret":{"type":"string"}}}`),
		},
		{
			Type: "end", Name: "End", Category: "logic", Run: runNothing, Raw: []string{"refuse"},
			ConfigSchema: json.RawMessage(`{"type":"object","properties":{
				"refuse":{"type":"string","description":"Fail the run with this text; before a write, refuse it"}}}`),
		},
		{
			Type: "decision", Name: "Decision", Category: "logic", Icon: "git-branch", Description: "Branch on conditions.",
			Raw: []string{"conditions"}, Run: runDecision,
			ConfigSchema: json.RawMessage(`{"type":"object","properties":{"conditions":{"type":"array","items":{"type":"object",
				"required":["label","expression"],"additionalProperties":false,
				"properties":{"label":{"type":"string"},"expression":{"type":["string","object"]}}}}}}`),
		},
		{
			Type: "assignment", Name: "Assignment", Category: "logic", Icon: "variable", Description: "Set variables.", Run: runAssignment,
			ConfigSchema: json.RawMessage(`{"type":"object","additionalProperties":true,"properties":{
				"assignments":{"type":["object","array"],"title":"Assignments","description":"Variables and their values, or a list of {variable, value}"}}}`),
		},
		{
			Type: "script", Name: "Script", Category: "logic", Icon: "code", Description: "Compute values with CEL expressions.",
			Raw: []string{"expression", "variables"}, Run: runScript,
			ConfigSchema: json.RawMessage(`{"type":"object","anyOf":[{"required":["expression"]},{"required":["variables"]}],"properties":{
				"expression":{"type":"string","description":"CEL; its value is the output result"},
				"outputVariable":{"type":"string"},
				"variables":{"type":"object","additionalProperties":{"type":"string"},"description":"Variables and the CEL of their values"}}}`),
		},
		{
			Type: "wait", Name: "Wait", Category: "logic", Icon: "timer-reset", SupportsPause: true, Run: runWait,
			Description: "Pause until a time has passed or somebody resumes the run.",
		},
	}
}

func runNothing(context.Context, *Step) (Result, error) { return Result{}, nil }

func runDecision(ctx context.Context, s *Step) (Result, error) {
	n := s.walk.compiled(s)
	if len(n.branches) == 0 {
		return Result{}, nil
	}
	for _, b := range n.branches {
		ok, err := s.walk.truth(ctx, b.condition)
		if err != nil {
			return Result{}, err
		}
		if ok {
			return Result{Label: b.label}, nil
		}
	}
	return Result{Label: "default"}, nil
}

// compiled is the node of a step with its parsed expressions.
func (w *walk) compiled(s *Step) *compiledNode {
	fl, err := w.flowAt(w.st.top())
	if err != nil || fl.nodes[s.NodeID] == nil {
		return &compiledNode{Node: s.Node}
	}
	return fl.nodes[s.NodeID]
}

func runAssignment(_ context.Context, s *Step) (Result, error) {
	out := map[string]any{}
	values, given := s.Config["assignments"]
	if !given {
		values = s.Config
	}
	switch values := values.(type) {
	case map[string]any:
		for name, value := range values {
			out[name] = value
		}
	case []any:
		for i, item := range values {
			one, _ := item.(map[string]any)
			name, ok := one["variable"].(string)
			if !ok {
				return Result{}, fmt.Errorf("assignment %d names no variable", i+1)
			}
			out[name] = one["value"]
		}
	}
	for name := range out {
		if err := assignable(name); err != nil {
			return Result{}, err
		}
	}
	return Result{Variables: out}, nil
}

// assignable refuses names that no expression could read.
func assignable(name string) error {
	for i, part := range strings.Split(name, ".") {
		if i == 0 && !variableName.MatchString(part) || part == "" {
			return fmt.Errorf("'%s' is not a name of a variable", shorten(name, 60))
		}
	}
	return nil
}

func splitName(name string) []string { return strings.Split(name, ".") }

func runScript(ctx context.Context, s *Step) (Result, error) {
	r := Result{Output: map[string]any{}, Variables: map[string]any{}}
	for _, x := range s.walk.compiled(s).values {
		value, err := x.value.eval(ctx, s.walk.lookup)
		if err != nil {
			return Result{}, err
		}
		if x.name == "" {
			r.Output["result"] = value
			continue
		}
		if err := assignable(x.name); err != nil {
			return Result{}, err
		}
		r.Variables[x.name] = value
	}
	return r, nil
}

// runWait suspends the run. Timers go on by themselves; every wait ends by a
// resume.
func runWait(_ context.Context, s *Step) (Result, error) {
	config := s.Node.WaitEventConfig
	if config == nil {
		return Result{}, &GuardError{"wait: waitEventConfig is missing"}
	}
	name, err := interpolateText(config.SignalName, s.walk, nil)
	if err != nil {
		return Result{}, err
	}
	wait := &waitState{Kind: waitSignal, Key: textOf(name)}
	if config.EventType == "timer" {
		duration, err := interpolateText(config.TimerDuration, s.walk, nil)
		if err != nil {
			return Result{}, err
		}
		delay, err := parseDuration(textOf(duration))
		if err != nil {
			return Result{}, err
		}
		wait = &waitState{Kind: waitTimer, Delay: delay}
	}
	if s.walk.before {
		return Result{}, fmt.Errorf("a flow that runs before a write cannot wait")
	}
	return Result{wait: wait}, nil
}
