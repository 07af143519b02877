package howto_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/auth"
	authstore "github.com/objecthost/objecthost/services/auth/sqlstore"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/services/realtime/sqllog"
	"github.com/objecthost/objecthost/services/rest"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/dsn"
)

// records is what the plugin needs of the data service.
type records interface {
	Find(ctx context.Context, object string, q data.Query) (*data.Page, error)
	BeforeWrite(object string, handler func(context.Context, *data.Write) error)
}

var recordsKey = core.NewKey[records]("data")

// stockPlugin keeps a warehouse: an object, a rule and a route.
type stockPlugin struct{ records records }

func (p *stockPlugin) Manifest() core.Manifest {
	return core.Manifest{
		ID: "com.example.stock", Version: "1.0.0",
		DependsOn: []string{data.PluginID}, Requires: []string{recordsKey.Name()},
		Contributes: core.Contributions{
			Objects: []object.Schema{{
				Name: "stock_item", NameField: "sku",
				Fields: object.Fields{
					{Name: "sku", Type: object.Text, Required: true, Unique: object.UniqueDefault},
					{Name: "count", Type: object.Number, DefaultValue: json.RawMessage("0")},
				},
			}},
			Routes: []core.Route{{
				Method: http.MethodGet, Pattern: "/api/v1/stock/total", Anonymous: true,
				Summary: "How many different items there are", Handler: http.HandlerFunc(p.total),
			}},
		},
	}
}

func (p *stockPlugin) Init(ctx context.Context, host core.Context) (err error) {
	if p.records, err = core.Lookup(ctx, host, recordsKey); err != nil {
		return err
	}
	p.records.BeforeWrite("stock_item", upperCaseSKU)
	return nil
}

// upperCaseSKU runs before the record is validated and stored.
func upperCaseSKU(_ context.Context, w *data.Write) error {
	if sku, ok := w.Values["sku"].(string); ok {
		w.Values["sku"] = strings.ToUpper(sku)
	}
	return nil
}

func (p *stockPlugin) total(w http.ResponseWriter, r *http.Request) {
	// The route is open to everybody, so it reads in the host's own name.
	ctx := identity.With(r.Context(), identity.System())
	page, err := p.records.Find(ctx, "stock_item", data.Query{})
	if err != nil || len(page.Records) == 0 {
		http.Error(w, "the items could not be read", http.StatusInternalServerError)
		return
	}
	fmt.Fprintf(w, "%d item, %v first", len(page.Records), page.Records[0]["sku"])
}

// A host of one's own: the services that are wanted, and a plugin.
func Example_host() {
	if err := runOwnHost(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output: 1 item, A-1 first
}

func runOwnHost(ctx context.Context) error {
	db, err := dsn.Open(ctx, "sqlite::memory:", storage.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := db.Migrate(ctx, sqllog.Migrations(), authstore.Migrations()); err != nil {
		return err
	}
	events, err := realtime.New(db, sqllog.New(db, nil), realtime.Config{})
	if err != nil {
		return err
	}
	access, err := auth.New(authstore.New(db), auth.Config{})
	if err != nil {
		return err
	}
	engine, err := data.New(ctx, db, data.Config{Events: events, Authorizer: access})
	if err != nil {
		return err
	}
	server := rest.NewPlugin(rest.Config{Addr: "127.0.0.1:0"})
	kernel := core.New(core.Config{})
	err = kernel.Use(realtime.NewPlugin(events), auth.NewPlugin(access, nil), data.NewPlugin(engine), server, &stockPlugin{})
	if err != nil {
		return err
	}
	if err := kernel.Start(ctx); err != nil {
		return err
	}
	defer func() { _ = kernel.Stop(ctx) }()

	system := identity.With(ctx, identity.System())
	if _, err := engine.Create(system, "stock_item", data.Record{"sku": "a-1"}); err != nil {
		return err
	}
	resp, err := http.Get("http://" + server.Addr() + "/api/v1/stock/total")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(string(body))
	return err
}
