package bench

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// The scenarios of [Deliveries].
const (
	// Drain sends deliveries that wait when the outbox starts.
	Drain = "drain"
	// Enqueue stores deliveries one by one from many goroutines while they are
	// sent.
	Enqueue = "enqueue"
	// Records creates records through the data engine; a webhook turns each
	// into a delivery.
	Records = "records"
	// Latency creates single records on an idle host.
	Latency = "latency"
	// Isolation sends to healthy webhooks with and without one that hangs.
	Isolation = "isolation"
	// Idle leaves a whole host alone.
	Idle = "idle"
)

// Scenarios are all scenarios of [Deliveries], in the order in which they run.
var Scenarios = []string{Drain, Enqueue, Records, Latency, Isolation, Idle}

// Config says what to measure. Zero values stand for the defaults in
// parentheses.
type Config struct {
	// DB is the DSN: postgres://… for a schema that is dropped in the end,
	// sqlite:PATH for a file that must not exist and is removed in the end, ""
	// for a SQLite file in the system's temporary folder.
	DB string
	// Receiver is the command that runs [ServeReceiver]. Required.
	Receiver []string
	// Rows is the number of deliveries of a run (20,000), Webhooks over how
	// many they are spread (100), Runs how often each is measured (3).
	Rows, Webhooks, Runs int
	// Finished is how many deliveries that have ended lie in the table for a
	// second series of drains (0: there is none).
	Finished int
	// Writers is the number of goroutines that write in the scenario enqueue
	// and in Events and API (16), RecordWriters that of records (2).
	Writers, RecordWriters int
	// Samples is the number of records of the latency scenario, and of
	// deliveries in each half of isolation (200, 600).
	Samples, IsolationSamples int
	// Hanging is the number of rows due at the webhook that hangs (1,000).
	Hanging int
	// IdleFor is how long the idle host is watched (20 s).
	IdleFor time.Duration
	// Profile is a file for a CPU profile of the first run that is measured,
	// without the bare client; empty for none.
	Profile string
	// Progress takes a line for every step; nil discards.
	Progress io.Writer
	// Log takes what the host logs as errors; nil discards.
	Log io.Writer
}

// bodySize is the size of a delivery's body in bytes.
const bodySize = 1024

// inFlight is the number of requests of the bare client at once.
const inFlight = 64

func (c Config) withDefaults() Config {
	def := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	def(&c.Rows, 20_000)
	def(&c.Webhooks, 100)
	def(&c.Runs, 3)
	def(&c.Writers, 16)
	def(&c.RecordWriters, 2)
	def(&c.Samples, 200)
	def(&c.IsolationSamples, 600)
	def(&c.Hanging, 1000)
	if c.IdleFor == 0 {
		c.IdleFor = 20 * time.Second
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	if c.Log == nil {
		c.Log = io.Discard
	}
	return c
}

// Error is returned for a value of [Config] that cannot be measured with.
type Error struct {
	// Flag is the command line's name of the value.
	Flag, Reason string
}

// Error implements error.
func (e *Error) Error() string { return "--" + e.Flag + ": " + e.Reason }

func (c Config) validate() error {
	for _, b := range []struct {
		flag             string
		value, low, high int
	}{
		{"rows", c.Rows, 100, 10_000_000},
		{"webhooks", c.Webhooks, 1, 10_000},
		{"runs", c.Runs, 1, 100},
		{"finished", c.Finished, 0, 100_000_000},
		{"writers", c.Writers, 1, 1000},
		{"record-writers", c.RecordWriters, 1, 100},
		{"samples", c.Samples, 10, 10_000},
		{"isolation-samples", c.IsolationSamples, 40, 100_000},
		{"hanging", c.Hanging, 1, 100_000},
		{"idle-for", int(c.IdleFor.Seconds()), 1, 3600},
	} {
		if b.value < b.low || b.value > b.high {
			return &Error{b.flag, fmt.Sprintf("must be %d to %d, not %d", b.low, b.high, b.value)}
		}
	}
	return nil
}

// chosen returns the scenarios to run, in their order.
func chosen(names []string) ([]string, error) {
	if slices.Contains(names, "all") {
		return Scenarios, nil
	}
	var out []string
	for _, s := range Scenarios {
		if slices.Contains(names, s) {
			out = append(out, s)
		}
	}
	for _, n := range names {
		if !slices.Contains(Scenarios, n) {
			return nil, &Error{"scenario", fmt.Sprintf("%q is none of all, %s", n, joined(Scenarios))}
		}
	}
	if len(out) == 0 {
		return nil, &Error{"scenario", "names no scenario"}
	}
	return out, nil
}
