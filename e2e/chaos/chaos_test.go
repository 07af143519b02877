package chaos_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/objecthost/objecthost/e2e/chaos"
	"github.com/objecthost/objecthost/e2e/proc"
	"github.com/objecthost/objecthost/e2e/receiver"
)

func TestMain(m *testing.M) {
	receiver.Maybe()
	os.Exit(m.Run())
}

// run does a short run on one dialect.
func run(t *testing.T, dialect string, kills int, bin string, env ...string) *chaos.Report {
	t.Helper()
	dir := t.TempDir()
	dsn := "sqlite:" + filepath.Join(dir, "host.db")
	if dialect == "postgres" {
		inside, drop, err := proc.Schema(t.Context(), proc.Server(), "chaos")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := drop(); err != nil {
				t.Error(err)
			}
		})
		dsn = inside
	}
	settle := 60 * time.Second
	if len(env) > 0 {
		settle = 5 * time.Second // what is lost never comes
	}
	report, err := chaos.Run(t.Context(), chaos.Config{
		Bin: bin, DSN: dsn, Dir: dir, Kills: kills, Env: env, Settle: settle, Log: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(report.Line())
	return report
}

func build(t *testing.T, tags ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	bin, err := proc.Build(ctx, t.TempDir(), tags...)
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// The short form of scripts/chaos.
func TestKillingTheHostLosesNothing(t *testing.T) {
	bin := build(t)
	for _, dialect := range []string{"sqlite", "postgres"} {
		t.Run(dialect, func(t *testing.T) {
			if report := run(t, dialect, 3, bin); !report.OK() || report.Kills < 3 || report.Acknowledged == 0 {
				t.Errorf("%s", report.Line())
			}
		})
	}
}

// A host with a defect must be found out, or the test above proves nothing.
func TestKillingADefectiveHostIsFoundOut(t *testing.T) {
	bin := build(t, "faults")
	for _, dialect := range []string{"sqlite", "postgres"} {
		t.Run(dialect, func(t *testing.T) {
			if report := run(t, dialect, 6, bin, "OBJECTHOST_FAULT=acknowledge-early"); report.Lost == 0 {
				t.Errorf("a consumer that acknowledges early lost nothing: %s", report.Line())
			}
		})
	}
}

// A store that does not fence outcomes must be found out as well. One host with
// one claim at a time cannot show it, so the tests of late outcomes do.
func TestUnfencedOutcomesAreFoundOut(t *testing.T) {
	const name = "TestCase_CLM_02_LateOutcomesOfARowInFlight"
	cmd := exec.CommandContext(t.Context(), "go", "test", "-tags", "faults", "-count=1", "-timeout=5m", "-run=^"+name+"$", "./services/messaging")
	cmd.Dir = proc.Root()
	cmd.Env = append(os.Environ(), "OBJECTHOST_FAULT=no-fence")
	out, err := cmd.CombinedOutput()
	for _, dialect := range []string{"sqlite", "postgres"} {
		if err == nil || !strings.Contains(string(out), "--- FAIL: "+name+"/"+dialect) {
			t.Errorf("%s: outcomes without a fence were not found out: %v\n%s", dialect, err, out)
		}
	}
}
