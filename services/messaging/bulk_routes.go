package messaging

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/identity"
)

// permissionRedeliver is the webhooks plugin's: whoever may send one delivery
// again may send many.
const permissionRedeliver = "webhooks.redeliver"

func (p *Plugin) bulkRoutes() []core.Route {
	return []core.Route{
		{
			Method: http.MethodPost, Pattern: "/api/v1/deliveries/redeliver", Permission: permissionRedeliver,
			Summary: "Send all deliveries that a filter selects once more", Handler: http.HandlerFunc(p.redeliverMany),
		},
		{
			Method: http.MethodGet, Pattern: "/api/v1/deliveries/jobs/{id}", Permission: permissionRedeliver,
			Summary: "Show the progress of a redelivery job", Handler: http.HandlerFunc(p.job),
		},
		{
			Method: http.MethodPost, Pattern: "/api/v1/deliveries/jobs/{id}/cancel", Permission: permissionRedeliver,
			Summary: "Cancel a redelivery job", Handler: http.HandlerFunc(p.cancelJob),
		},
	}
}

// bulkBody is the body of a bulk redelivery.
type bulkBody struct {
	Filter *struct {
		BulkFilter
		Status       json.RawMessage `json:"status"`
		ResponseCode json.RawMessage `json:"responseCode"`
	} `json:"filter"`
	AsOf      *time.Time `json:"asOf"`
	DryRun    bool       `json:"dryRun"`
	PerSecond *int       `json:"perSecond"`
}

// maxBulkBody bounds the body in bytes.
const maxBulkBody = 64 << 10

func readBulk(r *http.Request) (BulkRequest, error) {
	bad := func(reason string) (BulkRequest, error) {
		return BulkRequest{}, &RequestError{Field: "body", Reason: reason}
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxBulkBody+1))
	if err != nil || len(text) > maxBulkBody {
		return bad("cannot be read or is too large")
	}
	var body bulkBody
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&body); err != nil {
		return bad("must be {filter, asOf, dryRun, perSecond}: " + err.Error())
	}
	if body.Filter == nil {
		return bad("must have a filter; {} selects all that failed")
	}
	req := BulkRequest{Filter: body.Filter.BulkFilter, DryRun: body.DryRun}
	if req.Filter.Status, err = statusesOf(body.Filter.Status); err != nil {
		return bad("filter.status must be a status or a list of them")
	}
	if req.Filter.ResponseCode, err = oneOrMany[int](body.Filter.ResponseCode); err != nil {
		return bad("filter.responseCode must be a number or a list of them")
	}
	if body.AsOf != nil {
		req.AsOf = *body.AsOf
	}
	if body.PerSecond != nil {
		if req.PerSecond = *body.PerSecond; req.PerSecond == 0 {
			return bad("perSecond must be at least 1")
		}
	}
	return req, nil
}

func (p *Plugin) redeliverMany(w http.ResponseWriter, r *http.Request) {
	req, err := readBulk(r)
	if err != nil {
		p.failJob(w, r, err)
		return
	}
	who := identity.From(r.Context())
	scope := scopeOf(who)
	req.CreatedBy, req.Scoped, req.OrganizationID = who.UserID, scope.Scoped, scope.OrganizationID
	job, err := p.service.RedeliverMany(r.Context(), req)
	if err != nil {
		p.failJob(w, r, err)
		return
	}
	status := http.StatusAccepted
	if req.DryRun {
		status = http.StatusOK
	}
	answer(w, status, envelope{Success: true, Data: JobJSON(job)})
}

func (p *Plugin) job(w http.ResponseWriter, r *http.Request) {
	job, err := p.service.Job(r.Context(), r.PathValue("id"), scopeOf(identity.From(r.Context())))
	if err != nil {
		p.failJob(w, r, err)
		return
	}
	answer(w, http.StatusOK, envelope{Success: true, Data: JobJSON(job)})
}

func (p *Plugin) cancelJob(w http.ResponseWriter, r *http.Request) {
	job, err := p.service.CancelJob(r.Context(), r.PathValue("id"), scopeOf(identity.From(r.Context())))
	if err != nil {
		p.failJob(w, r, err)
		return
	}
	answer(w, http.StatusOK, envelope{Success: true, Data: JobJSON(job)})
}

// failJob writes the errors of jobs, and leaves the others to fail.
func (p *Plugin) failJob(w http.ResponseWriter, r *http.Request, err error) {
	refuse := func(status int, code, message string) {
		refuse(w, status, code, message)
	}
	var bad *RequestError
	switch {
	case errors.As(err, &bad):
		refuse(http.StatusBadRequest, "INVALID_REQUEST", bad.Field+" "+bad.Reason)
	case errors.Is(err, ErrNotFound):
		refuse(http.StatusNotFound, "RESOURCE_NOT_FOUND", "Job not found")
	case errors.Is(err, ErrJobEnded):
		refuse(http.StatusConflict, "JOB_ENDED", "The job has ended")
	case errors.Is(err, ErrNoJobs):
		refuse(http.StatusNotImplemented, "NOT_IMPLEMENTED", "The outbox's store keeps no jobs")
	default:
		p.fail(w, r, err)
	}
}
