package desk_test

import (
	"context"
	"testing"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/coretest"
	"github.com/objecthost/objecthost/examples/plugin-inprocess/desk"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/services/realtime/sqllog"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/dsn"
)

// The plugin keeps the rules that the kernel expects of every plugin.
func TestConformance(t *testing.T) {
	coretest.RunWith(t, coretest.Setup{
		New: func() core.Plugin { return desk.New() },
		Partners: func() []core.Plugin {
			db, err := dsn.Open(t.Context(), "sqlite::memory:", storage.Config{})
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Migrate(t.Context(), sqllog.Migrations()); err != nil {
				t.Fatal(err)
			}
			events, err := realtime.New(db, sqllog.New(db, nil), realtime.Config{})
			if err != nil {
				t.Fatal(err)
			}
			engine, err := data.New(t.Context(), db, data.Config{Events: events})
			if err != nil {
				t.Fatal(err)
			}
			return []core.Plugin{database{db}, realtime.NewPlugin(events), data.NewPlugin(engine)}
		},
	})
}

// database closes the database when all others have stopped.
type database struct{ *storage.DB }

func (database) Manifest() core.Manifest                  { return core.Manifest{ID: "com.example.database"} }
func (database) Init(context.Context, core.Context) error { return nil }
func (d database) Stop(context.Context) error             { return d.Close() }
