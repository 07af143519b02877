//go:build ignore

// Testreport reads the output of go test -json. It prints one line per
// package, the whole output of what failed, every skipped test, and closes with
// a line of counts. It exits 1 when a test failed, was skipped, or none ran.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
)

// event is one line of go test -json.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// report collects the outputs until it is known whether they matter.
type report struct {
	out                     io.Writer
	output                  map[string][]string // by package and test
	running                 map[string]bool
	passed, failed          int
	packages, badPackages   int
	skipped, withoutVerdict []string
}

func main() {
	r := &report{out: os.Stdout, output: map[string][]string{}, running: map[string]bool{}}
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
	if !r.close() {
		os.Exit(1)
	}
}

func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) != nil {
				fmt.Fprint(r.out, line) // what the go command says by itself
			} else {
				r.add(e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) add(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "run":
		r.running[key] = true
	case "output":
		r.output[key] = append(r.output[key], e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(e)
		} else {
			r.endTest(e, key)
		}
		delete(r.output, key)
		delete(r.running, key)
	}
}

func (r *report) endTest(e event, key string) {
	switch e.Action {
	case "pass":
		r.passed++
	case "fail":
		r.failed++
		fmt.Fprintf(r.out, "--- FAIL: %s\n%s", key, strings.Join(r.output[key], ""))
	case "skip":
		r.skipped = append(r.skipped, key+"\n"+strings.Join(r.output[key], ""))
	}
}

func (r *report) endPackage(e event) {
	switch e.Action {
	case "skip":
		fmt.Fprintf(r.out, "-     %s (no tests)\n", e.Package)
		return
	case "pass":
		fmt.Fprintf(r.out, "ok    %s %.1fs\n", e.Package, e.Elapsed)
	case "fail":
		r.badPackages++
		for key := range r.running {
			if strings.HasPrefix(key, e.Package+" ") {
				r.withoutVerdict = append(r.withoutVerdict, key)
				fmt.Fprint(r.out, strings.Join(r.output[key], ""))
			}
		}
		fmt.Fprint(r.out, strings.Join(r.output[e.Package+" "], ""))
		fmt.Fprintf(r.out, "FAIL  %s %.1fs\n", e.Package, e.Elapsed)
	}
	r.packages++
}

// close prints what is left to say and reports whether the run is good.
func (r *report) close() bool {
	sort.Strings(r.skipped)
	sort.Strings(r.withoutVerdict)
	for _, s := range r.skipped {
		fmt.Fprintf(r.out, "--- SKIP: %s", s)
	}
	for _, s := range r.withoutVerdict {
		fmt.Fprintf(r.out, "--- no verdict: %s\n", s)
	}
	fmt.Fprintf(r.out, "%d packages, %d of them failed\n", r.packages, r.badPackages)
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed+len(r.withoutVerdict), len(r.skipped))
	return r.failed == 0 && r.badPackages == 0 && len(r.skipped) == 0 && r.passed > 0
}
