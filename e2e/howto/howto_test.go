package howto

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/objecthost/objecthost/e2e/proc"
)

const exampleRoot = "examples/plugin-inprocess/"

func pages(t *testing.T) []Block {
	t.Helper()
	all, err := Pages(filepath.Join(proc.Root(), "docs", "howto"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Every block of Go is part of a file that is built and tested.
func TestCodeIsThatOfTheExamples(t *testing.T) {
	count := 0
	for _, b := range pages(t) {
		if b.Language != "go" || b.Name == "main.go" { // main.go is built below
			continue
		}
		count++
		code, err := os.ReadFile(filepath.Join(proc.Root(), b.Name))
		if err != nil || b.Name == "" {
			t.Errorf("%s names no file of the repository: %v", b, err)
			continue
		}
		if !b.Within(string(code)) {
			t.Errorf("%s is not part of %s", b, b.Name)
		}
	}
	if count < 20 {
		t.Errorf("found %d blocks of Go", count)
	}
}

// The pages are followed literally in an empty folder.
func TestFollowWriteAPlugin(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for _, b := range pages(t) {
		if b.Page != "write-a-plugin.md" {
			continue
		}
		switch {
		case b.Language == "go":
			name := strings.TrimPrefix(b.Name, exampleRoot)
			files = append(files, name)
			add(t, filepath.Join(dir, name), b.Text)
		case b.Name == "setup" || b.Name == "build":
			shell(t, dir, b)
		}
	}
	if want := []string{"desk/desk.go", "host.go", "main.go"}; !slices.Equal(slices.Compact(files), want) {
		t.Fatalf("the page makes %v, want %v", slices.Compact(files), want)
	}
	for _, name := range []string{"desk/desk.go", "host.go"} {
		made, example := read(t, filepath.Join(dir, name)), read(t, filepath.Join(proc.Root(), exampleRoot, name))
		if made != example {
			t.Errorf("%s of the page is not %s%s", name, exampleRoot, name)
		}
	}
	key, api := start(t, dir)
	for _, c := range []struct {
		method, path, body, want string
	}{
		{"POST", "/data/desk_ticket", `{"title":"The printer is on fire"}`, `201 "state":"open"`},
		{"POST", "/data/desk_ticket", `{"title":"No paper","state":"closed"}`, `400 "field":"resolution"`},
		{"GET", "/desk/summary", "", `200 "open":1`},
	} {
		if got := call(t, c.method, api+c.path, key, c.body); !strings.HasPrefix(got, c.want[:3]) || !strings.Contains(got, c.want[4:]) {
			t.Errorf("%s %s: %s, want %s", c.method, c.path, got, c.want)
		}
	}
}

// add appends a block to a file, after an empty line unless it is the first.
func add(t *testing.T, file, text string) {
	t.Helper()
	before, err := os.ReadFile(file)
	if err == nil {
		text = string(before) + "\n" + text
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// shell runs a block as its reader would, outside of the workspace.
func shell(t *testing.T, dir string, b Block) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-eu", "-c", b.Text)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "OBJECTHOST="+proc.Root())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", b, err, out)
	}
}

// start runs the program and returns the key and the address that it prints.
// It is interrupted at the end of the test, and has to end well.
func start(t *testing.T, dir string) (key, api string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(dir, "helpdesk"))
	cmd.Dir, cmd.Stderr = dir, t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the program ended with %v", err)
		}
	})
	lines := bufio.NewScanner(out)
	for api == "" && lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "export KEY="); ok {
			key = value
		}
		if value, ok := strings.CutPrefix(lines.Text(), "export API="); ok {
			api = value
		}
	}
	if key == "" || api == "" {
		t.Fatalf("the program printed the key %q and the address %q", key, api)
	}
	return key, api
}

// call returns the status and the body of an answer.
func call(t *testing.T, method, url, key, body string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-Key", key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, text)
}

func TestParse(t *testing.T) {
	got, err := parse("p.md", "a\n```go x/y.go\nfunc f() {\n\tg()\n}\n```\nb\n```sh\nls\n```\n")
	want := []Block{{"p.md", 2, "go", "x/y.go", "func f() {\n\tg()\n}\n"}, {"p.md", 8, "sh", "", "ls\n"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("blocks %+v, %v", got, err)
	}
	if !want[0].Within("x\n\tfunc f() {\n\t\tg()\n\t}\n") || want[0].Within("func f() {\n\th()\n}\n") {
		t.Error("Within")
	}
	if _, err := parse("p.md", "```go\nx\n"); err == nil || err.Error() != "p.md:1: the block is not closed" {
		t.Errorf("an open block: %v", err)
	}
}
