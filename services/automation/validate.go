package automation

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// flow is a definition made ready to run. It never changes.
type flow struct {
	def *Definition
	// regions by the key of their place: "" for the flow's own graph,
	// "<node id>.<name>" for the regions of containers.
	regions map[string]*region
	nodes   map[string]*compiledNode
	start   *compiledNode
	binding *binding
	// condition is the start node's.
	condition *condition
}

// region is a graph of nodes.
type region struct {
	// entry are the nodes at which the region begins.
	entry []string
	out   map[string][]*compiledEdge
}

type compiledEdge struct {
	Edge
	condition *condition
}

type compiledNode struct {
	*Node
	typ *NodeType // nil for a type that nobody has registered
	// owner is the key of the region that the node stands in; parent is the
	// container around it, "" at the top.
	owner, parent string
	branches      []branch
	values        []namedExpression
	duration      time.Duration
}

type branch struct {
	label     string
	condition *condition
}

type namedExpression struct {
	name  string
	value *expression
}

// condition is CEL, or a comparison written as a template.
type condition struct {
	source string
	cel    *expression // nil for a template
}

// Parse reads a definition and checks all of it. The error is a
// *ValidationError that lists every problem.
func (s *Service) Parse(source []byte) (*Definition, error) {
	f, err := s.parse(source)
	if err != nil {
		return nil, err
	}
	return f.def, nil
}

func (s *Service) parse(source []byte) (*flow, error) {
	def, problems := decodeDefinition(source)
	name := ""
	if def != nil {
		name = def.Name
	}
	var f *flow
	if def != nil {
		var more []Problem
		f, more = compile(def, &s.nodes)
		problems = append(problems, more...)
	}
	if len(problems) > 0 {
		return nil, &ValidationError{name, problems}
	}
	return f, nil
}

// compile resolves a definition and reports what is wrong with it.
func compile(def *Definition, types *registry) (*flow, []Problem) {
	c := &compiler{
		types: types,
		flow:  &flow{def: def, regions: map[string]*region{}, nodes: map[string]*compiledNode{}},
	}
	c.region("", "", "", def.Nodes, def.Edges)
	c.starts()
	return c.flow, c.problems
}

type compiler struct {
	decoder
	types *registry
	flow  *flow
	depth int
}

// maxRegionDepth bounds how deep containers may stand in each other.
const maxRegionDepth = 10

// region compiles one graph and the regions of the containers in it.
func (c *compiler) region(key, parent, path string, nodes []Node, edges []Edge) {
	r := &region{out: map[string][]*compiledEdge{}}
	c.flow.regions[key] = r
	here := map[string]bool{}
	for i := range nodes {
		n, at := &nodes[i], fmt.Sprintf("%s[%d]", join(path, "nodes"), i)
		if n.ID == "" {
			continue
		}
		if c.flow.nodes[n.ID] != nil {
			c.add(at+".id", codeInvalidValue, "The id '%s' is used by two nodes", n.ID)
			continue
		}
		compiled := &compiledNode{Node: n, typ: c.types.get(n.Type), owner: key, parent: parent}
		c.flow.nodes[n.ID] = compiled
		here[n.ID] = true
		c.node(compiled, at)
	}
	entered := map[string]bool{}
	ids := map[string]bool{}
	for i := range edges {
		c.edge(r, &edges[i], fmt.Sprintf("%s[%d]", join(path, "edges"), i), here, entered, ids)
	}
	for i := range nodes {
		if id := nodes[i].ID; here[id] && !entered[id] && (key != "" || nodes[i].Type == "start") {
			r.entry = append(r.entry, id)
		}
	}
	c.cycles(r, nodes, cmpPath(path))
}

func cmpPath(path string) string {
	if path == "" {
		return "(body)"
	}
	return path
}

func (c *compiler) edge(r *region, e *Edge, at string, here, entered, ids map[string]bool) {
	if ids[e.ID] {
		c.add(at+".id", codeInvalidValue, "The id '%s' is used by two edges", e.ID)
	}
	ids[e.ID] = true
	ok := true
	for _, end := range []struct{ key, id string }{{"source", e.Source}, {"target", e.Target}} {
		if end.id != "" && !here[end.id] {
			c.add(at+"."+end.key, codeInvalidValue, "There is no node '%s' here", end.id)
			ok = false
		}
	}
	compiled := &compiledEdge{Edge: *e}
	if e.Condition != nil && e.Condition != "" {
		compiled.condition = c.condition(e.Condition, at+".condition")
	}
	if e.Type == EdgeConditional && compiled.condition == nil && !e.IsDefault && e.Label == "" {
		c.add(at+".condition", codeRequired, "A conditional edge needs a condition")
	}
	if !ok {
		return
	}
	r.out[e.Source] = append(r.out[e.Source], compiled)
	if e.Type != EdgeBack {
		entered[e.Target] = true
	}
}

// condition reads a condition in one of its spellings.
func (c *compiler) condition(value any, path string) *condition {
	source, ok := value.(string)
	pure := false
	if m, isMap := value.(map[string]any); isMap {
		source, ok = m["source"].(string)
		if !ok {
			source, ok = m["expression"].(string)
		}
		if dialect, _ := m["dialect"].(string); dialect != "" && dialect != "cel" {
			c.add(path+".dialect", codeInvalidOption, `Invalid option: expected one of "cel"`)
			return nil
		}
		pure = true
	}
	if !ok {
		c.add(path, codeInvalidType, "Must be a CEL expression, not %s", received(value))
		return nil
	}
	if hasTokens(source) {
		if pure {
			c.add(path, codeInvalidValue, "CEL takes no braces around names: write amount, not {amount}")
			return nil
		}
		return &condition{source: source}
	}
	parsed, err := parseExpression(source)
	if err != nil {
		c.add(path, codeInvalidValue, "%s", err.Error())
		return nil
	}
	return &condition{source, parsed}
}

// node checks a node's config against its type.
func (c *compiler) node(n *compiledNode, at string) {
	if n.Type == "wait" {
		c.wait(n, at)
	} else if n.WaitEventConfig != nil {
		c.add(at+".waitEventConfig", codeUnknownField, "Only wait nodes wait for events")
	}
	if n.typ == nil {
		return // registered all the same: its plugin may come later
	}
	c.problems = append(c.problems, n.typ.schema.check(n.Config, at+".config", true)...)
	switch n.Type {
	case "decision":
		c.decision(n, at+".config")
	case "script":
		c.script(n, at+".config")
	case "loop":
		c.embedded(n, "body", at)
	case "try_catch":
		c.embedded(n, "try", at)
		c.embedded(n, "catch", at)
	}
}

// embedded compiles a region that stands in a container's config.
func (c *compiler) embedded(n *compiledNode, name, at string) {
	value, ok := n.Config[name].(map[string]any)
	if !ok {
		return
	}
	path := at + ".config." + name
	if c.depth++; c.depth > maxRegionDepth {
		c.add(path, codeInvalidValue, "Regions stand in each other more than %d deep", maxRegionDepth)
		c.depth--
		return
	}
	graph := c.graph(value, path)
	c.unknown(value, path, "nodes", "edges")
	c.region(n.ID+"."+name, n.ID, path, graph.Nodes, graph.Edges)
	c.depth--
}

func (c *compiler) decision(n *compiledNode, path string) {
	list, _ := n.Config["conditions"].([]any)
	for i, item := range list {
		m, ok := item.(map[string]any)
		if !ok {
			continue
		}
		label, _ := m["label"].(string)
		value, given := m["expression"]
		if !given {
			continue
		}
		if parsed := c.condition(value, fmt.Sprintf("%s.conditions[%d].expression", path, i)); parsed != nil {
			n.branches = append(n.branches, branch{label, parsed})
		}
	}
}

func (c *compiler) script(n *compiledNode, path string) {
	add := func(name string, value any, at string) {
		source, ok := value.(string)
		if !ok {
			return
		}
		parsed, err := parseExpression(source)
		if err != nil {
			c.add(at, codeInvalidValue, "%s", err.Error())
			return
		}
		n.values = append(n.values, namedExpression{name, parsed})
	}
	add("", n.Config["expression"], path+".expression")
	variables, _ := n.Config["variables"].(map[string]any)
	for _, name := range sortedKeys(variables) {
		add(name, variables[name], path+".variables."+name)
	}
}

func (c *compiler) wait(n *compiledNode, at string) {
	if n.WaitEventConfig == nil {
		c.add(at+".waitEventConfig", codeRequired, "A wait node needs waitEventConfig")
		return
	}
	if n.WaitEventConfig.EventType != "timer" || n.WaitEventConfig.TimerDuration == "" {
		return
	}
	if hasTokens(n.WaitEventConfig.TimerDuration) {
		return
	}
	d, err := parseDuration(n.WaitEventConfig.TimerDuration)
	if err != nil {
		c.add(at+".waitEventConfig.timerDuration", codeInvalidFormat, "%s", err.Error())
	}
	n.duration = d
}

// cycles refuses every cycle that no back edge closes.
func (c *compiler) cycles(r *region, nodes []Node, path string) {
	const (
		white = iota
		grey
		black
	)
	colour := map[string]int{}
	var trail []string
	var visit func(id string) bool
	visit = func(id string) bool {
		colour[id] = grey
		trail = append(trail, id)
		for _, e := range r.out[id] {
			if e.Type == EdgeBack {
				continue
			}
			switch colour[e.Target] {
			case grey:
				loop := append(slices.Clone(trail[slices.Index(trail, e.Target):]), e.Target)
				c.add(path, codeInvalidValue, "Flow contains a cycle: %s. Mark the edge that closes an intended loop with type 'back'.", strings.Join(loop, " → "))
				return false
			case white:
				if !visit(e.Target) {
					return false
				}
			}
		}
		trail = trail[:len(trail)-1]
		colour[id] = black
		return true
	}
	for i := range nodes {
		if colour[nodes[i].ID] == white && !visit(nodes[i].ID) {
			return
		}
	}
}

// starts finds the start node and what starts the flow. A flow without a start
// node may be registered; its runs fail.
func (c *compiler) starts() {
	def := c.flow.def
	for i := range def.Nodes {
		n := c.flow.nodes[def.Nodes[i].ID]
		if n == nil || n.Type != "start" || n.owner != "" {
			continue
		}
		at := fmt.Sprintf("nodes[%d]", i)
		if c.flow.start != nil {
			c.add(at+".type", codeInvalidValue, "There are two start nodes, '%s' and '%s'", c.flow.start.ID, n.ID)
			return
		}
		c.flow.start = n
		if source, ok := n.Config["condition"]; ok && source != "" {
			c.flow.condition = c.condition(source, at+".config.condition")
		}
		c.flow.binding = c.binding(n.Config, at+".config")
	}
	if c.flow.start == nil {
		return
	}
	if b := c.flow.binding; b != nil && b.before {
		c.noWaits()
	}
}

// noWaits keeps flows that run inside a request from suspending.
func (c *compiler) noWaits() {
	for _, id := range sortedKeys(c.flow.nodes) {
		n := c.flow.nodes[id]
		wait, _ := n.Config["waitForDelivery"].(bool)
		if n.Type == "wait" || wait {
			c.add("(body)", codeInvalidValue, "The node '%s' waits, which a flow that runs before a write cannot", id)
		}
	}
}
