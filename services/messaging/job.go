package messaging

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/lease"
)

// JobState is a job as its steps see and change it. What a step changes is
// saved in the step's transaction.
type JobState struct {
	ID             string
	Params         json.RawMessage
	AsOf           time.Time
	Scoped         bool
	OrganizationID string

	// CursorAt and CursorID are where the job goes on; zero at its start.
	CursorAt int64
	CursorID string
	// Done and Skipped count what was done and passed by.
	Done, Skipped int
	// Finished tells that nothing is left.
	Finished bool

	failed string
}

// Fail ends the job for a reason that trying again does not change.
func (j *JobState) Fail(reason string) { j.failed = reason }

// JobStep does the next part of a job in the transaction of ctx and moves the
// cursor past it. It does at most limit things, which is what the job's rate
// counts. An error rolls the step back and has it tried again later.
type JobStep func(ctx context.Context, job *JobState, limit int) error

var jobKind = regexp.MustCompile(`^[a-z][a-z_]{0,39}$`)

// RegisterJobs adds a kind of jobs, before Start. Hosts that do not know a kind
// leave its jobs to the others. A kind that is registered twice panics.
func (s *Service) RegisterJobs(kind string, step JobStep) {
	if !jobKind.MatchString(kind) || step == nil {
		panic("messaging: bad kind of jobs " + kind)
	}
	if _, taken := s.jobs.steps[kind]; taken {
		panic("messaging: jobs of kind " + kind + " are registered")
	}
	s.jobs.steps[kind] = step
}

// NewJob asks for a job of a registered kind.
type NewJob struct {
	Kind   string
	Params json.RawMessage
	// AsOf is kept for the steps; zero means now.
	AsOf time.Time
	// PerSecond is the rate, 1 to 1000; 0 means 50.
	PerSecond int
	// Matched is what the job is about, when that is known.
	Matched        int
	CreatedBy      string
	Scoped         bool
	OrganizationID string
}

// CheckJobRate returns the rate that a job gets, or a *[RequestError].
func CheckJobRate(perSecond int) (int, error) {
	def(&perSecond, defaultRate)
	if perSecond < 1 || perSecond > maxRate {
		return 0, &RequestError{Field: "perSecond", Reason: fmt.Sprintf("%d is outside 1 to %d", perSecond, maxRate)}
	}
	return perSecond, nil
}

// StartJob stores a job, which some host works on until it is done. It joins
// the transaction of ctx.
func (s *Service) StartJob(ctx context.Context, job NewJob) (Job, error) {
	store, ok := s.cfg.Store.(driver.JobStore)
	if !ok {
		return Job{}, ErrNoJobs
	}
	rate, err := CheckJobRate(job.PerSecond)
	if err != nil {
		return Job{}, err
	}
	if job.AsOf.IsZero() {
		job.AsOf = time.Now()
	}
	id := newID()
	err = store.PutJob(ctx, &driver.Job{
		ID: id, Kind: job.Kind, Filter: string(job.Params), AsOf: job.AsOf.UnixMilli(), PerSecond: rate, Matched: job.Matched,
		Scoped: job.Scoped, OrganizationID: job.OrganizationID, CreatedBy: job.CreatedBy,
	})
	if err != nil {
		return Job{}, fmt.Errorf("put job: %w", err)
	}
	storage.AfterCommit(ctx, func(context.Context) {
		s.jobs.seek()
		s.dispatch.announce(topicJob, "")
	})
	return s.Job(ctx, id, RedeliverOptions{})
}

// jobRunner works on the jobs of the database, one at a time.
type jobRunner struct {
	s     *Service
	store driver.JobStore
	steps map[string]JobStep
	woken chan struct{}

	mu      sync.Mutex
	cancel  context.CancelFunc
	done    chan struct{}
	stopped bool
	expects time.Time // a job may turn up until then
}

// topicJob is announced when a job was started.
const topicJob = "outbox-job"

// jobsEvery is the time between looks for jobs without a reason, in a process
// that serves alone: its own jobs wake it, and so do those that others announce.
const jobsEvery = 30 * time.Second

func newJobRunner(s *Service) *jobRunner {
	store, _ := s.cfg.Store.(driver.JobStore)
	r := &jobRunner{s: s, store: store, woken: make(chan struct{}, 1), steps: map[string]JobStep{driver.JobRedeliver: s.redeliverStep}}
	if s.cfg.Leases != nil {
		// Another process came, or one went and may have left a job.
		s.cfg.Leases.Watch(func(context.Context, lease.Set) { r.seek() })
	}
	if s.cfg.Nodes != nil {
		s.cfg.Nodes.OnAnnounce(topicJob, func([]string) { r.seek() })
	}
	return r
}

// seek has jobs looked for now, and then for as long as one that has lost its
// process is held.
func (r *jobRunner) seek() {
	r.expect()
	kick(r.woken)
}

// expect has the looks follow each other at PollInterval until one comes after
// the end of every hold that there may be now.
func (r *jobRunner) expect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expects = time.Now().Add(jobLease)
}

// pause is the time until the next look. Other processes that serve the store
// may leave a job, or have one more than they can work on, at any time.
func (r *jobRunner) pause() time.Duration {
	poll := r.s.cfg.PollInterval
	r.mu.Lock()
	expecting := time.Now().Before(r.expects)
	r.mu.Unlock()
	if expecting || !r.s.cfg.alone() {
		return poll
	}
	return max(poll, jobsEvery)
}

// alone tells that no other process serves the store at this moment.
func (c *Config) alone() bool {
	return c.Exclusive || c.Leases != nil && c.Leases.Held().Ranges == lease.All
}

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
	kinds := slices.Sorted(maps.Keys(r.steps))
	r.expect() // what a process before this one left
	for {
		job, err := r.store.ClaimJob(ctx, kinds, uuid.NewString(), jobLease)
		if err == nil && job != nil {
			err = r.work(ctx, job)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.s.log.Warn("job", "error", err)
			r.expect()
		} else if job != nil {
			continue
		}
		timer := time.NewTimer(r.pause())
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
	size := max(1, job.PerSecond/10)
	for job.Status == driver.JobRunning {
		before := job.Redelivered + job.Skipped
		held, err := r.step(ctx, job, size)
		if err != nil || !held {
			return err
		}
		pause := time.Second * time.Duration(job.Redelivered+job.Skipped-before) / time.Duration(job.PerSecond)
		if job.Status == driver.JobRunning && !sleep(ctx, pause) {
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_, err := r.store.SaveJob(last, job, 0)
			return err
		}
	}
	return nil
}

// step does the next part and saves the cursor in one transaction, so that each
// thing is done once, whenever the host dies. It reports false when the job was
// cancelled or another host has it.
func (r *jobRunner) step(ctx context.Context, job *driver.Job, size int) (held bool, err error) {
	var next driver.Job
	err = r.s.cfg.Tx.InTx(ctx, func(ctx context.Context) error {
		next = *job
		state := &JobState{
			ID: job.ID, Params: json.RawMessage(job.Filter), AsOf: timeOf(job.AsOf), Scoped: job.Scoped, OrganizationID: job.OrganizationID,
			CursorAt: job.CursorAt, CursorID: job.CursorID, Done: job.Redelivered, Skipped: job.Skipped,
		}
		if err := r.steps[job.Kind](ctx, state, size); err != nil {
			return err
		}
		next.CursorAt, next.CursorID, next.Redelivered, next.Skipped = state.CursorAt, state.CursorID, state.Done, state.Skipped
		switch {
		case state.failed != "":
			next.Status, next.Error = driver.JobFailed, state.failed
		case state.Finished:
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
