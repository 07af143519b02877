//go:build ignore

// Links checks that every relative link in the Markdown files of the
// repository leads to a file or folder that is there.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	link = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	code = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
)

func main() {
	out, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "links:", err)
		os.Exit(1)
	}
	dead, count := 0, 0
	for _, file := range strings.Fields(string(out)) {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // deleted, not committed yet
		}
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			count++
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), target)); err != nil {
				fmt.Printf("%s: %s is not there\n", file, m[1])
				dead++
			}
		}
	}
	if dead > 0 {
		os.Exit(1)
	}
	fmt.Printf("links: %d links lead somewhere\n", count)
}
