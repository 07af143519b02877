package howto_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/messaging/sqlstore"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/dsn"
)

// The outbox by itself: an order and the call about it commit together.
func Example_outbox() {
	got := make(chan string, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.Header.Get("X-Objectstack-Event") + " " + string(body)
	}))
	defer receiver.Close()
	if err := sellOne(context.Background(), receiver.URL, func() { fmt.Println(<-got) }); err != nil {
		fmt.Println(err)
	}
	// Output: order.created {"total":"12.50"}
}

func sellOne(ctx context.Context, url string, wait func()) error {
	db, err := dsn.Open(ctx, "sqlite::memory:", storage.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := db.Migrate(ctx, sqlstore.Migrations()); err != nil {
		return err
	}
	if _, err := db.Write(ctx).ExecContext(ctx, `CREATE TABLE orders (total TEXT)`); err != nil {
		return err
	}
	allow, err := messaging.ParseEgressAllow([]string{"127.0.0.1"}) // the receiver is local
	if err != nil {
		return err
	}
	outbox, err := messaging.New(messaging.Config{
		Store: sqlstore.New(db), Tx: db, Exclusive: true,
		Sender: messaging.SenderConfig{Egress: messaging.EgressConfig{Allow: allow}},
	})
	if err != nil {
		return err
	}
	if err := outbox.Start(ctx); err != nil {
		return err
	}
	defer func() { _ = outbox.Stop(ctx) }()

	err = db.InTx(ctx, func(ctx context.Context) error {
		if _, err := db.Write(ctx).ExecContext(ctx, `INSERT INTO orders (total) VALUES ('12.50')`); err != nil {
			return err
		}
		_, err := outbox.Enqueue(ctx, messaging.Request{
			Source: "shop", RefID: "orders", Label: "order.created", URL: url, Payload: []byte(`{"total":"12.50"}`),
		})
		return err
	})
	if err != nil {
		return err
	}
	wait()
	return nil
}
