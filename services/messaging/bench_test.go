package messaging_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/messaging/sqlstore"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// BenchmarkDrain sends b.N deliveries of 1 KB over 100 targets that wait when
// the service starts. ns/op and allocs/op are those of one delivery, the
// receiver in the same process included; `host bench deliveries` measures the
// host alone.
func BenchmarkDrain(b *testing.B) {
	for _, name := range []string{"sqlite", "postgres"} {
		b.Run(name, func(b *testing.B) {
			benchmarkDrain(b, storagetest.Open(b, map[string]func(testing.TB) string{"sqlite": storagetest.SQLite, "postgres": storagetest.Postgres}[name](b), storage.Config{}))
		})
	}
}

func benchmarkDrain(b *testing.B, db *storage.DB) {
	ctx := b.Context()
	if err := db.Migrate(ctx, sqlstore.Migrations()); err != nil {
		b.Fatal(err)
	}
	var got atomic.Int64
	done := make(chan struct{})
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = server.Serve(ln) }()
	defer server.Close()
	allow, err := messaging.ParseEgressAllow([]string{"127.0.0.1"})
	if err != nil {
		b.Fatal(err)
	}
	s, err := messaging.New(messaging.Config{
		Store: sqlstore.New(db), Tx: db, Sealer: plainSealer{},
		Sender: messaging.SenderConfig{Egress: messaging.EgressConfig{Allow: allow}},
		OnAttempt: func(messaging.Delivery, messaging.Attempt) {
			if got.Add(1) == int64(b.N) {
				close(done)
			}
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	payload := []byte(fmt.Sprintf(`{"text":"%01000d"}`, 1))
	for left := b.N; left > 0; {
		reqs := make([]messaging.Request, min(left, 500))
		for i := range reqs {
			key := fmt.Sprintf("hook-%d", i%100)
			reqs[i] = messaging.Request{
				Source: messaging.SourceWebhook, RefID: key, URL: "http://" + ln.Addr().String() + "/in",
				Label: "data.record.created", Payload: payload, OrderingKey: fmt.Sprintf("%s:%d", key, left-i),
				Secret: []byte("benchmark"),
			}
		}
		if _, err := s.EnqueueBatch(ctx, reqs); err != nil {
			b.Fatal(err)
		}
		left -= len(reqs)
	}
	b.ReportAllocs()
	b.ResetTimer()
	if err := s.Start(ctx); err != nil {
		b.Fatal(err)
	}
	<-done
	b.StopTimer()
	if err := s.Stop(ctx); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkBareClient is what the drain is compared with: 64 goroutines that
// post the same body with one http.Client.
func BenchmarkBareClient(b *testing.B) {
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = server.Serve(ln) }()
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	payload := fmt.Sprintf(`{"text":"%01000d"}`, 1)
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			resp, err := client.Post("http://"+ln.Addr().String()+"/in", "application/json", strings.NewReader(payload))
			if err != nil {
				b.Error(err)
				return
			}
			resp.Body.Close()
		}
	})
}
