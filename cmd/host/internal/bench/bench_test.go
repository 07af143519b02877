package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/objecthost/objecthost/cmd/host/internal/bench"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// TestMain is the receiver's process when it is called with its argument, or
// with another one a receiver that takes the secret for a longer one.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && strings.HasSuffix(os.Args[1], "receiver") {
		in := io.Reader(os.Stdin)
		if os.Args[1] != "receiver" {
			in = io.MultiReader(strings.NewReader("another secret "), in)
		}
		if err := bench.ServeReceiver(context.Background(), in, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// tiny measures nothing of worth, but goes every way once.
func tiny(t *testing.T, db string) bench.Config {
	return bench.Config{
		DB: db, Receiver: []string{os.Args[0], "receiver"}, Rows: 200, Webhooks: 7, Runs: 1,
		Samples: 10, IsolationSamples: 40, Hanging: 30, IdleFor: time.Second, Progress: t.Output(), Log: t.Output(),
	}
}

// eachDSN runs fn for both kinds of database. The bench makes a schema of its
// own next to the test's.
func eachDSN(t *testing.T, fn func(t *testing.T, db string)) {
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); fn(t, "sqlite:"+t.TempDir()+"/bench.db") })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); fn(t, storagetest.Postgres(t)) })
}

// eachDSNInTurn is for what the process can do once at a time: a CPU profile.
func eachDSNInTurn(t *testing.T, fn func(t *testing.T, db string)) {
	t.Run("sqlite", func(t *testing.T) { fn(t, "sqlite:"+t.TempDir()+"/bench.db") })
	t.Run("postgres", func(t *testing.T) { fn(t, storagetest.Postgres(t)) })
}

func TestDrain(t *testing.T) {
	eachDSN(t, func(t *testing.T, db string) {
		cfg := tiny(t, db)
		cfg.Runs, cfg.Finished = 2, 300
		got, err := bench.Deliveries(t.Context(), cfg, bench.Drain)
		if err != nil {
			t.Fatal(err)
		}
		// Two runs before and two after the finished rows.
		wantCounts(t, got.Figures, 4*200)
		if got.FinishedRows != 300 || got.FinishedRatio <= 0 || got.RatioWithFinished <= 0 {
			t.Errorf("figures with finished rows are %+v", got.Figures)
		}
		if got.Ratio <= 0 || got.DeliveriesPerSecond <= 0 || got.BaselinePerSecond <= 0 || got.CPUSecondsPer1000 <= 0 ||
			got.P50 <= 0 || got.P99 < got.P50 || got.RSS <= 0 || got.BodyBytes != 1024 {
			t.Errorf("figures are %+v", got.Figures)
		}
	})
}

func TestLists(t *testing.T) {
	eachDSN(t, func(t *testing.T, db string) {
		cfg := tiny(t, db)
		cfg.Rows = 5000
		got, err := bench.Lists(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		records := map[string]int{}
		for _, l := range got.Lists {
			records[l.Name] = l.Records
			if l.P50 <= 0 || l.P99 < l.P50 || l.P99 > got.P99 {
				t.Errorf("%+v, the slowest takes %v", l, got.P99)
			}
		}
		for name, want := range map[string]int{"newest": 50, "view failures": 10, "dead": 5, "view pending": 25, "in flight, none": 0, "page in the middle, by cursor": 50} {
			if records[name] != want {
				t.Errorf("%s has %d records, want %d", name, records[name], want)
			}
		}
	})
}

func wantCounts(t *testing.T, f bench.Figures, want int) {
	t.Helper()
	if f.Rows != want || f.Unique != want || f.AttemptRows != want {
		t.Errorf("%s: %d rows, %d unique, %d attempts, want %d of each", f.Scenario, f.Rows, f.Unique, f.AttemptRows, want)
	}
}

func TestScenarios(t *testing.T) {
	eachDSN(t, func(t *testing.T, db string) {
		got, err := bench.Deliveries(t.Context(), tiny(t, db), bench.Enqueue, bench.Records, bench.Latency, bench.Isolation, bench.Idle)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		by := map[string]bench.Figures{}
		for _, f := range got.Scenarios {
			names = append(names, f.Scenario)
			by[f.Scenario] = f
		}
		if want := bench.Scenarios[1:]; !slices.Equal(names, want) {
			t.Fatalf("measured %v, want %v", names, want)
		}
		for scenario, rows := range map[string]int{bench.Enqueue: 200, bench.Records: 200, bench.Latency: 10, bench.Isolation: 100 + 2*40, bench.Idle: 1} {
			wantCounts(t, by[scenario], rows)
		}
		for _, scenario := range []string{bench.Enqueue, bench.Records} {
			if f := by[scenario]; f.Ratio <= 0 || f.CPUSecondsPer1000 <= 0 || f.P99 <= 0 {
				t.Errorf("figures are %+v", f)
			}
		}
		if n := by[bench.Records].BodyBytes; n < 900 || n > 1200 {
			t.Errorf("bodies of records have %d bytes, want about 1,024", n)
		}
		if f := by[bench.Latency]; f.P50 <= 0 || f.P50 != got.P50 || f.P99 != got.P99 || f.Ratio != 0 {
			t.Errorf("figures are %+v, with %v and %v above", f, got.P50, got.P99)
		}
		if f := by[bench.Isolation]; f.IsolationRatio <= 0 || f.P95Alone <= 0 || f.P95Beside <= 0 {
			t.Errorf("figures are %+v", f)
		}
		if f := by[bench.Idle]; f.IdleCPUPercent <= 0 || (f.IdleQueriesPerSecond != nil) != (got.Settings.Dialect == "postgres") {
			t.Errorf("figures are %+v", f)
		}
	})
}

func TestFlows(t *testing.T) {
	eachDSN(t, func(t *testing.T, db string) {
		got, err := bench.Flows(t.Context(), tiny(t, db))
		if err != nil {
			t.Fatal(err)
		}
		if got.Rows != 200 || got.Unique != 200 || got.AttemptRows != 200 || got.DeliveriesPerSecond <= 0 || got.CPUSecondsPer1000 <= 0 || got.P99 <= 0 {
			t.Errorf("figures are %+v", got.Figures)
		}
	})
}

func TestEvents(t *testing.T) {
	eachDSN(t, func(t *testing.T, db string) {
		got, err := bench.Events(t.Context(), tiny(t, db))
		if err != nil {
			t.Fatal(err)
		}
		if got.Rows != 200 || got.Unique != 200 || got.EventsPerSecond <= 0 || got.CPUSecondsPer1000 <= 0 || got.Ratio <= 0 || got.P99 <= 0 {
			t.Errorf("figures are %+v", got.Figures)
		}
	})
}

func TestAPI(t *testing.T) {
	eachDSN(t, func(t *testing.T, db string) {
		got, err := bench.API(t.Context(), tiny(t, db))
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Scenarios) != 2 {
			t.Fatalf("%d scenarios, want 2", len(got.Scenarios))
		}
		for _, f := range got.Scenarios {
			if f.Rows != 200 || f.Unique != 200 || f.RequestsPerSecond <= 0 || f.Ratio <= 0 || f.P50 <= 0 {
				t.Errorf("figures are %+v", f)
			}
		}
	})
}

func TestSettingsAreReadBack(t *testing.T) {
	eachDSNInTurn(t, func(t *testing.T, db string) {
		cfg := tiny(t, db)
		cfg.Rows, cfg.Profile = 100, t.TempDir()+"/cpu.pprof"
		got, err := bench.Deliveries(t.Context(), cfg, bench.Drain)
		if err != nil {
			t.Fatal(err)
		}
		if written, err := os.Stat(cfg.Profile); err != nil || written.Size() == 0 {
			t.Errorf("the profile is %v, %v", written, err)
		}
		if s := got.Settings; s.Dialect == "sqlite" && (s.JournalMode != "wal" || s.Synchronous != "full") ||
			s.Dialect == "postgres" && s.SynchronousCommit != "on" {
			t.Errorf("settings are %+v", s)
		}
		var table, line bytes.Buffer
		if err := errors.Join(got.Print(&table), got.JSON(&line)); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(table.String(), "100 rows, 100 unique, 100 attempts") {
			t.Errorf("the table is\n%s", &table)
		}
		var keys map[string]any
		if err := json.Unmarshal(line.Bytes(), &keys); err != nil || strings.Count(line.String(), "\n") != 1 {
			t.Fatalf("%v in %s", err, &line)
		}
		for _, k := range []string{
			"ratio", "deliveries_per_second", "cpu_seconds_per_1000", "rows", "unique", "attempt_rows", "p50_ms", "p99_ms", "rss_mb", "settings",
		} {
			if keys[k] == nil {
				t.Errorf("the line of JSON has no %s: %s", k, &line)
			}
		}
	})
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	used := t.TempDir()
	for name, c := range map[string]struct {
		cfg       bench.Config
		scenarios []string
		want      string
	}{
		"scenario": {bench.Config{}, []string{"drain", "drian"}, `--scenario: "drian" is none of all, drain, enqueue, records, latency, isolation, idle`},
		"none":     {bench.Config{}, nil, "--scenario: names no scenario"},
		"rows":     {bench.Config{Rows: 99}, []string{"all"}, "--rows: must be 100 to 10000000, not 99"},
		"file":     {bench.Config{DB: "sqlite:" + used}, []string{"drain"}, "--db: " + used + " exists; name a file that the bench may make and remove"},
		"dsn":      {bench.Config{DB: "mysql://h/db"}, []string{"drain"}, "--db: must be sqlite:PATH or postgres://…"},
	} {
		c.cfg.Receiver = []string{os.Args[0], "receiver"}
		_, err := bench.Deliveries(t.Context(), c.cfg, c.scenarios...)
		var bad *bench.Error
		if !errors.As(err, &bad) || bad.Error() != c.want {
			t.Errorf("%s: the error is %v, want %s", name, err, c.want)
		}
	}
}

// TestCountsMustFit lets a receiver that checks with another secret stand in:
// nothing that arrives is right.
func TestCountsMustFit(t *testing.T) {
	t.Parallel()
	cfg := tiny(t, "sqlite:"+t.TempDir()+"/bench.db")
	cfg.Receiver = []string{os.Args[0], "deaf receiver"}
	if _, err := bench.Deliveries(t.Context(), cfg, bench.Drain); err == nil || !strings.Contains(err.Error(), "the receiver answered 401") {
		t.Errorf("the error is %v", err)
	}
}
