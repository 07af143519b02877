package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

func TestRun(t *testing.T) {
	storagetest.EachDialectDSN(t, func(t *testing.T, name string) {
		var out strings.Builder
		if err := run(t.Context(), name, &out); err != nil {
			t.Fatal(err)
		}
		dialect, _, _ := strings.Cut(name, ":")
		want := "received {\"order\":\"o-1\",\"total\":\"12.50\"}\nreceived {\"order\":\"o-3\",\"total\":\"7\"}\n" +
			"OK outbox-only on " + dialect + ": two orders committed and were told, one rolled back and was not\n"
		if out.String() != want {
			t.Errorf("printed %q, want %q", out.String(), want)
		}
		db := storagetest.Open(t, name, storage.Config{})
		if got := column(t, db, "SELECT id FROM orders ORDER BY id"); got != "o-1 o-3" {
			t.Errorf("orders %q", got)
		}
		if got := column(t, db, "SELECT dedup_key FROM sys_http_delivery ORDER BY dedup_key"); got != "sold:o-1 sold:o-3" {
			t.Errorf("deliveries %q", got)
		}
	})
}

// A sale that is repeated fails on the order's key and enqueues no second call.
func TestSellTwice(t *testing.T) {
	storagetest.EachDialectDSN(t, func(t *testing.T, name string) {
		db := storagetest.Open(t, name, storage.Config{})
		outbox, err := openOutbox(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		shop, err := openShop(t.Context(), db, name, outbox, "http://127.0.0.1:1/")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = shop.Close() })
		if err := shop.Sell(t.Context(), Order{ID: "o-1", Total: "1"}); err != nil {
			t.Fatal(err)
		}
		if err := shop.Sell(t.Context(), Order{ID: "o-1", Total: "1"}); err == nil || errors.Is(err, ErrNothingSold) {
			t.Errorf("the second sale: %v", err)
		}
		if got := column(t, db, "SELECT dedup_key FROM sys_http_delivery"); got != "sold:o-1" {
			t.Errorf("deliveries %q", got)
		}
	})
}

// Code without transactions of its own has the database open one.
func TestEnqueueInTx(t *testing.T) {
	storagetest.EachDialectDSN(t, func(t *testing.T, name string) {
		db := storagetest.Open(t, name, storage.Config{})
		outbox, err := openOutbox(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		shop, err := openShop(t.Context(), db, name, outbox, "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = shop.Close() })
		sell := func(ctx context.Context, url string) error {
			err := db.InTx(ctx, func(ctx context.Context) error {
				if _, err := db.Write(ctx).ExecContext(ctx, "INSERT INTO orders (id, total) VALUES ('o-9', '1')"); err != nil {
					return err
				}
				_, err := outbox.Enqueue(ctx, messaging.Request{
					Source: "shop", RefID: "orders", Label: "order.sold", URL: url, Payload: []byte(`{"order":"o-9"}`),
				})
				return err
			})
			return err
		}
		var refused *messaging.RequestError
		if err := sell(t.Context(), "no URL"); !errors.As(err, &refused) {
			t.Errorf("a request that can never be sent: %v", err)
		}
		if got := column(t, db, "SELECT id FROM orders"); got != "" {
			t.Errorf("orders %q after a refusal", got)
		}
		if err := sell(t.Context(), "http://127.0.0.1:1/"); err != nil {
			t.Error(err)
		}
		if got := column(t, db, "SELECT payload_json FROM sys_http_delivery"); got != `{"order":"o-9"}` {
			t.Errorf("deliveries %q", got)
		}
	})
}

// column joins the values of a query.
func column(t *testing.T, db *storage.DB, query string) string {
	t.Helper()
	rows, err := db.Read(t.Context()).QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var v string
		if err := rows.Scan(&v); err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}
