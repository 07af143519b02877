package messaging

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// schedule is the wait after the first, second, … seventh failure of a
// delivery without a policy of its own; the eighth failure is final.
var schedule = [...]time.Duration{
	time.Second, 10 * time.Second, time.Minute, 10 * time.Minute,
	time.Hour, 6 * time.Hour, 24 * time.Hour,
}

// The strategies of a [RetryPolicy].
const (
	BackoffFixed       = "fixed"
	BackoffLinear      = "linear"
	BackoffExponential = "exponential"
)

// maxPolicyDelay bounds the delays of a policy in milliseconds: 31 days, past
// which a retry outlives the delivery's retention.
const maxPolicyDelay = 31 * 24 * 3600 * 1000

// RetryPolicy replaces the default schedule. With d = InitialDelayMs and n the
// number of failures so far, the delay is d (fixed), d·n (linear) or d·2^(n-1)
// (exponential), at most MaxDelayMs, then times a jitter in [0.8, 1.2).
//
// A nil policy is the default schedule. In a value built by hand, zero delays
// and an empty strategy stand for their defaults and zero MaxRetries for none;
// decoding JSON without maxRetries gives 3.
type RetryPolicy struct {
	// MaxRetries is the number of attempts after the first, 0 to 10.
	MaxRetries int `json:"maxRetries"`
	// InitialDelayMs is at least 100 (1000).
	InitialDelayMs int64 `json:"initialDelayMs,omitempty"`
	// MaxDelayMs is at least 1000 (60000).
	MaxDelayMs int64 `json:"maxDelayMs,omitempty"`
	// Strategy is fixed, linear or exponential (exponential).
	Strategy string `json:"backoffStrategy,omitempty"`
}

// UnmarshalJSON decodes a policy strictly: unknown keys, fractions and numbers
// in quotes are errors, and so is an explicit 0 for a delay.
func (p *RetryPolicy) UnmarshalJSON(data []byte) error {
	raw := struct {
		MaxRetries     *int    `json:"maxRetries"`
		InitialDelayMs *int64  `json:"initialDelayMs"`
		MaxDelayMs     *int64  `json:"maxDelayMs"`
		Strategy       *string `json:"backoffStrategy"`
	}{}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&raw); err != nil {
		return fmt.Errorf("retryPolicy: %w", err)
	}
	*p = RetryPolicy{MaxRetries: 3}
	if raw.MaxRetries != nil {
		p.MaxRetries = *raw.MaxRetries
	}
	if raw.Strategy != nil {
		p.Strategy = *raw.Strategy
	}
	for _, d := range []struct {
		name string
		min  int64
		from *int64
		to   *int64
	}{
		{"initialDelayMs", 100, raw.InitialDelayMs, &p.InitialDelayMs},
		{"maxDelayMs", 1000, raw.MaxDelayMs, &p.MaxDelayMs},
	} {
		if d.from == nil {
			continue
		}
		if *d.from < d.min { // also 0, which the struct could not tell from absent
			return fmt.Errorf("retryPolicy: %s is %d, want %d to %d", d.name, *d.from, d.min, maxPolicyDelay)
		}
		*d.to = *d.from
	}
	return nil
}

// withDefaults returns the policy with its zero values replaced.
func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.InitialDelayMs == 0 {
		p.InitialDelayMs = 1000
	}
	if p.MaxDelayMs == 0 {
		p.MaxDelayMs = 60_000
	}
	if p.Strategy == "" {
		p.Strategy = BackoffExponential
	}
	return p
}

// Validate returns an error that names the first field out of its bounds.
func (p *RetryPolicy) Validate() error {
	if p == nil {
		return nil
	}
	q := p.withDefaults()
	for _, b := range []struct {
		name            string
		value, min, max int64
	}{
		{"maxRetries", int64(q.MaxRetries), 0, 10},
		{"initialDelayMs", q.InitialDelayMs, 100, maxPolicyDelay},
		{"maxDelayMs", q.MaxDelayMs, 1000, maxPolicyDelay},
	} {
		if b.value < b.min || b.value > b.max {
			return fmt.Errorf("retryPolicy: %s is %d, want %d to %d", b.name, b.value, b.min, b.max)
		}
	}
	switch q.Strategy {
	case BackoffFixed, BackoffLinear, BackoffExponential:
		return nil
	}
	return fmt.Errorf("retryPolicy: backoffStrategy is %q, want fixed, linear or exponential", q.Strategy)
}

// Delay returns the wait before the next attempt when attemptsDone attempts
// have failed, and false when the budget is spent. jitter in [0, 1) spreads it
// over [0.8, 1.2) of the schedule's value; a jitter outside counts as the near
// end. No input overflows: whatever the attempt number, the delay is positive
// and at most 1.2 times the policy's cap.
func (p *RetryPolicy) Delay(attemptsDone int, jitter float64) (time.Duration, bool) {
	n := max(attemptsDone, 1)
	var base time.Duration
	if p == nil {
		if n > len(schedule) {
			return 0, false
		}
		base = schedule[n-1]
	} else {
		if n > p.MaxRetries {
			return 0, false
		}
		base = p.base(int64(n))
	}
	if !(jitter >= 0) { // also NaN
		jitter = 0
	}
	factor := 0.8 + 0.4*min(jitter, 0.999_999)
	return time.Duration(float64(base) * factor), true
}

// base is the delay after the n-th failure before jitter. Stored policies may
// be out of bounds, so that every step saturates at the cap.
func (p *RetryPolicy) base(n int64) time.Duration {
	q := p.withDefaults()
	limit := min(max(q.MaxDelayMs, 1), maxPolicyDelay)
	d := min(max(q.InitialDelayMs, 1), limit)
	switch q.Strategy {
	case BackoffLinear:
		if n > limit/d {
			d = limit
		} else {
			d *= n
		}
	case BackoffExponential:
		for i := int64(1); i < n && d < limit; i++ {
			d = min(2*d, limit)
		}
	}
	return time.Duration(d) * time.Millisecond
}
