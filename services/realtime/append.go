package realtime

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/storage"
)

// Append writes events to the log in the transaction that ctx carries, or in
// one of its own, and wakes consumers and subscribers after the commit. It sets
// Sequence, an empty ID (UUID v7) and an empty Timestamp, and cuts Timestamp to
// milliseconds. After a rollback the events must not be used as if they were in
// the log; appending them again in the next attempt is fine.
//
// Texts must be UTF-8 without NUL, the JSON parts JSON objects, else the error
// is an *[InvalidEventError].
func (s *Service) Append(ctx context.Context, events ...*event.Event) error {
	if len(events) == 0 {
		return nil
	}
	now := s.cfg.Clock()
	for i, e := range events {
		if err := complete(i, e, now); err != nil {
			return err
		}
	}
	add := func(ctx context.Context) error {
		if err := s.log.Append(ctx, events, now.UnixMilli()); err != nil {
			return fmt.Errorf("append events: %w", err)
		}
		storage.AfterCommit(ctx, func(context.Context) { s.committed() })
		return nil
	}
	if storage.InTransaction(ctx) {
		return add(ctx)
	}
	return s.tx.InTx(ctx, add)
}

// complete checks the event and fills what is empty.
func complete(i int, e *event.Event, now time.Time) error {
	if e == nil {
		return &InvalidEventError{i, "event", ReasonMissing}
	}
	if e.Type == "" {
		return &InvalidEventError{i, "type", ReasonMissing}
	}
	if e.Matched < 0 {
		return &InvalidEventError{i, "matched", ReasonRange}
	}
	for _, t := range [...]struct{ field, text string }{
		{"id", e.ID}, {"type", e.Type}, {"object", e.Object}, {"recordId", e.RecordID},
		{"userId", e.UserID}, {"organizationId", e.OrganizationID},
	} {
		switch {
		case strings.IndexByte(t.text, 0) >= 0:
			return &InvalidEventError{i, t.field, ReasonNUL}
		case !utf8.ValidString(t.text):
			return &InvalidEventError{i, t.field, ReasonUTF8}
		}
	}
	for _, p := range [...]struct {
		field string
		json  json.RawMessage
	}{{"changes", e.Changes}, {"before", e.Before}, {"after", e.After}} {
		if reason := checkPart(p.json); reason != "" {
			return &InvalidEventError{i, p.field, reason}
		}
	}
	if e.Timestamp.IsZero() {
		e.Timestamp = now
	}
	e.Timestamp = e.Timestamp.UTC().Truncate(time.Millisecond)
	if y := e.Timestamp.Year(); y < 1 || y > 9999 {
		return &InvalidEventError{i, "timestamp", ReasonRange}
	}
	if e.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("realtime: make an event id: %w", err)
		}
		e.ID = id.String()
	}
	return nil
}

// checkPart looks at a JSON part. What is no JSON must not get in: parts are
// copied into envelopes as they are, where a stray brace could forge members.
func checkPart(part json.RawMessage) Reason {
	switch {
	case len(part) == 0:
		return ""
	case bytes.IndexByte(part, 0) >= 0:
		return ReasonNUL
	case !utf8.Valid(part):
		return ReasonUTF8
	case part[0] != '{' || !json.Valid(part):
		return ReasonJSON
	}
	return ""
}
