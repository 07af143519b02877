package rest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
)

// family is how a route words its refusals.
type family int

const (
	// wrapped is {"success":false,"error":{…}}, the zero value.
	wrapped family = iota
	// flat is {"error":"…","code":"…"}.
	flat
)

// writeJSON answers with a value as JSON. Digits of numbers are kept and <, >
// and & are not escaped. The value is encoded before the header is written, so
// that a value that cannot be encoded becomes a 500.
func writeJSON(w http.ResponseWriter, status int, value any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return err
	}
	writeBody(w, status, bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	return nil
}

// writeBody answers with JSON that is already encoded. A failing write means
// that the client has gone away; the access log has the bytes that it got.
func writeBody(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// envelope is a success of the wrapped family. Clients unwrap a body that has
// both success and data; bare answers therefore never have a member data beside
// a member success.
type envelope struct {
	Success bool `json:"success"`
	Data    any  `json:"data"`
}

// wrappedError is a refusal of the wrapped family. Success is always false.
type wrappedError struct {
	Success bool        `json:"success"`
	Error   wrappedBody `json:"error"`
}

type wrappedBody struct {
	Code    string         `json:"code"`
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"`
}

// body is how a family words an error. Its extra members stand beside the code
// in the flat family and under details in the wrapped one.
func (e *requestError) body(f family) any {
	if f == wrapped {
		return wrappedError{Error: wrappedBody{Code: e.code, Message: e.message, Details: e.extra}}
	}
	body := map[string]any{}
	for k, v := range e.extra {
		body[k] = v
	}
	body["error"], body["code"] = e.message, e.code
	if e.code == codeUnauthenticated {
		// The one flat refusal whose text has a member of its own.
		body["error"], body["message"] = e.code, e.message
	}
	return body
}
