package automation

import (
	"fmt"
	"log/slog"
	"time"
)

// Sealer seals definitions, which may hold secrets, at rest. aad binds a sealed
// value to its place.
type Sealer interface {
	Seal(plaintext, aad []byte) (string, error)
	Open(sealed string, aad []byte) ([]byte, error)
}

// Config tunes the service. Sealer is required; every other zero value stands
// for the default in parentheses.
type Config struct {
	Sealer Sealer
	// Logger receives one line per run that failed; nil discards.
	Logger *slog.Logger
	// Dir is a folder of flows in JSON or YAML, "" for none.
	Dir string
	// Workers is how many runs of triggers are executed at once (8, 1 to 256).
	// Runs that a caller waits for come on top.
	Workers int
	// PollInterval is the time between looks at the database for what timers
	// and other nodes have to do (1 s, 50 ms to 1 min).
	PollInterval time.Duration
	// Lease is how long a run is left alone whose node has stopped renewing
	// its claim (30 s, 1 s to 10 min).
	Lease time.Duration
	// Retention keeps finished runs (30 days, at least 1 min).
	Retention time.Duration
	// Exclusive tells that no other process executes runs of this database, so
	// that a start may take back every claim at once.
	Exclusive bool
	Limits    Limits
	// Now is the clock of steps and templates, time.Now when nil. Claims,
	// timers and schedules go by the database's clock.
	Now func() time.Time
}

// Limits bound runs. A run that meets one fails and says which.
type Limits struct {
	// Steps is how many steps a run may have (200000).
	Steps int
	// NodeEntries is how often a node may be entered, in each turn of a loop
	// anew (100).
	NodeEntries int
	// LoopSize is how many elements a loop or map may have (100000).
	LoopSize int
	// Depth is how deep flows may call and start each other (16).
	Depth int
	// RunTime is how long a run may be executed, pauses left out (5 min).
	RunTime time.Duration
	// BeforeTime is how long all flows before one write may take (5 s).
	BeforeTime time.Duration
	// Crashes is how often a run may be found with its process gone (3).
	Crashes int
}

func orDefault[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}

func (c Config) withDefaults() (Config, error) {
	if c.Sealer == nil {
		return c, fmt.Errorf("automation: Config.Sealer is missing")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Workers = orDefault(c.Workers, 8)
	c.PollInterval = orDefault(c.PollInterval, time.Second)
	c.Lease = orDefault(c.Lease, 30*time.Second)
	c.Retention = orDefault(c.Retention, 30*24*time.Hour)
	l := &c.Limits
	l.Steps = orDefault(l.Steps, 200_000)
	l.NodeEntries = orDefault(l.NodeEntries, 100)
	l.LoopSize = orDefault(l.LoopSize, 100_000)
	l.Depth = orDefault(l.Depth, 16)
	l.RunTime = orDefault(l.RunTime, 5*time.Minute)
	l.BeforeTime = orDefault(l.BeforeTime, 5*time.Second)
	l.Crashes = orDefault(l.Crashes, 3)
	for _, bound := range []struct {
		name              string
		value, least, top int64
	}{
		{"Workers", int64(c.Workers), 1, 256},
		{"PollInterval", int64(c.PollInterval), int64(50 * time.Millisecond), int64(time.Minute)},
		{"Lease", int64(c.Lease), int64(time.Second), int64(10 * time.Minute)},
		{"Retention", int64(c.Retention), int64(time.Minute), int64(maxWait)},
		{"Limits.Steps", int64(l.Steps), 1, 10_000_000},
		{"Limits.NodeEntries", int64(l.NodeEntries), 1, 1_000_000},
		{"Limits.LoopSize", int64(l.LoopSize), 1, 1_000_000},
		{"Limits.Depth", int64(l.Depth), 1, 100},
		{"Limits.RunTime", int64(l.RunTime), int64(time.Millisecond), int64(24 * time.Hour)},
		{"Limits.BeforeTime", int64(l.BeforeTime), int64(time.Millisecond), int64(time.Minute)},
		{"Limits.Crashes", int64(l.Crashes), 1, 100},
	} {
		if bound.value < bound.least || bound.value > bound.top {
			return c, fmt.Errorf("automation: Config.%s is %d, must be %d to %d", bound.name, bound.value, bound.least, bound.top)
		}
	}
	return c, nil
}
