package realtime

import (
	"math/rand/v2"
	"time"
)

// isolation finds the event that makes a batch fail. It tells how many events
// to read next and how long to wait before.
//
//	whole ── BatchAttempts failures ──► halving ── one event left ──► alone
//	  ▲                                    │                            │
//	  └──────────── the suspects are handled or passed ─────────────────┘
//
// A batch is always the first events after the position, so halving works on
// its length: when the first half of the suspects succeeds, the second half is
// next; when it fails, its own first half is.
type isolation struct {
	cfg ConsumerConfig
	// size is how many events to read, 0 for a whole batch.
	size int
	// suspects is how many events after the position may hold the failing one.
	suspects int
	// row counts failures of the same whole batch, alone those of one event.
	row, alone int
}

// limit is how many events the next batch may have.
func (i *isolation) limit() int {
	if i.size > 0 {
		return i.size
	}
	return i.cfg.BatchSize
}

// failed notes that a batch of n events failed.
func (i *isolation) failed(n int) {
	switch {
	case n == 1:
		i.size, i.suspects, i.row = 1, max(i.suspects, 1), 0
		i.alone++
	case i.size == 0 && i.row+1 < i.cfg.BatchAttempts:
		i.row++
	default:
		i.suspects, i.size, i.row = n, n/2, 0
	}
}

// succeeded notes that n events were handled.
func (i *isolation) succeeded(n int) {
	i.suspects -= n
	i.row, i.alone = 0, 0
	if i.suspects <= 0 {
		i.suspects, i.size = 0, 0
		return
	}
	i.size = max(1, i.suspects/2)
}

// stuck tells that the event at the position is to be reported.
func (i *isolation) stuck() bool { return i.alone >= i.cfg.EventAttempts }

// pause is the wait after a failure, without jitter.
func (i *isolation) pause() time.Duration {
	return backoff(i.cfg, max(i.row, i.alone, 1))
}

// backoff is MinBackoff · 2^(failures-1), at most MaxBackoff.
func backoff(cfg ConsumerConfig, failures int) time.Duration {
	d := cfg.MinBackoff
	for range failures - 1 {
		if d >= cfg.MaxBackoff/2 {
			return cfg.MaxBackoff
		}
		d *= 2
	}
	return min(d, cfg.MaxBackoff)
}

// jitter is d times a random factor from 0.8 to 1.2, so that consumers that
// failed together don't come back together.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
