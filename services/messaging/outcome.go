package messaging

import (
	"strconv"
	"time"
)

// Outcome is what one attempt means for its delivery.
type Outcome string

// The outcomes of [Decide].
const (
	// OutcomeSuccess: the receiver answered 2xx.
	OutcomeSuccess Outcome = "success"
	// OutcomeRetry: the row waits for Decision.NextDelay.
	OutcomeRetry Outcome = "retry"
	// OutcomeDead: trying again cannot help, or the budget is spent.
	OutcomeDead Outcome = "dead"
	// OutcomeFailed: the row was ended from outside (cancelled, webhook
	// deleted, expired).
	OutcomeFailed Outcome = "failed"
	// OutcomeRelease: the host stopped before an answer; the row goes back to
	// pending as if it had not been tried.
	OutcomeRelease Outcome = "release"
)

// Input is what [Decide] judges.
type Input struct {
	// Attempt is the try's result; nil for a row that ends without a try.
	Attempt *Attempt
	// AttemptsDone counts the recorded attempts before this one.
	AttemptsDone int
	// Policy is the retry policy; nil is the default schedule.
	Policy *RetryPolicy
	// Jitter in [0, 1) spreads the delay.
	Jitter float64
	// Source is the delivery's source; a 410 switches off targets of "webhook".
	Source string
	// Now and ExpiresAt tell whether the delivery's time is over; a zero
	// ExpiresAt means that it has no end.
	Now, ExpiresAt time.Time
	// FailReason, when set, ends the row as failed with this text: the webhook
	// was deleted, or an operator cancelled the delivery.
	FailReason string
	// ParkReason, when set, ends the row as dead without a try: its secret or
	// headers are set but unreadable.
	ParkReason string
}

// Decision is what to record for an attempt.
type Decision struct {
	Outcome Outcome
	// NextDelay is the wait before the next attempt, for OutcomeRetry only.
	NextDelay time.Duration
	// Error is the reason; empty on success and on release. For answered
	// requests it is exactly "HTTP <code>".
	Error string
	// SwitchOffTarget asks to switch the webhook off (410 Gone).
	SwitchOffTarget bool
	// SpendAttempt tells that the attempt counts: it went to the network and
	// its outcome is recorded.
	SpendAttempt bool
}

// maxRetryAfter caps a receiver's Retry-After.
const maxRetryAfter = 24 * time.Hour

// Decide applies the outcome table of the package documentation. It is the one
// place that tells retry from final, and it is a pure function.
//
//	answer or event                                  outcome
//	2xx                                              success
//	408, 429, 5xx, no complete answer                retry, dead when spent
//	410                                              dead, webhook switched off
//	other 4xx, 3xx, 101, 600 and above               dead
//	egress refusal, unusable row, unreadable secret  dead, attempt not spent
//	cancelled, webhook deleted, expired              failed
//	host stopped before an answer                    release
func Decide(in Input) Decision {
	a := in.Attempt
	if a == nil {
		switch {
		case in.FailReason != "":
			return Decision{Outcome: OutcomeFailed, Error: in.FailReason}
		case in.ParkReason != "":
			return Decision{Outcome: OutcomeDead, Error: in.ParkReason}
		case in.expired():
			return Decision{Outcome: OutcomeFailed, Error: errorExpired}
		}
		return Decision{Outcome: OutcomeRelease}
	}
	d := Decision{Error: a.Error, SpendAttempt: a.Sent}
	if a.StatusCode != 0 {
		d.Error = "HTTP " + strconv.Itoa(a.StatusCode)
	}
	switch verdict(a) {
	case OutcomeSuccess:
		// A receiver that took the event has it, whatever else ended the row.
		return Decision{Outcome: OutcomeSuccess, SpendAttempt: true}
	case OutcomeRelease:
		if in.FailReason != "" {
			return Decision{Outcome: OutcomeFailed, Error: in.FailReason}
		}
		return Decision{Outcome: OutcomeRelease}
	case OutcomeDead:
		d.Outcome = OutcomeDead
		d.SwitchOffTarget = a.StatusCode == 410 && in.Source == SourceWebhook
		return d
	}
	// What may be tried again always counts, so that every row comes to an end.
	d.SpendAttempt = true
	if in.FailReason != "" {
		d.Outcome, d.Error = OutcomeFailed, in.FailReason
		return d
	}
	if in.expired() {
		d.Outcome, d.Error = OutcomeFailed, errorExpired
		return d
	}
	delay, ok := in.Policy.Delay(attemptsAfter(in.AttemptsDone), in.Jitter)
	if !ok {
		d.Outcome = OutcomeDead
		return d
	}
	d.Outcome = OutcomeRetry
	// After the jitter: the receiver's word is a floor, not a centre.
	d.NextDelay = max(delay, min(a.RetryAfter, maxRetryAfter))
	return d
}

const errorExpired = "expired before it was delivered"

func (in *Input) expired() bool { return !in.ExpiresAt.IsZero() && !in.Now.Before(in.ExpiresAt) }

// attemptsAfter adds one without overflow: the number may come from a row that
// somebody edited.
func attemptsAfter(done int) int {
	if done < 0 {
		return 1
	}
	if done >= 1<<30 {
		return 1 << 30
	}
	return done + 1
}

// verdict sorts one attempt by itself; retry budgets and expiry come later.
func verdict(a *Attempt) Outcome {
	switch code := a.StatusCode; {
	case code == 0:
		switch a.Class {
		case ClassRefused, ClassUnusable:
			return OutcomeDead
		case ClassStopped:
			return OutcomeRelease
		}
		return OutcomeRetry
	case code >= 200 && code <= 299:
		return OutcomeSuccess
	case retryable(code):
		return OutcomeRetry
	}
	return OutcomeDead
}

// retryable tells whether an answer says that a later try may succeed.
func retryable(code int) bool {
	return code == 408 || code == 429 || code >= 500 && code <= 599
}
