package pluginhost

import (
	"context"
	"time"

	"github.com/objecthost/objecthost/pluginsdk"
	pluginv1 "github.com/objecthost/objecthost/pluginsdk/proto/v1"
	"github.com/objecthost/objecthost/services/automation"
	"github.com/objecthost/objecthost/storage"
)

// nodes are the types of flow nodes that a contract contributes.
func (w *wiring) nodes(c *contract, d pluginsdk.Declaration) []automation.NodeType {
	types := make([]automation.NodeType, len(d.Nodes))
	for i, n := range d.Nodes {
		effect := automation.EffectExternal
		if n.Pure {
			effect = automation.EffectNone
		}
		types[i] = automation.NodeType{
			Type: n.Type, Name: n.Name, Description: n.Description, Icon: n.Icon, Category: n.Category, ConfigSchema: n.ConfigSchema, Effect: effect,
			Run: func(ctx context.Context, s *automation.Step) (automation.Result, error) {
				return w.runNode(ctx, c, n, s)
			},
		}
	}
	return types
}

// runNode executes a node. What is not worth another try fails it for good.
func (w *wiring) runNode(ctx context.Context, c *contract, n pluginsdk.NodeDeclaration, s *automation.Step) (automation.Result, error) {
	result, err := w.tryNode(ctx, c, n, s)
	if err != nil {
		if ctx.Err() == nil && !pluginsdk.Retryable(err) {
			err = &automation.PermanentError{Err: err}
		}
		return automation.Result{}, err
	}
	return automation.Result{Output: result.Output, Variables: result.Variables, Label: result.Label}, nil
}

func (w *wiring) tryNode(ctx context.Context, c *contract, n pluginsdk.NodeDeclaration, s *automation.Step) (pluginsdk.NodeResult, error) {
	g, release, err := w.target(c)
	if err != nil {
		return pluginsdk.NodeResult{}, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(n.DeadlineMS)*time.Millisecond)
	defer cancel()
	who := s.Principal()
	step := pluginsdk.NodeStep{
		Type: n.Type, Flow: s.FlowName, RunID: s.RunID, NodeID: s.NodeID, Key: s.Key(), Iteration: s.Iteration, Retry: s.Retry,
		Config: s.Config, UserID: who.UserID, OrganizationID: s.OrganizationID,
	}
	if all, ok := s.Variable("vars"); ok {
		step.Variables, _ = all.(map[string]any)
	}
	return g.runNode(ctx, step, storage.InTransaction(ctx))
}

func (r remote) runNode(ctx context.Context, s pluginsdk.NodeStep, inTransaction bool) (pluginsdk.NodeResult, error) {
	call := &pluginv1.NodeCall{
		Type: s.Type, Flow: s.Flow, RunId: s.RunID, NodeId: s.NodeID, Key: s.Key, Iteration: int32(s.Iteration), Retry: int32(s.Retry),
		UserId: s.UserID, OrganizationId: s.OrganizationID,
	}
	var err error
	if call.Config, err = pluginsdk.EncodeRecord(s.Config); err != nil {
		return pluginsdk.NodeResult{}, err
	}
	if call.Variables, err = pluginsdk.EncodeRecord(s.Variables); err != nil {
		return pluginsdk.NodeResult{}, err
	}
	ctx, end := r.instance.call(ctx, inTransaction)
	defer end()
	answer, err := r.plugin.RunNode(ctx, call)
	if err != nil {
		return pluginsdk.NodeResult{}, r.callError(ctx, err)
	}
	if err := pluginsdk.FromWire(answer.Error); err != nil {
		return pluginsdk.NodeResult{}, err
	}
	result := pluginsdk.NodeResult{Label: answer.Label}
	if result.Output, err = pluginsdk.DecodeRecord(answer.Output); err != nil {
		return pluginsdk.NodeResult{}, err
	}
	result.Variables, err = pluginsdk.DecodeRecord(answer.Variables)
	return result, err
}

func (l local) runNode(ctx context.Context, s pluginsdk.NodeStep, _ bool) (pluginsdk.NodeResult, error) {
	result, err := l.guest.RunNode(ctx, s)
	if err != nil && ctx.Err() == nil {
		err = pluginsdk.AsError(err)
	}
	return result, err
}
