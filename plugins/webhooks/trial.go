package webhooks

import (
	"context"
	"time"

	"github.com/objecthost/objecthost/services/messaging"
)

// TestResult is what became of a test delivery.
type TestResult struct {
	// Delivery is the row after the first attempt.
	Delivery messaging.Delivery
	// Attempt is that attempt, nil when nothing was sent, at all or in time.
	Attempt *TestAttempt
}

// TestAttempt is the record of the one try of a test delivery. Header maps are
// JSON with the author's values masked.
type TestAttempt struct {
	Attempt                         int
	Started                         time.Time
	Duration                        time.Duration
	RemoteAddr                      string
	RequestHeaders, ResponseHeaders string
	ResponseCode                    int
	ResponseBody                    string
	Truncated                       bool
	ErrorClass, Error               string
}

// firstAttempt waits until a delivery has an attempt or has ended. The attempt
// may be made on any node, so that the store is asked at growing intervals.
func (s *Service) firstAttempt(ctx context.Context, id string) (TestResult, error) {
	for gap := testFirstGap; ; gap = min(2*gap, testLastGap) {
		d, err := s.outbox.Get(ctx, id)
		if err != nil {
			return TestResult{}, err
		}
		attempts, err := s.outbox.Attempts(ctx, id)
		if err != nil {
			return TestResult{}, err
		}
		if len(attempts) > 0 {
			a := &attempts[0]
			return TestResult{Delivery: d, Attempt: &TestAttempt{
				Attempt: a.Attempt, Started: time.UnixMilli(a.StartedAt).UTC(), Duration: a.Duration, RemoteAddr: a.RemoteAddr,
				RequestHeaders: a.RequestHeaders, ResponseHeaders: a.ResponseHeaders, ResponseCode: a.ResponseCode,
				ResponseBody: a.ResponseBody, Truncated: a.Truncated, ErrorClass: a.ErrorClass, Error: a.Error,
			}}, nil
		}
		if d.Status.Terminal() {
			return TestResult{Delivery: d}, nil
		}
		timer := time.NewTimer(gap)
		select {
		case <-ctx.Done():
			timer.Stop()
			return TestResult{Delivery: d}, ctx.Err()
		case <-timer.C:
		}
	}
}
