package automation

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/objecthost/objecthost/core/identity"
)

// Effect tells what an execution of a node leaves behind, and so how a run
// saves it.
type Effect int

// The effects.
const (
	// EffectNone leaves nothing but variables: it may be done again after a
	// crash.
	EffectNone Effect = iota
	// EffectStore writes with the transaction of its context only: Run is
	// called in the transaction that saves the step, possibly again when that
	// transaction is tried again.
	EffectStore
	// EffectExternal reaches outside the database. The run notes that it
	// begins; after a crash it is repeated only when the flow says so.
	EffectExternal

	// effectRecord is a write of the data engine, which opens its own
	// transaction; the step is saved from within it.
	effectRecord
)

// NodeType describes a kind of node to authors and executes its nodes.
type NodeType struct {
	// Type is the name in definitions.
	Type string
	// Version is 1.0.0 when empty.
	Version           string
	Name, Description string
	Icon, Category    string
	// ConfigSchema is the JSON Schema of config as it is after templates were
	// filled in; nil takes no config. Unknown keys are refused unless it allows
	// additionalProperties.
	ConfigSchema json.RawMessage
	// Raw lists the keys of config in which templates are left alone.
	Raw []string
	// NeedsOutbox and SupportsPause are shown to authors.
	NeedsOutbox, SupportsPause bool
	Effect                     Effect
	// Run executes a node. It must stop when ctx ends, which happens at the
	// node's timeoutMs, the run's time limit, and the host's stop. An error
	// fails the node; of the result only the metrics count then.
	Run func(ctx context.Context, step *Step) (Result, error)

	// container begins a node that has regions or calls another flow; it is
	// set for the engine's own types only.
	container func(ctx context.Context, w *walk, n *compiledNode, config map[string]any) error
	source    string
	schema    *configSchema
}

// Step is one execution of a node.
type Step struct {
	RunID, FlowName string
	FlowVersion     int
	NodeID          string
	// Iteration counts the executions of this node in this run, from 0. Retry
	// counts the tries of one execution.
	Iteration, Retry int
	// Config is the node's configuration with templates filled in.
	Config map[string]any
	// Node is the node as authored. It must not be changed.
	Node *Node
	// OrganizationID is the organization that the run acts in.
	OrganizationID string

	walk *walk
}

// Key identifies the execution within everything that runs do: a run that goes
// on after a crash gets the same one again.
func (s *Step) Key() string {
	key := s.RunID + ":" + s.NodeID + ":" + strconv.Itoa(s.Iteration)
	if s.Retry > 0 {
		key += ":retry" + strconv.Itoa(s.Retry)
	}
	return key
}

// Variable returns a variable of the run as conditions see it. The value must
// not be changed.
func (s *Step) Variable(name string) (any, bool) { return s.walk.lookup(name) }

// Principal is who the node acts for: the host itself when the flow runs as
// system.
func (s *Step) Principal() identity.Principal { return s.walk.actor() }

// Result is what a node's execution gave.
type Result struct {
	// Output is seen by later nodes as <node id>.<key>.
	Output map[string]any
	// Variables are set.
	Variables map[string]any
	// Label chooses the edges with this label; "default" also those marked as
	// default.
	Label string
	// Selected, Acted and Unmeasured count records that were read, effects
	// that are known to have happened, and effects of which that is not known;
	// nil where it does not apply.
	Selected, Acted, Unmeasured *int

	wait *waitState
}

func count(n int) *int { return &n }

// GuardError refuses a node before it does anything. Fault edges and catch
// regions do not see it: the run fails.
type GuardError struct{ Reason string }

func (e *GuardError) Error() string { return e.Reason }

// PermanentError fails a node for good: a flow whose strategy is to retry does
// not try it again. Fault edges and catch regions see it like any other.
type PermanentError struct{ Err error }

func (e *PermanentError) Error() string { return e.Err.Error() }

func (e *PermanentError) Unwrap() error { return e.Err }

// descriptor is a node type as GET /automation/actions lists it.
type descriptor struct {
	Type                 string          `json:"type"`
	Version              string          `json:"version"`
	Name                 string          `json:"name"`
	Description          string          `json:"description,omitempty"`
	Icon                 string          `json:"icon,omitempty"`
	Category             string          `json:"category"`
	Paradigms            []string        `json:"paradigms"`
	ConfigSchema         json.RawMessage `json:"configSchema,omitempty"`
	SupportsPause        bool            `json:"supportsPause"`
	SupportsCancellation bool            `json:"supportsCancellation"`
	SupportsRetry        bool            `json:"supportsRetry"`
	NeedsOutbox          bool            `json:"needsOutbox"`
	HandlerContract      string          `json:"handlerContract"`
	Maturity             string          `json:"maturity"`
	Source               string          `json:"source"`
	Deprecated           bool            `json:"deprecated"`
}

func (t *NodeType) describe() descriptor {
	return descriptor{
		Type: t.Type, Version: t.Version, Name: t.Name, Description: t.Description, Icon: t.Icon, Category: t.Category,
		Paradigms: []string{"flow"}, ConfigSchema: t.ConfigSchema, SupportsPause: t.SupportsPause, SupportsRetry: true,
		NeedsOutbox: t.NeedsOutbox, HandlerContract: "none", Maturity: "ga", Source: t.source,
	}
}

// plain brings what Go code made into the types of decoded JSON.
func plain(value any) (any, error) {
	switch v := value.(type) {
	case nil, bool, string, json.Number:
		return v, nil
	case int:
		return json.Number(strconv.Itoa(v)), nil
	case int64:
		return json.Number(strconv.FormatInt(v, 10)), nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, item := range v {
			var err error
			if out[key], err = plain(item); err != nil {
				return nil, err
			}
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			var err error
			if out[i], err = plain(item); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	text, err := encodeJSON(value)
	if err != nil {
		return nil, fmt.Errorf("a node gave a value that JSON has not: %w", err)
	}
	var out any
	return out, decodeJSON(text, &out)
}
