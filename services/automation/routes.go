package automation

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/automation/sqlstore"
)

// The system permissions of the service. Reading the log needs read or list on
// sys_automation_run, reading definitions an authenticated caller. The variables
// and the output of a run hold what its flow has read, which may be more than
// the reader of the log may: they show with PermissionReadData only.
const (
	PermissionManage   = "automation.manage"
	PermissionRun      = "automation.run"
	PermissionReadData = "automation.read_data"
)

const base = "/api/v1/automation"

// routes serves the service over HTTP. It is there before the HTTP server opens
// its socket.
type routes struct {
	p *Plugin
}

func (r routes) list() []core.Route {
	route := func(method, path, permission, summary string, serve func(*http.Request) (any, error)) core.Route {
		return core.Route{
			Method: method, Pattern: base + path, Permission: permission, Summary: summary,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				answer, err := serve(req)
				r.answer(w, req, http.StatusOK, answer, err)
			}),
		}
	}
	hook := route(http.MethodPost, "/hooks/{name}/{hook}", "", "Start a flow by a signed call", nil)
	hook.Anonymous, hook.Handler = true, http.HandlerFunc(r.hook)
	return []core.Route{
		route(http.MethodGet, "", "", "List the flows", r.flows),
		route(http.MethodPost, "", PermissionManage, "Register a flow", r.create),
		route(http.MethodGet, "/actions", "", "List the node types", r.actions),
		route(http.MethodPost, "/trigger/{name}", PermissionRun, "Run a flow", r.trigger),
		hook,
		route(http.MethodGet, "/{name}", "", "Read a flow", r.get),
		route(http.MethodPut, "/{name}", PermissionManage, "Change a flow", r.update),
		route(http.MethodDelete, "/{name}", PermissionManage, "Remove a flow", r.remove),
		route(http.MethodPost, "/{name}/trigger", PermissionRun, "Run a flow", r.trigger),
		route(http.MethodPost, "/{name}/toggle", PermissionManage, "Switch a flow on or off", r.toggle),
		route(http.MethodGet, "/{name}/runs", "", "List the runs of a flow", r.runs),
		route(http.MethodGet, "/{name}/runs/{run}", "", "Read a run", r.run),
		route(http.MethodPost, "/{name}/runs/{run}/resume", PermissionRun, "Let a paused run go on", r.resume),
		route(http.MethodGet, "/{name}/runs/{run}/screen", "", "Read the screen that a run waits at", r.screen),
	}
}

func (r routes) service() *Service { return r.p.service }

func (r routes) flows(req *http.Request) (any, error) {
	names, err := r.service().Names(req.Context())
	return flowList{Flows: names, Total: len(names)}, err
}

func (r routes) actions(*http.Request) (any, error) {
	list := r.service().nodes.describe()
	return map[string]any{"actions": list, "total": len(list)}, nil
}

func (r routes) create(req *http.Request) (any, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	return r.put(req.Context(), body)
}

func (r routes) put(ctx context.Context, source []byte) (any, error) {
	def, err := r.service().Put(ctx, source)
	if err != nil {
		return nil, err
	}
	return masked(def)
}

// update takes {definition}, or the definition itself; its name is the path's.
func (r routes) update(req *http.Request) (any, error) {
	body, err := readObject(req)
	if err != nil {
		return nil, err
	}
	if inner, ok := body["definition"].(map[string]any); ok && len(body) == 1 {
		body = inner
	}
	name := req.PathValue("name")
	if given, ok := body["name"]; ok && given != name {
		return nil, &ValidationError{name, []Problem{{"name", codeInvalidValue, "The name of a flow cannot be changed"}}}
	}
	body["name"] = name
	if _, err := r.service().Get(req.Context(), name); err != nil && !errors.Is(err, ErrFlowDisabled) {
		return nil, flowError{name, err}
	}
	source, err := encodeJSON(body)
	if err != nil {
		return nil, err
	}
	return r.put(req.Context(), source)
}

func (r routes) get(req *http.Request) (any, error) {
	name := req.PathValue("name")
	def, err := r.service().Get(req.Context(), name)
	if err != nil {
		return nil, flowError{name, err}
	}
	return masked(def)
}

func (r routes) remove(req *http.Request) (any, error) {
	name := req.PathValue("name")
	if err := r.service().Delete(req.Context(), name); err != nil {
		return nil, flowError{name, err}
	}
	return deletedFlow{name, true}, nil
}

func (r routes) toggle(req *http.Request) (any, error) {
	name := req.PathValue("name")
	body, err := readObject(req)
	if err != nil {
		return nil, err
	}
	enabled, ok := body["enabled"].(bool)
	if !ok {
		return nil, &InvalidInputError{"`enabled` must be true or false."}
	}
	if err := r.service().Toggle(req.Context(), name, enabled); err != nil {
		return nil, flowError{name, err}
	}
	return toggledFlow{name, enabled}, nil
}

func (r routes) trigger(req *http.Request) (any, error) {
	name := req.PathValue("name")
	body, err := readObject(req)
	if err != nil {
		return nil, err
	}
	t, err := triggerOf(body)
	if err != nil {
		return nil, err
	}
	result, err := r.service().Execute(req.Context(), name, t)
	if err != nil {
		return nil, flowError{name, err}
	}
	return resultJSON(result), nil
}

// triggerOf reads the body of a trigger: without params every other key is one.
func triggerOf(body map[string]any) (Trigger, error) {
	var t Trigger
	t.Event, _ = body["event"].(string)
	t.RecordID, _ = body["recordId"].(string)
	if t.Object, _ = body["objectName"].(string); t.Object == "" {
		t.Object, _ = body["object"].(string)
	}
	t.Params = map[string]any{}
	if given, ok := body["params"]; ok && given != nil {
		params, ok := given.(map[string]any)
		if !ok {
			return t, &InvalidInputError{"`params` must be an object."}
		}
		for key, value := range params {
			t.Params[key] = value
		}
	} else {
		for key, value := range body {
			switch key {
			case "event", "recordId", "objectName", "object", "params":
			default:
				t.Params[key] = value
			}
		}
	}
	if t.RecordID != "" {
		for _, key := range []string{"recordId", camel(t.Object) + "Id"} {
			if _, given := t.Params[key]; !given && key != "Id" {
				t.Params[key] = t.RecordID
			}
		}
	}
	return t, nil
}

var underscored = regexp.MustCompile(`_+([a-z0-9])`)

// camel is an object's name in camel case.
func camel(name string) string {
	return underscored.ReplaceAllStringFunc(name, func(s string) string { return strings.ToUpper(s[len(s)-1:]) })
}

// The answers keep the order of keys that clients have come to see.
type (
	flowList struct {
		Flows   []string `json:"flows"`
		Total   int      `json:"total"`
		HasMore bool     `json:"hasMore"`
	}
	deletedFlow struct {
		Name    string `json:"name"`
		Deleted bool   `json:"deleted"`
	}
	toggledFlow struct {
		Name    string `json:"name"`
		Enabled bool   `json:"enabled"`
	}
	runScreen struct {
		RunID  string `json:"runId"`
		Screen any    `json:"screen"`
	}
	acceptedCall struct {
		Accepted bool   `json:"accepted"`
		RunID    string `json:"runId,omitempty"`
		Skipped  bool   `json:"skipped,omitempty"`
		Reason   string `json:"reason,omitempty"`
	}
	skippedOutput struct {
		Skipped bool   `json:"skipped"`
		Reason  string `json:"reason"`
	}
	automationResult struct {
		Success        bool     `json:"success"`
		Output         any      `json:"output,omitempty"`
		Status         string   `json:"status,omitempty"`
		RunID          string   `json:"runId,omitempty"`
		DurationMs     *int64   `json:"durationMs,omitempty"`
		SuccessMessage string   `json:"successMessage,omitempty"`
		Summary        *Summary `json:"summary,omitempty"`
	}
	success struct {
		Success bool `json:"success"`
		Data    any  `json:"data"`
	}
	failure struct {
		Success bool     `json:"success"`
		Error   apiError `json:"error"`
	}
)

// conditionNotMet is why a flow was not started.
const conditionNotMet = "condition_not_met"

func resultJSON(r *RunResult) automationResult {
	switch {
	case r.Skipped:
		return automationResult{Success: true, Output: skippedOutput{true, conditionNotMet}}
	case r.Status == sqlstore.StatusPaused:
		return automationResult{Success: true, Status: r.Status, RunID: r.RunID, DurationMs: &r.DurationMs}
	}
	return automationResult{
		Success: true, Output: r.Output, DurationMs: &r.DurationMs, SuccessMessage: r.SuccessMessage, Summary: r.Summary,
	}
}

func (r routes) runs(req *http.Request) (any, error) {
	if err := r.p.can(req.Context(), identity.OperationList); err != nil {
		return nil, err
	}
	name := req.PathValue("name")
	query := req.URL.Query()
	q := RunQuery{Cursor: query.Get("cursor"), Status: query.Get("status")}
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 200 {
			return nil, &InvalidInputError{"limit must be 1 to 200"}
		}
		q.Limit = n
	}
	list, err := r.service().Runs(req.Context(), name, q)
	if err != nil {
		return nil, flowError{name, err}
	}
	return list, r.withhold(req.Context(), list.Runs...)
}

// withhold takes the data out of runs unless the caller may read it.
func (r routes) withhold(ctx context.Context, runs ...*RunLog) error {
	if r.p.authorizer == nil {
		return nil
	}
	err := r.p.authorizer.Has(ctx, PermissionReadData)
	var missing *identity.DeniedError
	if !errors.As(err, &missing) {
		return err
	}
	for _, l := range runs {
		l.Output, l.Variables = nil, nil
	}
	return nil
}

func (r routes) run(req *http.Request) (any, error) {
	if err := r.p.can(req.Context(), identity.OperationRead); err != nil {
		return nil, err
	}
	l, err := r.service().Run(req.Context(), req.PathValue("name"), req.PathValue("run"))
	if err != nil {
		return nil, runError{req.PathValue("run"), false, err}
	}
	return l, r.withhold(req.Context(), l)
}

func (r routes) screen(req *http.Request) (any, error) {
	if err := r.p.can(req.Context(), identity.OperationRead); err != nil {
		return nil, err
	}
	id := req.PathValue("run")
	l, err := r.service().Run(req.Context(), req.PathValue("name"), id)
	if err == nil && l.Status != sqlstore.StatusPaused {
		err = ErrRunNotFound
	}
	if err != nil {
		return nil, runError{id, true, err}
	}
	return runScreen{RunID: id}, nil
}

func (r routes) resume(req *http.Request) (any, error) {
	id := req.PathValue("run")
	body, err := readObject(req)
	if err != nil {
		return nil, err
	}
	var in Resume
	for key, value := range body {
		var ok bool
		switch key {
		case "inputs":
			in.Inputs, ok = value.(map[string]any)
		case "output":
			in.Output, ok = value.(map[string]any)
		case "branchLabel":
			in.BranchLabel, ok = value.(string)
		default:
			return nil, &signalError{"Unknown key `" + key + "`: a resume takes inputs, output and branchLabel."}
		}
		if !ok && value != nil {
			return nil, &signalError{"`" + key + "` has the wrong type."}
		}
	}
	result, err := r.service().Resume(req.Context(), req.PathValue("name"), id, in)
	if err != nil {
		return nil, runError{id, true, err}
	}
	return resultJSON(result), nil
}

// hook takes signed calls from outside.
func (r routes) hook(w http.ResponseWriter, req *http.Request) {
	name := req.PathValue("name")
	body, err := io.ReadAll(req.Body)
	if err == nil {
		var id string
		id, err = r.service().Hook(req.Context(), name, req.PathValue("hook"), body, req.Header.Get("X-Objectstack-Signature"))
		if err == nil {
			answer := acceptedCall{Accepted: true, RunID: id}
			if id == "" {
				answer.Skipped, answer.Reason = true, conditionNotMet
			}
			r.answer(w, req, http.StatusAccepted, answer, nil)
			return
		}
		err = flowError{name, err}
	}
	r.answer(w, req, 0, nil, err)
}

func readObject(req *http.Request) (map[string]any, error) {
	source, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	body := map[string]any{}
	if len(strings.TrimSpace(string(source))) == 0 {
		return body, nil
	}
	if err := decodeJSON(source, &body); err != nil || body == nil {
		return nil, &InvalidInputError{"Request body must be a JSON object."}
	}
	return body, nil
}

// answer writes an answer or an error in the wrapped envelopes.
func (r routes) answer(w http.ResponseWriter, req *http.Request, status int, value any, err error) {
	body := any(success{true, value})
	if err != nil {
		refused := refusalFor(err)
		if refused.HTTPStatus >= http.StatusInternalServerError && !errors.Is(err, context.Canceled) {
			r.p.log.ErrorContext(req.Context(), "automation request failed", "path", req.URL.Path, "error", err)
		}
		status, body = refused.HTTPStatus, failure{Error: refused}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(body) // the client has gone away when this fails
}
