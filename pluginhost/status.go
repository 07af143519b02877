package pluginhost

import "time"

// State is what a plugin is up to.
type State string

// The states.
const (
	StateInstalled State = "installed" // found, not verified yet
	StateVerified  State = "verified"  // signature, lock and hashes hold
	StateStarting  State = "starting"
	StateReady     State = "ready"
	StateDegraded  State = "degraded" // runs and says that it is not well
	StateBackoff   State = "backoff"  // failed, will be started again
	StateFailed    State = "failed"   // failed for good, until it is restarted
	StateDisabled  State = "disabled"
)

// transitions are the states that may follow each state.
var transitions = map[State][]State{
	StateInstalled: {StateVerified, StateBackoff, StateFailed, StateDisabled},
	StateVerified:  {StateStarting, StateBackoff, StateFailed, StateDisabled},
	StateStarting:  {StateReady, StateBackoff, StateFailed, StateDisabled},
	StateReady:     {StateDegraded, StateBackoff, StateFailed, StateDisabled},
	StateDegraded:  {StateReady, StateBackoff, StateFailed, StateDisabled},
	StateBackoff:   {StateVerified, StateFailed, StateDisabled},
	StateFailed:    {StateVerified, StateBackoff, StateDisabled},
	StateDisabled:  {StateVerified, StateBackoff, StateFailed},
}

// Status is a plugin as an operator sees it.
type Status struct {
	Name    string `json:"name"`
	ID      string `json:"id"`
	Version string `json:"version"`
	KeyID   string `json:"keyId,omitempty"`
	State   State  `json:"state"`
	// Reason tells why the plugin is degraded, waiting or failed.
	Reason string `json:"reason,omitempty"`
	// NextRetry is when it is started again.
	NextRetry time.Time `json:"nextRetry,omitzero"`
	// LastPanic is the last panic that ended it.
	LastPanic  string    `json:"lastPanic,omitempty"`
	Generation int       `json:"generation"`
	Restarts   int       `json:"restarts"`
	PID        int       `json:"pid,omitempty"`
	ReadySince time.Time `json:"readySince,omitzero"`
	// Memory is the resident memory in bytes.
	Memory uint64 `json:"memory,omitempty"`
	// Calls and Errors count the host's calls to the plugin; Latency is the
	// mean of their durations in milliseconds.
	Calls   int64   `json:"calls"`
	Errors  int64   `json:"errors"`
	Latency float64 `json:"latencyMs"`
	// LogLines and LogDropped count lines of its log.
	LogLines   int64 `json:"logLines"`
	LogDropped int64 `json:"logDropped"`
	// Denied counts refused calls by capability.
	Denied map[string]int64 `json:"denied,omitempty"`
}

// PackageStatus tells of the plugin with the id, in the words that clients
// know for packages: installed, disabled, or error for one that has failed. It
// does not know plugins in the host's own process.
func (m *Manager) PackageStatus(id string) (status string, known bool) {
	for _, a := range m.all() {
		if a.id != id {
			continue
		}
		switch a.status().State {
		case StateDisabled:
			return "disabled", true
		case StateBackoff, StateFailed:
			return "error", true
		default:
			return "installed", true
		}
	}
	return "", false
}
