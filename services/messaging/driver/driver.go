// Package driver defines what the outbox needs of a store.
//
// Two stores implement it: memstore for tests and programs without a database,
// and sqlstore for SQLite and PostgreSQL. Package drivertest holds the suite
// that both pass. Every method joins the transaction that its context carries.
package driver

import (
	"context"
	"time"
)

// Status is the state of a delivery.
type Status string

// The states. Success, Failed and Dead are terminal; only a redelivery leaves
// them.
const (
	Pending  Status = "pending"
	InFlight Status = "in_flight"
	Success  Status = "success"
	Failed   Status = "failed"
	Dead     Status = "dead"
)

// Terminal reports whether the status ends a delivery.
func (s Status) Terminal() bool { return s == Success || s == Failed || s == Dead }

// Row is a delivery as it is stored. Times are epoch milliseconds of the
// database's clock; 0 stands for NULL. Empty strings stand for NULL in the
// columns that may be NULL.
type Row struct {
	ID             string
	Source         string
	RefID          string
	TargetKey      string
	DedupKey       string
	Label          string
	URL            string
	Method         string
	HeadersSealed  string
	Signature      string
	SecretSealed   string
	TimeoutMillis  int64
	Payload        []byte
	Partition      int
	OrderSeq       int64
	Status         Status
	Attempts       int
	ClaimedBy      string
	ClaimedAt      int64
	ClaimToken     string
	ClaimExpiresAt int64
	CrashCount     int
	NextRetryAt    int64
	LastAttemptAt  int64
	ResponseCode   int
	ResponseBody   string
	// ResponseTruncated tells that ResponseBody is not all that came.
	ResponseTruncated bool
	Error             string
	// ExpiresAt is the time after which the row is not sent any more. Insert
	// takes it as milliseconds from now.
	ExpiresAt      int64
	FinishedAt     int64
	EventID        string
	RunID          string
	StepID         string
	OrganizationID string
	CreatedAt      int64
	UpdatedAt      int64

	// TargetID is the target's number, OrderKey the hash of the ordering key
	// (0 for none), Round the number of redeliveries. OrderingKey is the key
	// itself; it is not stored.
	TargetID    int64
	OrderKey    int64
	OrderingKey string
	Round       int
	// BlockOnRetry makes the row block its ordering key until it has ended.
	BlockOnRetry bool
	// Parked marks a row that was written dead because its secret or headers
	// could not be read, so that it has never been sent.
	Parked bool
	// NotifyFinished asks for a delivery.finished event at any end.
	NotifyFinished bool
	// SentAlone tells that the row is being sent with nothing else in flight.
	SentAlone bool
	// TargetVersion is the version of the target when the row was claimed.
	TargetVersion int64
	// PayloadSize is the length of the payload in bytes. Claim leaves Payload
	// nil when it is larger than [MaxClaimedPayload].
	PayloadSize int
	// Expired tells that ExpiresAt had passed when the row was claimed.
	Expired bool
}

// AloneAt is the crash count from which a row is sent alone. From there on only
// a crash while it is sent alone counts: what else was claimed at the time of
// a crash is not to blame.
const AloneAt = 3

// MaxClaimedPayload is the largest payload in bytes that Claim returns with
// its row; a larger one is read when it is sent, so that the rows of a claim
// fit in memory whatever their size.
const MaxClaimedPayload = 64 << 10

// Inserted is what became of one row of an Insert.
type Inserted struct {
	// ID is the row's id, or that of the row that holds the dedup key already.
	ID string
	// New is false when the dedup key existed.
	New bool
	// Claimed tells that the row was stored in flight under its claim token.
	Claimed bool
}

// TargetState tells whether a target's rows are sent.
type TargetState string

// Active targets are sent, rows of held ones wait, rows of gone ones fail.
const (
	TargetActive TargetState = "active"
	TargetHeld   TargetState = "held"
	TargetGone   TargetState = "gone"
)

// Target is where deliveries go as far as limits and secrets are concerned:
// one webhook, or one http node of a flow.
type Target struct {
	ID             int64
	Source         string
	Key            string
	OrganizationID string
	State          TargetState
	// Reason says why the target is held or gone.
	Reason string
	// MaxConcurrency caps requests in flight, 0 for the default.
	MaxConcurrency int
	// RatePerSecond and RateBurst limit the request rate, 0 for no limit.
	RatePerSecond float64
	RateBurst     int
	// RetryPolicy is a JSON retry policy, "" for the default schedule.
	RetryPolicy string
	// Serial tells that all rows have one ordering key: one process serves them.
	Serial bool
	// SignatureScheme is objectstack, standard or both; "" is objectstack.
	SignatureScheme string
	// SecretSealed is the current signing secret, PreviousSecretSealed the one
	// before it, valid until PreviousUntil. AuthSealed holds the
	// authentication as sealed JSON.
	SecretSealed         string
	PreviousSecretSealed string
	PreviousUntil        int64
	AuthSealed           string
	// FailingSince is the time of the first failure since the last success.
	FailingSince  int64
	LastSuccessAt int64
	// Version grows with every write of the target.
	Version   int64
	UpdatedAt int64
}

// Want asks for due rows of one target.
type Want struct {
	TargetID int64
	// First is the largest number of rows that were never tried, Retry of rows
	// whose retry is due, on top of them.
	First, Retry int
	// Anywhere takes rows of all partitions, whatever [Lease.Partitions] says.
	Anywhere bool
}

// Lease is what the claiming process holds of a store that it shares.
type Lease struct {
	// Token fences the claim: nothing is claimed unless its lease lives, and
	// what it holds stays its own until the claim has committed. "" claims
	// without a lease.
	Token string
	// Partitions lists what is held; nil means all. Stores that one process has
	// to itself need not look at it.
	Partitions []int64
}

// Terms are those under which Insert stores rows as claimed.
type Terms struct {
	// Hold is added to each row's timeout to make the claim's end.
	Hold time.Duration
	// Token is that of the lease, see [Lease].
	Token string
}

// View restricts what [Store.Outlook] looks at, as [Lease] restricts a claim.
type View struct {
	// Partitions lists those that count; nil means all.
	Partitions []int64
	// Anywhere lists targets of which all partitions count.
	Anywhere []int64
}

// ClaimRequest asks for due rows of several targets at once.
type ClaimRequest struct {
	Node  string
	Token string
	Wants []Want
	// Hold is added to each row's timeout to make the claim's end.
	Hold  time.Duration
	Lease Lease
}

// Outlook is what waits in the store.
type Outlook struct {
	// Due has an entry for every active target with waiting rows.
	Due []Due
	// Gone tells that a gone target has waiting rows.
	Gone bool
}

// Claims tells about rows in flight that nobody may be sending any more.
type Claims struct {
	// Some tells that there are any, and EndIn when the first of their claims
	// ends; ≤ 0 when one has.
	Some  bool
	EndIn time.Duration
}

// Clean asks to look at the Limit oldest rows after the cursor After, and to
// remove those that ended longer than Keep ago. "" is before all rows.
type Clean struct {
	Keep  time.Duration
	Limit int
	After string
}

// Cleaned is what [Store.Clean] did.
type Cleaned struct {
	Removed int
	// Last is the cursor for the next call, Done tells that no older rows
	// follow it.
	Last string
	Done bool
}

// Due tells about the waiting rows of one active target.
type Due struct {
	TargetID int64
	// In is the time until the first waiting row is due, ≤ 0 when one is due
	// now.
	In time.Duration
	// Elsewhere tells that rows wait, but none that the view holds.
	Elsewhere bool
}

// Touch is what a batch of outcomes says about a target.
type Touch struct {
	TargetID int64
	// Failing starts the target's failing_since when it is not set, Succeeded
	// clears it and sets last_success_at.
	Failing, Succeeded bool
	// HoldReason, when set, puts an active target on hold.
	HoldReason string
}

// Outcome is the result of one claim of a row.
type Outcome struct {
	ID    string
	Token string
	// Status is Pending (retry or release), Success, Failed or Dead.
	Status Status
	// Attempts is the row's new count of tries.
	Attempts int
	// RetryIn is the delay of the next try of a row that goes back to Pending.
	// Negative keeps next_retry_at as it is (a release).
	RetryIn time.Duration
	// Released leaves everything but the claim as it was.
	Released  bool
	Signature string
	// ResponseCode is 0 for none.
	ResponseCode      int
	ResponseBody      string
	ResponseTruncated bool
	Error             string
	// Attempt is the record of the try, nil when nothing was tried.
	Attempt *Attempt
	// Parked marks the row as never sent for want of its secret or headers.
	Parked bool
}

// Attempt is one try that went to the network.
type Attempt struct {
	DeliveryID     string
	Round, Attempt int
	Node           string
	// Began is the start by the sender's clock, StartedAgo the time since then,
	// from which the store tells the start by its own.
	Began           time.Time
	StartedAgo      time.Duration
	Duration        time.Duration
	DNS             time.Duration
	Connect         time.Duration
	TLS             time.Duration
	FirstByte       time.Duration
	RemoteAddr      string
	RequestHeaders  string
	ResponseCode    int
	ResponseHeaders string
	ResponseBody    string
	Truncated       bool
	LocationHost    string
	ErrorClass      string
	Error           string
	OrganizationID  string
	// StartedAt is filled when attempts are read.
	StartedAt int64
}

// Edit changes one row outside a claim.
type Edit struct {
	ID string
	// From lists the states that the edit applies to.
	From []Status
	// Redeliver puts the row back to pending with a fresh budget; otherwise
	// the row ends as Status with Error.
	Redeliver bool
	// Alone marks a row in flight as sent alone, and does nothing else.
	Alone  bool
	Status Status
	Error  string
	// URL, Method, HeadersSealed and TimeoutMillis replace the row's own when
	// Replace is set.
	Replace       bool
	URL, Method   string
	HeadersSealed string
	TimeoutMillis int64
	// OrganizationID restricts the edit to rows of the organization when
	// Scoped is set.
	Scoped         bool
	OrganizationID string
}

// Store keeps deliveries, their attempts and their targets.
//
// All times are compared by the store's own clock. Methods return raw errors.
type Store interface {
	// Insert stores rows in order. A row whose (source, organization, dedup
	// key) exists, in the table or earlier in rows, is left out. A row with
	// status InFlight is stored so only if no row of its ordering key goes
	// before it (one in flight, one never tried, or any unfinished one when the
	// row blocks on retry), else as Pending.
	Insert(ctx context.Context, rows []*Row, terms Terms) ([]Inserted, error)
	// Claim moves due rows of active targets to InFlight and returns them in
	// the order of their order_seq within a target. A row that was never tried
	// waits for earlier rows of its ordering key in flight on other nodes, a row
	// that blocks on retry for every earlier unfinished one.
	Claim(ctx context.Context, req ClaimRequest) ([]*Row, error)
	// Claims looks for rows in flight whose claim has ended, or whose claimer is
	// neither node nor, where leased is set, a process whose lease lives. It may
	// read every unfinished row: ask only when there is a reason.
	Claims(ctx context.Context, node string, leased bool) (Claims, error)
	// Outlook tells what waits: the targets with waiting rows.
	Outlook(ctx context.Context, view View) (Outlook, error)
	// Record saves outcomes with their attempts and tells which of them still
	// held their claim; the others change nothing. Touches are applied to
	// their targets.
	Record(ctx context.Context, outcomes []Outcome, touches []Touch) ([]bool, error)
	// Expire returns up to limit rows whose claims have ended, or all claims
	// when all is set, to Pending and adds one to their crash_count, from
	// [AloneAt] on only if they were sent alone. Rows whose count has reached
	// deadAt end Dead and are returned.
	Expire(ctx context.Context, all bool, deadAt, limit int) (requeued int, dead []*Row, err error)
	// Edit applies an edit and returns the row as it is afterwards; applied is
	// false when the row's state did not allow it, the row nil when there is
	// none.
	Edit(ctx context.Context, edit Edit) (row *Row, applied bool, err error)
	// Get returns a row, nil when there is none.
	Get(ctx context.Context, id string) (*Row, error)
	// Attempts returns the attempts of a delivery, oldest first.
	Attempts(ctx context.Context, deliveryID string) ([]Attempt, error)
	// PutTarget inserts or updates a target by (source, key, organization) and
	// fills its ID and Version. With keep an existing target stays as it is.
	PutTarget(ctx context.Context, t *Target, keep bool) error
	// Targets returns targets by id, or those with the keys when ids is empty.
	Targets(ctx context.Context, ids []int64, keys []TargetKey) ([]*Target, error)
	// Sweep ends up to limit waiting rows whose target is gone as Failed, and
	// returns them.
	Sweep(ctx context.Context, limit int) ([]*Row, error)
	// Clean removes old rows that have ended, with their attempts.
	Clean(ctx context.Context, c Clean) (Cleaned, error)
}

// TargetKey is the natural key of a target.
type TargetKey struct{ Source, Key, OrganizationID string }
