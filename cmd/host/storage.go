package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/objecthost/objecthost/cmd/host/internal/settings"
	pluginstore "github.com/objecthost/objecthost/pluginhost/sqlstore"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/realtime/sqllog"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/dsn"
	"github.com/objecthost/objecthost/storage/transfer"
)

func storageCommand(env environment) *cobra.Command {
	var from, to string
	c := &cobra.Command{
		Use: "copy", Short: "Copy a whole installation into an empty database", Args: cobra.NoArgs,
		Long: "Copies all tables: objects and their records, secrets as they are sealed, deliveries with their attempts, the log of events and\n" +
			"how far its consumers are, keys, users, flows and what plugins keep. Every table is compared in the end. Stop all hosts of both\n" +
			"databases first. A copy that was broken off goes on when the command is given again; until then no host serves the target.",
		Example: "  host storage copy --from sqlite:./data/host.db --to postgres://host@db.example/host",
		RunE:    func(c *cobra.Command, _ []string) error { return copyStorage(c.Context(), from, to, env) },
	}
	c.Flags().StringVar(&from, "from", "", "DSN of the database that is copied (required)")
	c.Flags().StringVar(&to, "to", "", "DSN of the empty database (required)")
	_ = c.MarkFlagRequired("from") // the flag exists
	_ = c.MarkFlagRequired("to")
	group := &cobra.Command{
		Use: "storage", Short: "Work on databases that no host serves", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	group.AddCommand(c)
	return group
}

// leases are the tables of who serves the database at the moment.
var leases = []string{"sys_node", "sys_lease"}

func copyStorage(ctx context.Context, fromName, toName string, env environment) (err error) {
	for flag, name := range map[string]string{"--from": fromName, "--to": toName} {
		if err := settings.CheckDSN(name); err != nil {
			return &settings.Error{Source: flag, Message: err.Error()}
		}
	}
	if fromName == toName {
		return &settings.Error{Source: "--to", Message: "must be another database than --from"}
	}
	if file, ok := (settings.Settings{DB: fromName}).SQLiteFile(); ok {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) { // opening would make it
			return &settings.Error{Source: "--from", Message: fmt.Sprintf("there is no file %q", file)}
		}
	}
	from, err := openForCopy(ctx, fromName)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.close()) }()
	switch unfinished, err := transfer.Unfinished(ctx, from.DB); {
	case err != nil:
		return err
	case unfinished:
		return errUnfinished
	}
	to, err := openForCopy(ctx, toName)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.close()) }()
	if err := data.Mirror(ctx, from.DB, to.DB); err != nil {
		return err
	}
	translate, err := sqllog.MovePositions(ctx, from.DB, to.Dialect())
	if err != nil {
		return err
	}
	seeded, err := migrationRows(ctx)
	if err != nil {
		return err
	}
	fingerprint, err := fingerprintOf(ctx, from.DB)
	if err != nil {
		return err
	}
	cfg := transfer.Config{
		From: from.DB, To: to.DB, Fingerprint: fingerprint, Skip: leases, Seeded: seeded,
		Rewrite: map[string]func(map[string]any) error{"sys_event_consumer": func(row map[string]any) (err error) {
			row["position"], err = translate(row["name"].(string), row["first_partition"].(int64))
			return err
		}},
		Fill: map[string]string{}, Sequences: map[string]string{"sys_event.sequence": sqllog.Sequence},
		Progress: func(table string, rows int64, done bool) {
			if end := map[bool]string{true: " rows, done", false: " rows"}[done]; rows > 0 || done {
				fmt.Fprintf(env.stderr, "%s: %d%s\n", table, rows, end)
			}
		},
	}
	// Numbers of transactions mean nothing in another database.
	cfg.Fill["sys_event.xid"] = sqllog.CopiedXID
	report, err := transfer.Copy(ctx, cfg)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.stdout, "copied %d rows of %d tables and compared them; hosts of %s need the keyring of %s\n",
		report.Rows, len(report.Tables), dsn.Redact(toName), dsn.Redact(fromName))
	return err
}

// openForCopy opens a database that no host may serve, with all tables that
// hosts make.
func openForCopy(ctx context.Context, name string) (migrated, error) {
	m, err := openMigrated(ctx, name, true)
	if err != nil {
		return migrated{}, err
	}
	if err = m.Migrate(ctx, data.Migrations(), pluginstore.Migrations()); err == nil {
		err = refuseServed(ctx, m.DB)
	}
	if err != nil {
		return migrated{}, errors.Join(err, m.close())
	}
	return m, nil
}

// migrationRows counts what migrations leave in an empty database.
func migrationRows(ctx context.Context) (rows map[string]int64, err error) {
	fresh, err := openForCopy(ctx, "sqlite::memory:")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, fresh.close()) }()
	return transfer.Rows(ctx, fresh.DB)
}

// refuseServed returns an error while hosts serve a database; a SQLite file's
// lock has told already.
func refuseServed(ctx context.Context, db *storage.DB) error {
	if db.Dialect() == storage.SQLite {
		return nil
	}
	rows, err := db.Read(ctx).QueryContext(ctx, `SELECT name FROM sys_node WHERE lease_until > `+db.NowSQL()+` ORDER BY name`)
	if err != nil {
		return fmt.Errorf("look for hosts that serve the database: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil || len(names) == 0 {
		return err
	}
	return fmt.Errorf("the database is served by %s; stop its hosts first (one that was killed counts for some seconds more)", strings.Join(names, ", "))
}

// fingerprintOf tells installations apart by their keyrings.
func fingerprintOf(ctx context.Context, db *storage.DB) (string, error) {
	rows, err := db.Read(ctx).QueryContext(ctx, `SELECT key_id, check_value, created_at FROM sys_keyring ORDER BY position`)
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	h := sha256.New()
	for rows.Next() {
		var id, check string
		var at int64
		if err := rows.Scan(&id, &check, &at); err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%q %q %d\n", id, check, at)
	}
	return hex.EncodeToString(h.Sum(nil)), rows.Err()
}

// errUnfinished refuses a database that a copy was broken off in.
var errUnfinished = errors.New("the database holds a part of another one: give host storage copy once more, or begin with an empty database")
