// Console starts a host with the official web console and drives it in a real
// browser: a user signs in, looks at lists, creates a record and opens it.
// scripts/console prepares what it needs.
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
	"time"

	"github.com/objecthost/objecthost/e2e/proc"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	started := time.Now()
	summary, err := run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "console: FAILED:", err)
		os.Exit(1)
	}
	fmt.Printf("OK console: %s (%ds)\n", summary, int(time.Since(started).Seconds()))
}

// limit bounds everything.
const limit = 4 * time.Minute

// The user that signs in.
const (
	adminEmail    = "admin@example.com"
	adminPassword = "correct horse battery"
)

func run(ctx context.Context) (_ string, err error) {
	console := flag.String("console", ".cache/npm-console/node_modules/@objectstack/console/dist", "folder of the console")
	browser := flag.String("browser", "", "path of Chromium (default: what is found)")
	shots := flag.String("screenshots", "", "folder for a picture after every check, empty for none")
	flag.Parse()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if *browser == "" {
		if *browser, err = findBrowser(); err != nil {
			return "", err
		}
	}
	dir, err := os.MkdirTemp("", "console-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	bin, err := proc.Build(ctx, dir)
	if err != nil {
		return "", err
	}
	folder, err := filepath.Abs(*console)
	if err != nil {
		return "", err
	}
	host, err := proc.Start(ctx, bin, []string{
		"--db", "sqlite:" + filepath.Join(dir, "host.db"), "--listen", "127.0.0.1:0", "--objects", filepath.Join(proc.Root(), "examples", "objects"),
		"--egress-allow", "127.0.0.1", "--log-format", "json", "--console", folder,
	}, "HOST_ADMIN_EMAIL="+adminEmail, "HOST_ADMIN_PASSWORD="+adminPassword)
	if err != nil {
		return "", err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), proc.WaitListening)
		defer cancel()
		err = errors.Join(err, host.Stop(stopping))
	}()
	return drive(ctx, host, *browser, *shots)
}

func findBrowser() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no Chromium: install it (Debian: apt-get install chromium) or name it with -browser")
}
