package auth

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/objecthost/objecthost/services/auth/driver"
	"github.com/objecthost/objecthost/services/auth/memstore"
)

// recorder tells when times of last use are written.
type recorder struct {
	driver.Store

	mu      sync.Mutex
	touched []time.Time
	fail    error
}

func (r *recorder) failWith(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = err
}

func (r *recorder) Touch(ctx context.Context, used map[string]time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.touched = append(r.touched, time.Now())
	if r.fail != nil {
		return r.fail
	}
	return r.Store.Touch(ctx, used)
}

func TestPluginFirstKey(t *testing.T) {
	t.Parallel()
	service, err := New(memstore.New(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	var shown []NewKey
	for range 2 { // a second host on the same store
		p := NewPlugin(service, func(_ context.Context, k NewKey) { shown = append(shown, k) })
		for range 2 {
			if err := p.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := p.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(shown) != 1 {
		t.Fatalf("%d keys shown, want 1", len(shown))
	}
	if _, err := service.Authenticate(request("X-API-Key", shown[0].Secret)); err != nil {
		t.Errorf("first key: %v", err)
	}
}

func TestPluginStopBeforeStart(t *testing.T) {
	t.Parallel()
	if err := NewPlugin(setup(t).Service, nil).Stop(t.Context()); err != nil {
		t.Errorf("Stop = %v", err)
	}
}

// TestPluginWritesLastUse runs three minutes of requests, one every second, and
// counts the writes.
func TestPluginWritesLastUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &recorder{Store: memstore.New()}
		service, err := New(store, Config{})
		if err != nil {
			t.Fatal(err)
		}
		key, _, err := service.EnsureFirstKey(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p := NewPlugin(service, nil)
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		second := time.NewTicker(time.Second)
		defer second.Stop()
		for n := range 3*60 + 30 {
			if n == 60 { // the second write fails and is made up for by the third
				store.failWith(errors.New("database is gone"))
			}
			if n == 121 {
				store.failWith(nil)
			}
			<-second.C
			if _, err := service.Authenticate(request("X-API-Key", key.Secret)); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute, 3*time.Minute + 30*time.Second}
		if len(store.touched) != len(want) {
			t.Fatalf("%d writes, want %d", len(store.touched), len(want))
		}
		for i, at := range store.touched {
			if got := at.Sub(began); got != want[i] {
				t.Errorf("write %d after %v, want %v", i, got, want[i])
			}
		}
		stored, err := store.ByID(t.Context(), key.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got := stored.LastUsedAt.Sub(began.UTC()); got != 3*time.Minute+30*time.Second {
			t.Errorf("last use after %v", got)
		}
	})
}

func TestFlushUseKeepsWhatFailed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.make(t, "admin")
	failing := &recorder{Store: b.store.Store, fail: errors.New("database is gone")}
	b.Service.store = failing
	if _, err := b.Authenticate(request("X-API-Key", key.Secret)); err != nil {
		t.Fatal(err)
	}
	if err := b.FlushUse(t.Context()); !errors.Is(err, failing.fail) {
		t.Fatalf("FlushUse = %v", err)
	}
	failing.fail = nil
	if err := b.FlushUse(t.Context()); err != nil {
		t.Fatal(err)
	}
	if k, _ := b.store.ByID(t.Context(), key.ID); !k.LastUsedAt.Equal(start) {
		t.Errorf("last use = %v, want %v", k.LastUsedAt, start)
	}
}
