package messaging

import (
	"math"
	"time"
)

// Adaptive concurrency and breaker of a target.
const (
	// startLimit is the concurrency of a target that nothing is known of.
	startLimit = 16
	// breakerFailures is the number of failures in a row that opens the
	// breaker. It is above the longest default schedule, so that one row that
	// fails to its end does not delay itself.
	breakerFailures = 10
	// The breaker's first and longest pause; each failed probe doubles it.
	breakerMinPause = time.Second
	breakerMaxPause = 30 * time.Second
	// maxTargetPause caps how long one receiver's Retry-After holds back its
	// target's other rows.
	maxTargetPause = time.Minute
)

// limiter is the number of requests that a target is sent at once. It grows
// while answers come and is halved when the receiver is overloaded: additive
// increase, multiplicative decrease, with a slow start after a breaker pause
// (Jacobson and Karels, 1988).
type limiter struct {
	limit, threshold, max float64
	lastCut               time.Time

	failures int
	pause    time.Duration
	// openUntil is when the next probe may go; zero when the breaker is
	// closed.
	openUntil time.Time
}

func newLimiter(maxConcurrency int) limiter {
	m := float64(maxConcurrency)
	return limiter{limit: math.Min(startLimit, m), threshold: m, max: m}
}

// bound sets the largest limit.
func (l *limiter) bound(n int) {
	l.max = float64(n)
	l.limit = math.Min(l.limit, l.max)
	l.threshold = math.Min(l.threshold, l.max)
}

// allowed is the number of requests that may be in flight now.
func (l *limiter) allowed(now time.Time) int {
	switch {
	case l.openUntil.IsZero():
		return int(l.limit)
	case now.Before(l.openUntil):
		return 0
	default:
		return 1
	}
}

// succeeded notes an answer that shows a working receiver.
func (l *limiter) succeeded() {
	if !l.openUntil.IsZero() {
		l.openUntil, l.pause = time.Time{}, 0
		l.threshold, l.limit = math.Max(l.limit/2, 1), 1
	}
	l.failures = 0
	if l.limit < l.threshold {
		l.limit++
	} else {
		l.limit += 1 / l.limit
	}
	l.limit = math.Min(l.limit, l.max)
}

// failed notes a failure of a request that began at started, and tells whether
// it opened the breaker (again) and for how long.
func (l *limiter) failed(started, now time.Time, overload bool) (open bool, pause time.Duration) {
	l.failures++
	if overload && started.After(l.lastCut) {
		l.lastCut = now
		l.threshold = math.Max(l.limit/2, 1)
		l.limit = l.threshold
	}
	if l.failures < breakerFailures || now.Before(l.openUntil) {
		return false, 0
	}
	l.pause = min(max(2*l.pause, breakerMinPause), breakerMaxPause)
	l.openUntil = now.Add(l.pause)
	return true, l.pause
}
