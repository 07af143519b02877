package sqlstore

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/objecthost/objecthost/storage"
)

// The states of a run that are not its end.
const (
	StatusPending  = "pending"
	StatusRunning  = "running"
	StatusPaused   = "paused"
	StatusRetrying = "retrying"
)

// Run is one run of a flow. Empty strings and zeros of nullable columns stand
// for NULL; times are milliseconds since 1970.
type Run struct {
	bun.BaseModel  `bun:"table:sys_automation_run"`
	ID             string `bun:"id,pk"`
	FlowName       string `bun:"flow_name"`
	FlowVersion    int    `bun:"flow_version"`
	Status         string `bun:"status"`
	TriggerType    string `bun:"trigger_type"`
	ObjectName     string `bun:"object_name,nullzero"`
	RecordID       string `bun:"record_id,nullzero"`
	EventID        string `bun:"event_id,nullzero"`
	UserID         string `bun:"user_id,nullzero"`
	OrganizationID string `bun:"organization_id,nullzero"`
	StartedAt      int64  `bun:"started_at"`
	// CompletedAt is 0 while the run is open.
	CompletedAt int64  `bun:"completed_at,nullzero"`
	DurationMs  int64  `bun:"duration_ms"`
	Error       string `bun:"error,nullzero"`
	ErrorNode   string `bun:"error_node,nullzero"`
	// Steps, Summary, Output, Variables, Trigger, State and Resume are JSON.
	Steps     string `bun:"steps_json,nullzero"`
	Summary   string `bun:"summary_json,nullzero"`
	Output    string `bun:"output_json,nullzero"`
	Variables string `bun:"variables_json,nullzero"`
	Trigger   string `bun:"trigger_json"`
	State     string `bun:"state_json,nullzero"`
	Resume    string `bun:"resume_json,nullzero"`
	// WaitKind and WaitKey tell what a paused run waits for, WakeAt when it
	// goes on by itself.
	WaitKind string `bun:"wait_kind,nullzero"`
	WaitKey  string `bun:"wait_key,nullzero"`
	WakeAt   int64  `bun:"wake_at,nullzero"`
	// DedupKey is unique. Runs with one QueueKey are executed one after the
	// other, in the order of QueueSeq.
	DedupKey   string `bun:"dedup_key,nullzero"`
	QueueKey   string `bun:"queue_key,nullzero"`
	QueueSeq   int64  `bun:"queue_seq"`
	Depth      int    `bun:"depth"`
	CrashCount int    `bun:"crash_count"`
	ClaimedBy  string `bun:"claimed_by,nullzero"`
	ClaimToken string `bun:"claim_token,nullzero"`
	ClaimEnds  int64  `bun:"claim_expires_at,nullzero"`
	CreatedAt  int64  `bun:"created_at"`
	UpdatedAt  int64  `bun:"updated_at"`
}

// Insert adds runs. Those whose DedupKey is there already are left out; it
// returns how many were added.
func (s *Store) Insert(ctx context.Context, runs ...*Run) (int64, error) {
	if len(runs) == 0 {
		return 0, nil
	}
	result, err := s.db.Bun(ctx).NewInsert().Model(&runs).On("CONFLICT DO NOTHING").Exec(ctx)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// Save writes everything of a run that is claimed under token; r says what it
// shall be afterwards. It reports false, without an error, when the claim is
// no longer there.
func (s *Store) Save(ctx context.Context, r *Run, token string) (bool, error) {
	return affected(s.db.Bun(ctx).NewUpdate().Model(r).WherePK().Where("claim_token = ?", token).
		ExcludeColumn("id", "flow_name", "flow_version", "trigger_type", "trigger_json", "dedup_key", "queue_key", "queue_seq",
			"depth", "crash_count", "created_at", "started_at", "event_id", "object_name", "record_id", "user_id", "organization_id",
			"claim_expires_at").
		Exec(ctx))
}

// due are the runs that somebody may execute now.
const due = `r.completed_at IS NULL AND (
	r.status = 'pending'
	OR (r.status IN ('paused', 'retrying') AND r.wake_at <= ?0)
	OR (r.status = 'running' AND r.claim_expires_at < ?0)
) AND (r.queue_key IS NULL OR NOT EXISTS (
	SELECT 1 FROM sys_automation_run o
	WHERE o.queue_key = r.queue_key AND o.completed_at IS NULL AND o.queue_seq < r.queue_seq
))`

// Claim takes up to limit runs that are due for node. A run whose claim had run
// out counts a crash.
func (s *Store) Claim(ctx context.Context, node, token string, lease time.Duration, limit int) ([]Run, error) {
	lock := ""
	if s.db.Dialect() == storage.Postgres {
		lock = " FOR UPDATE SKIP LOCKED"
	}
	var runs []Run
	err := s.db.Bun(ctx).NewRaw(`UPDATE sys_automation_run SET
		crash_count = crash_count + CASE WHEN status = 'running' THEN 1 ELSE 0 END,
		status = 'running', claimed_by = ?1, claim_token = ?2, claim_expires_at = ?0 + ?3, wake_at = NULL, updated_at = ?0
		WHERE id IN (SELECT r.id FROM sys_automation_run r WHERE `+due+` ORDER BY r.created_at, r.queue_seq LIMIT ?4`+lock+`)
		RETURNING *`, bun.Safe(s.db.NowSQL()), node, token, lease.Milliseconds(), limit).Scan(ctx, &runs)
	return runs, err
}

// AnyDue reports whether Claim would find something, without writing.
func (s *Store) AnyDue(ctx context.Context) (bool, error) {
	var n int
	err := s.db.BunRead(ctx).NewRaw("SELECT COUNT(*) FROM (SELECT 1 FROM sys_automation_run r WHERE "+due+" LIMIT 1) AS d",
		bun.Safe(s.db.NowSQL())).Scan(ctx, &n)
	return n > 0, err
}

// ClaimPaused takes one paused run of a flow, or returns ErrNotFound.
func (s *Store) ClaimPaused(ctx context.Context, flow, id, node, token string, lease time.Duration) (*Run, error) {
	r := new(Run)
	err := s.db.Bun(ctx).NewRaw(`UPDATE sys_automation_run SET status = 'running', claimed_by = ?1, claim_token = ?2,
		claim_expires_at = ?0 + ?3, wake_at = NULL, updated_at = ?0
		WHERE id = ?4 AND flow_name = ?5 AND status = 'paused' RETURNING *`,
		bun.Safe(s.db.NowSQL()), node, token, lease.Milliseconds(), id, flow).Scan(ctx, r)
	return r, found(err)
}

// Renew makes the claims of a node last until lease from now.
func (s *Store) Renew(ctx context.Context, node string, lease time.Duration) error {
	_, err := s.db.Bun(ctx).NewRaw(`UPDATE sys_automation_run SET claim_expires_at = ?0 + ?1
		WHERE completed_at IS NULL AND status = 'running' AND claimed_by = ?2`,
		bun.Safe(s.db.NowSQL()), lease.Milliseconds(), node).Exec(ctx)
	return err
}

// Abandon ends all claims of processes that are known to be gone.
func (s *Store) Abandon(ctx context.Context) error {
	_, err := s.db.Bun(ctx).NewRaw(`UPDATE sys_automation_run SET claim_expires_at = 0
		WHERE completed_at IS NULL AND status = 'running'`).Exec(ctx)
	return err
}

// Release gives a claimed run back, so that another node or the next start
// goes on with it from where it was saved.
func (s *Store) Release(ctx context.Context, id, token string) error {
	_, err := s.db.Bun(ctx).NewRaw(`UPDATE sys_automation_run SET status = 'pending', claim_token = NULL, claimed_by = NULL,
		claim_expires_at = NULL WHERE id = ? AND claim_token = ? AND completed_at IS NULL`, id, token).Exec(ctx)
	return err
}

// Wake lets the paused runs go on that wait for something. It reports whether
// there was one.
func (s *Store) Wake(ctx context.Context, kind, key, resume string) (bool, error) {
	return affected(s.db.Bun(ctx).NewRaw(`UPDATE sys_automation_run SET status = 'pending', resume_json = ?
		WHERE wait_key = ? AND wait_kind = ? AND status = 'paused' AND completed_at IS NULL`, resume, key, kind).Exec(ctx))
}

// Run returns one run of a flow, or ErrNotFound.
func (s *Store) Run(ctx context.Context, flow, id string) (*Run, error) {
	r := new(Run)
	err := s.db.BunRead(ctx).NewSelect().Model(r).Where("id = ?", id).Where("flow_name = ?", flow).Scan(ctx)
	return r, found(err)
}

// RunQuery selects runs of a flow, the newest first.
type RunQuery struct {
	Flow, Status string
	// BeforeTime and BeforeID continue after a run.
	BeforeTime int64
	BeforeID   string
	// Scoped restricts to one organization.
	Scoped         bool
	OrganizationID string
	Limit          int
}

// Runs returns the runs that a query selects, without their state.
func (s *Store) Runs(ctx context.Context, q RunQuery) ([]Run, error) {
	var runs []Run
	query := s.db.BunRead(ctx).NewSelect().Model(&runs).ExcludeColumn("state_json", "trigger_json", "resume_json").
		Where("flow_name = ?", q.Flow).OrderExpr("started_at DESC, id DESC").Limit(int64(q.Limit))
	if q.Status != "" {
		query = query.Where("status = ?", q.Status)
	}
	if q.BeforeID != "" {
		query = query.Where("(started_at < ? OR (started_at = ? AND id < ?))", q.BeforeTime, q.BeforeTime, q.BeforeID)
	}
	if q.Scoped {
		query = query.Where("COALESCE(organization_id, '') = ?", q.OrganizationID)
	}
	return runs, query.Scan(ctx)
}

// Clean deletes up to limit runs that ended before a time.
func (s *Store) Clean(ctx context.Context, before int64, limit int) (int64, error) {
	result, err := s.db.Bun(ctx).NewRaw(`DELETE FROM sys_automation_run WHERE id IN (
		SELECT id FROM sys_automation_run WHERE completed_at < ? ORDER BY completed_at LIMIT ?)`, before, limit).Exec(ctx)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}
