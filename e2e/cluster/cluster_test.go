package cluster_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/objecthost/objecthost/e2e/cluster"
	"github.com/objecthost/objecthost/e2e/proc"
	"github.com/objecthost/objecthost/e2e/receiver"
)

func TestMain(m *testing.M) {
	receiver.Maybe()
	os.Exit(m.Run())
}

func run(t *testing.T, cfg cluster.Config, tags ...string) *cluster.Report {
	t.Helper()
	building, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var err error
	if cfg.Bin, err = proc.Build(building, t.TempDir(), tags...); err != nil {
		t.Fatal(err)
	}
	// Not the test's folder: the server's account must get into it.
	if cfg.Dir, err = os.MkdirTemp("", "cluster-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(cfg.Dir) })
	cfg.Log = t.Output()
	cfg.Grace = 5 * time.Second // the machine is busy with other tests
	report, err := cluster.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(report.Line())
	return report
}

// The short form of scripts/cluster-test.
func TestFaultsOfAClusterLoseNothing(t *testing.T) {
	t.Parallel()
	report := run(t, cluster.Config{Faults: cluster.Kinds})
	if !report.OK() {
		t.Error(report.Text())
	}
	for _, kind := range cluster.Kinds {
		if report.Faults[kind] != 1 {
			t.Errorf("%s was done %d times, want once", kind, report.Faults[kind])
		}
	}
	if report.Acknowledged == 0 || report.Duplicates == 0 {
		t.Errorf("%d changes were acknowledged and %d requests repeated: the faults hit nothing", report.Acknowledged, report.Duplicates)
	}
}

// Hosts that do not fence what they write must be found out, or the test above
// proves nothing.
func TestUnfencedHostsAreFoundOut(t *testing.T) {
	t.Parallel()
	report := run(t, cluster.Config{
		Faults: []string{cluster.Stop, cluster.Stop}, Network: cluster.Proxies, Env: []string{"OBJECTHOST_FAULT=no-fence"},
	}, "faults")
	if report.Stray == 0 {
		t.Errorf("a host that woke up without its claims did no harm: %s", report.Text())
	}
}
