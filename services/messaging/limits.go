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
	// The shortest and longest time between requests to a receiver that refuses
	// them even one by one, and the part of it that each answer takes away.
	minSpacing   = 20 * time.Millisecond
	maxSpacing   = 2 * time.Second
	spacingSteps = 16
	// noSpacing is the spacing that is as good as none.
	noSpacing = time.Millisecond
)

// limiter is the number of requests that a target is sent at once. It grows
// while answers come and is halved when the receiver is overloaded: additive
// increase, multiplicative decrease, with a slow start after a breaker pause
// (Jacobson and Karels, 1988). A receiver that refuses requests one by one too,
// because it counts them, is sent them at a distance that follows its refusals
// in the same way.
type limiter struct {
	limit, threshold, max float64
	lastCut               time.Time

	// spacing is the time between the starts of two requests, 0 for none, and
	// next when the next one may start.
	spacing   time.Duration
	next      time.Time
	lastWiden time.Time

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

// began notes the start of a request.
func (l *limiter) began(now time.Time) {
	if l.spacing > 0 {
		l.next = now.Add(l.spacing)
	}
}

// refused notes an answer of 429 or 503 to a request that began at started.
func (l *limiter) refused(started, now time.Time) {
	if l.limit > 1 && l.spacing == 0 || !started.After(l.lastWiden) {
		return // fewer at once may do, or it is known already
	}
	l.spacing = min(max(2*l.spacing, minSpacing), maxSpacing)
	l.next, l.lastWiden = now.Add(l.spacing), now
}

// succeeded notes an answer that shows a working receiver.
func (l *limiter) succeeded() {
	if !l.openUntil.IsZero() {
		l.openUntil, l.pause = time.Time{}, 0
		l.threshold, l.limit = math.Max(l.limit/2, 1), 1
	}
	l.failures = 0
	if l.spacing -= l.spacing / spacingSteps; l.spacing < noSpacing {
		l.spacing = 0
	}
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
