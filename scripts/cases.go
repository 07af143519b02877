//go:build ignore

// Cases reads the output of go test -json and the list of field cases, and
// writes docs/cases.md: each case with its tests and the dialects that ran them.
// With -check it fails for a case whose test is missing, failed, was skipped, or
// ran on one dialect where two are asked for.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// fieldCase is one line of the list and what the run says about it.
type fieldCase struct {
	id, what string
	both     bool
	tests    map[string]string // test → package
	dialects map[string]bool
	bad      []string
}

// event is one line of go test -json.
type event struct{ Action, Package, Test string }

const module = "github.com/objecthost/objecthost/"

var name = regexp.MustCompile(`^TestCase_([A-Z]+)_([0-9]+)_`)

func main() {
	list := flag.String("list", "e2e/cases/cases.list", "list of cases")
	run := flag.String("run", "-", "output of go test -json; - is the standard input")
	out := flag.String("out", "docs/cases.md", "page to write")
	check := flag.Bool("check", false, "compare with the page instead of writing it, and fail for open cases")
	flag.Parse()
	if err := work(*list, *run, *out, *check); err != nil {
		fmt.Fprintln(os.Stderr, "cases:", err)
		os.Exit(1)
	}
}

func work(list, run, out string, check bool) error {
	cases, err := readList(list)
	if err != nil {
		return err
	}
	in := io.Reader(os.Stdin)
	if run != "-" {
		f, err := os.Open(run)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	unlisted, err := readRun(in, cases)
	if err != nil {
		return err
	}
	problems := unlisted
	for _, c := range cases {
		problems = append(problems, c.problems()...)
	}
	page := pageOf(cases)
	if check {
		old, err := os.ReadFile(out)
		if err != nil || string(old) != page {
			problems = append(problems, out+" is not what this run makes of it; run scripts/cases")
		}
	} else if err := os.WriteFile(out, []byte(page), 0o644); err != nil {
		return err
	}
	if len(problems) > 0 {
		return fmt.Errorf("%d problems:\n  %s", len(problems), strings.Join(problems, "\n  "))
	}
	fmt.Printf("cases: %d cases, each with its tests\n", len(cases))
	return nil
}

func readList(path string) ([]*fieldCase, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var cases []*fieldCase
	for n, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.SplitN(line, "|", 3)
		if len(parts) != 3 || parts[1] != "both" && parts[1] != "-" {
			return nil, fmt.Errorf("%s:%d: want id|both or -|text", path, n+1)
		}
		cases = append(cases, &fieldCase{
			id: parts[0], both: parts[1] == "both", what: parts[2],
			tests: map[string]string{}, dialects: map[string]bool{},
		})
	}
	return cases, nil
}

// readRun notes what the run says about the cases. It returns the tests that
// belong to no case of the list.
func readRun(in io.Reader, cases []*fieldCase) (unlisted []string, err error) {
	byID := make(map[string]*fieldCase)
	for _, c := range cases {
		byID[c.id] = c
	}
	lines := bufio.NewReader(in)
	for {
		line, readErr := lines.ReadString('\n')
		var e event
		if json.Unmarshal([]byte(line), &e) == nil && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip") {
			if m := name.FindStringSubmatch(e.Test); m != nil {
				id := m[1] + "-" + m[2]
				if c := byID[id]; c != nil {
					c.note(e)
				} else if !strings.Contains(e.Test, "/") {
					unlisted = append(unlisted, e.Test+" is for "+id+", which is not in the list")
				}
			}
		}
		if readErr == io.EOF {
			return unlisted, nil
		}
		if readErr != nil {
			return nil, readErr
		}
	}
}

func (c *fieldCase) note(e event) {
	test, rest, _ := strings.Cut(e.Test, "/")
	pkg := strings.TrimPrefix(e.Package, module)
	c.tests[test] = pkg
	if e.Action != "pass" {
		c.bad = append(c.bad, fmt.Sprintf("%s: %s %s: %s", c.id, pkg, e.Test, e.Action))
		return
	}
	for _, part := range strings.Split(rest, "/") {
		if part == "sqlite" || part == "postgres" {
			c.dialects[part] = true
		}
	}
}

func (c *fieldCase) problems() []string {
	problems := c.bad
	if len(c.tests) == 0 {
		return []string{c.id + ": no test ran"}
	}
	for _, dialect := range []string{"sqlite", "postgres"} {
		if c.both && !c.dialects[dialect] {
			problems = append(problems, c.id+": did not run on "+dialect)
		}
	}
	return problems
}

func pageOf(cases []*fieldCase) string {
	var b strings.Builder
	b.WriteString("# Field cases\n\nWhat goes wrong with outbound webhooks and outboxes in the field, and the tests that keep it from going\n" +
		"wrong here. Made by `scripts/cases` from `e2e/cases/cases.list` and a test run; do not edit. A case without a\n" +
		"dialect involves no stored row.\n\n| case | what must hold | tests | dialects |\n|---|---|---|---|\n")
	for _, c := range cases {
		var tests []string
		for test, pkg := range c.tests {
			tests = append(tests, "`"+test+"` ("+pkg+")")
		}
		slices.Sort(tests)
		var dialects []string
		for _, dialect := range []string{"sqlite", "postgres"} {
			if c.dialects[dialect] {
				dialects = append(dialects, dialect)
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", c.id, c.what, strings.Join(tests, "<br>"), strings.Join(dialects, ", "))
	}
	return b.String()
}
