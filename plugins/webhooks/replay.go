package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/messaging"
)

// ErrInactive is returned by Replay for a webhook that is switched off: it
// matches nothing.
var ErrInactive = errors.New("webhooks: the webhook is inactive")

// ReplayError tells which member of a request for a replay is unusable.
type ReplayError struct{ Field, Reason string }

// Error implements error.
func (e *ReplayError) Error() string { return "webhooks: " + e.Field + " " + e.Reason }

const (
	// jobReplay is the kind of the jobs.
	jobReplay = "replay"
	// scanBatch is how many events of the log are looked at at once.
	scanBatch = 500
)

// history is what a replay needs of the event log.
type history interface {
	Scan(ctx context.Context, after int64, from, to time.Time, limit int) (events []*event.Event, last int64, done bool, err error)
}

// ReplayRequest asks for the events of a time to be matched once more.
type ReplayRequest struct {
	// From and To bound the events' timestamps; the second is excluded.
	From, To time.Time
	// DryRun only counts.
	DryRun bool
	// PerSecond is the rate of deliveries, 1 to 1000; 0 means 50.
	PerSecond int
}

// replayParams are stored with the job.
type replayParams struct {
	WebhookID string `json:"webhookId"`
	From      string `json:"from"`
	To        string `json:"to"`
}

func (p replayParams) times() (from, to time.Time, err error) {
	if from, err = time.Parse(event.TimeLayout, p.From); err != nil {
		return from, to, err
	}
	to, err = time.Parse(event.TimeLayout, p.To)
	return from, to, err
}

// Replay matches the events that the log holds of a time by what the webhook
// says now, and delivers those that match as new deliveries, in the order of the
// events. It is a job of the outbox: it goes on after restarts, and
// [messaging.Service.CancelJob] ends it. Matched is the number of deliveries
// that the log gave at the start. Each event is delivered once per job, beside
// the delivery that it may have had.
//
// It returns [ErrNotFound], [ErrInactive], a *[ReplayError], and a
// *[messaging.RequestError] for the rate.
func (s *Service) Replay(ctx context.Context, id string, req ReplayRequest) (messaging.Job, error) {
	row, err := s.webhook(ctx, id)
	if err != nil {
		return messaging.Job{}, err
	}
	if !row.Active {
		return messaging.Job{}, ErrInactive
	}
	switch {
	case req.From.IsZero():
		return messaging.Job{}, &ReplayError{"from", "is required"}
	case req.To.IsZero():
		return messaging.Job{}, &ReplayError{"to", "is required"}
	case !req.From.Before(req.To):
		return messaging.Job{}, &ReplayError{"to", "must be after from"}
	}
	if req.PerSecond, err = messaging.CheckJobRate(req.PerSecond); err != nil {
		return messaging.Job{}, err
	}
	// What is still to come is delivered anyway.
	now := time.Now()
	if req.To.After(now) {
		req.To = now
	}
	matched, err := s.countReplay(ctx, id, req)
	if err != nil {
		return messaging.Job{}, err
	}
	params, err := json.Marshal(replayParams{WebhookID: id, From: event.FormatTime(req.From), To: event.FormatTime(req.To)})
	if err != nil {
		return messaging.Job{}, err
	}
	if req.DryRun {
		return messaging.Job{Kind: jobReplay, Matched: matched, PerSecond: req.PerSecond, Params: params, AsOf: now}, nil
	}
	own, scoped := organization(ctx)
	return s.outbox.StartJob(ctx, messaging.NewJob{
		Kind: jobReplay, Params: params, AsOf: now, PerSecond: req.PerSecond, Matched: matched,
		CreatedBy: identity.From(ctx).UserID, Scoped: scoped, OrganizationID: own,
	})
}

// countReplay counts the deliveries that a replay would make.
func (s *Service) countReplay(ctx context.Context, id string, req ReplayRequest) (matched int, err error) {
	if err := s.enqueuer.subs.refresh(ctx); err != nil {
		return 0, err
	}
	for after := int64(0); ; {
		events, last, done, err := s.history.Scan(ctx, after, req.From, req.To, scanBatch)
		if err != nil {
			return 0, err
		}
		for _, e := range events {
			s.enqueuer.each(e, func(sub *subscription, _ kind) {
				if sub.id == id {
					matched++
				}
			})
		}
		if after = last; done {
			return matched, nil
		}
	}
}

// replayStep is one step of a job: it looks at the next events until it has
// made as many deliveries as it may, or has looked at enough.
func (s *Service) replayStep(ctx context.Context, job *messaging.JobState, limit int) error {
	var params replayParams
	if err := json.Unmarshal(job.Params, &params); err != nil {
		job.Fail("what the job was asked for cannot be read")
		return nil //nolint:nilerr // trying again does not help
	}
	from, to, err := params.times()
	if err != nil {
		job.Fail("the times of the job cannot be read")
		return nil //nolint:nilerr // trying again does not help
	}
	row, err := s.store.Get(ctx, params.WebhookID)
	switch {
	case err != nil:
		return err
	case row == nil:
		job.Fail("the webhook was deleted")
		return nil
	case !row.Active:
		job.Fail("the webhook was switched off")
		return nil
	}
	if err := s.enqueuer.subs.refresh(ctx); err != nil {
		return err
	}
	events, last, done, err := s.history.Scan(ctx, job.CursorAt, from, to, scanBatch)
	if err != nil {
		return err
	}
	var reqs []messaging.Request
	for _, e := range events {
		if len(reqs) >= limit {
			last, done = job.CursorAt, false // the last one that was looked at
			break
		}
		if reqs, err = s.enqueuer.again(ctx, reqs, e, params.WebhookID, job.ID); err != nil {
			return err
		}
		job.CursorAt = e.Sequence
	}
	if err := s.enqueuer.enqueue(ctx, reqs); err != nil {
		return err
	}
	job.Done += len(reqs)
	job.CursorAt, job.Finished = last, done
	return nil
}

// again appends the delivery of an event to one webhook, if it matches, under a
// key of the job's own.
func (q *enqueuer) again(ctx context.Context, reqs []messaging.Request, e *event.Event, webhookID, jobID string) ([]messaging.Request, error) {
	var failed error
	q.each(e, func(sub *subscription, k kind) {
		if sub.id != webhookID || failed != nil {
			return
		}
		req, err := q.deliver(ctx, sub, e, k, newBodies(e, k.action))
		if err != nil {
			failed = fmt.Errorf("replay event %s: %w", e.ID, err)
			return
		}
		req.DedupKey = fitDedupKey(rawDedupKey(webhookID, e, k) + ":replay:" + jobID)
		reqs = append(reqs, req)
	})
	return reqs, failed
}
