// Package orders is a plugin of this host: it keeps orders and tells a
// warehouse about each new one.
package orders

import (
	"context"
	"encoding/json"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
)

// Object is the object of the orders, PluginID the plugin.
const (
	Object   = "shop_order"
	PluginID = "com.example.orders"
)

// writes and outbox are what the plugin needs of other services.
type writes interface {
	WithinWrite(object string, handler func(context.Context, *data.Change) error)
}

type outbox interface {
	Enqueue(ctx context.Context, req messaging.Request) (messaging.Enqueued, error)
}

var (
	writesKey = core.NewKey[writes]("data")
	outboxKey = core.NewKey[outbox]("messaging")
)

// Plugin implements core.Plugin.
type Plugin struct {
	warehouse string
	outbox    outbox
}

var _ core.Plugin = (*Plugin)(nil)

// New returns the plugin. Orders are told to the URL warehouse.
func New(warehouse string) *Plugin { return &Plugin{warehouse: warehouse} }

// Manifest implements core.Plugin.
func (p *Plugin) Manifest() core.Manifest {
	return core.Manifest{
		ID: PluginID, Version: "1.0.0", Namespace: "shop",
		DependsOn: []string{data.PluginID, messaging.PluginID},
		Requires:  []string{writesKey.Name(), outboxKey.Name()},
		Contributes: core.Contributions{Objects: []object.Schema{{
			Name: Object, Label: "Order", PluralLabel: "Orders", NameField: "customer",
			Fields: object.Fields{
				{Name: "customer", Type: object.Text, Label: "Customer", Required: true},
				{Name: "total", Type: object.Currency, Label: "Total", Required: true, Min: "0"},
			},
		}}},
	}
}

// Init implements core.Plugin.
func (p *Plugin) Init(ctx context.Context, host core.Context) error {
	records, err := core.Lookup(ctx, host, writesKey)
	if err != nil {
		return err
	}
	if p.outbox, err = core.Lookup(ctx, host, outboxKey); err != nil {
		return err
	}
	records.WithinWrite(Object, p.tell)
	return nil
}

// tell runs in the transaction that writes the order: the order and the call
// to the warehouse commit together, or neither is there.
func (p *Plugin) tell(ctx context.Context, change *data.Change) error {
	if change.Operation != data.OpCreate {
		return nil
	}
	body, err := json.Marshal(map[string]any{"id": change.ID, "customer": change.After["customer"], "total": change.After["total"]})
	if err != nil {
		return err
	}
	_, err = p.outbox.Enqueue(ctx, messaging.Request{
		Source: "orders", RefID: Object, Label: "order.created", URL: p.warehouse, Payload: body, DedupKey: "created:" + change.ID,
	})
	return err
}
