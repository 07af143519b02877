package automation

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a definition.
const (
	maxDefinitionSize = 1 << 20
	maxNodes          = 500
	maxNameLength     = 100
)

var (
	flowName     = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	variableName = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*$`)
	nodeID       = regexp.MustCompile(`^[A-Za-z0-9_$][A-Za-z0-9_$-]*$`)
	reserved     = []string{"actions", "trigger", "hooks", "connectors"}
)

// decoder reads a definition strictly and notes every problem.
type decoder struct{ problems []Problem }

func (d *decoder) add(path, code, format string, args ...any) {
	d.problems = append(d.problems, Problem{path, code, fmt.Sprintf(format, args...)})
}

// decodeDefinition reads the JSON form. The definition is complete when there
// are no problems.
func decodeDefinition(source []byte) (*Definition, []Problem) {
	d := &decoder{}
	if len(source) > maxDefinitionSize {
		d.add("(body)", codeInvalidValue, "The definition is larger than %d bytes", maxDefinitionSize)
		return nil, d.problems
	}
	var value any
	if err := decodeJSON(source, &value); err != nil {
		d.add("(body)", codeInvalidFormat, "The definition is not valid JSON")
		return nil, d.problems
	}
	fields, ok := value.(map[string]any)
	if !ok {
		d.add("(body)", codeInvalidType, "Invalid input: expected object, received %s", received(value))
		return nil, d.problems
	}
	def := d.definition(fields)
	return def, d.problems
}

func (d *decoder) definition(m map[string]any) *Definition {
	def := &Definition{
		Name: d.text(m, "", "name", true), Label: d.text(m, "", "label", true),
		Description: d.text(m, "", "description", false),
	}
	if def.Name != "" && (!flowName.MatchString(def.Name) || len(def.Name) > maxNameLength) {
		d.add("name", codeInvalidFormat, "Must match ^[a-z][a-z0-9_]*$ and have at most %d characters", maxNameLength)
	} else if slices.Contains(reserved, def.Name) {
		d.add("name", codeInvalidValue, "'%s' is a path of the API and cannot name a flow", def.Name)
	}
	def.Type = d.option(m, "", "type", "", TypeAutolaunched, TypeRecordChange, TypeSchedule, TypeScreen, TypeAPI)
	def.Status = d.option(m, "", "status", StatusDraft, StatusDraft, StatusActive, StatusObsolete, StatusInvalid)
	def.Version = int(d.integer(m, "", "version", 1, 1, 1<<31-1))
	def.RunAs = d.option(m, "", "runAs", RunAsUser, RunAsUser, RunAsSystem)
	def.Variables = d.variables(m)
	graph := d.graph(m, "")
	def.Nodes, def.Edges = graph.Nodes, graph.Edges
	def.ErrorHandling = d.errorHandling(m, "errorHandling")
	def.SuccessMessage = d.text(m, "", "successMessage", false)
	def.ErrorMessage = d.text(m, "", "errorMessage", false)
	d.unknown(m, "", "name", "label", "description", "type", "status", "version", "runAs", "variables", "nodes", "edges",
		"errorHandling", "successMessage", "errorMessage")
	return def
}

func (d *decoder) variables(m map[string]any) []Variable {
	var out []Variable
	seen := map[string]bool{}
	for i, item := range d.list(m, "", "variables", false) {
		path := fmt.Sprintf("variables[%d]", i)
		fields, ok := d.object(item, path)
		if !ok {
			continue
		}
		v := Variable{
			Name: d.text(fields, path, "name", true), Type: d.text(fields, path, "type", true),
			IsInput: d.boolean(fields, path, "isInput"), IsOutput: d.boolean(fields, path, "isOutput"),
		}
		v.DefaultValue, v.HasDefault = fields["defaultValue"]
		switch {
		case v.Name == "":
		case !variableName.MatchString(v.Name):
			d.add(path+".name", codeInvalidFormat, "'%s' is not a name of a variable", v.Name)
		case seen[v.Name]:
			d.add(path+".name", codeInvalidValue, "'%s' is declared twice", v.Name)
		}
		seen[v.Name] = true
		d.unknown(fields, path, "name", "type", "isInput", "isOutput", "defaultValue")
		out = append(out, v)
	}
	return out
}

// graph reads nodes and edges of a flow or of a region.
func (d *decoder) graph(m map[string]any, path string) regionSource {
	var out regionSource
	out.Nodes = []Node{}
	for i, item := range d.list(m, path, "nodes", true) {
		if n, ok := d.node(item, fmt.Sprintf("%s[%d]", join(path, "nodes"), i)); ok {
			out.Nodes = append(out.Nodes, n)
		}
	}
	out.Edges = []Edge{}
	for i, item := range d.list(m, path, "edges", path == "") {
		if e, ok := d.edge(item, fmt.Sprintf("%s[%d]", join(path, "edges"), i), i); ok {
			out.Edges = append(out.Edges, e)
		}
	}
	if len(out.Nodes) > maxNodes {
		d.add(join(path, "nodes"), codeInvalidValue, "There are more than %d nodes", maxNodes)
	}
	return out
}

func (d *decoder) node(item any, path string) (Node, bool) {
	fields, ok := d.object(item, path)
	if !ok {
		return Node{}, false
	}
	n := Node{
		ID: d.text(fields, path, "id", true), Type: d.text(fields, path, "type", true), Label: d.text(fields, path, "label", false),
		TimeoutMs: d.integer(fields, path, "timeoutMs", 0, 1, 24*3600*1000),
		Position:  fields["position"], InputSchema: fields["inputSchema"],
		ConnectorConfig: fields["connectorConfig"], BoundaryConfig: fields["boundaryConfig"],
	}
	if n.ID != "" && (!nodeID.MatchString(n.ID) || len(n.ID) > maxNameLength) {
		d.add(path+".id", codeInvalidFormat, "Must match ^[A-Za-z0-9_$][A-Za-z0-9_$-]*$ and have at most %d characters", maxNameLength)
	}
	if config, ok := fields["config"]; ok && config != nil {
		n.Config, _ = d.object(config, path+".config")
	}
	n.WaitEventConfig = d.waitEvent(fields, path)
	d.unknown(fields, path, "id", "type", "label", "config", "timeoutMs", "position", "inputSchema", "waitEventConfig", "connectorConfig", "boundaryConfig")
	return n, true
}

func (d *decoder) waitEvent(fields map[string]any, path string) *WaitEvent {
	item, ok := fields["waitEventConfig"]
	if !ok || item == nil {
		return nil
	}
	path += ".waitEventConfig"
	config, ok := d.object(item, path)
	if !ok {
		return nil
	}
	w := &WaitEvent{
		EventType:  d.option(config, path, "eventType", "", "timer", "signal", "webhook", "manual", "condition"),
		SignalName: d.text(config, path, "signalName", false),
	}
	if number, ok := config["timerDuration"].(json.Number); ok {
		w.TimerDuration = number.String()
	} else {
		w.TimerDuration = d.text(config, path, "timerDuration", w.EventType == "timer")
	}
	d.unknown(config, path, "eventType", "timerDuration", "signalName")
	return w
}

func (d *decoder) edge(item any, path string, index int) (Edge, bool) {
	fields, ok := d.object(item, path)
	if !ok {
		return Edge{}, false
	}
	e := Edge{
		ID: d.text(fields, path, "id", false), Source: d.text(fields, path, "source", true), Target: d.text(fields, path, "target", true),
		Type:  d.option(fields, path, "type", EdgeDefault, EdgeDefault, EdgeFault, EdgeConditional, EdgeBack),
		Label: d.text(fields, path, "label", false), IsDefault: d.boolean(fields, path, "isDefault"), Condition: fields["condition"],
	}
	if e.ID == "" {
		e.ID = "edge_" + strconv.Itoa(index+1)
	}
	d.unknown(fields, path, "id", "source", "target", "condition", "type", "label", "isDefault")
	return e, true
}

func (d *decoder) errorHandling(m map[string]any, key string) *ErrorHandling {
	item, ok := m[key]
	if !ok || item == nil {
		return nil
	}
	fields, ok := d.object(item, key)
	if !ok {
		return nil
	}
	h := &ErrorHandling{
		Strategy:        d.option(fields, key, "strategy", StrategyFail, StrategyFail, StrategyRetry, StrategyContinue),
		MaxRetries:      int(d.integer(fields, key, "maxRetries", 0, 0, 10)),
		BackoffMs:       d.integer(fields, key, "backoffMs", 1000, 0, 24*3600*1000),
		MaxRetryDelayMs: d.integer(fields, key, "maxRetryDelayMs", 30000, 0, 24*3600*1000),
		Jitter:          d.boolean(fields, key, "jitter"), BackoffMultiplier: 1,
	}
	if raw, ok := fields["backoffMultiplier"]; ok {
		number, isNumber := raw.(json.Number)
		multiplier, err := number.Float64()
		if !isNumber || err != nil || multiplier < 1 || multiplier > 100 {
			d.add(key+".backoffMultiplier", codeInvalidValue, "Must be a number from 1 to 100")
		} else {
			h.BackoffMultiplier = multiplier
		}
	}
	d.unknown(fields, key, "strategy", "maxRetries", "backoffMs", "backoffMultiplier", "maxRetryDelayMs", "jitter")
	return h
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func (d *decoder) object(value any, path string) (map[string]any, bool) {
	m, ok := value.(map[string]any)
	if !ok {
		d.add(path, codeInvalidType, "Invalid input: expected object, received %s", received(value))
	}
	return m, ok
}

func (d *decoder) list(m map[string]any, path, key string, required bool) []any {
	value, ok := m[key]
	if !ok || value == nil {
		if required {
			d.add(join(path, key), codeRequired, "Invalid input: expected array, received undefined")
		}
		return nil
	}
	list, ok := value.([]any)
	if !ok {
		d.add(join(path, key), codeInvalidType, "Invalid input: expected array, received %s", received(value))
	}
	return list
}

func (d *decoder) text(m map[string]any, path, key string, required bool) string {
	value, ok := m[key]
	if !ok || value == nil {
		if required {
			d.add(join(path, key), codeRequired, "Invalid input: expected string, received undefined")
		}
		return ""
	}
	text, ok := value.(string)
	switch {
	case !ok:
		d.add(join(path, key), codeInvalidType, "Invalid input: expected string, received %s", received(value))
	case required && text == "":
		d.add(join(path, key), codeRequired, "Must not be empty")
	case strings.ContainsRune(text, 0):
		d.add(join(path, key), codeInvalidValue, "Must not hold NUL")
	}
	return text
}

func (d *decoder) option(m map[string]any, path, key, fallback string, allowed ...string) string {
	value, ok := m[key]
	if (!ok || value == nil) && fallback != "" {
		return fallback
	}
	if text, _ := value.(string); slices.Contains(allowed, text) {
		return text
	}
	quoted := make([]string, len(allowed))
	for i, option := range allowed {
		quoted[i] = strconv.Quote(option)
	}
	d.add(join(path, key), codeInvalidOption, "Invalid option: expected one of %s", strings.Join(quoted, "|"))
	return ""
}

func (d *decoder) boolean(m map[string]any, path, key string) bool {
	value, ok := m[key]
	if !ok || value == nil {
		return false
	}
	b, ok := value.(bool)
	if !ok {
		d.add(join(path, key), codeInvalidType, "Invalid input: expected boolean, received %s", received(value))
	}
	return b
}

func (d *decoder) integer(m map[string]any, path, key string, fallback, least, most int64) int64 {
	value, ok := m[key]
	if !ok || value == nil {
		return fallback
	}
	number, isNumber := value.(json.Number)
	n, err := number.Int64()
	if !isNumber || err != nil || n < least || n > most {
		d.add(join(path, key), codeInvalidValue, "Must be a whole number from %d to %d", least, most)
		return fallback
	}
	return n
}

func (d *decoder) unknown(m map[string]any, path string, known ...string) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(known, key) {
			d.add(join(path, key), codeUnknownField, "Unrecognized key: %q", key)
		}
	}
}

// received names a JSON value's type as the wire protocol does.
func received(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case json.Number:
		return "number"
	case []any:
		return "array"
	}
	return "object"
}
