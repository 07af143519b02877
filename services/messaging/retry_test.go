package messaging

import (
	"encoding/json"
	"math"
	"testing"
	"time"
)

func TestCase_RTY_03_DefaultScheduleIsEightAttempts(t *testing.T) {
	t.Parallel()
	want := []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour}
	done, sent := 0, 0
	for {
		sent++
		d := Decide(Input{Attempt: &Attempt{StatusCode: 503, Sent: true}, AttemptsDone: done, Jitter: 0.5})
		if !d.SpendAttempt || d.Error != "HTTP 503" {
			t.Fatalf("attempt %d: %+v", sent, d)
		}
		done++
		if d.Outcome == OutcomeDead {
			break
		}
		if d.Outcome != OutcomeRetry || d.NextDelay != want[sent-1] {
			t.Fatalf("attempt %d: %+v, want a retry in %s", sent, d, want[sent-1])
		}
	}
	if sent != 8 || done != 8 {
		t.Errorf("%d requests, %d attempts, want 8", sent, done)
	}
}

func TestDelayJitterStaysWithinAFifth(t *testing.T) {
	t.Parallel()
	var policy *RetryPolicy
	for n, base := range schedule {
		for _, c := range []struct {
			jitter float64
			want   float64
		}{{0, 0.8}, {0.25, 0.9}, {0.5, 1}, {0.75, 1.1}, {math.Nextafter(1, 0), 1.2}, {-3, 0.8}, {7, 1.2}, {math.NaN(), 0.8}, {math.Inf(1), 1.2}} {
			got, ok := policy.Delay(n+1, c.jitter)
			if diff := math.Abs(float64(got)/float64(base) - c.want); !ok || diff > 1e-6 || float64(got) >= 1.2*float64(base) {
				t.Errorf("delay %d with jitter %v is %s, want %v × %s", n+1, c.jitter, got, c.want, base)
			}
		}
	}
}

func TestRetryPolicyStrategies(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, c := range []struct {
		policy RetryPolicy
		want   []time.Duration
	}{
		{RetryPolicy{MaxRetries: 0}, nil},
		{RetryPolicy{MaxRetries: 3, Strategy: BackoffFixed, InitialDelayMs: 2000}, []time.Duration{2 * s, 2 * s, 2 * s}},
		{RetryPolicy{MaxRetries: 4, Strategy: BackoffLinear, InitialDelayMs: 2000, MaxDelayMs: 5000}, []time.Duration{2 * s, 4 * s, 5 * s, 5 * s}},
		{RetryPolicy{MaxRetries: 5, Strategy: BackoffExponential, InitialDelayMs: 1500, MaxDelayMs: 10000}, []time.Duration{1500 * time.Millisecond, 3 * s, 6 * s, 10 * s, 10 * s}},
		{RetryPolicy{MaxRetries: 8}, []time.Duration{1 * s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s}},
		{RetryPolicy{MaxRetries: 1, Strategy: BackoffFixed, InitialDelayMs: 100000, MaxDelayMs: 1000}, []time.Duration{s}},
	} {
		if err := c.policy.Validate(); err != nil {
			t.Errorf("%+v: %v", c.policy, err)
		}
		for n := 1; ; n++ {
			got, ok := c.policy.Delay(n, 0.5)
			if !ok {
				if n-1 != len(c.want) {
					t.Errorf("%+v: %d retries, want %d", c.policy, n-1, len(c.want))
				}
				break
			}
			if n > len(c.want) || got != c.want[n-1] {
				t.Fatalf("%+v: delay %d is %s", c.policy, n, got)
			}
		}
	}
}

func TestRetryPolicyBounds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{}`: "", `{"maxRetries":0}`: "", `{"maxRetries":10,"initialDelayMs":100,"maxDelayMs":1000,"backoffStrategy":"fixed"}`: "",
		`{"maxRetries":11}`:              "retryPolicy: maxRetries is 11, want 0 to 10",
		`{"maxRetries":-1}`:              "retryPolicy: maxRetries is -1, want 0 to 10",
		`{"initialDelayMs":99}`:          "retryPolicy: initialDelayMs is 99, want 100 to 2678400000",
		`{"initialDelayMs":0}`:           "retryPolicy: initialDelayMs is 0, want 100 to 2678400000",
		`{"maxDelayMs":999}`:             "retryPolicy: maxDelayMs is 999, want 1000 to 2678400000",
		`{"maxDelayMs":0}`:               "retryPolicy: maxDelayMs is 0, want 1000 to 2678400000",
		`{"maxDelayMs":2678400001}`:      "retryPolicy: maxDelayMs is 2678400001, want 1000 to 2678400000",
		`{"backoffStrategy":"random"}`:   `retryPolicy: backoffStrategy is "random", want fixed, linear or exponential`,
		`{"maxRetries":"5"}`:             "retryPolicy: json: cannot unmarshal string into Go struct field .maxRetries of type int",
		`{"maxRetries":2.5}`:             "retryPolicy: json: cannot unmarshal number 2.5 into Go struct field .maxRetries of type int",
		`{"initialDelayMs":9e99}`:        "retryPolicy: json: cannot unmarshal number 9e99 into Go struct field .initialDelayMs of type int64",
		`{"retries":3}`:                  `retryPolicy: json: unknown field "retries"`,
		`{"initialDelayMs":99999999999}`: "retryPolicy: initialDelayMs is 99999999999, want 100 to 2678400000",
	} {
		var p RetryPolicy
		err := json.Unmarshal([]byte(text), &p)
		if err == nil {
			err = p.Validate()
		}
		if got := errorText(err); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	var p RetryPolicy
	if err := json.Unmarshal([]byte(`{}`), &p); err != nil || p.MaxRetries != 3 {
		t.Errorf("absent maxRetries is %d (%v), want 3", p.MaxRetries, err)
	}
	kept := RetryPolicy{MaxRetries: 0, InitialDelayMs: 500}
	data, _ := json.Marshal(&kept)
	if err := json.Unmarshal(data, &p); err != nil || p != kept {
		t.Errorf("%s comes back as %+v (%v)", data, p, err)
	}
	var none *RetryPolicy
	if err := none.Validate(); err != nil {
		t.Error(err)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestCase_RTY_05_AbsurdAttemptNumbers(t *testing.T) {
	t.Parallel()
	for _, policy := range []*RetryPolicy{nil, {MaxRetries: 10, InitialDelayMs: maxPolicyDelay, MaxDelayMs: maxPolicyDelay}, {MaxRetries: math.MaxInt, InitialDelayMs: math.MaxInt64, MaxDelayMs: math.MaxInt64},
		{MaxRetries: math.MaxInt, InitialDelayMs: math.MaxInt64, MaxDelayMs: math.MaxInt64, Strategy: BackoffLinear}, {MaxRetries: math.MaxInt, InitialDelayMs: math.MinInt64, MaxDelayMs: math.MinInt64}} {
		for _, done := range []int{math.MinInt, -1, 0, 1, 7, 8, 50, 1 << 30, math.MaxInt32, math.MaxInt - 1, math.MaxInt} {
			d, ok := policy.Delay(done, 0.999)
			if ok && (d <= 0 || d > 38*24*time.Hour) || !ok && d != 0 {
				t.Errorf("%+v after %d: %s", policy, done, d)
			}
			decision := Decide(Input{Attempt: &Attempt{StatusCode: 503, Sent: true}, AttemptsDone: done, Policy: policy, Jitter: 0.999})
			wantDead := policy == nil && done >= 7 || policy != nil && policy.MaxRetries == 10 && done >= 10
			if (decision.Outcome == OutcomeDead) != wantDead || decision.NextDelay < 0 {
				t.Errorf("%+v after %d: %+v", policy, done, decision)
			}
		}
	}
}
