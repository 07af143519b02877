package realtime

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever the batch and wherever the poison, the isolation ends alone with it,
// has let everything before it through, and goes back to whole batches after it.
func TestIsolationFindsThePoison(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cfg := ConsumerConfig{BatchSize: rapid.IntRange(1, 500).Draw(t, "batch"), BatchAttempts: rapid.IntRange(1, 3).Draw(t, "attempts"), EventAttempts: 2}.withDefaults()
		total := rapid.IntRange(1, 600).Draw(t, "events")
		poison := rapid.IntRange(0, total-1).Draw(t, "poison")
		i, position, failures := isolation{cfg: cfg}, 0, 0
		for position <= poison && !i.stuck() {
			n := min(i.limit(), total-position)
			if position+n > poison {
				i.failed(n)
				if failures++; failures > cfg.BatchAttempts+12 {
					t.Fatalf("%d failures, at %d", failures, position)
				}
				continue
			}
			i.succeeded(n)
			position += n
		}
		if position != poison || i.limit() != 1 {
			t.Fatalf("stuck at %d with batches of %d, the poison is at %d", position, i.limit(), poison)
		}
		i.succeeded(1) // skipped, or handled after all
		for position++; position < total; {
			n := min(i.limit(), total-position)
			i.succeeded(n)
			position += n
		}
		i.succeeded(cfg.BatchSize)
		if i.limit() != cfg.BatchSize {
			t.Fatalf("batches of %d at the end", i.limit())
		}
	})
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	cfg := ConsumerConfig{MinBackoff: 100 * time.Millisecond, MaxBackoff: time.Second}
	want := "[100ms 200ms 400ms 800ms 1s 1s]"
	var got []time.Duration
	for n := 1; n <= 6; n++ {
		got = append(got, backoff(cfg, n))
	}
	if fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	if d := backoff(ConsumerConfig{}.withDefaults(), 1_000_000); d != 30*time.Second {
		t.Errorf("after a million failures %v", d)
	}
	for range 100 {
		if d := jitter(time.Second); d < 800*time.Millisecond || d > 1200*time.Millisecond {
			t.Fatalf("jitter %v", d)
		}
	}
}
