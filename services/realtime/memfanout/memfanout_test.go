package memfanout_test

import (
	"testing"

	"github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/services/realtime/fanouttest"
	"github.com/objecthost/objecthost/services/realtime/memfanout"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

func TestNodes(t *testing.T) {
	t.Parallel()
	for name, dsn := range map[string]func(testing.TB) string{"sqlite": storagetest.SQLite, "postgres": storagetest.Postgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fanouttest.RunNodes(t, dsn, func(*testing.T, *storage.DB) fanouttest.Transport {
				var hub memfanout.Hub
				return fanouttest.Transport{Join: func(*testing.T) driver.Fanout { return hub.Join() }}
			})
		})
	}
}

func TestSuite(t *testing.T) {
	t.Parallel()
	fanouttest.Run(t, func(*testing.T) fanouttest.Transport {
		var hub, other memfanout.Hub
		return fanouttest.Transport{
			Join:     func(*testing.T) driver.Fanout { return hub.Join() },
			Stranger: func(*testing.T) driver.Fanout { return other.Join() },
		}
	})
}
