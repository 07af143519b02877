package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/objecthost/objecthost/cmd/host/internal/settings"
	"github.com/objecthost/objecthost/services/auth"
)

func serveCommand(env environment) *cobra.Command {
	c := &cobra.Command{
		Use: "serve", Short: "Run the host until SIGINT or SIGTERM", Args: cobra.NoArgs,
		Example: "  host serve --objects examples/objects --egress-allow 127.0.0.1\n" +
			"  host serve --db postgres://host@db.example/host --key-file /etc/host/key",
	}
	load := settingsFlags(c, env)
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := load()
		if err != nil {
			return err
		}
		return serve(c.Context(), cfg, env)
	}
	return c
}

// serve runs a host until a signal comes, then stops it within the grace time.
func serve(ctx context.Context, cfg settings.Settings, env environment) (err error) {
	ctx, stopSignals := untilSignal(ctx)
	defer stopSignals()
	host, cleanup, err := newHost(ctx, cfg, console{
		stderr: env.stderr,
		notice: func(text string) { fmt.Fprintln(env.stdout, text) },
		firstKey: func(_ context.Context, key auth.NewKey) {
			fmt.Fprintf(env.stdout, "API key, shown this once: %s\n", key.Secret)
		},
		setupToken: func(_ context.Context, token string) {
			fmt.Fprintf(env.stdout, "Setup token, good for making the first administrator: %s\n", token)
		},
	})
	if err != nil {
		return stoppedOr(ctx, err)
	}
	defer cleanup()
	if err := host.Start(ctx); err != nil {
		return stoppedOr(ctx, err)
	}
	fmt.Fprintf(env.stdout, "objecthost listens on http://%s\n", host.Addr())
	<-ctx.Done()
	graceful, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Grace)
	defer cancel()
	return host.Stop(graceful)
}

// stoppedOr returns nil for an error that is the consequence of a signal.
func stoppedOr(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errStopped) {
		return nil
	}
	return err
}
