package pgfanout_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/services/realtime/fanouttest"
	"github.com/objecthost/objecthost/services/realtime/pgfanout"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// ways lead from the DSN of a server to that of the host's pool: to the server
// itself, and with a pooler before everything but the listening connection.
var ways = map[string]func(testing.TB, string) string{
	"direct":    func(_ testing.TB, dsn string) string { return dsn },
	"pgbouncer": func(t testing.TB, dsn string) string { return storagetest.PgBouncer(t, dsn, 3) },
}

func TestSuite(t *testing.T) {
	t.Parallel()
	for name, through := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fanouttest.Run(t, func(t *testing.T) fanouttest.Transport {
				direct := storagetest.Postgres(t)
				proxy, listen := storagetest.ProxyDSN(t, direct)
				db := storagetest.Open(t, through(t, direct), storage.Config{})
				return fanouttest.Transport{
					Join: func(*testing.T) driver.Fanout { return pgfanout.New(db, listen) },
					Stranger: func(t *testing.T) driver.Fanout {
						return pgfanout.New(storagetest.Open(t, storagetest.Postgres(t), storage.Config{}), "")
					},
					Cut: proxy.Cut, Restore: proxy.Restore,
				}
			})
		})
	}
}

func TestNodes(t *testing.T) {
	t.Parallel()
	for name, through := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var direct sync.Map // by the test's name
			fanouttest.RunNodes(t, func(t testing.TB) string {
				server := storagetest.Postgres(t)
				pool := through(t, server)
				direct.Store(t.Name(), server)
				return pool
			}, func(t *testing.T, _ *storage.DB) fanouttest.Transport {
				server, _ := direct.Load(t.Name())
				proxy, listen := storagetest.ProxyDSN(t, server.(string))
				pool := through(t, server.(string))
				return fanouttest.Transport{
					Join: func(t *testing.T) driver.Fanout {
						return pgfanout.New(storagetest.Open(t, pool, storage.Config{}), listen)
					},
					Cut: proxy.Cut, Restore: proxy.Restore,
				}
			})
		})
	}
}

// A DSN for listening that hears nothing is found out.
func TestDeafListeners(t *testing.T) {
	t.Parallel()
	direct := storagetest.Postgres(t)
	db := storagetest.Open(t, direct, storage.Config{})
	err := pgfanout.New(db, storagetest.PgBouncer(t, direct, 2)).Listen(t.Context(), func([]string) { t.Error("woken") })
	if !errors.Is(err, pgfanout.ErrDeaf) {
		t.Errorf("Listen through a pooler = %v, want ErrDeaf", err)
	}
}
