package bench_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/objecthost/objecthost/cmd/host/internal/bench"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// TestMain is the receiver's process when it is called with this argument.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "receiver" {
		if err := bench.ServeReceiver(context.Background(), os.Stdin, os.Stdout); err != nil {
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

func wantCounts(t *testing.T, f bench.Figures, want int) {
	t.Helper()
	if f.Rows != want || f.Unique != want || f.AttemptRows != want {
		t.Errorf("%s: %d rows, %d unique, %d attempts, want %d of each", f.Scenario, f.Rows, f.Unique, f.AttemptRows, want)
	}
}
