package auth

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/core/identity"
	"github.com/objecthost/objecthost/services/auth/driver"
)

// keyView is a key as the API shows it.
type keyView struct {
	ID             string   `json:"id"`
	Name           string   `json:"name"`
	Prefix         string   `json:"prefix"`
	UserID         *string  `json:"user_id"`
	OrganizationID *string  `json:"organization_id"`
	Scopes         []string `json:"scopes"`
	CreatedAt      *string  `json:"created_at"`
	ExpiresAt      *string  `json:"expires_at"`
	LastUsedAt     *string  `json:"last_used_at"`
	RevokedAt      *string  `json:"revoked_at"`
}

func viewOf(k driver.Key) keyView {
	return keyView{
		ID: k.ID, Name: k.Name, Prefix: k.Prefix, UserID: orNull(k.UserID), OrganizationID: orNull(k.OrganizationID),
		Scopes: k.Scopes, CreatedAt: timeOrNull(k.CreatedAt), ExpiresAt: timeOrNull(k.ExpiresAt),
		LastUsedAt: timeOrNull(k.LastUsedAt), RevokedAt: timeOrNull(k.RevokedAt),
	}
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func timeOrNull(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	return orNull(event.FormatTime(t))
}

func (s *Service) serveCreate(w http.ResponseWriter, r *http.Request) {
	req, err := readKeyRequest(r)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	key, err := s.CreateKey(r.Context(), req)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	// The one answer that holds a secret must not stay in any cache.
	w.Header().Set("Cache-Control", "no-store")
	answer(w, http.StatusCreated, map[string]any{
		"id": key.ID, "name": key.Name, "prefix": key.Prefix, "key": key.Secret,
	})
}

func (s *Service) serveList(w http.ResponseWriter, r *http.Request) {
	keys, err := s.ListKeys(r.Context())
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	views := make([]keyView, 0, len(keys))
	for _, k := range keys {
		views = append(views, viewOf(k))
	}
	answer(w, http.StatusOK, map[string]any{"keys": views})
}

func (s *Service) serveRevoke(w http.ResponseWriter, r *http.Request) {
	key, err := s.RevokeKey(r.Context(), r.PathValue("id"))
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	answer(w, http.StatusOK, viewOf(key))
}

// errBody is a request body that cannot be read as a key request.
var errBody = errors.New("auth: request body is not a JSON object of a key request")

// readKeyRequest reads {name?, expires_at?, scopes?}. An empty body is an empty
// request; unknown keys are refused, because a misspelled "scopes" would
// otherwise make a key that may do everything its maker may.
func readKeyRequest(r *http.Request) (KeyRequest, error) {
	var in struct {
		Name      *string  `json:"name"`
		ExpiresAt *string  `json:"expires_at"`
		Scopes    []string `json:"scopes"`
	}
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil && !errors.Is(err, io.EOF) {
		return KeyRequest{}, bodyError(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return KeyRequest{}, bodyError(err)
	}
	req := KeyRequest{Scopes: in.Scopes}
	if in.Name != nil {
		req.Name = *in.Name
	}
	if in.ExpiresAt != nil {
		at, err := time.Parse(time.RFC3339, *in.ExpiresAt)
		if err != nil {
			return KeyRequest{}, &InvalidError{Field: "expires_at", Reason: "must be an ISO 8601 date and time"}
		}
		req.ExpiresAt = at
	}
	return req, nil
}

// bodyError keeps the one cause that has a status of its own.
func bodyError(err error) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return tooLarge
	}
	return errBody
}

func answer(w http.ResponseWriter, status int, data any) {
	write(w, status, struct {
		Success bool `json:"success"`
		Data    any  `json:"data"`
	}{true, data})
}

// refuse answers an error in the wrapped envelope. What the caller cannot mend
// is logged and withheld.
func (s *Service) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status, code, message := classify(err)
	if status >= http.StatusInternalServerError {
		s.cfg.Logger.ErrorContext(r.Context(), "API key request failed", "error", err)
	}
	write(w, status, map[string]any{
		"success": false,
		"error":   map[string]any{"code": code, "message": message},
	})
}

func classify(err error) (status int, code, message string) {
	var (
		denied   *identity.DeniedError
		exceeds  *ExceedsError
		invalid  *InvalidError
		scope    *ScopeError
		tooLarge *http.MaxBytesError
	)
	switch {
	case errors.Is(err, identity.ErrUnauthenticated):
		return http.StatusUnauthorized, "UNAUTHENTICATED", "Authentication is required to access this endpoint."
	case errors.As(err, &exceeds):
		return http.StatusForbidden, "PERMISSION_DENIED", sentence(exceeds)
	case errors.As(err, &denied):
		return http.StatusForbidden, "PERMISSION_DENIED", "You do not have permission to manage API keys."
	case errors.As(err, &invalid):
		return http.StatusBadRequest, "VALIDATION_FAILED", sentence(invalid)
	case errors.As(err, &scope):
		return http.StatusBadRequest, "VALIDATION_FAILED", sentence(scope)
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge, "PAYLOAD_TOO_LARGE", "Request body is too large."
	case errors.Is(err, errBody):
		return http.StatusBadRequest, "INVALID_REQUEST", "Request body must be a JSON object with name, expires_at and scopes."
	case errors.Is(err, ErrKeyNotFound):
		return http.StatusNotFound, "RESOURCE_NOT_FOUND", "API key not found"
	}
	return http.StatusInternalServerError, "INTERNAL_ERROR", "Internal server error"
}

// sentence is an error's text without the package's name in front.
func sentence(err error) string {
	const prefix = "auth: "
	return err.Error()[len(prefix):]
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(body) // the client has gone away when this fails
}
