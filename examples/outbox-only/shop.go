package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/storage"
)

// ErrNothingSold is returned for an order without a total.
var ErrNothingSold = errors.New("the order's total is 0")

// Order is what the shop sells.
type Order struct {
	ID    string `json:"order"`
	Total string `json:"total"`
}

// Shop is a program as it was before it had an outbox: it has a pool and a
// table of its own and begins its transactions itself.
type Shop struct {
	pool *sql.DB

	db     *storage.DB
	outbox *messaging.Service
	tell   string
}

// openShop opens the shop's own pool on the database called name, and makes
// its table. Every order is told to the URL tell.
func openShop(ctx context.Context, db *storage.DB, name string, outbox *messaging.Service, tell string) (*Shop, error) {
	pool, err := openPool(db, name)
	if err != nil {
		return nil, err
	}
	if _, err := pool.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, total TEXT NOT NULL)"); err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return &Shop{pool: pool, db: db, outbox: outbox, tell: tell}, nil
}

// openPool opens the database as a program does that knows nothing of the
// outbox. The drivers "sqlite" and "pgx" are registered by package dsn. On
// SQLite a transaction takes the write lock when it begins and waits for it.
func openPool(db *storage.DB, name string) (*sql.DB, error) {
	if db.Dialect() == storage.SQLite {
		return sql.Open("sqlite", "file:"+db.File()+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	}
	return sql.Open("pgx", name)
}

// Close closes the shop's pool.
func (s *Shop) Close() error { return s.pool.Close() }

// Sell stores an order and the call that tells of it, both or neither. It
// returns ErrNothingSold for an empty order.
func (s *Shop) Sell(ctx context.Context, order Order) error {
	tx, err := s.pool.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("sell %s: %w", order.ID, err)
	}
	// ctx carries the shop's transaction from here on, and whatever of the
	// outbox gets this context writes in it.
	ctx, joined := s.db.WithTx(ctx, tx)
	if err := s.write(ctx, tx, order); err != nil {
		_ = tx.Rollback() // the transaction is given up either way
		joined.RolledBack()
		return fmt.Errorf("sell %s: %w", order.ID, err)
	}
	if err := tx.Commit(); err != nil {
		joined.RolledBack()
		return fmt.Errorf("sell %s: %w", order.ID, err)
	}
	// Now the outbox may send. Were the process killed before this line, the
	// next look into the table would find the call.
	joined.Committed()
	return nil
}

// write is what happens inside of the transaction.
func (s *Shop) write(ctx context.Context, tx *sql.Tx, order Order) error {
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, total) VALUES ($1, $2)", order.ID, order.Total); err != nil {
		return err
	}
	body, err := json.Marshal(order)
	if err != nil {
		return err
	}
	_, err = s.outbox.Enqueue(ctx, messaging.Request{
		Source: "shop", RefID: "orders", Label: "order.sold", URL: s.tell, Payload: body,
		// One call per order, however often Sell is repeated; in the order of the sales.
		DedupKey: "sold:" + order.ID, OrderingKey: "orders",
	})
	if err != nil {
		return err
	}
	// Late on purpose: the row and the call are written, and both go.
	if order.Total == "0" {
		return ErrNothingSold
	}
	return nil
}
