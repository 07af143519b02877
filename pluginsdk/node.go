package pluginsdk

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	pluginv1 "github.com/objecthost/objecthost/pluginsdk/proto/v1"
)

// FlowNode is a kind of node for flows. While the plugin is starting or gone,
// its nodes fail in a retryable [Error] with [CodeUnavailable].
type FlowNode struct {
	// Type is the name in flows: a lower-case letter, then letters, digits, _,
	// . and -, at most 64 characters. Begin it with the plugin's name and a dot.
	Type string
	// Name, Description, Icon and Category are shown to authors of flows.
	Name, Description, Icon, Category string
	// ConfigSchema is the JSON Schema of the node's configuration; nil takes
	// none. Unknown keys are refused unless it allows additionalProperties.
	ConfigSchema json.RawMessage
	// Pure tells that an execution leaves nothing behind but what it returns.
	// After a crash of the host a pure node is run again; any other only where
	// the flow says so.
	Pure bool
	// Deadline bounds one execution: 1 ms to 5 min, 0 means 30 s. A shorter
	// timeoutMs of the node in a flow counts.
	Deadline time.Duration
	// Run executes a node. An error fails it; a flow whose strategy is to retry
	// tries again when that is an [Error] that says Retryable, or the deadline.
	Run func(ctx context.Context, step NodeStep) (NodeResult, error)
}

// NodeStep is one execution of a node.
type NodeStep struct {
	Type, Flow, RunID, NodeID string
	// Key identifies this execution within everything that flows do: one that
	// is repeated after a crash of the host has the same key.
	Key string
	// Iteration counts the executions of this node in this run, Retry the tries
	// of one execution, both from 0.
	Iteration, Retry int
	// Config is the node's configuration with its templates filled in.
	// Variables are the run's, the outputs of earlier nodes among them under
	// the nodes' ids.
	Config, Variables Record
	// UserID and OrganizationID tell for whom the flow acts.
	UserID, OrganizationID string
}

// NodeResult is what a node's execution gave.
type NodeResult struct {
	// Output is seen by later nodes as {<node id>.<key>}.
	Output Record
	// Variables are set.
	Variables Record
	// Label, unless empty, chooses the edges with this label.
	Label string
}

// NodeDeclaration is a [FlowNode] without its code.
type NodeDeclaration struct {
	Type         string          `json:"type"`
	Name         string          `json:"name,omitempty"`
	Description  string          `json:"description,omitempty"`
	Icon         string          `json:"icon,omitempty"`
	Category     string          `json:"category,omitempty"`
	ConfigSchema json.RawMessage `json:"configSchema,omitempty"`
	Pure         bool            `json:"pure,omitempty"`
	DeadlineMS   int64           `json:"deadlineMs"`
}

// The bounds of a node's deadline.
const (
	DefaultNodeDeadline = 30 * time.Second
	MaxNodeDeadline     = 5 * time.Minute
)

var nodeType = regexp.MustCompile(`^[a-z][a-z0-9_.-]{0,63}$`)

func validNodes(nodes []FlowNode) error {
	seen := map[string]bool{}
	for _, n := range nodes {
		switch {
		case !nodeType.MatchString(n.Type):
			return fmt.Errorf("pluginsdk: flow node %q: not a name of a type", n.Type)
		case seen[n.Type]:
			return fmt.Errorf("pluginsdk: flow node %q: declared twice", n.Type)
		case n.Run == nil:
			return fmt.Errorf("pluginsdk: flow node %q: no Run", n.Type)
		case n.ConfigSchema != nil && !json.Valid(n.ConfigSchema):
			return fmt.Errorf("pluginsdk: flow node %q: ConfigSchema is not valid JSON", n.Type)
		case n.Deadline < 0 || n.Deadline > MaxNodeDeadline || (n.Deadline > 0 && n.Deadline < time.Millisecond):
			return fmt.Errorf("pluginsdk: flow node %q: the deadline must be 1 ms to 5 min", n.Type)
		}
		seen[n.Type] = true
	}
	return nil
}

func (n FlowNode) declare() NodeDeclaration {
	deadline := n.Deadline
	if deadline == 0 {
		deadline = DefaultNodeDeadline
	}
	return NodeDeclaration{
		Type: n.Type, Name: n.Name, Description: n.Description, Icon: n.Icon, Category: n.Category, ConfigSchema: n.ConfigSchema,
		Pure: n.Pure, DeadlineMS: deadline.Milliseconds(),
	}
}

// RunNode executes a node of one of the plugin's types.
func (g *Guest) RunNode(ctx context.Context, step NodeStep) (result NodeResult, err error) {
	defer recovered(&err)
	n, ok := g.nodes[step.Type]
	if !ok {
		return NodeResult{}, &Error{Code: CodeInvalid, Message: fmt.Sprintf("there is no flow node %q", step.Type)}
	}
	return n.Run(ctx, step)
}

// RunNode serves a node. What the node itself refuses or fails in is an answer;
// a status means that the call did not come through.
func (s *server) RunNode(ctx context.Context, call *pluginv1.NodeCall) (*pluginv1.NodeResult, error) {
	config, err := DecodeRecord(call.Config)
	if err != nil {
		return nil, err
	}
	variables, err := DecodeRecord(call.Variables)
	if err != nil {
		return nil, err
	}
	result, err := s.guest.RunNode(ctx, NodeStep{
		Type: call.Type, Flow: call.Flow, RunID: call.RunId, NodeID: call.NodeId, Key: call.Key, Iteration: int(call.Iteration), Retry: int(call.Retry),
		Config: config, Variables: variables, UserID: call.UserId, OrganizationID: call.OrganizationId,
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return &pluginv1.NodeResult{Error: ToWire(err)}, nil
	}
	out := &pluginv1.NodeResult{Label: result.Label}
	if out.Output, err = EncodeRecord(result.Output); err != nil {
		return nil, err
	}
	out.Variables, err = EncodeRecord(result.Variables)
	return out, err
}
