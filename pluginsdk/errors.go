package pluginsdk

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Codes of [Error] that this package and the host set themselves. Errors of
// records carry the codes of the REST API (RECORD_NOT_FOUND and so on).
const (
	// CodeDenied is a call for which the operator granted no capability.
	CodeDenied = "CAPABILITY_DENIED"
	// CodeUnavailable is a call to a plugin that does not run at the moment.
	// It may be made again.
	CodeUnavailable = "PLUGIN_UNAVAILABLE"
	// CodeInvalid is a call that makes no sense.
	CodeInvalid = "INVALID_REQUEST"
	// CodeInTransaction is a write by a hook that runs inside a transaction
	// of several writes, which would wait for itself.
	CodeInTransaction = "HOOK_IN_TRANSACTION"
	// CodeInternal is any other failure.
	CodeInternal = "INTERNAL_ERROR"
	// CodeRefused is the default code of a hook's refusal.
	CodeRefused = "WRITE_REFUSED"
	// CodeTimeout is a call that its deadline ended.
	CodeTimeout = "TIMEOUT"
)

// Error is an error that crosses between a plugin and its host unchanged.
type Error struct {
	Code, Message string
	// Retryable tells that the same call may succeed later.
	Retryable bool
	// Object and Field name what the error is about, if anything.
	Object, Field string
	// Fields is a JSON list of what is wrong with which field of a record, as
	// the REST API has it; nil for none.
	Fields json.RawMessage
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Code, e.Message) }

// Is makes errors.Is(err, &Error{Code: c}) compare the codes.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// IsCode reports whether err is, or wraps, an [Error] with the code.
func IsCode(err error, code string) bool { return errors.Is(err, &Error{Code: code}) }

// Retryable reports whether the call that ended in err may be made again.
func Retryable(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Retryable
}

// Refuse is an error for before hooks: the write is refused with the message,
// about the field unless it is empty.
func Refuse(field, message string) *Error {
	return &Error{Code: CodeRefused, Message: message, Field: field}
}

// AsError is err as an [Error]: itself when it is one, otherwise one with
// [CodeInternal]. Nil stays nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: CodeInternal, Message: err.Error()}
}
