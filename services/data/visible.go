package data

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/core/object"
)

// Visible returns an event as the principal of ctx may see it: what it may read
// and list, of its own organization, of an object that is open to both, without
// the fields that are hidden from it. It is nil for an event that the principal learns nothing of. An event
// whose payload is no record is shown whole to those from whom no field of its
// object is hidden, and to no one else.
//
// The event that was given is not changed; the answer may be the same pointer.
// The error is an *[Error] of CodeUnauthenticated when the caller's credentials
// have ended, upon which a stream has to end too, or that of an authorizer that
// cannot tell.
func (e *Engine) Visible(ctx context.Context, ev *event.Event) (*event.Event, error) {
	t, err := e.table(ev.Object)
	if err != nil {
		return nil, nil //nolint:nilerr // an event about no object concerns no caller
	}
	who := identity.From(ctx)
	if !who.Everywhere && (ev.OrganizationID != who.OrganizationID || !t.org && who.OrganizationID != "") {
		// The credentials are looked at all the same: they may have ended.
		return nil, onlyUnauthenticated(e.allow(ctx, identity.OperationRead, ev.Object))
	}
	if !who.System && !(t.schema.Allows(object.MethodGet) && t.schema.Allows(object.MethodList)) {
		return nil, onlyUnauthenticated(e.allow(ctx, identity.OperationRead, ev.Object))
	}
	for _, op := range []identity.Operation{identity.OperationRead, identity.OperationList} {
		if err := e.allow(ctx, op, ev.Object); err != nil {
			return nil, onlyUnauthenticated(err)
		}
	}
	seen := e.restrict(ctx, t)
	switch {
	case seen == t:
		return ev, nil
	case !strings.HasPrefix(ev.Type, "data."):
		return nil, nil
	}
	out := *ev
	for _, part := range []*json.RawMessage{&out.Changes, &out.Before, &out.After} {
		if *part, err = seen.strip(*part); err != nil {
			return nil, fmt.Errorf("read event %s: %w", ev.ID, err)
		}
	}
	return &out, nil
}

// onlyUnauthenticated keeps the errors that are more than a missing permission.
func onlyUnauthenticated(err error) error {
	var missing *identity.DeniedError
	if errors.As(err, &missing) {
		return nil
	}
	return err
}

// strip leaves the fields out of an event's record that are not to be seen.
func (t *table) strip(text json.RawMessage) (json.RawMessage, error) {
	if len(text) == 0 {
		return text, nil
	}
	value, err := readJSON(string(text))
	if err != nil {
		return nil, err
	}
	record, _ := value.(map[string]any)
	for name := range record {
		if _, ok := t.visible(name); !ok {
			delete(record, name)
		}
	}
	return t.eventJSON(record)
}
