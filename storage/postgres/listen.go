package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/objecthost/objecthost/storage"
)

const (
	// listenPing is how long a silent connection is trusted, pingTimeout how
	// long it may take to answer then.
	listenPing  = 30 * time.Second
	pingTimeout = 5 * time.Second
)

// Listen opens a connection of its own, outside of every pool, and passes on
// the notifications of a channel until ctx ends or the connection is lost, and
// returns why. listening is called once, when notifications are heard from then
// on; an error of it ends Listen. The DSN must lead to the server itself: a
// pooler in transaction mode accepts LISTEN and delivers nothing.
//
// No error holds the DSN's password.
func Listen(ctx context.Context, dsn, channel string, listening func(ctx context.Context) error, received func(payload string)) error {
	cfg, err := storage.Config{}.WithDefaults(storage.Postgres)
	if err != nil {
		return err
	}
	pc, err := pgx.ParseConfig(withoutNeedlessTLS(dsn))
	if err != nil {
		return fmt.Errorf("storage: parse the Postgres DSN: %w", err)
	}
	if pc.ConnectTimeout == 0 {
		pc.ConnectTimeout = cfg.ConnectTimeout
	}
	if pc.RuntimeParams["application_name"] == "" {
		pc.RuntimeParams["application_name"] = "objecthost listener"
	}
	conn, err := pgx.ConnectConfig(ctx, pc)
	if err != nil {
		return fmt.Errorf("storage: connect to Postgres: %w", err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return fmt.Errorf("storage: listen: %w", err)
	}
	ended := make(chan error, 1)
	hearing, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		err := listening(hearing)
		ended <- err
		if err != nil {
			cancel()
		}
	}()
	err = notifications(hearing, conn, received)
	cancel()
	refused := <-ended
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case refused != nil && errors.Is(err, context.Canceled): // not because the connection was lost
		return refused
	}
	return err
}

// notifications passes on what comes, and makes sure in the pauses that the
// server is still there.
func notifications(ctx context.Context, conn *pgx.Conn, received func(payload string)) error {
	for {
		wait, cancel := context.WithTimeout(ctx, listenPing)
		n, err := conn.WaitForNotification(wait)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			received(n.Payload)
			continue
		case wait.Err() == nil:
			return fmt.Errorf("storage: listen: %w", err)
		}
		ping, cancel := context.WithTimeout(ctx, pingTimeout)
		err = conn.Ping(ping)
		cancel()
		if err != nil {
			return fmt.Errorf("storage: listen: %w", err)
		}
	}
}
