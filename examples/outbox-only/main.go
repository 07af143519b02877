// Outbox-only is a program with tables and transactions of its own that uses
// nothing but the outbox: an order and the HTTP call about it commit together,
// or neither is there.
//
// Without arguments it runs on a temporary SQLite database, sells a little to
// its own receiver, and ends. -db takes another DSN: sqlite:<path> or
// postgres://….
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/messaging/sqlstore"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/dsn"
)

func main() {
	name := flag.String("db", "sqlite::memory:", "database: sqlite:<path> or postgres://…")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, *name, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "outbox-only:", err)
		os.Exit(1)
	}
}

// run sells three orders, of which the second is rolled back, and waits until
// the other two have been told to the receiver.
func run(ctx context.Context, name string, out io.Writer) (err error) {
	db, err := dsn.Open(ctx, name, storage.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	receiver, err := listen()
	if err != nil {
		return err
	}
	defer receiver.Close()

	outbox, err := openOutbox(ctx, db)
	if err != nil {
		return err
	}
	if err := outbox.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, outbox.Stop(context.WithoutCancel(ctx))) }()

	shop, err := openShop(ctx, db, name, outbox, receiver.URL())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shop.Close()) }()

	if err := shop.Sell(ctx, Order{ID: "o-1", Total: "12.50"}); err != nil {
		return err
	}
	if err := shop.Sell(ctx, Order{ID: "o-2", Total: "0"}); !errors.Is(err, ErrNothingSold) {
		return fmt.Errorf("the empty order was taken: %w", err)
	}
	if err := shop.Sell(ctx, Order{ID: "o-3", Total: "7"}); err != nil {
		return err
	}
	// Calls with one ordering key leave in the order of their commits, so after
	// the third order nothing can come any more for the second.
	for _, want := range []string{`{"order":"o-1","total":"12.50"}`, `{"order":"o-3","total":"7"}`} {
		got, err := receiver.Next(ctx)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("the receiver got %s, want %s", got, want)
		}
		fmt.Fprintln(out, "received", got)
	}
	fmt.Fprintf(out, "OK outbox-only on %s: two orders committed and were told, one rolled back and was not\n", db.Dialect())
	return nil
}

// openOutbox migrates the outbox's tables and makes the service. It may call
// this machine, which is refused unless it is allowed.
func openOutbox(ctx context.Context, db *storage.DB) (*messaging.Service, error) {
	if err := db.Migrate(ctx, sqlstore.Migrations()); err != nil {
		return nil, err
	}
	allow, err := messaging.ParseEgressAllow([]string{"127.0.0.1"})
	if err != nil {
		return nil, err
	}
	return messaging.New(messaging.Config{
		Store: sqlstore.New(db), Tx: db,
		// A SQLite file is this process's alone; on PostgreSQL others may send too.
		Exclusive: db.Dialect() == storage.SQLite,
		Sender:    messaging.SenderConfig{Egress: messaging.EgressConfig{Allow: allow}},
	})
}
