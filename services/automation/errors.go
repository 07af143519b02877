package automation

import (
	"errors"
	"fmt"
	"strings"
)

// ErrFlowNotFound is returned for a flow that is not registered.
var ErrFlowNotFound = errors.New("automation: flow not found")

// ErrFlowDisabled is returned for a flow that is switched off, obsolete or
// invalid.
var ErrFlowDisabled = errors.New("automation: flow is disabled")

// ErrNoStartNode is returned for a flow without a start node.
var ErrNoStartNode = errors.New("automation: flow has no start node")

// ErrRunNotFound is returned for a run that does not exist or, by Resume, that
// does not wait.
var ErrRunNotFound = errors.New("automation: run not found")

// ErrResumeInProgress is returned for a run that is being executed.
var ErrResumeInProgress = errors.New("automation: the run is being resumed")

// ErrSignature is returned for a hook call that is not signed with the hook's
// secret.
var ErrSignature = errors.New("automation: signature does not match")

// ErrDuplicateNode is returned for a node type that is registered already.
var ErrDuplicateNode = errors.New("automation: node type is registered already")

// errLost tells that another node of the cluster executes the run now.
var errLost = errors.New("automation: the claim on the run was lost")

// errStopped tells that the host stops; the run goes on after the next start.
var errStopped = errors.New("automation: the host stops")

// ValidationError tells everything that is wrong with a definition.
type ValidationError struct {
	Flow     string
	Problems []Problem
}

func (e *ValidationError) Error() string {
	texts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		texts[i] = p.Message
		if p.Field != "(body)" {
			texts[i] = p.Field + ": " + p.Message
		}
	}
	return "Invalid flow definition: " + strings.Join(texts, "; ")
}

// InvalidInputError is returned for a trigger or resume whose body cannot be
// used.
type InvalidInputError struct{ Reason string }

func (e *InvalidInputError) Error() string { return e.Reason }

// LimitError tells which bound a run has met.
type LimitError struct {
	// Limit is the name of the bound in Limits.
	Limit string
	Max   int64
	// Reason is the whole sentence.
	Reason string
}

func (e *LimitError) Error() string { return e.Reason }

// NodeError is the failure of a node.
type NodeError struct {
	NodeID string
	// Code is NO_EXECUTOR, EXECUTION_ERROR or NODE_FAILURE.
	Code string
	Err  error
}

func (e *NodeError) Error() string { return fmt.Sprintf("Node '%s' failed: %v", e.NodeID, e.Err) }

// Unwrap returns the cause.
func (e *NodeError) Unwrap() error { return e.Err }

// The codes of NodeError.
const (
	CodeNoExecutor     = "NO_EXECUTOR"
	CodeExecutionError = "EXECUTION_ERROR"
	CodeNodeFailure    = "NODE_FAILURE"
)
