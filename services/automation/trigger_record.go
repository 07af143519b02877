package automation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/automation/sqlstore"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
	"github.com/objecthost/objecthost/storage"
)

// noteDeleted stands for the time of a record that is gone.
const noteDeleted = "deleted"

// note is what a write's event does not carry: who made it, the record before,
// and the run that made it.
type note struct {
	Principal identity.Principal `json:"principal"`
	Previous  map[string]any     `json:"previous,omitempty"`
	// Run wrote the record; Flow is its flow, Object and RecordID the record
	// that it was about, Depth how deep it stands in a chain of runs.
	Run      string `json:"run,omitempty"`
	Flow     string `json:"flow,omitempty"`
	Object   string `json:"object,omitempty"`
	RecordID string `json:"recordId,omitempty"`
	Depth    int    `json:"depth,omitempty"`
}

// withinWrite runs in the transaction of every write: it saves the step of the
// run that made it, and notes what flows will want to know about it.
func (s *Service) withinWrite(ctx context.Context, change *data.Change) error {
	if ex, ok := ctx.Value(recordKey{}).(*execution); ok && ex != nil {
		if err := ex.within(ctx, change); err != nil {
			return err
		}
	}
	if change.ID == "" || len(s.flows.on(change.Object, false, change.Operation)) == 0 {
		return nil
	}
	n := note{Principal: identity.From(ctx)}
	stamp := noteDeleted
	if change.Operation == data.OpUpdate {
		var err error
		if n.Previous, err = s.visible(change.Object, change.Before); err != nil {
			return err
		}
	}
	if change.Operation != data.OpDelete {
		stamp = stampOf(change.After)
	}
	if w := walkOf(ctx); w != nil {
		n.Run, n.Flow, n.Object, n.RecordID, n.Depth = w.row.ID, w.row.FlowName, w.row.ObjectName, w.row.RecordID, w.row.Depth
	}
	info, err := encodeJSON(&n)
	if err != nil {
		return err
	}
	return s.store.Note(ctx, &sqlstore.Change{
		ObjectName: change.Object, RecordID: change.ID, Stamp: stamp, Info: string(info), CreatedAt: time.Now().UnixMilli(),
	})
}

// stampOf is a record's updated_at in milliseconds.
func stampOf(record data.Record) string {
	text, _ := record["updated_at"].(string)
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return ""
	}
	return strconv.FormatInt(at.UnixMilli(), 10)
}

// eventOperations are the events that start flows.
var eventOperations = map[string]data.Operation{
	event.RecordCreated: data.OpCreate, event.RecordUpdated: data.OpUpdate, event.RecordDeleted: data.OpDelete,
}

// handle is the durable consumer of the event log: it adds the runs that record
// changes start, and lets runs go on that wait for a delivery. All of it
// commits with the consumer's position.
func (s *Service) handle(ctx context.Context, events []*event.Event) error {
	if err := s.flows.refresh(ctx, 0); err != nil {
		return err
	}
	storage.AfterCommit(ctx, func(context.Context) { s.poke() })
	byObject := map[string][]*event.Event{}
	for _, e := range events {
		if e.Type == event.DeliveryFinished {
			if err := s.finished(ctx, e); err != nil {
				return err
			}
		} else if op, ok := eventOperations[e.Type]; ok && len(s.flows.on(e.Object, false, op)) > 0 {
			byObject[e.Object] = append(byObject[e.Object], e)
		}
	}
	var runs []*sqlstore.Run
	for _, object := range slices.Sorted(maps.Keys(byObject)) {
		notes, err := s.notes(ctx, object, byObject[object])
		if err != nil {
			return err
		}
		for _, e := range byObject[object] {
			started, err := s.match(ctx, e, notes[noteKey(e)])
			if err != nil {
				return err
			}
			runs = append(runs, started...)
		}
	}
	for chunk := range slices.Chunk(runs, 100) {
		if _, err := s.store.Insert(ctx, chunk...); err != nil {
			return err
		}
	}
	return nil
}

func noteKey(e *event.Event) string {
	if e.Type == event.RecordDeleted {
		return e.RecordID + " " + noteDeleted
	}
	return e.RecordID + " " + strconv.FormatInt(e.Timestamp.UnixMilli(), 10)
}

// notes takes the notes about events.
func (s *Service) notes(ctx context.Context, object string, events []*event.Event) (map[string]note, error) {
	ids, wanted := map[string]bool{}, map[string]bool{}
	for _, e := range events {
		ids[e.RecordID] = true
		wanted[noteKey(e)] = true
	}
	out := map[string]note{}
	for chunk := range slices.Chunk(slices.Sorted(maps.Keys(ids)), 200) {
		rows, err := s.store.Notes(ctx, object, chunk)
		if err != nil {
			return nil, err
		}
		var used []sqlstore.Change
		for _, row := range rows {
			key := row.RecordID + " " + row.Stamp
			if !wanted[key] {
				continue
			}
			var n note
			if err := decodeJSON([]byte(row.Info), &n); err != nil {
				return nil, fmt.Errorf("read note about %s: %w", key, err)
			}
			out[key] = n
			used = append(used, row)
		}
		if err := s.store.Forget(ctx, used); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// match makes the runs that an event starts.
func (s *Service) match(ctx context.Context, e *event.Event, n note) ([]*sqlstore.Run, error) {
	var runs []*sqlstore.Run
	for _, fl := range s.flows.on(e.Object, false, eventOperations[e.Type]) {
		if n.Flow == fl.def.Name && n.Object == e.Object && n.RecordID == e.RecordID {
			continue // the run's own write to the record that it is about
		}
		tr, err := recordTrigger(e, n)
		if err != nil {
			return nil, err
		}
		row := s.newRow(fl, tr)
		row.EventID, row.DedupKey = e.ID, fl.def.Name+":"+e.ID
		row.QueueKey, row.QueueSeq = fl.def.Name+":"+e.Key(), e.Sequence
		if n.Run != "" {
			row.Depth = n.Depth + 1
		}
		if keep, err := s.admit(ctx, fl, tr, row); err != nil {
			return nil, err
		} else if keep {
			runs = append(runs, row)
		}
	}
	return runs, nil
}

// admit makes a pending run out of a row, unless its start condition is false.
// A condition that cannot be evaluated fails the run when it begins.
func (s *Service) admit(ctx context.Context, fl *flow, tr *trigger, row *sqlstore.Run) (bool, error) {
	if fl.condition != nil {
		if ok, err := s.newWalk(fl, row, tr).truth(ctx, fl.condition); err == nil && !ok {
			return false, nil
		}
	}
	row.Status = sqlstore.StatusPending
	if most := s.cfg.Limits.Depth; row.Depth > most {
		row.Status, row.CompletedAt = RunFailed, row.StartedAt
		row.Error = fmt.Sprintf("Flows start each other more than %d deep", most)
		s.log.WarnContext(ctx, "flow not started: flows start each other too deep", "flow", row.FlowName, "object", row.ObjectName, "record", row.RecordID)
	}
	text, err := encodeJSON(tr)
	row.Trigger = string(text)
	return true, err
}

func recordTrigger(e *event.Event, n note) (*trigger, error) {
	tr := &trigger{
		Type: triggerRecord, Event: e.Type, Object: e.Object, RecordID: e.RecordID, Previous: n.Previous, Principal: n.Principal,
	}
	if !tr.Principal.Authenticated() {
		tr.Principal = identity.Principal{UserID: e.UserID}
	}
	// A flow never inherits the host's own power from what a plugin wrote.
	tr.Principal = onBehalf(tr.Principal)
	tr.Principal.OrganizationID = e.OrganizationID
	source := e.After
	if e.Type == event.RecordDeleted {
		source = e.Before
	}
	if len(source) > 0 {
		if err := decodeJSON(source, &tr.Record); err != nil {
			return nil, fmt.Errorf("read event %s: %w", e.ID, err)
		}
	}
	if tr.Record == nil {
		tr.Record = map[string]any{"id": e.RecordID}
	}
	if e.Type == event.RecordDeleted {
		tr.Previous = tr.Record
	}
	return tr, nil
}

// finished lets the run go on that waits for a delivery.
func (s *Service) finished(ctx context.Context, e *event.Event) error {
	var d struct {
		ID, Source, Status string
		RunID              string `json:"runId"`
		Attempts           json.Number
		ResponseCode       any `json:"responseCode"`
		Error              any
	}
	if err := decodeJSON(e.After, &d); err != nil || d.Source != messaging.SourceFlow || d.RunID == "" {
		return nil //nolint:nilerr // an event of this type that is not the outbox's own concerns nobody here
	}
	text, err := encodeJSON(&resumption{Output: map[string]any{
		"status": d.Status, "delivered": d.Status == string(messaging.StatusSuccess), "attempts": d.Attempts,
		"responseCode": d.ResponseCode, "error": d.Error,
	}})
	if err != nil {
		return err
	}
	_, err = s.store.Wake(ctx, waitDelivery, d.ID, string(text))
	return err
}

// beforeWrite runs the flows that may refuse or change a write. It is called
// before the write's transaction opens; together they have a deadline.
func (s *Service) beforeWrite(ctx context.Context, change *data.Write) error {
	if change.ID == "" && change.Operation != data.OpCreate || !s.flows.opened() {
		return nil // predicate writes start no flows
	}
	if err := s.flows.refresh(ctx, staleAfter); err != nil {
		return err
	}
	flows := s.flows.on(change.Object, true, change.Operation)
	if len(flows) == 0 {
		return nil
	}
	outer := walkOf(ctx)
	ctx, cancel := context.WithTimeoutCause(context.WithValue(ctx, recordKey{}, (*execution)(nil)), s.cfg.Limits.BeforeTime, &LimitError{
		"BeforeTime", s.cfg.Limits.BeforeTime.Milliseconds(), fmt.Sprintf("The flows before the write take longer than %s", s.cfg.Limits.BeforeTime),
	})
	defer cancel()
	for _, fl := range flows {
		if err := s.runBefore(ctx, fl, change, outer); err != nil {
			return err
		}
	}
	return nil
}

// runBefore runs one flow before a write. A flow that fails refuses the write:
// a check that could not be made has not been passed.
func (s *Service) runBefore(ctx context.Context, fl *flow, change *data.Write, outer *walk) error {
	record, err := s.proposed(change)
	if err != nil {
		return err
	}
	previous, err := s.visible(change.Object, change.Before)
	if err != nil {
		return err
	}
	tr := &trigger{
		Type: triggerRecord, Event: "before " + string(change.Operation), Object: change.Object, RecordID: change.ID,
		Record: record, Previous: previous, Principal: onBehalf(identity.From(ctx)),
	}
	row := s.newRow(fl, tr)
	if outer != nil {
		if row.Depth = outer.row.Depth + 1; outer.row.FlowName == fl.def.Name && outer.row.RecordID == change.ID && change.ID != "" {
			return nil
		}
	}
	if row.Depth > s.cfg.Limits.Depth {
		return data.Refuse(data.CodeValidationFailed, change.Object, fmt.Sprintf("Flows start each other more than %d deep", s.cfg.Limits.Depth))
	}
	w := s.newWalk(fl, row, tr)
	w.before = true
	if _, err = w.first(ctx, fl); err != nil {
		return refusalOf(fl, change.Object, err)
	}
	after, _ := w.st.Frames[0].Scope.Vars["record"].(map[string]any)
	for _, name := range sortedKeys(after) {
		if old, had := record[name]; change.Values != nil && (!had || !reflect.DeepEqual(old, after[name])) {
			change.Values[name] = after[name]
		}
	}
	return nil
}

// proposed is the record as the write would make it.
func (s *Service) proposed(change *data.Write) (map[string]any, error) {
	merged := data.Record{}
	maps.Copy(merged, change.Before)
	maps.Copy(merged, change.Values)
	return s.visible(change.Object, merged)
}

// refusalOf is what the writer is told.
func refusalOf(fl *flow, object string, err error) error {
	var refused *refusal
	var failed *FailedError
	switch {
	case errors.As(err, &refused):
		return data.Refuse(data.CodeValidationFailed, object, refused.message)
	case errors.As(err, &failed):
		message := fmt.Sprintf("Flow '%s' failed before the write: %s", fl.def.Name, failed.Err)
		if fl.def.ErrorMessage != "" {
			message = fl.def.ErrorMessage
		}
		return data.Refuse(data.CodeValidationFailed, object, message)
	}
	return err
}
