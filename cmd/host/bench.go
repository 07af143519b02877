package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/objecthost/objecthost/cmd/host/internal/bench"
	"github.com/objecthost/objecthost/cmd/host/internal/settings"
)

func benchCommand(env environment) *cobra.Command {
	c := &cobra.Command{
		Use: "bench", Short: "Measure what this machine can do", Args: cobra.NoArgs,
		Long: "Measure what this machine can do: the host's services run in this process on a database of their own, a receiver\n" +
			"that verifies every signature in another, and a bare HTTP client in turns with them for comparison.",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(benchDeliveriesCommand(env), benchEventsCommand(env), benchFlowsCommand(env), benchAPICommand(env), benchListsCommand(env), benchReceiverCommand(env))
	return c
}

// benchFlags adds what all benches take to c. The returned function gives the
// context and the way to print.
func benchFlags(c *cobra.Command, cfg *bench.Config, env environment) func(measure func(context.Context) (*bench.Report, error)) error {
	flags := c.Flags()
	flags.StringVar(&cfg.DB, "db", "", "postgres://… (in a schema of its own) or sqlite:PATH (a new file); both are removed in the end (default a temporary SQLite file)")
	flags.IntVar(&cfg.Runs, "runs", 3, "how often each is measured; figures are medians")
	flags.StringVar(&cfg.Profile, "cpu-profile", "", "write a CPU profile of the host in the first run to this file")
	asJSON := flags.Bool("json", false, "write the figures as one last line of JSON")
	limit := flags.Duration("limit", 10*time.Minute, "give up after this time")
	return func(measure func(context.Context) (*bench.Report, error)) error {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
		cfg.Receiver, cfg.Progress, cfg.Log = []string{self, "bench", "receiver"}, env.stderr, env.stderr
		ctx, stop := untilSignal(c.Context())
		defer stop()
		ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("it took longer than --limit %s", *limit))
		defer cancel()
		report, err := measure(ctx)
		var bad *bench.Error
		if errors.As(err, &bad) {
			return &settings.Error{Source: "--" + bad.Flag, Message: bad.Reason}
		}
		if err != nil {
			return fmt.Errorf("bench: %w", err)
		}
		if err := report.Print(env.stdout); err != nil || !*asJSON {
			return err
		}
		return report.JSON(env.stdout)
	}
}

func benchDeliveriesCommand(env environment) *cobra.Command {
	var (
		cfg       bench.Config
		scenarios []string
	)
	c := &cobra.Command{Use: "deliveries", Short: "Measure the outbox", Args: cobra.NoArgs}
	run := benchFlags(c, &cfg, env)
	flags := c.Flags()
	flags.StringSliceVar(&scenarios, "scenario", []string{bench.Drain, bench.Latency}, "what to measure: all, drain, enqueue, records, latency, isolation, idle")
	flags.IntVar(&cfg.Rows, "rows", 20_000, "deliveries of a run")
	flags.IntVar(&cfg.Webhooks, "webhooks", 100, "webhooks that they are spread over, in drain and enqueue")
	flags.IntVar(&cfg.Finished, "finished", 0, "drain once more with so many finished rows in the table")
	flags.IntVar(&cfg.Writers, "writers", 16, "goroutines that write in enqueue")
	flags.IntVar(&cfg.RecordWriters, "record-writers", 2, "goroutines that write in records")
	flags.IntVar(&cfg.Samples, "samples", 200, "records of latency")
	flags.IntVar(&cfg.IsolationSamples, "isolation-samples", 600, "deliveries of each half of isolation")
	flags.IntVar(&cfg.Hanging, "hanging", 1000, "rows due at the hanging webhook of isolation")
	flags.DurationVar(&cfg.IdleFor, "idle-for", 20*time.Second, "how long the idle host is watched")
	c.RunE = func(*cobra.Command, []string) error {
		return run(func(ctx context.Context) (*bench.Report, error) { return bench.Deliveries(ctx, cfg, scenarios...) })
	}
	return c
}

// benchOf is the command of a bench with two or three numbers of its own.
func benchOf(env environment, use, short string, flags func(*cobra.Command, *bench.Config),
	measure func(context.Context, bench.Config) (*bench.Report, error),
) *cobra.Command {
	var cfg bench.Config
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs}
	run := benchFlags(c, &cfg, env)
	flags(c, &cfg)
	c.RunE = func(*cobra.Command, []string) error {
		return run(func(ctx context.Context) (*bench.Report, error) { return measure(ctx, cfg) })
	}
	return c
}

func benchEventsCommand(env environment) *cobra.Command {
	return benchOf(env, "events", "Measure the event log with a durable consumer", func(c *cobra.Command, cfg *bench.Config) {
		c.Flags().IntVar(&cfg.Rows, "rows", 20_000, "events of a run, appended in batches of 100")
		c.Flags().IntVar(&cfg.Writers, "writers", 2, "goroutines that append")
	}, bench.Events)
}

func benchFlowsCommand(env environment) *cobra.Command {
	return benchOf(env, "flows", "Measure flows that records start, each with a durable http node", func(c *cobra.Command, cfg *bench.Config) {
		c.Flags().IntVar(&cfg.Rows, "rows", 10_000, "records of a run, created in batches of 100")
		c.Flags().IntVar(&cfg.RecordWriters, "record-writers", 2, "goroutines that create records")
	}, bench.Flows)
}

func benchAPICommand(env environment) *cobra.Command {
	return benchOf(env, "api", "Measure the record API over HTTP", func(c *cobra.Command, cfg *bench.Config) {
		c.Flags().IntVar(&cfg.Rows, "rows", 5_000, "records of a run")
		c.Flags().IntVar(&cfg.Writers, "writers", 16, "clients at once")
	}, bench.API)
}

func benchListsCommand(env environment) *cobra.Command {
	return benchOf(env, "lists", "Measure lists of many deliveries over HTTP", func(c *cobra.Command, cfg *bench.Config) {
		c.Flags().IntVar(&cfg.Rows, "rows", 1_000_000, "deliveries in the table")
		c.Flags().IntVar(&cfg.Samples, "samples", 100, "how often each list is asked for")
	}, bench.Lists)
}

// benchReceiverCommand is the receiver's process, which a bench starts itself.
func benchReceiverCommand(env environment) *cobra.Command {
	return &cobra.Command{
		Use: "receiver", Hidden: true, Args: cobra.NoArgs, Short: "Receive what a bench sends",
		RunE: func(c *cobra.Command, _ []string) error {
			return bench.ServeReceiver(c.Context(), os.Stdin, env.stdout)
		},
	}
}
