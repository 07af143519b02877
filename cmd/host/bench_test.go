package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestBench runs the command as a process, which starts the receiver's itself.
func TestBench(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), self, "bench", "deliveries", "--scenario", "drain", "--rows", "150", "--webhooks", "3", "--runs", "1", "--json")
	c.Env = append(os.Environ(), asHost+"=1", "TMPDIR="+t.TempDir())
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var got struct {
		Rows        int     `json:"rows"`
		Unique      int     `json:"unique"`
		AttemptRows int     `json:"attempt_rows"`
		Ratio       float64 `json:"ratio"`
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil {
		t.Fatalf("the last line is no JSON: %v\n%s", err, out)
	}
	if got.Rows != 150 || got.Unique != 150 || got.AttemptRows != 150 || got.Ratio <= 0 {
		t.Errorf("the figures are %+v", got)
	}
}

func TestBenchRefuses(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"bench deliveries --scenario drian": `host: --scenario: "drian" is none of all, drain, enqueue, records, latency, isolation, idle` + "\n",
		"bench deliveries --rows 7":         "host: --rows: must be 100 to 10000000, not 7\n",
		"bench events --runs 101":           "host: --runs: must be 1 to 100, not 101\n",
		"bench api --writers -1":            "host: --writers: must be 1 to 1000, not -1\n",
	} {
		code, out, errs := command(t.Context(), nil, strings.Fields(args)...)
		if code != exitMisuse || out != "" || errs != want {
			t.Errorf("host %s ended with %d, %q and %q, want %q", args, code, out, errs, want)
		}
	}
}
