package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// Print writes a table of the figures that were measured.
func (r *Report) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	all := r.Scenarios
	if len(all) == 0 {
		all = []Figures{r.Figures}
	}
	for _, f := range all {
		for i, line := range f.lines() {
			name := ""
			if i == 0 {
				name = f.Scenario
			}
			fmt.Fprintf(w, "%s\t%s\t%s\n", name, line[0], line[1])
		}
	}
	fmt.Fprintf(w, "database\t%s %s\t%s\n", r.Settings.Dialect, r.Settings.Version, r.Settings.durability())
	fmt.Fprintf(w, "machine\t%d CPUs, %s\tload %s before, %s after\n", r.Machine.CPUs, r.Machine.Go, r.Machine.LoadBefore, r.Machine.LoadAfter)
	return w.Flush()
}

// JSON writes the report as one line.
func (r *Report) JSON(out io.Writer) error { return json.NewEncoder(out).Encode(r) }

func (s Settings) durability() string {
	if s.JournalMode != "" {
		return "journal_mode " + s.JournalMode + ", synchronous " + s.Synchronous
	}
	return "synchronous_commit " + s.SynchronousCommit + ", fsync " + s.Fsync + ", full_page_writes " + s.FullPageWrites
}

// lines are the measured figures with their names.
func (f Figures) lines() [][2]string {
	var out [][2]string
	add := func(measured bool, name, format string, args ...any) {
		if measured {
			out = append(out, [2]string{name, fmt.Sprintf(format, args...)})
		}
	}
	add(f.Ratio > 0, "ratio to the bare client", "%.3f (%.0f/s to %.0f/s, medians of %d)",
		f.Ratio, f.DeliveriesPerSecond+f.EventsPerSecond+f.RequestsPerSecond, f.BaselinePerSecond, f.Runs)
	add(f.EventsPerSecond > 0, "events per second", "%.0f", f.EventsPerSecond)
	add(f.CPUSecondsPer1000 > 0, "CPU seconds per 1,000", "%.3f (host %.3f, database %.3f)",
		f.CPUSecondsPer1000, f.HostCPUSecondsPer1000, f.DatabaseCPUSecondsPer1000)
	add(f.CPUSecondsPer1000 == 0 && f.HostCPUSecondsPer1000 > 0, "CPU seconds per 1,000", "host %.3f, the database's cannot be read from here", f.HostCPUSecondsPer1000)
	way := "due to receiver"
	switch {
	case f.EventsPerSecond > 0:
		way = "append to handled"
	case f.RequestsPerSecond > 0:
		way = "request"
	case len(f.Lists) > 0:
		way = "slowest list"
	}
	for _, l := range f.Lists {
		add(true, l.Name+", p50 / p99", "%.2f / %.2f ms, %d records", l.P50, l.P99, l.Records)
	}
	add(f.P99 > 0, way+", p50 / p99", "%.2f / %.2f ms", f.P50, f.P99)
	add(f.RSS > 0, "memory of the host", "%.1f MB", f.RSS)
	add(f.FinishedRows > 0, "with "+strconv.Itoa(f.FinishedRows)+" finished rows", "ratio %.3f, %.3f of that without", f.RatioWithFinished, f.FinishedRatio)
	add(f.IsolationRatio > 0, "healthy p95 beside a hanging webhook", "%.3f of that without (%.2f to %.2f ms)", f.IsolationRatio, f.P95Beside, f.P95Alone)
	add(f.IdleCPUPercent > 0, "idle host", "%.3f %% of a core", f.IdleCPUPercent)
	if f.IdleQueriesPerSecond != nil {
		add(true, "idle host's queries", "%.2f/s", *f.IdleQueriesPerSecond)
	}
	add(len(f.Lists) > 0, "rows in the table", "%d", f.Rows)
	add(f.Rows > 0 && f.AttemptRows == 0 && len(f.Lists) == 0, "counted", "%d rows, %d unique", f.Rows, f.Unique)
	add(f.AttemptRows > 0 && f.BodyBytes == 0, "counted", "%d rows, %d unique, %d attempts", f.Rows, f.Unique, f.AttemptRows)
	add(f.BodyBytes > 0, "counted", "%d rows, %d unique, %d attempts, %d bytes each", f.Rows, f.Unique, f.AttemptRows, f.BodyBytes)
	return out
}
