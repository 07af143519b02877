package data

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/objecthost/objecthost/core/identity"
)

// The codes of [Error]. They are part of the wire protocol.
const (
	CodeUnauthenticated   = "UNAUTHENTICATED"
	CodePermissionDenied  = "PERMISSION_DENIED"
	CodeObjectNotFound    = "OBJECT_NOT_FOUND"
	CodeRecordNotFound    = "RECORD_NOT_FOUND"
	CodeValidationFailed  = "VALIDATION_FAILED"
	CodeInvalidField      = "INVALID_FIELD"
	CodeInvalidFilter     = "INVALID_FILTER"
	CodeFilterTooLarge    = "FILTER_TOO_LARGE"
	CodeFilterTooDeep     = "FILTER_TOO_DEEP"
	CodeTooManyValues     = "TOO_MANY_VALUES"
	CodeInvalidSort       = "INVALID_SORT"
	CodeInvalidRequest    = "INVALID_REQUEST"
	CodeInvalidCursor     = "INVALID_CURSOR"
	CodeUnsupportedParam  = "UNSUPPORTED_QUERY_PARAM"
	CodeUniqueViolation   = "UNIQUE_VIOLATION"
	CodeConcurrentUpdate  = "CONCURRENT_UPDATE"
	CodeDeleteRestricted  = "DELETE_RESTRICTED"
	CodeMethodNotAllowed  = "OBJECT_API_METHOD_NOT_ALLOWED"
	CodeBatchTooLarge     = "BATCH_TOO_LARGE"
	CodeBatchNotAtomic    = "BATCH_NOT_ATOMIC"
	CodeNotAttempted      = "NOT_ATTEMPTED"
	CodeRolledBack        = "ROLLED_BACK"
	CodeInvalidDefinition = "INVALID_DEFINITION"
	CodeNotUndoable       = "NOT_UNDOABLE"
	CodeConflict          = "RESOURCE_CONFLICT"
	// CodePluginUnavailable is the refusal of a write whose hook lives in a
	// plugin that does not run at the moment.
	CodePluginUnavailable = "PLUGIN_UNAVAILABLE"
)

// Error is what the engine answers when the caller is to blame or a rule of
// the data forbids the operation. Other errors (a lost database, a cancelled
// context) come through unwrapped in [Error] only as the cause. Its JSON form
// is the flat error envelope of the wire protocol.
type Error struct {
	Message string       `json:"error"`
	Code    string       `json:"code"`
	Field   string       `json:"field,omitempty"`
	Fields  []FieldError `json:"fields,omitempty"`
	// DeveloperMessage says more than an end user needs.
	DeveloperMessage string `json:"developerMessage,omitempty"`
	// CurrentVersion and CurrentRecord tell the loser of a race what is there.
	CurrentVersion string `json:"currentVersion,omitempty"`
	CurrentRecord  Record `json:"currentRecord,omitempty"`
	// Allowed lists the open methods of a CodeMethodNotAllowed.
	Allowed []string `json:"allowed,omitzero"`
	// Count and Max belong to CodeBatchTooLarge.
	Count int `json:"count,omitempty"`
	Max   int `json:"max,omitempty"`
	// Operation is the number of the step of a transaction that failed, from 0.
	Operation *int   `json:"operation,omitempty"`
	Object    string `json:"object,omitempty"`

	cause error
}

// Error is for logs; clients get Message alone.
func (e *Error) Error() string {
	if e.Object == "" {
		return fmt.Sprintf("%s: %s", e.Code, e.Message)
	}
	return fmt.Sprintf("%s on %s: %s", e.Code, e.Object, e.Message)
}

// Unwrap returns the error behind it, nil for none.
func (e *Error) Unwrap() error { return e.cause }

// HTTPStatus is the status that belongs to the code.
func (e *Error) HTTPStatus() int { return HTTPStatus(e.Code) }

// FieldError is what is wrong with one field of a record. Value is never set
// for sealed fields.
type FieldError struct {
	Field      string         `json:"field"`
	Code       string         `json:"code"`
	Message    string         `json:"message"`
	Label      string         `json:"label"`
	Constraint map[string]any `json:"constraint,omitempty"`
	Value      any            `json:"value,omitempty"`
	Options    []string       `json:"options,omitempty"`
}

// HTTPStatus maps a code of [Error] to its HTTP status, 500 for unknown ones.
func HTTPStatus(code string) int {
	switch code {
	case CodeUnauthenticated:
		return http.StatusUnauthorized
	case CodePermissionDenied:
		return http.StatusForbidden
	case CodeObjectNotFound, CodeRecordNotFound:
		return http.StatusNotFound
	case CodeUniqueViolation, CodeConcurrentUpdate, CodeDeleteRestricted, CodeConflict:
		return http.StatusConflict
	case CodeMethodNotAllowed:
		return http.StatusMethodNotAllowed
	case CodeFilterTooLarge, CodeFilterTooDeep, CodeTooManyValues,
		CodeValidationFailed, CodeInvalidField, CodeInvalidFilter, CodeInvalidSort, CodeInvalidCursor, CodeInvalidRequest,
		CodeUnsupportedParam, CodeBatchTooLarge, CodeBatchNotAtomic, "VALIDATION_ERROR":
		return http.StatusBadRequest
	case CodeInvalidDefinition, CodeNotUndoable:
		return http.StatusUnprocessableEntity
	case CodePluginUnavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// IsCode reports whether err is, or wraps, an *[Error] with the given code.
func IsCode(err error, code string) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}

// Refuse is an error for handlers of [Engine.BeforeWrite]: the write is
// refused with the code and message.
func Refuse(code, object, message string) *Error {
	return &Error{Code: code, Object: object, Message: message}
}

// Invalid is the error of a record whose fields are wrong, all of them.
func Invalid(object string, fields ...FieldError) *Error {
	messages := make([]string, len(fields))
	for i, f := range fields {
		messages[i] = f.Message
	}
	return &Error{Code: CodeValidationFailed, Object: object, Fields: fields, Message: strings.Join(messages, "; ")}
}

// The messages of the following errors are part of the wire protocol.
func errObject(name string) *Error {
	return &Error{Code: CodeObjectNotFound, Object: name, Message: fmt.Sprintf("Object '%s' is not registered", name)}
}

func errRecord(object, id string) *Error {
	return &Error{Code: CodeRecordNotFound, Object: object, Message: fmt.Sprintf("Record %s not found in %s", id, object)}
}

func errUnknownField(object, field string) *Error {
	return &Error{Code: CodeInvalidField, Object: object, Field: field, Message: fmt.Sprintf("Unknown field '%s' on object '%s'", field, object)}
}

// errStale tells the loser of a race both versions and the record that won.
func errStale(object, id, current, expected string, record Record) *Error {
	return &Error{
		Code: CodeConcurrentUpdate, Object: object, CurrentVersion: current, CurrentRecord: record,
		Message: fmt.Sprintf("Record %s/%s was modified by another user (current version %s, expected %s)", object, id, current, expected),
	}
}

// denied turns the answer of an authorizer into an *Error.
func denied(object string, err error) error {
	var missing *identity.DeniedError
	switch {
	case errors.Is(err, identity.ErrUnauthenticated):
		return &Error{Code: CodeUnauthenticated, Object: object, Message: "authentication is required", cause: err}
	case errors.As(err, &missing) && object == "":
		return &Error{Code: CodePermissionDenied, Message: fmt.Sprintf("%s is not permitted", missing.Permission), cause: err}
	case errors.As(err, &missing):
		return &Error{Code: CodePermissionDenied, Object: object, Message: fmt.Sprintf("%s on '%s' is not permitted", missing.Permission, object), cause: err}
	default:
		return fmt.Errorf("authorize %s: %w", cmp.Or(object, "metadata"), err)
	}
}
