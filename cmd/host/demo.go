package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/objecthost/objecthost/cmd/host/internal/demo"
	"github.com/objecthost/objecthost/cmd/host/internal/settings"
	"github.com/objecthost/objecthost/services/auth"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/dsn"
)

// demoLimit bounds the whole demo.
const demoLimit = 2 * time.Minute

// cleanLimit bounds what is done after the demo's context has ended.
const cleanLimit = 20 * time.Second

func demoCommand(env environment) *cobra.Command {
	c := &cobra.Command{
		Use: "demo", Short: "Run a host on a temporary database and watch deliveries arrive", Args: cobra.NoArgs,
	}
	db := c.Flags().String("db", "", "a PostgreSQL database instead of a temporary SQLite file; the demo works in a schema of its own and drops it")
	verbose := c.Flags().Bool("verbose", false, "the host's log too, on stderr")
	c.RunE = func(c *cobra.Command, _ []string) error {
		level := slog.LevelError
		if *verbose {
			level = slog.LevelInfo
		}
		ctx, stop := untilSignal(c.Context())
		defer stop()
		ctx, cancel := context.WithTimeoutCause(ctx, demoLimit, fmt.Errorf("the demo took longer than %s", demoLimit))
		defer cancel()
		summary, err := runDemo(ctx, *db, level, env)
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = errors.Join(cause, err)
			}
			return fmt.Errorf("demo: %w", err)
		}
		fmt.Fprintln(env.stdout, "OK "+summary)
		return nil
	}
	return c
}

// runDemo sets the stage, plays, and leaves nothing behind.
func runDemo(ctx context.Context, db string, level slog.Level, env environment) (summary string, err error) {
	dir, err := os.MkdirTemp("", "objecthost-demo-")
	if err != nil {
		return "", fmt.Errorf("make a temporary folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	objects := filepath.Join(dir, "objects")
	if err := os.Mkdir(objects, 0o700); err != nil {
		return "", fmt.Errorf("make a temporary folder: %w", err)
	}
	if err := os.WriteFile(filepath.Join(objects, "account.yaml"), demo.AccountYAML, 0o600); err != nil {
		return "", fmt.Errorf("write the sample object: %w", err)
	}
	cfg := settings.Settings{
		DB: "sqlite:" + filepath.Join(dir, "demo.db"), Listen: "127.0.0.1:0", Objects: objects,
		EgressAllow: []string{"127.0.0.1"}, LogLevel: level, LogFormat: "text", Grace: cleanLimit,
		KeyFile: filepath.Join(dir, "demo.key"),
	}
	name := "a temporary SQLite file"
	if db != "" {
		own, drop, schemaErr := demoSchema(ctx, db)
		if schemaErr != nil {
			return "", schemaErr
		}
		defer func() { err = errors.Join(err, drop()) }()
		cfg.DB, name = own, dsn.Redact(db)
	}
	return playDemo(ctx, cfg, name, env)
}

// playDemo runs the host and the scene.
func playDemo(ctx context.Context, cfg settings.Settings, database string, env environment) (summary string, err error) {
	var key string
	host, cleanup, err := newHost(ctx, cfg, console{
		stderr:   env.stderr,
		notice:   func(string) {},
		firstKey: func(_ context.Context, made auth.NewKey) { key = made.Secret },
	})
	if err != nil {
		return "", err
	}
	defer cleanup()
	if err := host.Start(ctx); err != nil {
		return "", err
	}
	defer func() { // runs before cleanup
		graceful, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Grace)
		defer cancel()
		err = errors.Join(err, host.Stop(graceful))
	}()
	return demo.Run(ctx, demo.Host{URL: "http://" + host.Addr(), Key: key, Database: database}, env.stdout)
}

// demoSchema makes a schema in a PostgreSQL database and returns the DSN that
// works in it.
func demoSchema(ctx context.Context, db string) (own string, drop func() error, err error) {
	u, err := url.Parse(db)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return "", nil, &settings.Error{Source: "--db", Message: "the demo takes a postgres:// DSN, or none for SQLite"}
	}
	admin, err := dsn.Open(ctx, db, storage.Config{MaxConns: 1})
	if err != nil {
		return "", nil, err
	}
	// The process number tells whose schema it is, should one ever be left.
	schema := fmt.Sprintf("objecthost_demo_%d_%s", os.Getpid(), strings.ToLower(rand.Text()[:8]))
	if _, err := admin.Write(ctx).ExecContext(ctx, "CREATE SCHEMA "+schema); err != nil {
		return "", nil, errors.Join(fmt.Errorf("make a schema: %w", err), admin.Close())
	}
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String(), func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanLimit)
		defer cancel()
		_, err := admin.Write(ctx).ExecContext(ctx, "DROP SCHEMA "+schema+" CASCADE")
		if err != nil {
			err = fmt.Errorf("drop schema %s: %w", schema, err)
		}
		return errors.Join(err, admin.Close())
	}, nil
}
