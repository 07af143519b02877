package driver

import (
	"context"
	"time"
)

// The states of a job.
const (
	JobRunning   = "running"
	JobDone      = "done"
	JobCancelled = "cancelled"
	JobFailed    = "failed"
)

// JobRedeliver is the kind of jobs that redeliver rows.
const JobRedeliver = "redeliver"

// JobFilter selects deliveries that have ended. Zero fields select all.
type JobFilter struct {
	Statuses      []Status
	Source        string
	TargetKey     string
	CreatedFrom   int64
	CreatedTo     int64
	ResponseCodes []int
	// Organization restricts to its rows when Scoped is set.
	Scoped         bool
	OrganizationID string
}

// Job is work on many rows that goes on after restarts. Times are epoch
// milliseconds of the database's clock.
type Job struct {
	ID string
	// Kind tells what it does; JobRedeliver is the outbox's own.
	Kind string
	// Filter is the JSON that the caller stored.
	Filter    string
	AsOf      int64
	PerSecond int
	Status    string
	// Matched counts the rows at the start, Redelivered and Skipped those that
	// were dealt with.
	Matched, Redelivered, Skipped int
	// CursorAt and CursorID are the row after which the job goes on.
	CursorAt             int64
	CursorID             string
	Token                string
	Error                string
	Scoped               bool
	OrganizationID       string
	CreatedBy            string
	CreatedAt, UpdatedAt int64
	FinishedAt           int64
}

// JobStore keeps jobs. A store that has none leaves it out.
type JobStore interface {
	// PutJob stores a new job.
	PutJob(ctx context.Context, job *Job) error
	// GetJob returns a job, nil when there is none.
	GetJob(ctx context.Context, id string) (*Job, error)
	// ClaimJob takes the oldest running job of the kinds that nobody works on for
	// so long, nil when there is none.
	ClaimJob(ctx context.Context, kinds []string, token string, lease time.Duration) (*Job, error)
	// SaveJob saves the progress of a job that is running and held by its
	// token, and holds it on; a lease of 0 gives it back. It reports false, and
	// changes nothing, when the job is not held any more.
	SaveJob(ctx context.Context, job *Job, lease time.Duration) (bool, error)
	// CancelJob ends a running job; false when it does not run.
	CancelJob(ctx context.Context, id string) (bool, error)
	// CountEnded counts the rows that a filter selects and that ended by asOf.
	CountEnded(ctx context.Context, filter JobFilter, asOf int64) (int, error)
	// ListEnded returns up to limit of them after a cursor, by creation.
	ListEnded(ctx context.Context, filter JobFilter, asOf, cursorAt int64, cursorID string, limit int) ([]Ended, error)
}

// Ended is a row that a job looks at.
type Ended struct {
	ID        string
	CreatedAt int64
}
