package messaging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

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

// Job is a bulk redelivery and its progress.
type Job struct {
	ID, Status                    string
	Matched, Redelivered, Skipped int
	PerSecond                     int
	Filter                        BulkFilter
	Error, CreatedBy              string
	AsOf, CreatedAt, FinishedAt   time.Time
}

func jobOf(j *driver.Job) Job {
	out := Job{
		ID: j.ID, Status: j.Status, Matched: j.Matched, Redelivered: j.Redelivered, Skipped: j.Skipped, PerSecond: j.PerSecond,
		Error: j.Error, CreatedBy: j.CreatedBy, AsOf: timeOf(j.AsOf), CreatedAt: timeOf(j.CreatedAt), FinishedAt: timeOf(j.FinishedAt),
	}
	_ = json.Unmarshal([]byte(j.Filter), &out.Filter) // what it cannot show, the job cannot run on either
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
		return Job{Matched: matched, AsOf: req.AsOf, PerSecond: req.PerSecond, Filter: req.Filter}, nil
	}
	text, err := marshalPlain(req.Filter)
	if err != nil {
		return Job{}, err
	}
	id := newID()
	err = store.PutJob(ctx, &driver.Job{
		ID: id, Filter: string(text), AsOf: asOf, PerSecond: req.PerSecond, Matched: matched,
		Scoped: req.Scoped, OrganizationID: req.OrganizationID, CreatedBy: req.CreatedBy,
	})
	if err != nil {
		return Job{}, fmt.Errorf("put job: %w", err)
	}
	s.jobs.kick()
	return s.Job(ctx, id, RedeliverOptions{})
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

// jobRunner works on the jobs of the database, one at a time.
type jobRunner struct {
	s     *Service
	store driver.JobStore
	woken chan struct{}

	mu      sync.Mutex
	cancel  context.CancelFunc
	done    chan struct{}
	stopped bool
}

func newJobRunner(s *Service) *jobRunner {
	store, _ := s.cfg.Store.(driver.JobStore)
	return &jobRunner{s: s, store: store, woken: make(chan struct{}, 1)}
}

func (r *jobRunner) kick() { kick(r.woken) }

func (r *jobRunner) start(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.store == nil || r.stopped || r.done != nil {
		return
	}
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.done = make(chan struct{})
	go func() {
		defer close(r.done)
		r.run(ctx)
	}()
}

func (r *jobRunner) stop() {
	r.mu.Lock()
	r.stopped = true
	cancel, done := r.cancel, r.done
	r.mu.Unlock()
	if done != nil {
		cancel()
		<-done
	}
}

func (r *jobRunner) run(ctx context.Context) {
	for {
		job, err := r.store.ClaimJob(ctx, uuid.NewString(), jobLease)
		if err == nil && job != nil {
			err = r.work(ctx, job)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.s.log.Warn("redelivery job", "error", err)
		} else if job != nil {
			continue
		}
		timer := time.NewTimer(r.s.cfg.PollInterval)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-r.woken:
		}
		timer.Stop()
	}
}

// work does a job from its cursor on. When ctx ends it gives the job back.
func (r *jobRunner) work(ctx context.Context, job *driver.Job) error {
	request := BulkRequest{PerSecond: job.PerSecond, AsOf: timeOf(job.AsOf), Scoped: job.Scoped, OrganizationID: job.OrganizationID}
	err := json.Unmarshal([]byte(job.Filter), &request.Filter)
	var filter driver.JobFilter
	if err == nil {
		filter, err = request.check()
	}
	if err != nil {
		job.Status, job.Error = driver.JobFailed, "the stored filter cannot be read"
		_, err = r.store.SaveJob(ctx, job, 0)
		return err
	}
	size := max(1, job.PerSecond/10)
	pause := time.Second * time.Duration(size) / time.Duration(job.PerSecond)
	for job.Status == driver.JobRunning {
		held, err := r.step(ctx, job, filter, size)
		if err != nil || !held {
			return err
		}
		if job.Status == driver.JobRunning && !sleep(ctx, pause) {
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_, err := r.store.SaveJob(last, job, 0)
			return err
		}
	}
	return nil
}

// step redelivers the next rows and saves the cursor in one transaction, so
// that each row is redelivered once, whenever the host dies. It reports false
// when the job was cancelled or another host has it.
func (r *jobRunner) step(ctx context.Context, job *driver.Job, filter driver.JobFilter, size int) (held bool, err error) {
	var next driver.Job
	err = r.s.cfg.Tx.InTx(ctx, func(ctx context.Context) error {
		next = *job
		rows, err := r.store.ListEnded(ctx, filter, job.AsOf, job.CursorAt, job.CursorID, size)
		if err != nil {
			return err
		}
		for _, row := range rows {
			_, err := r.s.Redeliver(ctx, row.ID, RedeliverOptions{Scoped: job.Scoped, OrganizationID: job.OrganizationID})
			var ineligible *NotEligibleError
			switch {
			case err == nil:
				next.Redelivered++
			case errors.As(err, &ineligible), errors.Is(err, ErrNeverSent), errors.Is(err, ErrNotFound):
				next.Skipped++
			default:
				return err
			}
			next.CursorAt, next.CursorID = row.CreatedAt, row.ID
		}
		if len(rows) < size {
			next.Status = driver.JobDone
		}
		held, err = r.store.SaveJob(ctx, &next, jobLease)
		if err == nil && !held {
			err = errJobLost
		}
		return err
	})
	if errors.Is(err, errJobLost) {
		return false, nil
	}
	if err == nil {
		*job = next
	}
	return held, err
}

// errJobLost rolls a step back whose job is not held any more.
var errJobLost = errors.New("job is not held any more")

// JobJSON is a job as the API shows it.
func JobJSON(j Job) map[string]any {
	return map[string]any{
		"id": nullable(j.ID), "status": nullable(j.Status), "matched": j.Matched, "redelivered": j.Redelivered, "skipped": j.Skipped,
		"perSecond": j.PerSecond, "filter": j.Filter, "asOf": event.FormatTime(j.AsOf), "error": nullable(j.Error),
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
