//go:build ignore

// Pgprobe prints the version and max_connections of a PostgreSQL server on
// which the tests can run, or says on stderr why they cannot.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

// oldest is the first server version that the project supports.
const oldest = 130000

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: pgprobe DSN")
		os.Exit(2)
	}
	facts, err := probe(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "pgprobe:", err)
		os.Exit(1)
	}
	fmt.Println(facts)
}

func probe(dsn string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	var (
		number    int
		version   string
		slots     string
		mayCreate bool
	)
	err = conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, split_part(current_setting('server_version'), ' ', 1),
		current_setting('max_connections'), has_database_privilege(current_database(), 'CREATE')`).Scan(&number, &version, &slots, &mayCreate)
	switch {
	case err != nil:
		return "", err
	case number < oldest:
		return "", fmt.Errorf("PostgreSQL %s is too old, 13 or newer is needed", version)
	case !mayCreate:
		return "", fmt.Errorf("the user may not create schemas in the database")
	}
	return version + " " + slots, nil
}
