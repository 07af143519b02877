package natsfanout_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/services/realtime/fanouttest"
	"github.com/objecthost/objecthost/services/realtime/natsfanout"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// The servers: one in the process, and the one of this machine where it has one.
func TestSuite(t *testing.T) {
	t.Parallel()
	servers := map[string]string{"inprocess": inProcess(t)}
	if conn, err := net.DialTimeout("tcp", "127.0.0.1:4222", time.Second); err == nil {
		_ = conn.Close()
		servers["machine"] = "nats://127.0.0.1:4222"
	}
	for name, address := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fanouttest.Run(t, func(t *testing.T) fanouttest.Transport {
				u, err := url.Parse(address)
				if err != nil {
					t.Fatal(err)
				}
				proxy := storagetest.NewProxy(t, u.Host)
				join := func(name string) func(t *testing.T) driver.Fanout {
					return func(t *testing.T) driver.Fanout {
						f, err := natsfanout.New(natsfanout.Config{URL: "nats://" + proxy.Addr(), Name: name})
						if err != nil {
							t.Fatal(err)
						}
						t.Cleanup(f.Close)
						return f
					}
				}
				return fanouttest.Transport{
					Join: join(stream(t, address)), Stranger: join(stream(t, address)),
					Cut: proxy.Cut, Restore: proxy.Restore,
				}
			})
		})
	}
}

func TestNodes(t *testing.T) {
	t.Parallel()
	address := inProcess(t)
	fanouttest.RunNodes(t, storagetest.Postgres, func(t *testing.T, _ *storage.DB) fanouttest.Transport {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		proxy, name := storagetest.NewProxy(t, u.Host), stream(t, address)
		return fanouttest.Transport{
			Join: func(t *testing.T) driver.Fanout {
				f, err := natsfanout.New(natsfanout.Config{URL: "nats://" + proxy.Addr(), Name: name})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(f.Close)
				return f
			},
			Cut: proxy.Cut, Restore: proxy.Restore,
		}
	})
}

func inProcess(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the NATS server did not start")
	}
	return s.ClientURL()
}

// stream is a name of a stream that is removed at the end of the test.
func stream(t *testing.T, address string) string {
	t.Helper()
	name := "t" + strings.ReplaceAll(uuid.NewString(), "-", "")[:20]
	t.Cleanup(func() { removeStream(t, address, name) })
	return name
}

func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	for _, cfg := range []natsfanout.Config{
		{URL: ""}, {URL: "http://127.0.0.1"}, {URL: "nats://u:s3cret@%zz"}, {URL: "nats://127.0.0.1,nats://"},
		{URL: "nats://127.0.0.1", Name: "Upper"}, {URL: "nats://127.0.0.1", Name: "a.b"},
	} {
		_, err := natsfanout.New(cfg)
		if !errors.Is(err, natsfanout.ErrConfig) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("New(%+v) = %v", cfg, err)
		}
	}
}

// A server that is not there is an error that holds no password, and the next
// call tries again.
func TestServerThatIsNotThere(t *testing.T) {
	t.Parallel()
	f, err := natsfanout.New(natsfanout.Config{URL: "nats://u:s3cret@127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 2 {
		if err := f.Announce(t.Context(), []string{"events"}); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("Announce = %v", err)
		}
		if err := f.Listen(t.Context(), func([]string) { t.Error("woken") }); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("Listen = %v", err)
		}
	}
}
func removeStream(t *testing.T, address, name string) {
	conn, err := nats.Connect(address)
	if err != nil {
		t.Errorf("remove the stream: %v", err)
		return
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Error(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("remove the stream: %v", err)
	}
}
