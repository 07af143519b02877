package realtime

import (
	"context"
	"log/slog"
	"regexp"
	"time"

	"github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/storage/lease"
)

// Config holds what may be tuned. The zero value works.
type Config struct {
	// Logger receives the service's records; nil discards them.
	Logger *slog.Logger
	// Clock tells the time of events, of retention and of lag. Default
	// time.Now.
	Clock func() time.Time
	// Fanout carries wake-ups to other nodes; nil for none, then they find
	// new events within PollInterval.
	Fanout driver.Fanout
	// Leases divide the partitions among the processes that share the log: the
	// one that holds a range's first partition consumes it. nil consumes all.
	// The service starts and stops them with itself.
	Leases *lease.Holder
	// PollInterval is how often the log is looked at without being woken, once
	// for all consumers and subscribers; while that finds something, it is ten
	// times as often. 100 ms to 1 h, default 5 s.
	PollInterval time.Duration
	// Retention is how long events are kept at least. From 1 min, default 7
	// days.
	Retention time.Duration
	// CleanInterval is the pause between two rounds of retention. From 1 s,
	// default 10 min.
	CleanInterval time.Duration
	// CleanBatch is how many events one statement of retention looks at. 1 to
	// 100000, default 1000.
	CleanBatch int
	// MaxLag is the age of its oldest unhandled event above which a consumer
	// is lagged. Up to Retention, default 24 h.
	MaxLag time.Duration
	// MonitorInterval is how often lag is looked at. From 1 s, default 30 s.
	MonitorInterval time.Duration
	// OnLagged is called when a consumer becomes lagged; nil for nothing. It
	// runs on the monitor's goroutine.
	OnLagged func(ctx context.Context, status ConsumerStatus)
	// MaxSubscriptions caps Subscribe. Default 50000.
	MaxSubscriptions int
	// QueueSize is how many events wait for one subscriber. Default 1024.
	QueueSize int
}

const (
	defaultRetention        = 7 * 24 * time.Hour
	defaultMaxLag           = 24 * time.Hour
	defaultMaxSubscriptions = 50_000
)

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	c.PollInterval = or(c.PollInterval, 5*time.Second)
	c.Retention = or(c.Retention, defaultRetention)
	c.CleanInterval = or(c.CleanInterval, 10*time.Minute)
	c.CleanBatch = or(c.CleanBatch, 1000)
	c.MaxLag = or(c.MaxLag, min(defaultMaxLag, c.Retention))
	c.MonitorInterval = or(c.MonitorInterval, 30*time.Second)
	c.MaxSubscriptions = or(c.MaxSubscriptions, defaultMaxSubscriptions)
	c.QueueSize = or(c.QueueSize, 1024)
	return c
}

func (c Config) validate() error {
	switch {
	case c.PollInterval < 100*time.Millisecond || c.PollInterval > time.Hour:
		return &ConfigError{"PollInterval", "from 100ms to 1h"}
	case c.Retention < time.Minute:
		return &ConfigError{"Retention", "at least 1m"}
	case c.CleanInterval < time.Second:
		return &ConfigError{"CleanInterval", "at least 1s"}
	case c.CleanBatch < 1 || c.CleanBatch > 100_000:
		return &ConfigError{"CleanBatch", "from 1 to 100000"}
	case c.MaxLag < 0 || c.MaxLag > c.Retention:
		return &ConfigError{"MaxLag", "positive and not above Retention"}
	case c.MonitorInterval < time.Second:
		return &ConfigError{"MonitorInterval", "at least 1s"}
	case c.MaxSubscriptions < 1:
		return &ConfigError{"MaxSubscriptions", "at least 1"}
	case c.QueueSize < 1:
		return &ConfigError{"QueueSize", "at least 1"}
	}
	return nil
}

// Start is where a consumer begins that the log does not know yet.
type Start = driver.Start

// A consumer begins after everything that is committed when the service
// starts, or with the oldest event that is kept.
const (
	FromLatest   = driver.Latest
	FromEarliest = driver.Earliest
)

// ConsumerConfig describes a durable consumer.
type ConsumerConfig struct {
	// Name identifies the consumer and its position for ever:
	// ^[a-z][a-z0-9_.-]*$, at most 100 characters.
	Name string
	// BatchSize is how many events a batch holds at most. 1 to 10000, default
	// 500.
	BatchSize int
	// Start is where the consumer begins when its name is new.
	Start Start
	// BatchAttempts is how often a failing batch is tried as a whole before it
	// is halved to find the event that fails. 1 to 100, default 3.
	BatchAttempts int
	// EventAttempts is how often that event is tried alone before the consumer
	// is reported as stuck; it goes on being tried. 1 to 100, default 5.
	EventAttempts int
	// MinBackoff and MaxBackoff bound the pauses after failures, which double
	// each time, times a random factor from 0.8 to 1.2. Default 100 ms and
	// 30 s.
	MinBackoff, MaxBackoff time.Duration
}

var consumerName = regexp.MustCompile(`^[a-z][a-z0-9_.-]{0,99}$`)

func (c ConsumerConfig) withDefaults() ConsumerConfig {
	c.BatchSize = or(c.BatchSize, 500)
	c.BatchAttempts = or(c.BatchAttempts, 3)
	c.EventAttempts = or(c.EventAttempts, 5)
	c.MinBackoff = or(c.MinBackoff, 100*time.Millisecond)
	c.MaxBackoff = or(c.MaxBackoff, 30*time.Second)
	return c
}

func (c ConsumerConfig) validate() error {
	switch {
	case !consumerName.MatchString(c.Name):
		return &ConfigError{"Name", "1 to 100 of a-z, 0-9, _, ., -, beginning with a letter"}
	case c.BatchSize < 1 || c.BatchSize > 10_000:
		return &ConfigError{"BatchSize", "from 1 to 10000"}
	case c.Start != FromLatest && c.Start != FromEarliest:
		return &ConfigError{"Start", "FromLatest or FromEarliest"}
	case c.BatchAttempts < 1 || c.BatchAttempts > 100:
		return &ConfigError{"BatchAttempts", "from 1 to 100"}
	case c.EventAttempts < 1 || c.EventAttempts > 100:
		return &ConfigError{"EventAttempts", "from 1 to 100"}
	case c.MinBackoff < time.Millisecond:
		return &ConfigError{"MinBackoff", "at least 1ms"}
	case c.MaxBackoff < c.MinBackoff:
		return &ConfigError{"MaxBackoff", "not below MinBackoff"}
	}
	return nil
}

func or[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}
