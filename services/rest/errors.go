package rest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/auth"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/storage"
)

// Codes of refusals that do not come from the data engine, whose errors bring
// theirs along. Clients branch on codes, so none is ever reused for another
// situation. PAYLOAD_TOO_LARGE is the one that the wire protocol does not have.
const (
	codeUnauthenticated  = "UNAUTHENTICATED"
	codePermissionDenied = "PERMISSION_DENIED"
	codeInvalidOrigin    = "INVALID_ORIGIN"
	codeInvalidRequest   = "INVALID_REQUEST"
	codePayloadTooLarge  = "PAYLOAD_TOO_LARGE"
	codeResourceNotFound = "RESOURCE_NOT_FOUND"
	codeEndpointNotFound = "ENDPOINT_NOT_FOUND"
	codeMethodNotAllowed = "METHOD_NOT_ALLOWED"
	codeNotImplemented   = "NOT_IMPLEMENTED"
	codePageTooLarge     = "PAGE_TOO_LARGE"
	codeResultTooLarge   = "RESULT_TOO_LARGE"
	codeQueryTimeout     = "QUERY_TIMEOUT"
	codeInternal         = "INTERNAL_ERROR"
	codeDatabase         = "DATABASE_ERROR"
)

// internalMessage is all that a client learns of the host's own trouble. Texts
// of drivers name hosts, tables and, in the worst case, values.
const internalMessage = "Internal server error"

// requestError is a refusal by the server itself.
type requestError struct {
	status        int
	code, message string
	// extra stands beside the code in the flat family and under details in
	// the wrapped one.
	extra map[string]any
}

func (e *requestError) Error() string { return e.code + ": " + e.message }

func invalidRequest(message string) *requestError {
	return &requestError{status: http.StatusBadRequest, code: codeInvalidRequest, message: message}
}

func unauthenticated() *requestError {
	return &requestError{
		status: http.StatusUnauthorized, code: codeUnauthenticated,
		message: "Authentication is required to access this endpoint.",
	}
}

// RouteConflictError is returned when two plugins contribute the same route:
// one method and patterns that differ at most in the names of parameters.
type RouteConflictError struct {
	Method, Pattern, OtherPattern string
	// Plugin came second, Other had the route.
	Plugin, Other string
}

func (e *RouteConflictError) Error() string {
	return fmt.Sprintf("rest: route %s %s of plugin %q conflicts with %s of plugin %q",
		e.Method, e.Pattern, e.Plugin, e.OtherPattern, e.Other)
}

// RouteError is returned for a contributed route that cannot be served.
type RouteError struct {
	Method, Pattern, Plugin, Reason string
}

func (e *RouteError) Error() string {
	return fmt.Sprintf("rest: route %s %s of plugin %q %s", e.Method, e.Pattern, e.Plugin, e.Reason)
}

// ListenError is returned when the server's address cannot be listened on.
type ListenError struct {
	Addr string
	Err  error
}

func (e *ListenError) Error() string {
	return fmt.Sprintf("rest: cannot listen on %s: %v", e.Addr, e.Err)
}

// Unwrap returns the cause.
func (e *ListenError) Unwrap() error { return e.Err }

// refusalOf turns any error into what a client is told: the status and the
// refusal in the family's words. Only refusals keep their text; every other
// error is the host's own trouble and becomes a 500 without one.
func refusalOf(err error, f family) (status int, body any) {
	// A refusal may wrap a cause; the outermost one that is a refusal counts.
	var (
		own    *requestError
		engine *data.Error
		denied *identity.DeniedError
	)
	switch {
	case errors.As(err, &own):
		return own.status, own.body(f)
	case errors.As(err, &engine):
		return engineRefusal(engine, f)
	case errors.Is(err, identity.ErrUnauthenticated):
		return http.StatusUnauthorized, unauthenticated().body(f)
	case errors.Is(err, auth.ErrOrigin):
		e := &requestError{status: http.StatusForbidden, code: codeInvalidOrigin, message: "Invalid origin"}
		return e.status, e.body(f)
	case errors.As(err, &denied):
		e := &requestError{status: http.StatusForbidden, code: codePermissionDenied, message: deniedText(denied)}
		if denied.Object != "" {
			e.extra = map[string]any{"object": denied.Object}
		}
		return e.status, e.body(f)
	}
	e := &requestError{status: http.StatusInternalServerError, code: codeInternal, message: internalMessage}
	if databaseFault(err) {
		e.code = codeDatabase
	}
	return e.status, e.body(f)
}

// databaseFault reports whether the database is to blame: it was busy, lost, or
// refused a statement. The last is told by what both drivers' errors have, so
// that no driver is imported here.
func databaseFault(err error) bool {
	var (
		busy    *storage.WriterBusyError
		unknown *storage.CommitUnknownError
		state   interface{ SQLState() string }
		code    interface {
			error
			Code() int
		}
	)
	return storage.FaultOf(err).Kind != storage.FaultNone || errors.Is(err, sql.ErrConnDone) ||
		errors.As(err, &busy) || errors.As(err, &unknown) || errors.As(err, &state) || errors.As(err, &code)
}

// deniedBy finds a denial in an error.
func deniedBy(err error) (*identity.DeniedError, bool) {
	var denied *identity.DeniedError
	return denied, errors.As(err, &denied)
}

func deniedText(e *identity.DeniedError) string {
	if e.Object == "" {
		return fmt.Sprintf("You need the permission '%s'.", e.Permission)
	}
	return fmt.Sprintf("You are not permitted to %s records of '%s'.", e.Permission, e.Object)
}

// engineRefusal words an error of the data engine, whose JSON form is the flat
// envelope already.
func engineRefusal(e *data.Error, f family) (status int, body any) {
	status = e.HTTPStatus()
	switch {
	case status == http.StatusUnauthorized:
		return status, unauthenticated().body(f)
	case status >= http.StatusInternalServerError:
		withheld := &requestError{status: status, code: e.Code, message: internalMessage}
		if e.Object != "" {
			withheld.extra = map[string]any{"object": e.Object}
		}
		return status, withheld.body(f)
	case f == flat:
		return status, e
	}
	return status, wrappedError{Error: wrappedBody{Code: e.Code, Message: e.Message, Details: detailsOf(e)}}
}

// detailsOf is an engine error without its code and text.
func detailsOf(e *data.Error) map[string]any {
	var details map[string]any
	if b, err := json.Marshal(e); err == nil {
		_ = json.Unmarshal(b, &details)
	}
	delete(details, "error")
	delete(details, "code")
	return details
}

// fail answers an error and keeps what the client is not told for the log.
func fail(w http.ResponseWriter, r *http.Request, f family, err error) {
	x := exchangeOf(r.Context())
	status, body := refusalOf(err, f)
	switch {
	case r.Context().Err() != nil && errors.Is(err, context.Canceled):
		// The client has gone away: nobody reads the answer, and nothing is
		// broken.
		x.cancelled = true
	case status >= http.StatusInternalServerError:
		x.cause = err
	}
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if err := writeJSON(w, status, body); err != nil {
		x.cause = err
		writeBody(w, http.StatusInternalServerError, []byte(`{"error":"`+internalMessage+`","code":"`+codeInternal+`"}`))
	}
}
