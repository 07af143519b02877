package automation

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/objecthost/objecthost/core/identity"
)

// apiError is the error of the wrapped envelope.
type apiError struct {
	Code       string         `json:"code"`
	Message    string         `json:"message"`
	HTTPStatus int            `json:"httpStatus"`
	Details    map[string]any `json:"details,omitempty"`
}

// flowError and runError name what was asked for.
type flowError struct {
	name string
	err  error
}

func (e flowError) Error() string { return e.err.Error() }
func (e flowError) Unwrap() error { return e.err }

type runError struct {
	id string
	// suspended tells that only a paused run would have done.
	suspended bool
	err       error
}

func (e runError) Error() string { return e.err.Error() }
func (e runError) Unwrap() error { return e.err }

// signalError refuses the body of a resume.
type signalError struct{ reason string }

func (e *signalError) Error() string { return e.reason }

// refusalFor turns an error into what the caller is told. Trouble of the
// host's own keeps its text to itself.
func refusalFor(err error) apiError {
	var (
		invalid  *ValidationError
		failed   *FailedError
		input    *InvalidInputError
		signal   *signalError
		denied   *identity.DeniedError
		tooLarge *http.MaxBytesError
		name     flowError
		run      runError
	)
	errors.As(err, &name)
	errors.As(err, &run)
	switch {
	case errors.As(err, &invalid):
		return apiError{"VALIDATION_FAILED", invalid.Error(), http.StatusBadRequest, map[string]any{"fields": invalid.Problems}}
	case errors.As(err, &failed):
		details := map[string]any{"summary": failed.Summary, "runId": failed.RunID}
		if failed.ErrorMessage != "" {
			details["errorMessage"] = failed.ErrorMessage
		}
		return apiError{"FLOW_FAILED", failed.Error(), http.StatusBadRequest, details}
	case errors.As(err, &input):
		return apiError{"INVALID_REQUEST", input.Reason, http.StatusBadRequest, nil}
	case errors.As(err, &signal):
		return apiError{"INVALID_SIGNAL", signal.reason, http.StatusBadRequest, nil}
	case errors.As(err, &tooLarge):
		return apiError{"PAYLOAD_TOO_LARGE", "Request body is too large.", http.StatusRequestEntityTooLarge, nil}
	case errors.Is(err, ErrFlowNotFound):
		return apiError{"RESOURCE_NOT_FOUND", fmt.Sprintf("Flow '%s' not found", name.name), http.StatusNotFound, nil}
	case errors.Is(err, ErrFlowDisabled):
		return apiError{"FLOW_DISABLED", fmt.Sprintf("Flow '%s' is disabled", name.name), http.StatusConflict, nil}
	case errors.Is(err, ErrNoStartNode):
		return apiError{"FLOW_NO_START_NODE", "Flow has no start node", http.StatusUnprocessableEntity, nil}
	case errors.Is(err, ErrRunNotFound) && run.suspended:
		return apiError{"RESOURCE_NOT_FOUND", fmt.Sprintf("No suspended run '%s'", run.id), http.StatusNotFound, nil}
	case errors.Is(err, ErrRunNotFound):
		return apiError{"RESOURCE_NOT_FOUND", fmt.Sprintf("Run '%s' not found", run.id), http.StatusNotFound, nil}
	case errors.Is(err, ErrResumeInProgress):
		return apiError{"RESUME_IN_PROGRESS", fmt.Sprintf("Run '%s' is being executed", run.id), http.StatusConflict, nil}
	case errors.Is(err, ErrSignature):
		return apiError{"INVALID_SIGNATURE", "The signature does not match.", http.StatusUnauthorized, nil}
	case errors.Is(err, errStopped):
		return apiError{"STORE_UNAVAILABLE", "The host is stopping; the run goes on later if it had begun.", http.StatusServiceUnavailable, nil}
	case errors.Is(err, identity.ErrUnauthenticated):
		return apiError{"UNAUTHENTICATED", "Authentication is required to access this endpoint.", http.StatusUnauthorized, nil}
	case errors.As(err, &denied):
		return apiError{"PERMISSION_DENIED", fmt.Sprintf("You are not permitted to %s records of '%s'.", denied.Permission, denied.Object), http.StatusForbidden, nil}
	}
	return apiError{"INTERNAL_ERROR", "Internal server error", http.StatusInternalServerError, nil}
}
