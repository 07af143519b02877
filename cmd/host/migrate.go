package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/objecthost/objecthost/storage/dsn"
)

func migrateCommand(env environment) *cobra.Command {
	c := &cobra.Command{
		Use: "migrate", Short: "Bring the host's own tables up to date and end", Args: cobra.NoArgs,
		Long: "Bring the host's own tables up to date and end. A host does the same when it starts; this is for deployments that\n" +
			"migrate before they replace their hosts. Tables of objects follow their definitions when a host starts.",
	}
	load := settingsFlags(c, env)
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := load()
		if err != nil {
			return err
		}
		return migrate(c.Context(), cfg.DB, env)
	}
	return c
}

func migrate(ctx context.Context, name string, env environment) (err error) {
	db, err := openMigrated(ctx, name, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	_, err = fmt.Fprintf(env.stdout, "%s is up to date\n", dsn.Redact(name))
	return err
}
