package automation

import "encoding/json"

// The types of flows.
const (
	TypeAutolaunched = "autolaunched"
	TypeRecordChange = "record_change"
	TypeSchedule     = "schedule"
	TypeScreen       = "screen"
	TypeAPI          = "api"
)

// The states of a definition. Draft and active flows run, the others do not.
const (
	StatusDraft    = "draft"
	StatusActive   = "active"
	StatusObsolete = "obsolete"
	StatusInvalid  = "invalid"
)

// In whose name the data nodes of a flow act.
const (
	RunAsUser   = "user"
	RunAsSystem = "system"
)

// The strategies of ErrorHandling.
const (
	StrategyFail     = "fail"
	StrategyRetry    = "retry"
	StrategyContinue = "continue"
)

// Definition is an authored flow. [Parse] makes one; its JSON form is the
// normalised one, with defaults filled in.
type Definition struct {
	Name           string         `json:"name"`
	Label          string         `json:"label"`
	Description    string         `json:"description,omitempty"`
	SuccessMessage string         `json:"successMessage,omitempty"`
	ErrorMessage   string         `json:"errorMessage,omitempty"`
	Version        int            `json:"version"`
	Status         string         `json:"status"`
	Type           string         `json:"type"`
	Variables      []Variable     `json:"variables,omitempty"`
	Nodes          []Node         `json:"nodes"`
	Edges          []Edge         `json:"edges"`
	RunAs          string         `json:"runAs"`
	ErrorHandling  *ErrorHandling `json:"errorHandling,omitempty"`
}

// Variable is a declared variable. Inputs take their value from the trigger's
// parameters, outputs make up the result of a run.
type Variable struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	IsInput  bool   `json:"isInput"`
	IsOutput bool   `json:"isOutput"`
	// DefaultValue is any JSON value; HasDefault tells an absent one from null.
	DefaultValue any  `json:"defaultValue,omitempty"`
	HasDefault   bool `json:"-"`
}

// Node is one step of a flow.
type Node struct {
	ID     string         `json:"id"`
	Type   string         `json:"type"`
	Label  string         `json:"label,omitempty"`
	Config map[string]any `json:"config,omitempty"`
	// TimeoutMs bounds one execution of the node; 0 means no bound of its own.
	TimeoutMs       int64      `json:"timeoutMs,omitempty"`
	Position        any        `json:"position,omitempty"`
	InputSchema     any        `json:"inputSchema,omitempty"`
	WaitEventConfig *WaitEvent `json:"waitEventConfig,omitempty"`
	// ConnectorConfig and BoundaryConfig are kept for other tools.
	ConnectorConfig any `json:"connectorConfig,omitempty"`
	BoundaryConfig  any `json:"boundaryConfig,omitempty"`
}

// WaitEvent tells what a wait node waits for: a timer, or a resume from
// outside under one of the other types.
type WaitEvent struct {
	EventType     string `json:"eventType"`
	TimerDuration string `json:"timerDuration,omitempty"`
	SignalName    string `json:"signalName,omitempty"`
}

// Edge leads from one node to another.
type Edge struct {
	ID     string `json:"id"`
	Source string `json:"source"`
	Target string `json:"target"`
	// Condition is CEL, or {"dialect": "cel", "source": "…"}, or a comparison
	// written as a template.
	Condition any `json:"condition,omitempty"`
	// Type is default, fault, conditional or back.
	Type      string `json:"type"`
	Label     string `json:"label,omitempty"`
	IsDefault bool   `json:"isDefault"`
}

// The types of edges.
const (
	EdgeDefault     = "default"
	EdgeFault       = "fault"
	EdgeConditional = "conditional"
	EdgeBack        = "back"
)

// ErrorHandling tells what becomes of a node that fails and has no fault edge.
type ErrorHandling struct {
	// Strategy is fail, retry or continue.
	Strategy          string  `json:"strategy"`
	MaxRetries        int     `json:"maxRetries"`
	BackoffMs         int64   `json:"backoffMs"`
	BackoffMultiplier float64 `json:"backoffMultiplier"`
	MaxRetryDelayMs   int64   `json:"maxRetryDelayMs"`
	Jitter            bool    `json:"jitter"`
}

// Problem is one thing that is wrong with a definition, and where.
type Problem struct {
	// Field is the path, such as nodes[2].config.url.
	Field   string `json:"field"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// The codes of problems.
const (
	codeRequired      = "required"
	codeInvalidType   = "invalid_type"
	codeInvalidOption = "invalid_option"
	codeInvalidValue  = "invalid_value"
	codeInvalidFormat = "invalid_format"
	codeUnknownField  = "unknown_field"
)

// region is a graph that is embedded in a container node: {nodes, edges}.
type regionSource struct {
	Nodes []Node
	Edges []Edge
}

// canonical is the JSON form by which two definitions are compared.
func (d *Definition) canonical() string {
	unversioned := *d
	unversioned.Version = 0
	text, err := json.Marshal(&unversioned)
	if err != nil {
		return ""
	}
	return string(text)
}
