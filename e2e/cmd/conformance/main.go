// Conformance starts a host on each dialect and drives it with the official
// npm client: by the checks in e2e/client, and by a second script of such
// checks where one is given. scripts/conformance prepares what it needs.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
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

// The user that the second script signs in as.
const (
	adminEmail    = "admin@host.example"
	adminPassword = "conformance"
)

// options are the command line.
type options struct {
	client, smoke, dialect, server string
}

func run(ctx context.Context) (string, error) {
	var o options
	flag.StringVar(&o.client, "client", ".cache/npm-client", "folder whose node_modules has the client")
	flag.StringVar(&o.smoke, "smoke", "", "another script of checks with the client, which gets BASE_URL, OS_EMAIL, OS_PASSWORD, CLIENT_ROOT and SKIP")
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
	var chosen []string
	for _, dialect := range []string{"sqlite", "postgres"} {
		if o.dialect == "both" || o.dialect == dialect {
			chosen = append(chosen, dialect)
		}
	}
	if len(chosen) == 0 {
		return "", fmt.Errorf("there is no dialect %q", o.dialect)
	}
	// Most of the time is spent waiting for deliveries, so both run at once.
	// What they print is kept apart.
	outs, done, errs := make([]bytes.Buffer, len(chosen)), make([]string, len(chosen)), make([]error, len(chosen))
	var running sync.WaitGroup
	for i, dialect := range chosen {
		running.Go(func() {
			lines, err := on(ctx, dialect, bin, dir, o, &outs[i])
			if err != nil {
				errs[i] = fmt.Errorf("%s: %w", dialect, err)
			}
			done[i] = dialect + ": " + strings.Join(lines, ", ")
		})
	}
	running.Wait()
	for i, dialect := range chosen {
		fmt.Printf("== %s\n%s", dialect, outs[i].String())
	}
	return strings.Join(done, "; "), errors.Join(errs...)
}

// on checks a host on one dialect and returns the last line of each script.
func on(ctx context.Context, dialect, bin, dir string, o options, out io.Writer) (lines []string, err error) {
	db := "sqlite:" + filepath.Join(dir, "host.db")
	if dialect == "postgres" {
		var drop func() error
		if db, drop, err = proc.Schema(ctx, o.server, "conformance"); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, drop()) }()
	}
	starting, cancel := context.WithTimeout(ctx, proc.WaitListening)
	defer cancel()
	host, err := proc.Start(starting, bin, []string{
		"--db", db, "--listen", "127.0.0.1:0", "--key-file", filepath.Join(dir, dialect+".key"),
		"--objects", filepath.Join(proc.Root(), "examples", "objects"), "--egress-allow", "127.0.0.1", "--log-level", "error",
	}, "HOST_ADMIN_EMAIL="+adminEmail, "HOST_ADMIN_PASSWORD="+adminPassword)
	if err != nil {
		return nil, err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), proc.WaitListening)
		defer cancel()
		if err != nil {
			fmt.Fprintln(out, tail(host.Output(), 20))
		}
		err = errors.Join(err, host.Stop(stopping))
	}()
	line, err := node(ctx, out, filepath.Join(proc.Root(), "e2e", "client", "checks.mjs"),
		"HOST_URL="+host.URL, "HOST_KEY="+host.Key, "HOST_EMAIL="+adminEmail, "HOST_PASSWORD="+adminPassword, "CLIENT_ROOT="+o.client)
	if err != nil || o.smoke == "" {
		return []string{line}, err
	}
	env := []string{"BASE_URL=" + host.URL, "OS_EMAIL=" + adminEmail, "OS_PASSWORD=" + adminPassword, "CLIENT_ROOT=" + o.client, "STRICT=1", "VERBOSE=1"}
	second, err := node(ctx, out, o.smoke, env...)
	if err != nil {
		// That script reads a delivery's row when the request has arrived, and
		// finds it in flight when the outcome is just being saved. What is
		// broken is broken the second time as well.
		fmt.Fprintf(out, "again %s\n", filepath.Base(o.smoke))
		second, err = node(ctx, out, o.smoke, env...)
	}
	return []string{line, second}, err
}

// node runs a script that prints to out and returns its last line that is not
// empty.
func node(ctx context.Context, out io.Writer, script string, env ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "node", script)
	cmd.Env = append(os.Environ(), env...)
	var text bytes.Buffer
	cmd.Stdout = io.MultiWriter(out, &text)
	cmd.Stderr = cmd.Stdout
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Base(script), err)
	}
	return tail(strings.TrimSpace(text.String()), 1), nil
}

// tail is the last n lines of a text.
func tail(text string, n int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
