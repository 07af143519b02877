package messaging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/messaging/driver"
)

// ErrNoJobs is returned for bulk redeliveries when the store keeps no jobs.
var ErrNoJobs = errors.New("messaging: the store keeps no jobs")

// ErrJobEnded is returned by [Service.CancelJob] for a job that does not run.
var ErrJobEnded = errors.New("messaging: the job has ended")

const (
	// defaultRate and maxRate bound the deliveries per second of a job.
	defaultRate = 50
	maxRate     = 1000
	// jobLease is how long a job of a host that died waits for another.
	jobLease = 10 * time.Second
)

// BulkFilter selects deliveries that have ended; empty fields select all. It is
// stored as JSON with the job.
type BulkFilter struct {
	// Status lists success, failed and dead; empty means failed and dead.
	Status []Status `json:"status,omitempty"`
	Source string   `json:"source,omitempty"`
	// TargetKey names a target; WebhookID is the same for webhooks.
	TargetKey string `json:"targetKey,omitempty"`
	WebhookID string `json:"webhookId,omitempty"`
	// CreatedFrom and CreatedTo are times in ISO 8601; the second is excluded.
	CreatedFrom string `json:"createdFrom,omitempty"`
	CreatedTo   string `json:"createdTo,omitempty"`
	// ResponseCode lists status codes; 0 stands for no answer.
	ResponseCode []int `json:"responseCode,omitempty"`
}

// BulkRequest asks for a redelivery of many rows.
type BulkRequest struct {
	Filter BulkFilter
	// AsOf leaves out rows that ended later; zero means now.
	AsOf time.Time
	// DryRun counts only.
	DryRun bool
	// PerSecond is the rate, 1 to 1000; 0 means 50.
	PerSecond int
	// CreatedBy is the user who asks. Scoped restricts the job to rows of
	// OrganizationID.
	CreatedBy      string
	Scoped         bool
	OrganizationID string
}

// Job is work on many deliveries and its progress.
type Job struct {
	ID, Kind, Status string
	// Matched counts what the job is about as far as that was known at its
	// start; Redelivered what it has done, Skipped what it passed by.
	Matched, Redelivered, Skipped int
	PerSecond                     int
	// Filter is a redelivery's, Params the JSON of any kind.
	Filter                      BulkFilter
	Params                      json.RawMessage
	Error, CreatedBy            string
	AsOf, CreatedAt, FinishedAt time.Time
}

func jobOf(j *driver.Job) Job {
	out := Job{
		ID: j.ID, Kind: j.Kind, Status: j.Status, Matched: j.Matched, Redelivered: j.Redelivered, Skipped: j.Skipped, PerSecond: j.PerSecond,
		Params: json.RawMessage(j.Filter),
		Error:  j.Error, CreatedBy: j.CreatedBy, AsOf: timeOf(j.AsOf), CreatedAt: timeOf(j.CreatedAt), FinishedAt: timeOf(j.FinishedAt),
	}
	if j.Kind == driver.JobRedeliver {
		_ = json.Unmarshal([]byte(j.Filter), &out.Filter) // what it cannot show, the job cannot run on either
	}
	return out
}

// RedeliverMany starts a job that redelivers every row the filter selects, in
// the order of their creation and each once, at a steady rate. It goes on after
// a restart where it was, on any host of the database. With DryRun nothing is
// stored, and the answer has Matched only.
//
// It returns a *[RequestError] for a filter or rate out of bounds.
func (s *Service) RedeliverMany(ctx context.Context, req BulkRequest) (Job, error) {
	store, ok := s.cfg.Store.(driver.JobStore)
	if !ok {
		return Job{}, ErrNoJobs
	}
	filter, err := req.check()
	if err != nil {
		return Job{}, err
	}
	asOf := req.AsOf.UnixMilli()
	matched, err := store.CountEnded(ctx, filter, asOf)
	if err != nil {
		return Job{}, fmt.Errorf("count deliveries: %w", err)
	}
	if req.DryRun {
		return Job{Kind: driver.JobRedeliver, Matched: matched, AsOf: req.AsOf, PerSecond: req.PerSecond, Filter: req.Filter}, nil
	}
	text, err := marshalPlain(req.Filter)
	if err != nil {
		return Job{}, err
	}
	return s.StartJob(ctx, NewJob{
		Kind: driver.JobRedeliver, Params: text, AsOf: req.AsOf, PerSecond: req.PerSecond, Matched: matched,
		CreatedBy: req.CreatedBy, Scoped: req.Scoped, OrganizationID: req.OrganizationID,
	})
}

// check fills defaults and translates the filter.
func (r *BulkRequest) check() (driver.JobFilter, error) {
	bad := func(field, reason string) (driver.JobFilter, error) {
		return driver.JobFilter{}, &RequestError{Field: field, Reason: reason}
	}
	def(&r.PerSecond, defaultRate)
	if r.PerSecond < 1 || r.PerSecond > maxRate {
		return bad("perSecond", fmt.Sprintf("%d is outside 1 to %d", r.PerSecond, maxRate))
	}
	if r.AsOf.IsZero() {
		r.AsOf = time.Now()
	}
	f := r.Filter
	out := driver.JobFilter{
		Statuses: f.Status, Source: f.Source, TargetKey: f.TargetKey, ResponseCodes: f.ResponseCode,
		Scoped: r.Scoped, OrganizationID: r.OrganizationID,
	}
	if len(out.Statuses) == 0 {
		out.Statuses = []Status{StatusFailed, StatusDead}
	}
	for _, status := range out.Statuses {
		if !status.Terminal() {
			return bad("filter.status", fmt.Sprintf("%q is none of success, failed and dead", string(status)))
		}
	}
	if len(f.ResponseCode) > 100 {
		return bad("filter.responseCode", "has more than 100 codes")
	}
	if f.WebhookID != "" {
		if f.TargetKey != "" || f.Source != "" && f.Source != SourceWebhook {
			return bad("filter.webhookId", "cannot stand beside another source or target")
		}
		out.Source, out.TargetKey = SourceWebhook, f.WebhookID
	}
	for _, bound := range []struct {
		field, text string
		to          *int64
	}{{"filter.createdFrom", f.CreatedFrom, &out.CreatedFrom}, {"filter.createdTo", f.CreatedTo, &out.CreatedTo}} {
		if bound.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, bound.text)
		if err != nil {
			return bad(bound.field, "is no ISO 8601 time")
		}
		*bound.to = at.UnixMilli()
	}
	for _, text := range []string{f.Source, f.TargetKey, f.WebhookID} {
		if strings.ContainsRune(text, 0) {
			return bad("filter", "holds a NUL")
		}
	}
	return out, nil
}

// Job returns a job. It returns [ErrNotFound] for one that does not exist or
// that belongs to another organization.
func (s *Service) Job(ctx context.Context, id string, scope RedeliverOptions) (Job, error) {
	store, ok := s.cfg.Store.(driver.JobStore)
	if !ok {
		return Job{}, ErrNoJobs
	}
	j, err := store.GetJob(ctx, id)
	if err != nil {
		return Job{}, fmt.Errorf("get job: %w", err)
	}
	if j == nil || scope.Scoped && j.OrganizationID != scope.OrganizationID {
		return Job{}, ErrNotFound
	}
	return jobOf(j), nil
}

// CancelJob ends a job; what it has redelivered stays so. It returns
// [ErrNotFound] and [ErrJobEnded].
func (s *Service) CancelJob(ctx context.Context, id string, scope RedeliverOptions) (Job, error) {
	if _, err := s.Job(ctx, id, scope); err != nil {
		return Job{}, err
	}
	cancelled, err := s.cfg.Store.(driver.JobStore).CancelJob(ctx, id)
	if err != nil {
		return Job{}, fmt.Errorf("cancel job: %w", err)
	}
	if !cancelled {
		return Job{}, ErrJobEnded
	}
	return s.Job(ctx, id, scope)
}

// redeliverStep is the step of redeliveries.
func (s *Service) redeliverStep(ctx context.Context, job *JobState, limit int) error {
	request := BulkRequest{PerSecond: 1, AsOf: job.AsOf, Scoped: job.Scoped, OrganizationID: job.OrganizationID}
	err := json.Unmarshal(job.Params, &request.Filter)
	var filter driver.JobFilter
	if err == nil {
		filter, err = request.check()
	}
	if err != nil {
		job.Fail("the stored filter cannot be read")
		return nil
	}
	store := s.cfg.Store.(driver.JobStore) // jobs run on one only
	rows, err := store.ListEnded(ctx, filter, job.AsOf.UnixMilli(), job.CursorAt, job.CursorID, limit)
	if err != nil {
		return err
	}
	for _, row := range rows {
		_, err := s.Redeliver(ctx, row.ID, RedeliverOptions{Scoped: job.Scoped, OrganizationID: job.OrganizationID})
		var ineligible *NotEligibleError
		switch {
		case err == nil:
			job.Done++
		case errors.As(err, &ineligible), errors.Is(err, ErrNeverSent), errors.Is(err, ErrNotFound):
			job.Skipped++
		default:
			return err
		}
		job.CursorAt, job.CursorID = row.CreatedAt, row.ID
	}
	job.Finished = len(rows) < limit
	return nil
}

// JobJSON is a job as the API shows it.
func JobJSON(j Job) map[string]any {
	var filter any = j.Params
	if j.Kind == driver.JobRedeliver || len(j.Params) == 0 {
		filter = j.Filter
	}
	return map[string]any{
		"id": nullable(j.ID), "kind": j.Kind, "status": nullable(j.Status), "matched": j.Matched, "redelivered": j.Redelivered, "skipped": j.Skipped,
		"perSecond": j.PerSecond, "filter": filter, "asOf": event.FormatTime(j.AsOf), "error": nullable(j.Error),
		"createdBy": nullable(j.CreatedBy), "createdAt": timeJSON(j.CreatedAt), "finishedAt": timeJSON(j.FinishedAt),
	}
}

func timeJSON(at time.Time) any {
	if at.IsZero() {
		return nil
	}
	return event.FormatTime(at)
}

// statusesOf reads one status or a list.
func statusesOf(raw json.RawMessage) ([]Status, error) {
	return oneOrMany[Status](raw)
}

// oneOrMany reads a value or a list of values.
func oneOrMany[T any](raw json.RawMessage) ([]T, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var many []T
	if json.Unmarshal(raw, &many) == nil {
		return slices.Clip(many), nil
	}
	var one T
	if err := json.Unmarshal(raw, &one); err != nil {
		return nil, err
	}
	return []T{one}, nil
}
