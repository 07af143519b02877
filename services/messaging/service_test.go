package messaging_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/services/messaging/messagingtest"
	"github.com/objecthost/objecthost/services/messaging/sqlstore"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// bundle is a started service over a real database with a real receiver.
type bundle struct {
	*messaging.Service
	db       *storage.DB
	receiver *messagingtest.Receiver
	attempts chan messaging.Delivery
	cfg      messaging.Config
}

// plainSealer seals by encoding only: what it guards is tested elsewhere.
type plainSealer struct{ broken bool }

func (plainSealer) Seal(plain, aad []byte) (string, error) {
	return base64.RawURLEncoding.EncodeToString(append(append([]byte(nil), aad...), plain...)), nil
}

func (p plainSealer) Open(sealed string, aad []byte) ([]byte, error) {
	b, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil || p.broken || len(b) < len(aad) {
		return nil, errors.New("unreadable")
	}
	return b[len(aad):], nil
}

func setup(t *testing.T, db *storage.DB, edit ...func(*messaging.Config)) *bundle {
	t.Helper()
	ctx := t.Context()
	if err := db.Migrate(ctx, sqlstore.Migrations()); err != nil {
		t.Fatal(err)
	}
	b := &bundle{db: db, receiver: messagingtest.New(t), attempts: make(chan messaging.Delivery, 10_000)}
	allow, err := messaging.ParseEgressAllow([]string{"127.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	b.cfg = messaging.Config{
		Store: sqlstore.New(db), Tx: db, Sealer: plainSealer{},
		Logger:    slog.New(slog.NewTextHandler(t.Output(), nil)),
		Sender:    messaging.SenderConfig{Egress: messaging.EgressConfig{Allow: allow}},
		OnAttempt: func(d messaging.Delivery, _ messaging.Attempt) { b.attempts <- d },
	}
	for _, e := range edit {
		e(&b.cfg)
	}
	b.Service, err = messaging.New(b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := b.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return b
}

func (b *bundle) url(path string) string { return "http://127.0.0.1:" + b.receiver.Port() + path }

// request is a valid request to a path of the receiver.
func (b *bundle) request(path string) messaging.Request {
	return messaging.Request{
		Source: messaging.SourceWebhook, RefID: "hook", Label: "data.record.created",
		URL: b.url(path), Payload: []byte(`{"n":1}`),
	}
}

// waitAttempt returns the next delivery whose attempt was saved.
func (b *bundle) waitAttempt(t *testing.T) messaging.Delivery {
	t.Helper()
	select {
	case d := <-b.attempts:
		return d
	case <-time.After(20 * time.Second):
		t.Fatal("no attempt within 20 s")
		return messaging.Delivery{}
	}
}

func TestEnqueueDelivers(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		secret := []byte(rand.Text())
		req := b.request("/in")
		req.Secret = secret
		req.Headers = map[string]string{"X-Team": "crm"}
		got, err := b.Enqueue(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		d := b.waitAttempt(t)
		if d.ID != got.ID || d.Status != messaging.StatusSuccess || d.Attempts != 1 || d.ResponseCode != 200 {
			t.Fatalf("delivery = %+v", d)
		}
		r := b.receiver.Requests()[0]
		if string(r.Body) != `{"n":1}` || r.Header.Get("X-Objectstack-Delivery") != got.ID ||
			r.Header.Get("X-Objectstack-Attempt") != "1" || r.Header.Get("X-Team") != "crm" {
			t.Errorf("request = %+v", r)
		}
		if err := messaging.VerifySignature(secret, r.Body, r.Header); err != nil {
			t.Error(err)
		}
		attempts, err := b.Attempts(t.Context(), got.ID)
		if err != nil || len(attempts) != 1 || attempts[0].ResponseCode != 200 {
			t.Errorf("attempts = %+v, %v", attempts, err)
		}
	})
}

func TestEnqueueJoinsTheCallersTransaction(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		boom := errors.New("boom")
		var lost messaging.Enqueued
		err := db.InTx(t.Context(), func(ctx context.Context) (err error) {
			if lost, err = b.Enqueue(ctx, b.request("/rolled-back")); err != nil {
				return err
			}
			return boom
		})
		if !errors.Is(err, boom) {
			t.Fatalf("InTx = %v", err)
		}
		var kept messaging.Enqueued
		err = db.InTx(t.Context(), func(ctx context.Context) (err error) {
			kept, err = b.Enqueue(ctx, b.request("/committed"))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if d := b.waitAttempt(t); d.ID != kept.ID {
			t.Errorf("delivered %s, want %s", d.ID, kept.ID)
		}
		if _, err := b.Get(t.Context(), lost.ID); !errors.Is(err, messaging.ErrNotFound) {
			t.Errorf("get of the rolled back delivery = %v, want ErrNotFound", err)
		}
		for _, r := range b.receiver.Requests() {
			if r.RequestURI != "/committed" {
				t.Errorf("the receiver got %s", r.RequestURI)
			}
		}
	})
}

func TestRetryFollowsTheSchedule(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		b.receiver.Handle("/in", messagingtest.Status(500, "no"), messagingtest.Status(200, "ok"))
		began := time.Now()
		if _, err := b.Enqueue(t.Context(), b.request("/in")); err != nil {
			t.Fatal(err)
		}
		first, second := b.waitAttempt(t), b.waitAttempt(t)
		if first.Status != messaging.StatusPending || first.Error != "HTTP 500" || first.Attempts != 1 {
			t.Errorf("after the first attempt: %+v", first)
		}
		if second.Status != messaging.StatusSuccess || second.Error != "" || second.Attempts != 2 {
			t.Errorf("after the second attempt: %+v", second)
		}
		if took := time.Since(began); took < 800*time.Millisecond || took > 3*time.Second {
			t.Errorf("the retry came after %s, want about 1 s", took)
		}
	})
}

func TestManyDeliveriesArriveOnce(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		b := setup(t, db)
		const n = 2000
		for batch := range n / 200 {
			reqs := make([]messaging.Request, 200)
			for i := range reqs {
				reqs[i] = b.request(fmt.Sprintf("/hook/%d", i%20))
				reqs[i].RefID = fmt.Sprintf("hook-%d", i%20)
				reqs[i].OrderingKey = fmt.Sprintf("hook-%d:rec-%d-%d", i%20, batch, i%50)
			}
			if _, err := b.EnqueueBatch(t.Context(), reqs); err != nil {
				t.Fatal(err)
			}
		}
		seen := make(map[string]int)
		for range n {
			seen[b.waitAttempt(t).ID]++
		}
		if len(seen) != n {
			t.Errorf("%d deliveries were attempted, want %d", len(seen), n)
		}
		if got := len(b.receiver.Requests()); got != n {
			t.Errorf("the receiver got %d requests, want %d", got, n)
		}
	})
}
