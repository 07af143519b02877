package data_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/dsn"
)

// printLog prints events instead of keeping them. A host gives the engine its
// realtime service.
type printLog struct{}

func (printLog) Append(_ context.Context, events ...*event.Event) error {
	for _, e := range events {
		fmt.Println("event:", e.Type, e.Object)
	}
	return nil
}

func Example() {
	ctx := identity.With(context.Background(), identity.System())
	db, err := dsn.Open(ctx, "sqlite::memory:", storage.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()
	engine, err := data.New(ctx, db, data.Config{Events: printLog{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = engine.Define(ctx, object.Schema{Name: "invoice", Fields: object.Fields{
		{Name: "customer", Type: object.Text, Label: "Customer", Required: true},
		{Name: "amount", Type: object.Currency, Label: "Amount", Min: "0", Index: true},
		{Name: "paid", Type: object.Boolean, DefaultValue: json.RawMessage("false")},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, values := range []data.Record{{"customer": "Acme", "amount": "1500.50"}, {"customer": "Beta", "amount": 20}, {"amount": -1}} {
		if _, err := engine.Create(ctx, "invoice", values); err != nil {
			fmt.Println(err)
		}
	}
	page, err := engine.Find(ctx, "invoice", data.Query{
		Where:   data.And(data.Eq("paid", false), data.Where("amount", "$gt", 10)),
		OrderBy: []data.Sort{{Field: "amount", Desc: true}},
		Fields:  []string{"customer", "amount"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, record := range page.Records {
		fmt.Println(record["customer"], record["amount"])
	}
	// Output:
	// event: data.record.created invoice
	// event: data.record.created invoice
	// VALIDATION_FAILED on invoice: Customer is required; Amount must be ≥ 0
	// Acme 1500.5
	// Beta 20
}
