package automation

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
)

// containerTypes are the nodes that hold regions or call other flows. Their
// bodies run as frames of the same run, so that they may wait like any node.
func containerTypes() []NodeType {
	return []NodeType{
		{
			Type: "loop", Version: "2.0.0", Name: "Loop", Category: "logic", Icon: "repeat", SupportsPause: true,
			Description: "Run a body for each element of a list.", Raw: []string{"body"}, container: enterLoop,
			ConfigSchema: json.RawMessage(`{"type":"object","required":["collection"],"properties":{
				"collection":{"type":["array","string"],"description":"Template or list to go through","xExpression":"template"},
				"iteratorVariable":{"type":"string","description":"Variable that holds the current element, item by default"},
				"indexVariable":{"type":"string","description":"Variable that holds the current index"},
				"maxIterations":{"type":"integer","minimum":1,"maximum":100000},
				"body":{"type":"object","description":"Region that runs for each element","properties":{"nodes":{"type":"array"},"edges":{"type":"array"}}}}}`),
		},
		{
			Type: "try_catch", Name: "Try / Catch", Category: "logic", Icon: "shield-alert", SupportsPause: true,
			Description: "Run a region, and another one when it fails.", Raw: []string{"try", "catch", "retry"}, container: enterTry,
			ConfigSchema: json.RawMessage(`{"type":"object","required":["try"],"properties":{
				"try":{"type":"object","properties":{"nodes":{"type":"array"},"edges":{"type":"array"}}},
				"catch":{"type":"object","properties":{"nodes":{"type":"array"},"edges":{"type":"array"}}},
				"errorVariable":{"type":"string","description":"Variable that holds the error, besides $error"},
				"retry":{"type":"object","additionalProperties":false,"properties":{
					"strategy":{"const":"retry"},
					"maxRetries":{"type":"integer","minimum":0,"maximum":10},"backoffMs":{"type":"integer","minimum":0},
					"backoffMultiplier":{"type":"number","minimum":1,"maximum":100},"maxRetryDelayMs":{"type":"integer","minimum":0},"jitter":{"type":"boolean"}}}}}`),
		},
		{
			Type: "subflow", Name: "Subflow", Category: "logic", Icon: "workflow", SupportsPause: true,
			Description: "Run another flow as a step and take its output.", container: enterSubflow,
			ConfigSchema: json.RawMessage(`{"type":"object","required":["flowName"],"properties":{
				"flowName":{"type":"string","xRef":{"kind":"flow"}},
				"input":{"type":"object","description":"Values of the other flow's inputs"},
				"outputVariable":{"type":"string"}}}`),
		},
		{
			Type: "map", Name: "Map", Category: "logic", Icon: "list-check", SupportsPause: true,
			Description: "Run another flow for each element of a list, one after the other.", Raw: []string{"input"}, container: enterMap,
			ConfigSchema: json.RawMessage(`{"type":"object","required":["collection","flowName"],"properties":{
				"collection":{"type":["array","string"],"xExpression":"template"},
				"flowName":{"type":"string","xRef":{"kind":"flow"}},
				"iteratorVariable":{"type":"string"},"indexVariable":{"type":"string"},
				"itemObject":{"type":"string","description":"Object of the elements: each is the record of its run","xRef":{"kind":"object"}},
				"input":{"type":"object","description":"Values of the other flow's inputs, filled in per element"},
				"outputVariable":{"type":"string","description":"List of the outputs"}}}`),
		},
	}
}

// items reads the list of a loop or map and bounds it.
func (w *walk) items(n *compiledNode, config map[string]any) ([]any, error) {
	items, ok := config["collection"].([]any)
	if !ok {
		if config["collection"] == nil || config["collection"] == "" {
			return nil, &GuardError{n.Type + ": collection resolves to nothing"}
		}
		return nil, fmt.Errorf("%s: collection must be a list, not %s", n.Type, kindOf(config["collection"]))
	}
	most := w.s.cfg.Limits.LoopSize
	if number, ok := config["maxIterations"].(json.Number); ok {
		if own, err := number.Int64(); err == nil {
			most = min(most, int(own))
		}
	}
	if len(items) > most {
		return nil, fmt.Errorf("%s: the list has %d elements, more than the %d that are allowed", n.Type, len(items), most)
	}
	return items, nil
}

func text(config map[string]any, key, fallback string) string {
	if text, ok := config[key].(string); ok && text != "" {
		return text
	}
	return fallback
}

func enterLoop(_ context.Context, w *walk, n *compiledNode, config map[string]any) error {
	items, err := w.items(n, config)
	if err != nil {
		return err
	}
	region := n.ID + ".body"
	f := &frame{Kind: frameLoop, Node: n.ID, Region: region, Items: items, Index: -1}
	w.st.Frames = append(w.st.Frames, f)
	return nil
}

// nextElement begins the next turn of a loop; false when there is none.
func (w *walk) nextElement(f *frame, fl *flow) bool {
	f.Index++
	if f.Index >= len(f.Items) || fl.regions[f.Region] == nil {
		return false
	}
	config := fl.nodes[f.Node].Config
	w.bind(config, f)
	f.Queue, f.Entries = entryItems(fl, f.Region), nil
	return true
}

func (w *walk) bind(config map[string]any, f *frame) {
	scope := w.st.scope()
	scope.Vars[text(config, "iteratorVariable", "item")] = f.Items[f.Index]
	if name := text(config, "indexVariable", ""); name != "" {
		scope.Vars[name] = json.Number(fmt.Sprint(f.Index))
	}
}

func enterTry(_ context.Context, w *walk, n *compiledNode, _ map[string]any) error {
	fl, err := w.flowAt(w.st.top())
	if err != nil {
		return &fatalError{err}
	}
	region := n.ID + ".try"
	w.st.Frames = append(w.st.Frames, &frame{Kind: frameTry, Node: n.ID, Region: region, Queue: entryItems(fl, region)})
	return nil
}

func enterSubflow(ctx context.Context, w *walk, n *compiledNode, config map[string]any) error {
	input, _ := config["input"].(map[string]any)
	return w.call(ctx, n, text(config, "flowName", ""), input, nil)
}

// call pushes another flow in its current version.
func (w *walk) call(ctx context.Context, n *compiledNode, name string, input, record map[string]any) error {
	depth := w.row.Depth
	for _, f := range w.st.Frames {
		if f.Kind == frameFlow {
			depth++
		}
	}
	if most := w.s.cfg.Limits.Depth; depth > most {
		return &LimitError{"Depth", int64(most), fmt.Sprintf("Flows call each other more than %d deep, the last is '%s'", most, name)}
	}
	fl, err := w.s.flows.runnable(ctx, name)
	if err != nil {
		return fmt.Errorf("subflow '%s': %w", name, err)
	}
	if w.before {
		for _, id := range sortedKeys(fl.nodes) {
			if waits, _ := fl.nodes[id].Config["waitForDelivery"].(bool); waits || fl.nodes[id].Type == "wait" {
				return fmt.Errorf("subflow '%s' waits at '%s', which a flow that runs before a write cannot", name, id)
			}
		}
	}
	outer := w.st.flowFrame(len(w.st.Frames) - 1)
	w.flows[fmt.Sprintf("%s@%d", fl.def.Name, fl.def.Version)] = fl
	params := &trigger{Params: input, Record: record}
	w.st.Frames = append(w.st.Frames, &frame{
		Kind: frameFlow, Flow: fl.def.Name, Version: fl.def.Version, Prefix: outer.Prefix + n.ID + "/", Node: n.ID,
		Scope: newScope(fl, params, w.row.ID), Queue: []item{{Node: fl.start.ID}},
	})
	if fl.condition != nil {
		ok, err := w.truth(ctx, fl.condition)
		if err != nil {
			w.st.Frames = w.st.Frames[:len(w.st.Frames)-1]
			return err
		}
		if !ok {
			w.st.top().Queue = nil
		}
	}
	return nil
}

func enterMap(_ context.Context, w *walk, n *compiledNode, config map[string]any) error {
	items, err := w.items(n, config)
	if err != nil {
		return err
	}
	w.st.Frames = append(w.st.Frames, &frame{Kind: frameMap, Node: n.ID, Items: items, Index: -1, Results: []any{}})
	return nil
}

// nextCall begins the flow of the next element of a map; false when there is
// none.
func (w *walk) nextCall(ctx context.Context, f *frame, fl *flow) (bool, error) {
	f.Index++
	if f.Index >= len(f.Items) {
		return false, nil
	}
	n := fl.nodes[f.Node]
	w.bind(n.Config, f)
	filled, err := interpolate(n.Config["input"], w, nil)
	if err != nil {
		return false, err
	}
	input, _ := filled.(map[string]any)
	var record map[string]any
	if text(n.Config, "itemObject", "") != "" {
		record, _ = f.Items[f.Index].(map[string]any)
	}
	name, err := interpolateText(text(n.Config, "flowName", ""), w, nil)
	if err != nil {
		return false, err
	}
	err = w.call(ctx, n, textOf(name), input, record)
	if err == nil {
		w.st.top().Step = f.Step
	}
	return true, err
}

// close deals with a frame whose queue is empty: the next turn, or the end of
// the container.
func (w *walk) close(ctx context.Context, f *frame) error {
	fl, err := w.flowAt(f)
	if err != nil {
		return &fatalError{err}
	}
	switch f.Kind {
	case frameLoop:
		if w.nextElement(f, fl) {
			return nil
		}
		return w.complete(f, Result{Output: map[string]any{"iterations": len(f.Items)}})
	case frameMap:
		more, err := w.nextCall(ctx, f, fl)
		if err != nil {
			n := fl.nodes[f.Node]
			return w.propagate(ctx, f, n, Result{}, nodeError(n, err))
		}
		if more {
			return nil
		}
		return w.complete(f, Result{Output: map[string]any{"output": f.Results, "iterations": len(f.Items)}})
	case frameFlow:
		output := fl.output(f.Scope)
		below := w.st.Frames[len(w.st.Frames)-2]
		if below.Kind == frameMap {
			below.Results = append(below.Results, output)
			below.Selected += f.Selected
			below.Acted += f.Acted
			w.st.Frames = w.st.Frames[:len(w.st.Frames)-1]
			return nil
		}
		return w.complete(f, Result{Output: map[string]any{"output": output}, Selected: count(f.Selected), Acted: count(f.Acted)})
	}
	return w.complete(f, Result{})
}

// complete ends a container: its frame goes, its output is set, and its edges
// are next.
func (w *walk) complete(f *frame, r Result) error {
	w.st.Frames = slices.Delete(w.st.Frames, len(w.st.Frames)-1, len(w.st.Frames))
	below := w.st.top()
	fl, err := w.flowAt(below)
	if err != nil {
		return &fatalError{err}
	}
	if f.Kind == frameMap {
		r.Selected, r.Acted = count(f.Selected), count(f.Acted)
	}
	n := fl.nodes[f.Node]
	scope := w.st.scope()
	if r.Output != nil {
		output, err := plain(r.Output)
		if err != nil {
			return &fatalError{err}
		}
		if scope.Outputs == nil {
			scope.Outputs = map[string]map[string]any{}
		}
		scope.Outputs[n.ID] = output.(map[string]any)
		if name := text(n.Config, "outputVariable", ""); name != "" {
			scope.set(splitName(name), scope.Outputs[n.ID]["output"])
		}
	}
	if s := w.st.step(f.Step); s != nil {
		s.end(stepSuccess, w.s.cfg.Now(), nil, r)
	}
	w.count(n, r, 1)
	w.st.Executions[w.key(n)]++
	delete(w.st.Retries, w.key(n))
	below.Queue = append([]item{{Node: n.ID, Leave: true}}, below.Queue...)
	return nil
}
