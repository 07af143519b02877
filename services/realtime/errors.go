package realtime

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrStarted is returned by Consume after Start.
	ErrStarted = errors.New("realtime: the service has started, consumers are registered before")
	// ErrStopped is returned by Start and Subscribe after Stop.
	ErrStopped = errors.New("realtime: the service was stopped")
	// ErrTooManySubscriptions is returned by Subscribe at Config.MaxSubscriptions.
	ErrTooManySubscriptions = errors.New("realtime: too many subscriptions")
	// ErrConsumerRegistered is returned by Drop for a consumer of this
	// process, and by Consume for a name that is taken.
	ErrConsumerRegistered = errors.New("realtime: consumer is registered")
	// ErrUnknownConsumer is returned for a name that the log does not know.
	ErrUnknownConsumer = errors.New("realtime: unknown consumer")
	// ErrBadSplit is returned by Split for a partition at which no range can
	// be split.
	ErrBadSplit = errors.New("realtime: no range can be split at this partition")
)

// ConfigError names a field of a configuration and what it must be.
type ConfigError struct{ Field, Bound string }

// Error implements error.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("realtime: %s must be %s", e.Field, e.Bound)
}

// Reason tells why an event was refused.
type Reason string

// The reasons.
const (
	ReasonMissing Reason = "missing"
	ReasonNUL     Reason = "holds a NUL"
	ReasonUTF8    Reason = "is not UTF-8"
	ReasonJSON    Reason = "is not a JSON object"
	ReasonRange   Reason = "is out of range"
)

// InvalidEventError tells why Append refused an event. Nothing was appended.
type InvalidEventError struct {
	// Index is the event's place among the arguments.
	Index int
	// Field is the field's name in the envelope.
	Field  string
	Reason Reason
}

// Error implements error.
func (e *InvalidEventError) Error() string {
	return fmt.Sprintf("realtime: event %d: %s %s", e.Index, e.Field, e.Reason)
}

// NotNextError is returned by Skip for an event at which the consumer is not.
type NotNextError struct {
	Consumer, EventID string
	// Next lists the events that the consumer's ranges are at.
	Next []string
}

// Error implements error.
func (e *NotNextError) Error() string {
	next := "it has nothing to handle"
	if len(e.Next) > 0 {
		next = "it is at " + strings.Join(e.Next, ", ")
	}
	return fmt.Sprintf("realtime: consumer %s is not at event %s: %s", e.Consumer, e.EventID, next)
}

// PanicError is a panic of a handler.
type PanicError struct {
	Value any
	// Stack is the goroutine's stack.
	Stack []byte
}

// Error implements error.
func (e *PanicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.Value) }

// StuckError is the health of a service with consumers that are stuck.
type StuckError struct{ Stuck []StuckEvent }

// Error implements error.
func (e *StuckError) Error() string {
	parts := make([]string, len(e.Stuck))
	for i, s := range e.Stuck {
		parts[i] = fmt.Sprintf("%s at event %s: %s", s.Consumer, s.EventID, s.Error)
	}
	return "realtime: consumers are stuck: " + strings.Join(parts, "; ")
}
