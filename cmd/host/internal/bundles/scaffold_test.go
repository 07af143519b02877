package bundles

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestNewPluginPassesItsTests: as it is, without a look at the network.
func TestNewPluginPassesItsTests(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "shop")
	c := newPlugin()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetArgs([]string{dir, "--checkout", "../../../.."})
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"vet", "./..."}, {"test", "./..."}, {"run", ".", "describe"}} {
		command := exec.CommandContext(t.Context(), "go", args...)
		command.Dir, command.Env = dir, append(os.Environ(), "GOWORK=off", "GOPROXY=off", "GOFLAGS=-mod=readonly")
		text, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, text)
		}
		if args[0] == "run" && !strings.Contains(string(text), `"name": "shop_item"`) {
			t.Errorf("describe:\n%s", text)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "gofmt", "-l", dir).CombinedOutput(); err != nil || len(out) != 0 {
		t.Errorf("gofmt: %s, %v", out, err)
	}
	if err := (scaffold{Name: "shop", Module: "x", Checkout: "../../../.."}).write(dir); err == nil {
		t.Error("a folder that is there was written over")
	}
	if err := (scaffold{Name: "Bad-name", Checkout: "../../../.."}).write(dir + "2"); err == nil {
		t.Error("a bad name was taken")
	}
}
