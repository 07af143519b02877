package data_test

import (
	"context"
	"testing"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// owner contributes objects and makes the table of the External one in Start.
type owner struct {
	id      string
	objects []object.Schema
	start   func(ctx context.Context) error
	depends []string
}

func (o *owner) Manifest() core.Manifest {
	return core.Manifest{ID: o.id, Version: "1.0.0", DependsOn: o.depends, Contributes: core.Contributions{Objects: o.objects}}
}
func (o *owner) Init(context.Context, core.Context) error { return nil }
func (o *owner) Start(ctx context.Context) error {
	if o.start == nil {
		return nil
	}
	return o.start(ctx)
}

func TestPluginDefinesWhatManifestsContribute(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		engine := setup(t, db).Engine
		ledger := object.Schema{Name: "sys_ledger", IsSystem: true, External: true, Fields: object.Fields{{Name: "amount", Type: object.Number}}}
		seen := ""
		late := &owner{id: "com.objectstack.late", objects: []object.Schema{account(), ledger}, depends: []string{data.PluginID}}
		late.start = func(ctx context.Context) error {
			if _, err := engine.Object("account"); err != nil {
				return err
			}
			seen = "account"
			_, err := db.Write(ctx).ExecContext(ctx, "CREATE TABLE sys_ledger (id TEXT PRIMARY KEY, amount BIGINT)")
			return err
		}
		kernel := core.New(core.Config{})
		if err := kernel.Use(data.NewPlugin(engine), late); err != nil {
			t.Fatal(err)
		}
		if err := kernel.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = kernel.Stop(context.WithoutCancel(t.Context())) }()
		equal(t, "seen in Start", seen, "account")
		var names []string
		for _, s := range engine.Objects() {
			names = append(names, s.Name)
		}
		equal(t, "objects", names, []string{"account", "sys_import_job", "sys_ledger"})
	})
}
