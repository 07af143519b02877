package messaging

import (
	"errors"
	"fmt"
)

// ErrNotFound is returned for a delivery that does not exist or that the
// caller's organization may not see.
var ErrNotFound = errors.New("messaging: delivery not found")

// ErrNeverSent is returned by [Service.Redeliver] for a parked delivery whose
// secret or headers are still unreadable.
var ErrNeverSent = errors.New("messaging: delivery was never sent: its secret or headers are unreadable")

// ErrNoSealer is returned for a request with headers or a secret when the
// service has no keyring to seal them with.
var ErrNoSealer = errors.New("messaging: no keyring to seal headers and secrets with")

// NotEligibleError is returned when a delivery's state does not allow what was
// asked.
type NotEligibleError struct {
	ID string
	// Status is the delivery's state, Reason why that does not do.
	Status Status
	Reason string
}

func (e *NotEligibleError) Error() string {
	return fmt.Sprintf("messaging: delivery %s is %s: %s", e.ID, e.Status, e.Reason)
}

// RequestError is returned for a [Request] that can never be delivered.
type RequestError struct {
	// Field is the field of Request that is wrong, Reason what is wrong with it.
	Field, Reason string
	// Err is the error behind it, if any.
	Err error
}

func (e *RequestError) Error() string {
	return fmt.Sprintf("messaging: request field %s: %s", e.Field, e.Reason)
}

// Unwrap returns the error behind it.
func (e *RequestError) Unwrap() error { return e.Err }
