// Chaos kills a host at random moments on each dialect and checks that nothing
// is lost, altered, or delivered twice without need.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/objecthost/objecthost/e2e/chaos"
	"github.com/objecthost/objecthost/e2e/proc"
	"github.com/objecthost/objecthost/e2e/receiver"
)

func main() {
	receiver.Maybe()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	rounds := flag.Int("rounds", 100, "kills on each dialect that hit records on their way")
	dialect := flag.String("dialect", "both", "sqlite, postgres or both")
	server := flag.String("postgres", proc.Server(), "PostgreSQL server; a schema of its own is made and dropped")
	broken := flag.String("break", "", "build the host with the defect acknowledge-early, which the run must find")
	flag.Parse()
	dir, err := os.MkdirTemp("", "chaos-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bin, env, err := proc.BuildBroken(ctx, dir, *broken)
	if err != nil {
		return err
	}
	total := chaos.Report{Phases: make(map[string]int)}
	for _, name := range []string{"sqlite", "postgres"} {
		if *dialect != "both" && *dialect != name {
			continue
		}
		at := filepath.Join(dir, name)
		if err := os.Mkdir(at, 0o700); err != nil {
			return err
		}
		db, drop := "sqlite:"+filepath.Join(at, "host.db"), func() error { return nil }
		if name == "postgres" {
			if db, drop, err = proc.Schema(ctx, *server, "chaos"); err != nil {
				return err
			}
		}
		fmt.Printf("%s: %d kills\n", name, *rounds)
		report, err := chaos.Run(ctx, chaos.Config{Bin: bin, DSN: db, Dir: at, Kills: *rounds, Env: env, Log: os.Stdout})
		if dropErr := drop(); err == nil {
			err = dropErr
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Printf("%s: %s\n", name, report.Line())
		total.Add(report)
	}
	fmt.Println(total.Line())
	if !total.OK() {
		return fmt.Errorf("a promise was broken")
	}
	return nil
}
