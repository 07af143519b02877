package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/services/messaging"
)

// Bounds of the overlap of a rotation, in hours.
const (
	defaultOverlapHours = 24
	maxOverlapHours     = 7 * 24
)

// routes serves the service over HTTP. The service is there before the HTTP
// server opens its socket.
type routes struct {
	service func() *Service
	log     func() *slog.Logger
}

func (r *routes) list() []core.Route {
	return []core.Route{
		{
			Method: http.MethodPost, Pattern: "/api/v1/webhooks/redeliver", Permission: PermissionRedeliver,
			Summary: "Send a delivery that has ended once more", Handler: http.HandlerFunc(r.redeliver),
		},
		{
			Method: http.MethodPost, Pattern: "/api/v1/webhooks/{id}/test", Permission: PermissionManage,
			Summary: "Send a signed sample and return the attempt", Handler: http.HandlerFunc(r.test),
		},
		{
			Method: http.MethodPost, Pattern: "/api/v1/webhooks/{id}/rotate-secret", Permission: PermissionRotate,
			Summary: "Make a new signing secret, shown once", Handler: http.HandlerFunc(r.rotate),
		},
		{
			Method: http.MethodPost, Pattern: "/api/v1/webhooks/{id}/replay", Permission: PermissionRedeliver,
			Summary: "Match the events of a time once more and deliver them as new deliveries", Handler: http.HandlerFunc(r.replay),
		},
	}
}

// apiError is an answer in the wrapped error envelope.
type apiError struct {
	status        int
	code, message string
}

func (e *apiError) Error() string { return e.code + ": " + e.message }

func (r *routes) redeliver(w http.ResponseWriter, req *http.Request) {
	if !identity.From(req.Context()).Authenticated() {
		r.refuse(w, req, &apiError{http.StatusUnauthorized, "UNAUTHENTICATED", "Sign in to redeliver webhook deliveries."})
		return
	}
	id, useCurrent, err := redeliverBody(req)
	if err == nil {
		var d messaging.Delivery
		if d, err = r.service().Redeliver(req.Context(), id, useCurrent); err == nil {
			answer(w, map[string]any{"id": d.ID, "status": d.Status})
			return
		}
		err = redeliverError(id, err)
	}
	r.refuse(w, req, err)
}

func redeliverBody(req *http.Request) (id string, useCurrent bool, err error) {
	body, err := readObject(req)
	if err != nil {
		return "", false, err
	}
	id, _ = text(body.get("deliveryId"))
	if id == "" {
		return "", false, &apiError{http.StatusBadRequest, "MISSING_REQUIRED_FIELD", "Body must include `deliveryId: string`."}
	}
	if value := body.get("useCurrent"); value != nil {
		if readBool(&useCurrent, "useCurrent", value) != nil {
			return "", false, &apiError{http.StatusBadRequest, "INVALID_REQUEST", "`useCurrent` must be true or false."}
		}
	}
	return id, useCurrent, nil
}

func redeliverError(id string, err error) error {
	var ineligible *messaging.NotEligibleError
	switch {
	case errors.Is(err, messaging.ErrNotFound):
		return &apiError{http.StatusNotFound, "RESOURCE_NOT_FOUND", fmt.Sprintf("Delivery row '%s' not found", id)}
	case errors.As(err, &ineligible):
		return &apiError{http.StatusConflict, "DELIVERY_NOT_ELIGIBLE",
			fmt.Sprintf("Delivery row '%s' cannot be redelivered: it is %s and %s", id, ineligible.Status, ineligible.Reason)}
	case errors.Is(err, messaging.ErrNeverSent):
		return &apiError{http.StatusConflict, "DELIVERY_NEVER_SENT",
			fmt.Sprintf("Delivery row '%s' was never sent, because a secret or the headers of its webhook cannot be read", id)}
	case errors.Is(err, ErrNotWebhook):
		return &apiError{http.StatusBadRequest, "INVALID_REQUEST", "`useCurrent` is for deliveries of webhooks only."}
	}
	return err
}

func (r *routes) rotate(w http.ResponseWriter, req *http.Request) {
	id := req.PathValue("id")
	hours, err := rotateBody(req)
	if err != nil {
		r.refuse(w, req, err)
		return
	}
	secret, err := r.service().Rotate(req.Context(), id, time.Duration(hours)*time.Hour)
	if err != nil {
		r.refuse(w, req, webhookError(id, err))
		return
	}
	// The one answer that holds a secret must not stay in any cache.
	w.Header().Set("Cache-Control", "no-store")
	answer(w, map[string]any{"id": id, "secret": secret, "overlapHours": hours})
}

func rotateBody(req *http.Request) (hours int64, err error) {
	body, err := readObject(req)
	if err != nil {
		return 0, err
	}
	hours = defaultOverlapHours
	if value := body.get("overlapHours"); value != nil && readInteger(&hours, "overlapHours", value, 0, maxOverlapHours) != nil {
		return 0, &apiError{http.StatusBadRequest, "INVALID_REQUEST",
			fmt.Sprintf("`overlapHours` must be an integer from 0 to %d.", maxOverlapHours)}
	}
	return hours, nil
}

func (r *routes) test(w http.ResponseWriter, req *http.Request) {
	id := req.PathValue("id")
	result, err := r.service().Test(req.Context(), id)
	if err != nil {
		r.refuse(w, req, webhookError(id, err))
		return
	}
	d := result.Delivery
	out := map[string]any{
		"deliveryId": d.ID, "status": d.Status, "error": orNil(d.Error), "signature": orNil(d.Signature), "attempt": nil,
	}
	if a := result.Attempt; a != nil {
		out["attempt"] = map[string]any{
			"attempt": a.Attempt, "startedAt": event.FormatTime(a.Started), "durationMs": a.Duration.Milliseconds(),
			"remoteAddr": orNil(a.RemoteAddr), "requestHeaders": rawOrNil(a.RequestHeaders),
			"responseCode": orNil(a.ResponseCode), "responseHeaders": rawOrNil(a.ResponseHeaders),
			"responseBody": a.ResponseBody, "responseTruncated": a.Truncated,
			"errorClass": orNil(a.ErrorClass), "error": orNil(a.Error),
		}
	}
	answer(w, out)
}

func webhookError(id string, err error) error {
	switch {
	case errors.Is(err, ErrNotFound), data.IsCode(err, data.CodeRecordNotFound):
		return &apiError{http.StatusNotFound, "RESOURCE_NOT_FOUND", fmt.Sprintf("Webhook '%s' not found", id)}
	case errors.Is(err, ErrHeld):
		return &apiError{http.StatusConflict, "WEBHOOK_HELD", "The webhook is inactive or paused, so that nothing is sent. Switch it on first."}
	case data.IsCode(err, data.CodeConcurrentUpdate):
		return &apiError{http.StatusConflict, data.CodeConcurrentUpdate, "The webhook was changed meanwhile. Try again."}
	}
	return err
}

// readObject reads a request body that is one JSON object; an empty body is an
// empty one.
func readObject(req *http.Request) (members, error) {
	source, err := io.ReadAll(req.Body)
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, &apiError{http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE", "Request body is too large."}
	}
	if err != nil || len(source) == 0 {
		return nil, err
	}
	body, err := parseMembers(source)
	if err != nil {
		return nil, &apiError{http.StatusBadRequest, "INVALID_REQUEST", "Request body must be JSON."}
	}
	return body, nil
}

func answer(w http.ResponseWriter, data any) {
	writeJSON(w, http.StatusOK, struct {
		Success bool `json:"success"`
		Data    any  `json:"data"`
	}{true, data})
}

// refuse answers an error in the wrapped envelope. What the caller cannot mend
// is logged and withheld.
func (r *routes) refuse(w http.ResponseWriter, req *http.Request, err error) {
	var known *apiError
	if !errors.As(err, &known) {
		if !errors.Is(err, context.Canceled) {
			r.log().ErrorContext(req.Context(), "webhook request failed", "path", req.URL.Path, "error", err)
		}
		known = &apiError{http.StatusInternalServerError, "INTERNAL_ERROR", "Internal server error"}
	}
	writeJSON(w, known.status, struct {
		Success bool `json:"success"`
		Error   any  `json:"error"`
	}{false, map[string]any{"code": known.code, "message": known.message}})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(body) // the client has gone away when this fails
}

// orNil turns a zero value into a JSON null.
func orNil[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}

// rawOrNil is a stored JSON text as JSON.
func rawOrNil(source string) any {
	if !json.Valid([]byte(source)) {
		return nil
	}
	return json.RawMessage(source)
}
