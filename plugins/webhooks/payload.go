package webhooks

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/objecthost/objecthost/core/event"
)

// projection is the set of record fields that a webhook's bodies keep; empty
// keeps all. Its key is equal for equal sets.
type projection struct {
	fields []string
	key    string
}

func newProjection(fields []string) projection {
	sorted := slices.Compact(slices.Sorted(slices.Values(fields)))
	return projection{fields: sorted, key: strings.Join(sorted, ",")}
}

// bodies encodes the delivery bodies of one event, each projection once, so
// that webhooks with the same projection share the bytes.
type bodies struct {
	event  *event.Event
	action string
	made   map[string][]byte
}

func newBodies(e *event.Event, action string) *bodies {
	return &bodies{event: e, action: action, made: map[string][]byte{}}
}

// body returns the bytes that are stored, signed and sent. Callers must not
// change them.
func (b *bodies) body(p projection) ([]byte, error) {
	if made, ok := b.made[p.key]; ok {
		return made, nil
	}
	e := b.event
	if p.key != "" {
		reduced := *e
		for _, part := range []*json.RawMessage{&reduced.Changes, &reduced.Before, &reduced.After} {
			kept, err := p.keep(*part)
			if err != nil {
				return nil, fmt.Errorf("project event %s: %w", e.ID, err)
			}
			*part = kept
		}
		e = &reduced
	}
	body, err := e.AppendJSON(nil, b.action)
	if err != nil {
		return nil, fmt.Errorf("encode event %s: %w", e.ID, err)
	}
	b.made[p.key] = body
	return body, nil
}

// keep reduces a record to the projection's fields, in the record's order and
// with the digits of its numbers.
func (p projection) keep(record json.RawMessage) (json.RawMessage, error) {
	if len(record) == 0 {
		return record, nil
	}
	all, err := parseMembers(record)
	if err != nil {
		return nil, err
	}
	kept := members{}
	for _, one := range all {
		if _, found := slices.BinarySearch(p.fields, one.key); found {
			kept = append(kept, one)
		}
	}
	return kept.appendJSON(nil), nil
}
