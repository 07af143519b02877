package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/services/data"
)

// savedAnswer tells of a saved definition. Version is what the next If-Match
// takes.
type savedAnswer struct {
	Success bool   `json:"success"`
	Version string `json:"version"`
	Seq     int64  `json:"seq"`
	State   string `json:"state"`
}

// serveMetaSave defines an object: PUT /meta/object/{name} with its definition,
// or with what a GET answered and a change to it. It is live at once.
func (s *Server) serveMetaSave(w http.ResponseWriter, r *http.Request) error {
	kind, name := r.PathValue("type"), r.PathValue("name")
	if err := s.auth.Has(r.Context(), data.PermissionManageMetadata); err != nil {
		return err
	}
	switch {
	case !slices.Contains(metaTypesAnswer.Types, kind):
		return resourceNotFound(fmt.Sprintf("Metadata type %s not found", kind))
	case kind != typeObject:
		return notImplemented(fmt.Sprintf("Metadata of type %s cannot be saved: it is made from definitions of objects.", kind))
	}
	if err := saveParams(r); err != nil {
		return err
	}
	body, err := readObject(r)
	if err != nil {
		return err
	}
	schema, err := definitionOf(name, body)
	if err != nil {
		return err
	}
	saved, err := s.data.SaveDefinition(r.Context(), schema, strings.Trim(matchOf(r).IfMatch, `"`))
	if err != nil {
		return err
	}
	status := http.StatusOK
	if saved.Created {
		status = http.StatusCreated
	}
	return writeJSON(w, status, savedAnswer{Success: true, Version: versionText(saved.Version), Seq: saved.Version, State: "active"})
}

// saveParams refuses what this host does not have: drafts and packages that are
// written at runtime.
func saveParams(r *http.Request) error {
	params, err := queryParams(r)
	if err != nil {
		return err
	}
	switch {
	case params.Get("mode") == "draft":
		return notImplemented("Definitions have no drafts on this host; leave 'mode' out to publish.")
	case params.Has("package"):
		return notImplemented("Plugins are not changed at runtime; leave 'package' out.")
	}
	// force asks to overwrite without If-Match, which is how it is without one.
	return onlyParams(params, "mode", "force")
}

func notImplemented(message string) *requestError {
	return &requestError{status: http.StatusNotImplemented, code: codeNotImplemented, message: message}
}

// definitionOf reads a definition strictly. What answers add to definitions is
// taken off, so that clients may send back what they read.
func definitionOf(name string, body map[string]any) (object.Schema, error) {
	for key := range body {
		if strings.HasPrefix(key, "_") {
			delete(body, key)
		}
	}
	if given, ok := body["name"]; ok && given != name {
		return object.Schema{}, invalidRequest(fmt.Sprintf("The definition's name must be '%s', as in the path.", name))
	}
	body["name"] = name
	text, err := json.Marshal(body)
	if err != nil {
		return object.Schema{}, invalidRequest("The definition cannot be read.")
	}
	schema, err := object.Decode(text)
	var invalid *object.InvalidError
	switch {
	case errors.As(err, &invalid):
		return object.Schema{}, invalidDefinition(name, invalid.Problems)
	case err != nil:
		return object.Schema{}, invalidRequest("The definition cannot be read.")
	case schema.SharingModel == "":
		return object.Schema{}, invalidDefinition(name, []object.Problem{{
			Path: "sharingModel", Message: "is required: private, public_read, public_read_write or controlled_by_parent",
		}})
	}
	return schema, nil
}

// issue is one thing that is wrong with a definition.
type issue struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

func invalidDefinition(name string, problems []object.Problem) *requestError {
	issues, texts := make([]issue, len(problems)), make([]string, len(problems))
	for i, p := range problems {
		issues[i], texts[i] = issue(p), p.String()
	}
	return &requestError{
		status: http.StatusUnprocessableEntity, code: data.CodeInvalidDefinition,
		message: fmt.Sprintf("Object '%s' is invalid: %s", name, strings.Join(texts, "; ")),
		extra:   map[string]any{"object": name, "issues": issues},
	}
}
