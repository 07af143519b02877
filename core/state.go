package core

import "time"

// State is where a kernel, or one plugin in it, stands.
//
//	idle ──► starting ──► running ──► stopping ──► stopped
//	  └──────────┬────────────────────────────────────▲
//	             └── failed boot, after its teardown ─┘
type State string

// The states. A plugin is starting from its Init on and stopped when its Stop
// has returned or was abandoned; a plugin that was never initialized stays
// idle.
const (
	StateIdle     State = "idle"
	StateStarting State = "starting"
	StateRunning  State = "running"
	StateStopping State = "stopping"
	StateStopped  State = "stopped"
)

// HealthState is the judgement over a plugin's checks.
type HealthState string

// The health states. Recovering is an unhealthy plugin whose latest checks
// succeeded, but fewer than the success threshold; degraded one that failed
// fewer times than the failure threshold. A plugin that is not running is
// unknown.
const (
	HealthUnknown    HealthState = "unknown"
	HealthHealthy    HealthState = "healthy"
	HealthDegraded   HealthState = "degraded"
	HealthUnhealthy  HealthState = "unhealthy"
	HealthRecovering HealthState = "recovering"
)

// Health is what is known about one plugin.
type Health struct {
	Plugin string
	State  HealthState
	// Err is the error of the latest check, nil when it succeeded.
	Err error
	// CheckedAt is when the latest check ended; zero before the first.
	CheckedAt time.Time
	// Failures and Successes count the latest checks in a row.
	Failures, Successes int
}

// PluginInfo is a plugin and how it is doing.
type PluginInfo struct {
	Manifest Manifest
	State    State
	Health   Health
}

// PluginMetrics are the durations of one plugin's phases, zero for a phase that
// has not run, and the number of its health checks.
type PluginMetrics struct {
	Plugin            string
	Init, Start, Stop time.Duration
	Checks, Failures  int64
}

// Metrics are the measurements of a kernel.
type Metrics struct {
	// Boot and Stop are the durations of the whole Start and Stop.
	Boot, Stop time.Duration
	// Plugins in start order.
	Plugins []PluginMetrics
}
