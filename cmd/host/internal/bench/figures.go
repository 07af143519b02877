package bench

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/objecthost/objecthost/storage"
)

// Figures are what one scenario measured: medians over its runs, counts over
// all of them. Zero means not measured.
type Figures struct {
	Scenario string `json:"scenario"`
	Runs     int    `json:"runs,omitempty"`
	// Ratio is the median of each run's rate over that of the bare client
	// right before it.
	Ratio               float64 `json:"ratio,omitempty"`
	DeliveriesPerSecond float64 `json:"deliveries_per_second,omitempty"`
	BaselinePerSecond   float64 `json:"baseline_per_second,omitempty"`
	// Processor seconds per 1,000 deliveries, without the receiver. The sum is
	// left out when the database's part cannot be read.
	CPUSecondsPer1000         float64 `json:"cpu_seconds_per_1000,omitempty"`
	HostCPUSecondsPer1000     float64 `json:"host_cpu_seconds_per_1000,omitempty"`
	DatabaseCPUSecondsPer1000 float64 `json:"database_cpu_seconds_per_1000,omitempty"`
	// Rows is the number of deliveries that ended as success, Unique of
	// different ids that arrived with a right signature, AttemptRows of
	// attempts on record.
	Rows        int `json:"rows,omitempty"`
	Unique      int `json:"unique,omitempty"`
	AttemptRows int `json:"attempt_rows,omitempty"`
	// P50 and P99 are milliseconds from the moment at which a delivery was due
	// (its commit, or the outbox's start when it waited already) to its
	// request at the receiver. Of events they are from the commit to the
	// consumer's, of the API those of a request.
	P50 float64 `json:"p50_ms,omitempty"`
	P99 float64 `json:"p99_ms,omitempty"`
	// RSS is the highest resident memory of the host in MB (10^6 bytes), taken
	// as the largest of all runs.
	RSS float64 `json:"rss_mb,omitempty"`
	// BodyBytes is the average size of a body.
	BodyBytes int `json:"body_bytes,omitempty"`

	// FinishedRows lay in the table in the runs that FinishedRatio, the ratio
	// of Ratio with and without them, rests on.
	FinishedRows      int     `json:"finished_rows,omitempty"`
	RatioWithFinished float64 `json:"ratio_with_finished,omitempty"`
	FinishedRatio     float64 `json:"finished_ratio,omitempty"`

	// P95Alone and P95Beside are milliseconds to the receiver of healthy
	// webhooks without and with one that hangs; IsolationRatio is the median
	// of the second over the first.
	P95Alone       float64 `json:"p95_alone_ms,omitempty"`
	P95Beside      float64 `json:"p95_beside_ms,omitempty"`
	IsolationRatio float64 `json:"isolation_ratio,omitempty"`

	// IdleCPUPercent is the share of one core that an idle host takes,
	// IdleQueriesPerSecond what it asks the database (PostgreSQL only; nil
	// where it is not counted).
	IdleCPUPercent       float64  `json:"idle_cpu_percent,omitempty"`
	IdleQueriesPerSecond *float64 `json:"idle_queries_per_second,omitempty"`

	// Lists are the times of the command lists.
	Lists []ListFigures `json:"lists,omitempty"`

	// EventsPerSecond and RequestsPerSecond are the rates of the commands
	// events and api.
	EventsPerSecond   float64 `json:"events_per_second,omitempty"`
	RequestsPerSecond float64 `json:"requests_per_second,omitempty"`
}

// Report is the result of a command.
type Report struct {
	Figures
	// Scenarios holds each scenario's figures when there was more than one;
	// the ones above are then the first's, with the latency of the scenario
	// that measures it on an idle host.
	Scenarios []Figures `json:"scenarios,omitempty"`
	Settings  Settings  `json:"settings"`
	Machine   Machine   `json:"machine"`
}

// Settings are the durability settings as read back from the database.
type Settings struct {
	Dialect           string `json:"dialect"`
	Version           string `json:"version"`
	JournalMode       string `json:"journal_mode,omitempty"`
	Synchronous       string `json:"synchronous,omitempty"`
	SynchronousCommit string `json:"synchronous_commit,omitempty"`
	Fsync             string `json:"fsync,omitempty"`
	FullPageWrites    string `json:"full_page_writes,omitempty"`
}

// Machine tells under which conditions was measured.
type Machine struct {
	CPUs int    `json:"cpus"`
	Go   string `json:"go"`
	// LoadBefore and LoadAfter are the load averages of the last minute.
	LoadBefore string `json:"load_before,omitempty"`
	LoadAfter  string `json:"load_after,omitempty"`
}

func settingsOf(s storage.Settings) Settings {
	return Settings{
		Dialect: string(s.Dialect), Version: s.Version, JournalMode: s.JournalMode, Synchronous: s.Synchronous,
		SynchronousCommit: s.SynchronousCommit, Fsync: s.Fsync, FullPageWrites: s.FullPageWrites,
	}
}

// run is one run of a scenario.
type run struct {
	baseline, rate float64
	host, database time.Duration
	cpuMeasured    bool
	counts
	waits []time.Duration
	peak  int64
}

// summarize makes figures out of runs, of which there is at least one.
func summarize(scenario string, runs []run) Figures {
	f := Figures{Scenario: scenario, Runs: len(runs)}
	var ratios, rates, baselines, hosts, databases, p50, p99 []float64
	measured := true
	bytes := int64(0)
	for _, r := range runs {
		ratios = append(ratios, r.rate/r.baseline)
		rates = append(rates, r.rate)
		baselines = append(baselines, r.baseline)
		per1000 := float64(r.rows) / 1000
		hosts = append(hosts, r.host.Seconds()/per1000)
		databases = append(databases, r.database.Seconds()/per1000)
		measured = measured && r.cpuMeasured
		p50 = append(p50, millis(percentile(r.waits, 50)))
		p99 = append(p99, millis(percentile(r.waits, 99)))
		f.Rows += r.rows
		f.Unique += r.unique
		f.AttemptRows += r.attempts
		bytes += r.bytes
		f.RSS = max(f.RSS, round(float64(r.peak)/1e6, 1))
	}
	f.Ratio, f.DeliveriesPerSecond, f.BaselinePerSecond = round(median(ratios), 3), round(median(rates), 0), round(median(baselines), 0)
	f.HostCPUSecondsPer1000 = round(median(hosts), 3)
	if measured {
		f.DatabaseCPUSecondsPer1000 = round(median(databases), 3)
		sums := make([]float64, len(hosts))
		for i := range sums {
			sums[i] = hosts[i] + databases[i]
		}
		f.CPUSecondsPer1000 = round(median(sums), 3)
	}
	f.P50, f.P99 = round(median(p50), 2), round(median(p99), 2)
	f.BodyBytes = int(bytes) / max(f.Unique, 1)
	return f
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	if n == 0 {
		return 0
	}
	return (v[(n-1)/2] + v[n/2]) / 2
}

// percentile returns the smallest wait that at least p of 100 do not exceed; 0
// for none. It sorts v.
func percentile(v []time.Duration, p int) time.Duration {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[(len(v)*p+99)/100-1]
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func round(v float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(v*scale) / scale
}

func joined(names []string) string { return strings.Join(names, ", ") }
