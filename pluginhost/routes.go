package pluginhost

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/pluginhost/bundle"
)

// adminBase is where the manager's routes begin.
const adminBase = "/api/v1/system/plugins"

// actionTime bounds what an operator asks for, an upgrade with its drain
// included.
const actionTime = 2 * time.Minute

func (p managerPlugin) routes() []core.Route {
	route := func(method, path, summary string, serve http.HandlerFunc) core.Route {
		return core.Route{Method: method, Pattern: adminBase + path, Permission: PermissionManage, Summary: summary, Handler: serve}
	}
	return []core.Route{
		route("GET", "", "List the plugins", p.list),
		route("POST", "", "Install a plugin from a bundle on the host's machine", p.install),
		route("GET", "/{name}", "Show a plugin", p.show),
		route("DELETE", "/{name}", "Uninstall a plugin", p.uninstall),
		route("GET", "/{name}/logs", "Read the end of a plugin's log, and follow it", p.log),
		route("POST", "/{name}/enable", "Switch a plugin on", p.do(p.Enable)),
		route("POST", "/{name}/disable", "Switch a plugin off", p.do(p.Disable)),
		route("POST", "/{name}/restart", "Start a plugin anew", p.do(p.Restart)),
		route("POST", "/{name}/upgrade", "Put a new version in a plugin's place while it serves", p.upgrade),
	}
}

func (p managerPlugin) list(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, p.Status())
}

func (p managerPlugin) show(w http.ResponseWriter, r *http.Request) {
	a, err := p.plugin(r.PathValue("name"))
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, http.StatusOK, a.status())
}

func (p managerPlugin) log(w http.ResponseWriter, r *http.Request) {
	n := 100
	if raw := r.URL.Query().Get("lines"); raw != "" {
		var err error
		if n, err = strconv.Atoi(raw); err != nil || n < 1 || n > logRing {
			answerError(w, http.StatusBadRequest, "INVALID_REQUEST", fmt.Sprintf("lines must be 1 to %d", logRing))
			return
		}
	}
	follow, err := flag(r, "follow")
	if err != nil {
		refuse(w, err)
		return
	}
	if follow {
		p.follow(w, r, n)
		return
	}
	lines, err := p.Logs(r.PathValue("name"), n)
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, http.StatusOK, lines)
}

// follow answers with lines of text, without an end.
func (p managerPlugin) follow(w http.ResponseWriter, r *http.Request, n int) {
	if _, err := p.plugin(r.PathValue("name")); err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	_ = out.Flush() // a caller that has gone shows with the next line
	_ = p.Follow(r.Context(), r.PathValue("name"), n, func(line string) error {
		if _, err := io.WriteString(w, strings.ReplaceAll(line, "\n", " ")+"\n"); err != nil {
			return err
		}
		return out.Flush()
	})
}

func (p managerPlugin) do(action func(context.Context, string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), actionTime)
		defer cancel()
		if err := action(ctx, r.PathValue("name")); err != nil {
			refuse(w, err)
			return
		}
		p.show(w, r)
	}
}

// change is the body of an install or upgrade.
type change struct {
	// Bundle is a folder on the host's machine.
	Bundle string `json:"bundle"`
	// Grant grants what the bundle requests, Grants what it says.
	Grant  bool                 `json:"grant"`
	Grants *bundle.Capabilities `json:"grants"`
	Config json.RawMessage      `json:"config"`
}

// requestError is a request that makes no sense.
type requestError struct{ message string }

func (e *requestError) Error() string { return e.message }

func decodeChange(r *http.Request) (source string, c Change, err error) {
	fail := func(message string) (string, Change, error) { return "", Change{}, &requestError{message} }
	var body change
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&body); err != nil && !errors.Is(err, io.EOF) {
		return fail("body: " + err.Error())
	}
	switch {
	case body.Bundle != "" && !filepath.IsAbs(body.Bundle):
		return fail("bundle: must be the absolute path of a folder on the host's machine")
	case body.Grant && body.Grants != nil:
		return fail("grants: cannot be given together with grant")
	case body.Grants != nil && body.Grants.Validate() != nil:
		return fail("grants: " + body.Grants.Validate().Error())
	}
	if string(body.Config) == "null" {
		body.Config = nil
	}
	who := identity.From(r.Context())
	return body.Bundle, Change{Grants: body.Grants, GrantRequested: body.Grant, Config: body.Config, By: cmp.Or(who.UserID, who.KeyID)}, nil
}

func (p managerPlugin) install(w http.ResponseWriter, r *http.Request) {
	source, c, err := decodeChange(r)
	if err == nil && source == "" {
		err = &requestError{"bundle: is required"}
	}
	var status Status
	if err == nil {
		ctx, cancel := context.WithTimeout(r.Context(), actionTime)
		defer cancel()
		status, err = p.Install(ctx, source, c)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, http.StatusCreated, status)
}

func (p managerPlugin) upgrade(w http.ResponseWriter, r *http.Request) {
	source, c, err := decodeChange(r)
	var status Status
	if err == nil {
		ctx, cancel := context.WithTimeout(r.Context(), actionTime)
		defer cancel()
		status, err = p.Upgrade(ctx, r.PathValue("name"), source, c)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, http.StatusOK, status)
}

func (p managerPlugin) uninstall(w http.ResponseWriter, r *http.Request) {
	purge, err := flag(r, "purge")
	if err == nil {
		ctx, cancel := context.WithTimeout(r.Context(), actionTime)
		defer cancel()
		err = p.Uninstall(ctx, r.PathValue("name"), purge)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, http.StatusOK, map[string]any{"name": r.PathValue("name"), "uninstalled": true})
}

// flag reads a query parameter that is true or false.
func flag(r *http.Request, name string) (bool, error) {
	switch raw := r.URL.Query().Get(name); raw {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, &requestError{name + " must be true or false"}
}

func refuse(w http.ResponseWriter, err error) {
	var bad *requestError
	switch {
	case errors.Is(err, ErrUnknownPlugin):
		answerError(w, http.StatusNotFound, "RESOURCE_NOT_FOUND", "there is no such plugin")
	case errors.As(err, &bad):
		answerError(w, http.StatusBadRequest, "INVALID_REQUEST", bad.message)
	case errors.Is(err, fs.ErrNotExist):
		answerError(w, http.StatusBadRequest, "INVALID_REQUEST", "bundle: "+err.Error())
	default:
		answerError(w, http.StatusConflict, "PLUGIN_STATE", err.Error())
	}
}

// answer writes a success of the wire protocol.
func answer(w http.ResponseWriter, status int, value any) {
	writeJSON(w, status, map[string]any{"success": true, "data": value})
}

// answerError writes a refusal of the wire protocol.
func answerError(w http.ResponseWriter, status int, code, message string) {
	writeJSON(w, status, map[string]any{"success": false, "error": map[string]any{"code": code, "message": message}})
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // the caller has gone
}
