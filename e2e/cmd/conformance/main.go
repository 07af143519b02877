// Conformance starts a host on each dialect and drives it with the official
// npm client: by the checks in e2e/client, and by a second script of such
// checks where one is given. scripts/conformance prepares what it needs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/objecthost/objecthost/e2e/proc"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	started := time.Now()
	summary, err := run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance: FAILED:", err)
		os.Exit(1)
	}
	fmt.Printf("OK conformance: %s (%ds)\n", summary, int(time.Since(started).Seconds()))
}

// options are the command line.
type options struct {
	client, smoke, dialect, server string
}

func run(ctx context.Context) (string, error) {
	var o options
	flag.StringVar(&o.client, "client", ".cache/npm-client", "folder whose node_modules has the client")
	flag.StringVar(&o.smoke, "smoke", "", "another script of checks with the client, which gets BASE_URL, OS_TOKEN, CLIENT_ROOT and SKIP")
	flag.StringVar(&o.dialect, "dialect", "both", "sqlite, postgres or both")
	flag.StringVar(&o.server, "postgres", proc.Server(), "PostgreSQL server; a schema of its own is made and dropped")
	flag.Parse()
	var err error
	if o.client, err = filepath.Abs(o.client); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	bin, err := proc.Build(ctx, dir)
	if err != nil {
		return "", err
	}
	var done []string
	for _, dialect := range []string{"sqlite", "postgres"} {
		if o.dialect != "both" && o.dialect != dialect {
			continue
		}
		lines, err := on(ctx, dialect, bin, dir, o)
		if err != nil {
			return "", fmt.Errorf("%s: %w", dialect, err)
		}
		done = append(done, dialect+": "+strings.Join(lines, ", "))
	}
	if len(done) == 0 {
		return "", fmt.Errorf("there is no dialect %q", o.dialect)
	}
	return strings.Join(done, "; "), nil
}

// on checks a host on one dialect and returns the last line of each script.
func on(ctx context.Context, dialect, bin, dir string, o options) (lines []string, err error) {
	db := "sqlite:" + filepath.Join(dir, "host.db")
	if dialect == "postgres" {
		var drop func() error
		if db, drop, err = proc.Schema(ctx, o.server, "conformance"); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, drop()) }()
	}
	fmt.Printf("== %s\n", dialect)
	starting, cancel := context.WithTimeout(ctx, proc.WaitListening)
	defer cancel()
	host, err := proc.Start(starting, bin, []string{
		"--db", db, "--listen", "127.0.0.1:0", "--key-file", filepath.Join(dir, dialect+".key"),
		"--objects", filepath.Join(proc.Root(), "examples", "objects"), "--egress-allow", "127.0.0.1", "--log-level", "error",
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), proc.WaitListening)
		defer cancel()
		if err != nil {
			fmt.Fprintln(os.Stderr, tail(host.Output(), 20))
		}
		err = errors.Join(err, host.Stop(stopping))
	}()
	line, err := node(ctx, filepath.Join(proc.Root(), "e2e", "client", "checks.mjs"),
		"HOST_URL="+host.URL, "HOST_KEY="+host.Key, "CLIENT_ROOT="+o.client)
	if err != nil || o.smoke == "" {
		return []string{line}, err
	}
	left, err := leftOut(ctx, host.URL)
	if err != nil {
		return nil, err
	}
	for _, l := range left {
		fmt.Printf("left  %s: %s\n", l.checks, l.why)
	}
	second, err := node(ctx, o.smoke, "BASE_URL="+host.URL, "OS_TOKEN="+host.Key, "CLIENT_ROOT="+o.client, "STRICT=1", "VERBOSE=1", "SKIP="+pattern(left))
	return []string{line, second}, err
}

// node runs a script, shows what it prints, and returns its last line that is
// not empty.
func node(ctx context.Context, script string, env ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "node", script)
	cmd.Env = append(os.Environ(), env...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	err := cmd.Run()
	fmt.Print(out.String())
	if err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Base(script), err)
	}
	return tail(strings.TrimSpace(out.String()), 1), nil
}

// tail is the last n lines of a text.
func tail(text string, n int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
