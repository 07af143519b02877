package auth

import (
	"errors"
	"fmt"

	"github.com/objecthost/objecthost/core/identity"
)

// ErrInvalidCredentials is returned for credentials that are not, or no longer,
// valid: malformed, unknown, expired or revoked. Callers learn no more than
// that. It wraps identity.ErrUnauthenticated.
var ErrInvalidCredentials = fmt.Errorf("auth: credentials are not valid: %w", identity.ErrUnauthenticated)

// ErrKeyNotFound is returned when the caller's organization has no such key.
var ErrKeyNotFound = errors.New("auth: key not found")

// InvalidError tells of a value that a key cannot have.
type InvalidError struct {
	// Field is name, expires_at or scopes.
	Field string
	// Reason completes the sentence "<field> …".
	Reason string
}

func (e *InvalidError) Error() string { return "auth: " + e.Field + " " + e.Reason }

// ExceedsError tells of a key that would reach further than its maker.
type ExceedsError struct {
	// Scope is the entry that the maker does not have, "" when the key would
	// outlive its maker's.
	Scope string
}

func (e *ExceedsError) Error() string {
	if e.Scope == "" {
		return "auth: a key cannot outlive the key that makes it"
	}
	return fmt.Sprintf("auth: a key cannot have the scope %q, which its maker lacks", e.Scope)
}

// Unwrap makes the error a denial for callers that ask for one.
func (e *ExceedsError) Unwrap() error {
	return &identity.DeniedError{Permission: e.Scope}
}
