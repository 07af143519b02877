package webhooks

import (
	"errors"
	"net/http"
	"time"

	"github.com/objecthost/objecthost/services/messaging"
)

func (r *routes) replay(w http.ResponseWriter, req *http.Request) {
	id := req.PathValue("id")
	asked, err := replayBody(req)
	if err != nil {
		r.refuse(w, req, err)
		return
	}
	job, err := r.service().Replay(req.Context(), id, asked)
	if err != nil {
		r.refuse(w, req, replayError(id, err))
		return
	}
	status := http.StatusAccepted
	if asked.DryRun {
		status = http.StatusOK
	}
	writeJSON(w, status, struct {
		Success bool `json:"success"`
		Data    any  `json:"data"`
	}{true, messaging.JobJSON(job)})
}

// replayBody reads {from, to, dryRun?, perSecond?}.
func replayBody(req *http.Request) (ReplayRequest, error) {
	var out ReplayRequest
	bad := func(message string) (ReplayRequest, error) {
		return out, &apiError{http.StatusBadRequest, "INVALID_REQUEST", message}
	}
	body, err := readObject(req)
	if err != nil {
		return out, err
	}
	for _, one := range body {
		switch one.key {
		case "from", "to":
			source, ok := text(one.value)
			at, err := time.Parse(time.RFC3339Nano, source)
			if !ok || err != nil {
				return bad("`" + one.key + "` must be a time in ISO 8601, such as 2026-01-31T12:00:00Z.")
			}
			if one.key == "from" {
				out.From = at
			} else {
				out.To = at
			}
		case "dryRun":
			if readBool(&out.DryRun, "dryRun", one.value) != nil {
				return bad("`dryRun` must be true or false.")
			}
		case "perSecond":
			var rate int64
			if readInteger(&rate, "perSecond", one.value, 1, 1000) != nil {
				return bad("`perSecond` must be an integer from 1 to 1000.")
			}
			out.PerSecond = int(rate)
		default:
			return bad("Body takes from, to, dryRun and perSecond only.")
		}
	}
	return out, nil
}

func replayError(id string, err error) error {
	var unusable *ReplayError
	switch {
	case errors.As(err, &unusable):
		return &apiError{http.StatusBadRequest, "INVALID_REQUEST", "`" + unusable.Field + "` " + unusable.Reason + "."}
	case errors.Is(err, ErrInactive):
		return &apiError{http.StatusConflict, "WEBHOOK_INACTIVE", "The webhook is switched off, so that it matches nothing. Switch it on first."}
	case errors.Is(err, messaging.ErrNoJobs):
		return &apiError{http.StatusNotImplemented, "NOT_IMPLEMENTED", "The outbox's store keeps no jobs."}
	}
	return webhookError(id, err)
}
