package messaging

import (
	"strconv"
	"testing"
	"time"
)

// The outcome table, code by code.
func TestCase_RSP_12_EveryCodeHasOneClass(t *testing.T) {
	t.Parallel()
	for code := 100; code <= 999; code++ {
		want := OutcomeDead
		switch {
		case code >= 200 && code < 300:
			want = OutcomeSuccess
		case code == 408, code == 429, code >= 500 && code < 600:
			want = OutcomeRetry
		}
		for _, source := range []string{SourceWebhook, "flow", ""} {
			d := Decide(Input{Attempt: &Attempt{StatusCode: code, Sent: true, Class: ClassStatus}, Source: source, Jitter: 0.5})
			wanted := Decision{Outcome: want, Error: "HTTP " + strconv.Itoa(code), SpendAttempt: true}
			switch want {
			case OutcomeSuccess:
				wanted.Error = ""
			case OutcomeRetry:
				wanted.NextDelay = time.Second
			}
			wanted.SwitchOffTarget = code == 410 && source == SourceWebhook
			if d != wanted {
				t.Errorf("%d for %q: %+v, want %+v", code, source, d, wanted)
			}
		}
	}
}

func TestDecideWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for class, want := range map[Class]Decision{
		ClassDNS:      {Outcome: OutcomeRetry, SpendAttempt: true},
		ClassConnect:  {Outcome: OutcomeRetry, SpendAttempt: true},
		ClassTLS:      {Outcome: OutcomeRetry, SpendAttempt: true},
		ClassTimeout:  {Outcome: OutcomeRetry, SpendAttempt: true},
		ClassReset:    {Outcome: OutcomeRetry, SpendAttempt: true},
		ClassProtocol: {Outcome: OutcomeRetry, SpendAttempt: true},
		ClassInternal: {Outcome: OutcomeRetry, SpendAttempt: true},
		ClassRefused:  {Outcome: OutcomeDead},
		ClassUnusable: {Outcome: OutcomeDead},
		ClassStopped:  {Outcome: OutcomeRelease},
	} {
		a := &Attempt{Class: class, Error: "why", Sent: class != ClassRefused && class != ClassUnusable && class != ClassInternal}
		if want.Outcome == OutcomeRetry {
			want.NextDelay = time.Second
		}
		if want.Outcome != OutcomeRelease {
			want.Error = "why"
		}
		if got := Decide(Input{Attempt: a, Jitter: 0.5}); got != want {
			t.Errorf("%s: %+v, want %+v", class, got, want)
		}
	}
}

func TestDecideEndsFromOutside(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	failing := &Attempt{StatusCode: 503, Sent: true}
	for name, c := range map[string]struct {
		in   Input
		want Decision
	}{
		"cancelled before a try":  {Input{FailReason: "cancelled"}, Decision{Outcome: OutcomeFailed, Error: "cancelled"}},
		"parked":                  {Input{ParkReason: "secret unreadable"}, Decision{Outcome: OutcomeDead, Error: "secret unreadable"}},
		"expired before a try":    {Input{Now: now, ExpiresAt: now}, Decision{Outcome: OutcomeFailed, Error: errorExpired}},
		"nothing happened":        {Input{Now: now, ExpiresAt: now.Add(1)}, Decision{Outcome: OutcomeRelease}},
		"deleted beats parked":    {Input{FailReason: "deleted", ParkReason: "x"}, Decision{Outcome: OutcomeFailed, Error: "deleted"}},
		"cancelled while failing": {Input{Attempt: failing, FailReason: "cancelled"}, Decision{Outcome: OutcomeFailed, Error: "cancelled", SpendAttempt: true}},
		"cancelled while stopped": {Input{Attempt: &Attempt{Class: ClassStopped, Sent: true}, FailReason: "cancelled"}, Decision{Outcome: OutcomeFailed, Error: "cancelled"}},
		"expired while failing":   {Input{Attempt: failing, Now: now, ExpiresAt: now}, Decision{Outcome: OutcomeFailed, Error: errorExpired, SpendAttempt: true}},
		"not yet expired":         {Input{Attempt: failing, Now: now, ExpiresAt: now.Add(1), Jitter: 0.5}, Decision{Outcome: OutcomeRetry, NextDelay: time.Second, Error: "HTTP 503", SpendAttempt: true}},
		"a final answer stays":    {Input{Attempt: &Attempt{StatusCode: 400, Sent: true}, FailReason: "cancelled"}, Decision{Outcome: OutcomeDead, Error: "HTTP 400", SpendAttempt: true}},
	} {
		if got := Decide(c.in); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestCase_RTY_07_SuccessHasNoError(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	a := &Attempt{StatusCode: 200, Sent: true, Error: "timeout", Class: ClassTimeout, RetryAfter: time.Hour}
	for _, in := range []Input{{Attempt: a}, {Attempt: a, FailReason: "cancelled"}, {Attempt: a, Now: now, ExpiresAt: now}, {Attempt: a, AttemptsDone: 99}} {
		if got := Decide(in); got != (Decision{Outcome: OutcomeSuccess, SpendAttempt: true}) {
			t.Errorf("%+v: %+v", in, got)
		}
	}
}

func TestCase_RTY_01_RetryAfterValues(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		values []string
		want   time.Duration
	}{
		{nil, 0}, {[]string{""}, 0}, {[]string{"120"}, 2 * time.Minute}, {[]string{" 120 "}, 2 * time.Minute}, {[]string{"0"}, 0},
		{[]string{"-5"}, 0}, {[]string{"+5"}, 0}, {[]string{"1.5"}, 0}, {[]string{"1e3"}, 0}, {[]string{"soon"}, 0}, {[]string{"0x10"}, 0},
		{[]string{"9999999999"}, 24 * time.Hour}, {[]string{"99999999999999999999999999"}, 24 * time.Hour}, {[]string{"9223372037"}, 24 * time.Hour},
		{[]string{"86400"}, 24 * time.Hour}, {[]string{"86399"}, 24*time.Hour - time.Second},
		{[]string{"Mon, 30 Nov 2026 12:01:30 GMT"}, 90 * time.Second},
		{[]string{"Monday, 30-Nov-26 12:01:30 GMT"}, 90 * time.Second},
		{[]string{"Mon Nov 30 12:01:30 2026"}, 90 * time.Second},
		{[]string{"Mon, 30 Nov 2026 11:00:00 GMT"}, 0}, {[]string{"Fri, 31 Dec 9999 23:59:59 GMT"}, 24 * time.Hour}, {[]string{"Thu, 01 Jan 1970 00:00:00 GMT"}, 0},
		{[]string{"5", "60"}, time.Minute}, {[]string{"60", "5"}, time.Minute}, {[]string{"garbage", "7"}, 7 * time.Second},
	} {
		if got := retryAfter(c.values, now); got != c.want {
			t.Errorf("%q is %s, want %s", c.values, got, c.want)
		}
	}
}

func TestCase_RTY_02_JitterNeverUndercutsRetryAfter(t *testing.T) {
	t.Parallel()
	for _, code := range []int{408, 429, 500, 503} {
		a := &Attempt{StatusCode: code, Sent: true, RetryAfter: 300 * time.Second}
		if d := Decide(Input{Attempt: a, Jitter: 0}); d.NextDelay != 300*time.Second {
			t.Errorf("%d: next try in %s, want 300 s", code, d.NextDelay)
		}
		// The own backoff still counts where it is longer.
		if d := Decide(Input{Attempt: a, AttemptsDone: 3, Jitter: 0}); d.NextDelay != 8*time.Minute {
			t.Errorf("%d: next try in %s, want 8 min", code, d.NextDelay)
		}
	}
	absurd := &Attempt{StatusCode: 503, Sent: true, RetryAfter: 1<<63 - 1}
	if d := Decide(Input{Attempt: absurd}); d.NextDelay != 24*time.Hour {
		t.Errorf("next try in %s, want 24 h", d.NextDelay)
	}
}
