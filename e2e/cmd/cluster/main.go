// Cluster does harm to three hosts on one database and checks that nothing is
// lost, altered, out of order, late, or delivered twice without need.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/objecthost/objecthost/e2e/cluster"
	"github.com/objecthost/objecthost/e2e/proc"
	"github.com/objecthost/objecthost/e2e/receiver"
)

func main() {
	receiver.Maybe()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	rounds := flag.Int("rounds", 10, "how often each fault is done")
	faults := flag.String("faults", strings.Join(cluster.Kinds, ","), "the faults of a round, in their order")
	network := flag.String("network", "", "namespaces or proxies (what the machine allows)")
	grace := flag.Duration("grace", time.Second, "how much longer than a lease a takeover may take")
	broken := flag.String("break", "", "build the hosts with the defect no-fence, which the run must find")
	flag.Parse()
	dir, err := os.MkdirTemp("", "cluster-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bin, env, err := proc.BuildBroken(ctx, dir, *broken)
	if err != nil {
		return err
	}
	at := filepath.Join(dir, "run")
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	cfg := cluster.Config{Bin: bin, Dir: at, Network: *network, Grace: *grace, Env: env, Log: os.Stdout}
	for range *rounds {
		cfg.Faults = append(cfg.Faults, strings.Split(*faults, ",")...)
	}
	report, err := cluster.Run(ctx, cfg)
	if err != nil {
		return err
	}
	fmt.Println(report.Text())
	if !report.OK() {
		return fmt.Errorf("a promise was broken")
	}
	return nil
}
