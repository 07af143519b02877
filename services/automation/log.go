package automation

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/automation/sqlstore"
)

func newToken() string { return uuid.NewString() }

// ringSize is how many runs the memory keeps with all their steps.
const ringSize = 1000

// ring keeps the latest runs of this process.
type ring struct {
	mu    sync.Mutex
	byID  map[string]*RunLog
	order []string
}

func (r *ring) put(l *RunLog) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID = map[string]*RunLog{}
	}
	if r.byID[l.ID] == nil {
		r.order = append(r.order, l.ID)
	}
	r.byID[l.ID] = l
	for len(r.order) > ringSize {
		delete(r.byID, r.order[0])
		r.order = r.order[1:]
	}
}

func (r *ring) get(id string) *RunLog {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[id]
}

// log is the run as it stands, for the ring.
func (w *walk) log() *RunLog {
	l := logOf(w.row)
	l.Steps = make([]*step, len(w.st.Steps))
	for i, s := range w.st.Steps {
		copied := *s
		l.Steps[i] = &copied
	}
	l.Summary = w.st.summary()
	l.Output, l.Variables = nil, nil
	if w.row.Status == RunCompleted {
		l.Output = w.st.outputOf(w)
	} else if w.row.CompletedAt == 0 {
		l.Variables = map[string]any{}
		for name, value := range w.variables() {
			l.Variables[name] = value
		}
	}
	return l
}

func (st *state) outputOf(w *walk) any {
	var output any
	if decodeJSON([]byte(w.row.Output), &output) != nil {
		return nil
	}
	return output
}

// logOf is a stored run as the log shows it.
func logOf(r *sqlstore.Run) *RunLog {
	l := &RunLog{
		ID: r.ID, FlowName: r.FlowName, FlowVersion: r.FlowVersion, Status: r.Status,
		StartedAt: formatMillis(r.StartedAt), CompletedAt: formatMillis(r.CompletedAt), DurationMs: r.DurationMs,
		Trigger: RunTrigger{r.TriggerType, r.UserID, r.ObjectName, r.RecordID}, Error: r.Error, Steps: []*step{},
		organization: r.OrganizationID, updated: time.UnixMilli(r.UpdatedAt),
	}
	for _, part := range []struct {
		text string
		into any
	}{{r.Steps, &l.Steps}, {r.Output, &l.Output}, {r.Variables, &l.Variables}, {r.Summary, &l.Summary}} {
		if part.text != "" {
			_ = decodeJSON([]byte(part.text), part.into) // the service wrote it
		}
	}
	return l
}

func formatMillis(ms int64) string {
	if ms == 0 {
		return ""
	}
	return event.FormatTime(time.UnixMilli(ms))
}

// scoped restricts a caller to the runs of its organization.
func scoped(ctx context.Context) (organization string, restricted bool) {
	p := identity.From(ctx)
	return p.OrganizationID, !p.Everywhere
}

// runOf reads a run that the caller may see.
func (s *Service) runOf(ctx context.Context, flow, id string) (*sqlstore.Run, error) {
	row, err := s.store.Run(ctx, flow, id)
	if errors.Is(err, sqlstore.ErrNotFound) {
		return nil, ErrRunNotFound
	}
	if err != nil {
		return nil, err
	}
	if organization, restricted := scoped(ctx); restricted && row.OrganizationID != organization {
		return nil, ErrRunNotFound
	}
	return row, nil
}

// Run returns one run of a flow, or ErrRunNotFound. A run that this process has
// executed lately comes with all its steps, others with the latest 200.
func (s *Service) Run(ctx context.Context, flow, id string) (*RunLog, error) {
	row, err := s.runOf(ctx, flow, id)
	if err != nil {
		return nil, err
	}
	l := logOf(row)
	if kept := s.ring.get(id); kept != nil && kept.Status == l.Status && len(kept.Steps) > len(l.Steps) {
		l.Steps = kept.Steps
	}
	return l, nil
}

// RunList is a page of the log.
type RunList struct {
	Runs    []*RunLog `json:"runs"`
	HasMore bool      `json:"hasMore"`
	// NextCursor continues after the last run.
	NextCursor string `json:"nextCursor,omitempty"`
}

// RunQuery selects runs.
type RunQuery struct {
	// Limit is 20 when 0, at most 200.
	Limit  int
	Cursor string
	Status string
}

// Runs lists the runs of a flow, the newest first. Errors are ErrFlowNotFound
// for a flow that never was, and *InvalidInputError.
func (s *Service) Runs(ctx context.Context, flow string, q RunQuery) (*RunList, error) {
	if _, err := s.store.Flow(ctx, flow); errors.Is(err, sqlstore.ErrNotFound) {
		return nil, ErrFlowNotFound
	} else if err != nil {
		return nil, err
	}
	limit := orDefault(q.Limit, 20)
	if limit < 1 || limit > 200 {
		return nil, &InvalidInputError{"limit must be 1 to 200"}
	}
	query := sqlstore.RunQuery{Flow: flow, Status: q.Status, Limit: limit + 1}
	query.OrganizationID, query.Scoped = scoped(ctx)
	if q.Cursor != "" {
		var err error
		if query.BeforeTime, query.BeforeID, err = readCursor(q.Cursor); err != nil {
			return nil, err
		}
	}
	rows, err := s.store.Runs(ctx, query)
	if err != nil {
		return nil, err
	}
	list := &RunList{Runs: []*RunLog{}, HasMore: len(rows) > limit}
	for i := range rows[:min(limit, len(rows))] {
		list.Runs = append(list.Runs, logOf(&rows[i]))
	}
	if list.HasMore {
		last := rows[limit-1]
		list.NextCursor = base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d:%s", last.StartedAt, last.ID))
	}
	return list, nil
}

func readCursor(cursor string) (int64, string, error) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	at, id, ok := strings.Cut(string(text), ":")
	ms, parseErr := strconv.ParseInt(at, 10, 64)
	if err != nil || !ok || parseErr != nil {
		return 0, "", &InvalidInputError{"cursor is not one of this list"}
	}
	return ms, id, nil
}
