// Package event defines the envelope of what happened: record changes of the
// data service and the events that other services append to the same log.
package event

import (
	"encoding/json"
	"time"
)

// The types of record events. A predicate write over many records appends one
// RecordsUpdated or RecordsDeleted event instead of one event per record.
const (
	RecordCreated   = "data.record.created"
	RecordUpdated   = "data.record.updated"
	RecordDeleted   = "data.record.deleted"
	RecordUndeleted = "data.record.undeleted"
	RecordsUpdated  = "data.records.updated"
	RecordsDeleted  = "data.records.deleted"
	// ObjectCreated and ObjectUpdated tell of an object's definition.
	ObjectCreated = "metadata.object.created"
	ObjectUpdated = "metadata.object.updated"
	// DeliveryFinished reports the end of an HTTP delivery.
	DeliveryFinished = "delivery.finished"
)

// Partitions is the number of partitions of the event log and of the outbox.
// It is fixed: stored rows carry their partition's number.
const Partitions = 256

// Event is one entry of the log. Changes, Before and After hold JSON objects;
// they are nil where they do not apply.
type Event struct {
	// ID is a UUID, unique per event.
	ID string
	// Sequence is the number that the log gave the event. Numbers grow within
	// one record; over different records they may be seen out of order.
	Sequence int64
	// Type is one of the constants above or a plugin's own.
	Type string
	// Object and RecordID name the record; RecordID is empty for RecordsUpdated
	// and RecordsDeleted.
	Object, RecordID string
	// Matched is the number of records that a predicate write changed.
	Matched int64
	// Changes is what an update wrote, After the record afterwards, Before the
	// record before the write.
	Changes, Before, After json.RawMessage
	// UserID and OrganizationID tell in whose name the write was made.
	UserID, OrganizationID string
	// Timestamp is the time of the write, in UTC with milliseconds.
	Timestamp time.Time
}

// TimeLayout is how times are written in JSON: ISO 8601, UTC, milliseconds.
const TimeLayout = "2006-01-02T15:04:05.000Z"

// FormatTime formats t as [TimeLayout] in UTC.
func FormatTime(t time.Time) string { return t.UTC().Format(TimeLayout) }

// Key is what orders events: events with one key are consumed in the order of
// their writes. It is "<object>:<recordId>".
func (e *Event) Key() string { return e.Object + ":" + e.RecordID }

// Partition is the partition of the event's key.
func (e *Event) Partition() int { return Partition(e.Key()) }

// Partition is FNV-1a-32 over the UTF-8 bytes of key, modulo [Partitions].
func Partition(key string) int {
	h := uint32(2166136261)
	for i := range len(key) {
		h = (h ^ uint32(key[i])) * 16777619
	}
	return int(h % Partitions)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *Event) UnmarshalJSON(data []byte) error {
	var in struct {
		ID             string          `json:"id"`
		Sequence       int64           `json:"sequence"`
		Type           string          `json:"type"`
		Object         string          `json:"object"`
		RecordID       string          `json:"recordId"`
		Matched        int64           `json:"matched"`
		Changes        json.RawMessage `json:"changes"`
		Before         json.RawMessage `json:"before"`
		After          json.RawMessage `json:"after"`
		UserID         string          `json:"userId"`
		OrganizationID string          `json:"organizationId"`
		Timestamp      time.Time       `json:"timestamp"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*e = Event(in)
	e.Timestamp = e.Timestamp.UTC()
	return nil
}
