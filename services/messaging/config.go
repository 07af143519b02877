package messaging

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/lease"
)

// EventLog is what the outbox needs of the realtime service: an append that
// joins the transaction of its context.
type EventLog interface {
	Append(ctx context.Context, events ...*event.Event) error
}

// Sealer encrypts secrets at rest. Open fails for text that was sealed with a
// key that is not at hand, or for other aad.
type Sealer interface {
	Seal(plaintext, aad []byte) (string, error)
	Open(sealed string, aad []byte) ([]byte, error)
}

// Config configures a [Service]. Store and Tx are required; every other zero
// value stands for the default in parentheses.
type Config struct {
	// Store keeps the rows; Tx opens the transactions that Store joins.
	Store driver.Store
	Tx    storage.Transactor
	// Events receives delivery.finished events; nil appends none.
	Events EventLog
	// Sealer seals headers and secrets; nil refuses requests that have some.
	Sealer Sealer
	// Sender configures the HTTP client and its egress guard.
	Sender SenderConfig
	// Logger receives one line per attempt; nil discards.
	Logger *slog.Logger
	// Node names this process in claims (a random name). It must be unique per
	// process, so that a restarted host cannot take its old claims for its own.
	Node string
	// Leases divide the partitions among the processes that share the store; nil
	// serves all of them here. The service starts and stops them with itself.
	Leases *lease.Holder
	// Nodes wakes the other processes that share the store; nil leaves them to
	// their PollInterval.
	Nodes Nodes
	// Exclusive tells that no other process sends from this store, so that a
	// start may take back every claim at once.
	Exclusive bool

	// MaxInFlight is the number of requests sent at once that are answered
	// promptly (64). A request that takes longer than SlowAfter (150 ms) gives
	// its place to another and counts against MaxSlow (1024) instead.
	MaxInFlight, MaxSlow int
	SlowAfter            time.Duration
	// MaxPerTarget and MaxPerHost cap requests in flight to one target (64)
	// and to one host and port (256).
	MaxPerTarget, MaxPerHost int
	// BatchSize is the largest number of rows of one claim, outcome batch or
	// group commit (500).
	BatchSize int
	// PollInterval is the time between looks at the store for what other
	// processes wrote (5 s). Commits of this process need none.
	PollInterval time.Duration
	// QueueWait is the longest time that a claimed row waits to be sent (5 s).
	QueueWait time.Duration
	// ClaimMargin is what a claim outlasts QueueWait and the row's timeout, to
	// save the outcome (5 s, at least 1 s).
	ClaimMargin time.Duration
	// MaxPayload is the largest body in bytes (16 MiB).
	MaxPayload int
	// PayloadMemory bounds the bytes of payloads above 64 KiB that are in memory
	// at once (64 MiB); one that is larger by itself is sent alone.
	PayloadMemory int
	// Retention keeps finished rows (30 days). It must not be shorter than
	// EventRetention, the event log's own (7 days): the log could otherwise
	// replay an event whose delivery is forgotten.
	Retention, EventRetention time.Duration
	// CleanInterval is the time between clean-ups (10 min).
	CleanInterval time.Duration
	// OnAttempt is called after every attempt's outcome is saved, from one
	// goroutine; it must not block.
	OnAttempt func(Delivery, Attempt)
}

func (c Config) withDefaults() Config {
	def(&c.Node, "node-"+uuid.NewString()[:8])
	def(&c.MaxInFlight, 64)
	def(&c.MaxSlow, 1024)
	def(&c.SlowAfter, 150*time.Millisecond)
	def(&c.MaxPerTarget, 64)
	def(&c.MaxPerHost, 256)
	def(&c.BatchSize, 500)
	def(&c.PollInterval, 5*time.Second)
	def(&c.QueueWait, 5*time.Second)
	def(&c.ClaimMargin, 5*time.Second)
	def(&c.MaxPayload, 16<<20)
	def(&c.PayloadMemory, 64<<20)
	def(&c.Retention, 30*24*time.Hour)
	def(&c.EventRetention, 7*24*time.Hour)
	def(&c.CleanInterval, 10*time.Minute)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) validate() error {
	if c.Store == nil || c.Tx == nil {
		return fmt.Errorf("messaging: Config.Store and Config.Tx are required")
	}
	for _, b := range []struct {
		name     string
		value    int64
		min, max int64
	}{
		{"MaxInFlight", int64(c.MaxInFlight), 1, 4096},
		{"MaxSlow", int64(c.MaxSlow), 0, 65536},
		{"MaxPerTarget", int64(c.MaxPerTarget), 1, 64},
		{"MaxPerHost", int64(c.MaxPerHost), 1, 65536},
		{"BatchSize", int64(c.BatchSize), 1, 5000},
		{"MaxPayload", int64(c.MaxPayload), 1, 256 << 20},
		{"PayloadMemory", int64(c.PayloadMemory), 1 << 20, 1 << 40},
		{"SlowAfter (ms)", c.SlowAfter.Milliseconds(), 1, 60_000},
		{"PollInterval (ms)", c.PollInterval.Milliseconds(), 10, 600_000},
		{"QueueWait (ms)", c.QueueWait.Milliseconds(), 100, 600_000},
		{"ClaimMargin (ms)", c.ClaimMargin.Milliseconds(), 1000, 600_000},
		{"CleanInterval (ms)", c.CleanInterval.Milliseconds(), 10, 86_400_000},
	} {
		if b.value < b.min || b.value > b.max {
			return fmt.Errorf("messaging: Config.%s is %d, want %d to %d", b.name, b.value, b.min, b.max)
		}
	}
	if c.Retention < c.EventRetention {
		return fmt.Errorf("messaging: Config.Retention is %s, shorter than the event log's %s: "+
			"a replayed event could be delivered twice", c.Retention, c.EventRetention)
	}
	return nil
}

// hold is what a claim lasts beyond its row's timeout.
func (c Config) hold() time.Duration { return c.QueueWait + c.ClaimMargin }
