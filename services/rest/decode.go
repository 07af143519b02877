package rest

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/objecthost/objecthost/services/data"
)

// readBody reads a request's body up to the server's limit.
func readBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, bodyError(err)
	}
	return body, nil
}

// bodyError words what goes wrong while a body is read. Refusals and the end of
// the body stay what they are.
func bodyError(err error) error {
	var (
		tooLarge *http.MaxBytesError
		known    *data.Error
	)
	switch {
	case err == nil || errors.Is(err, io.EOF) || errors.As(err, &known):
		return err
	case errors.As(err, &tooLarge):
		return &requestError{
			status: http.StatusRequestEntityTooLarge, code: codePayloadTooLarge,
			message: fmt.Sprintf("Request body is larger than %d bytes.", tooLarge.Limit),
		}
	default:
		return invalidRequest("Request body could not be read.")
	}
}

// readJSON reads a request's body as exactly one JSON value, in the strict way
// of data.DecodeJSON.
func readJSON(r *http.Request) (any, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	return data.DecodeJSON(body)
}

// readObject reads a body that must be a JSON object.
func readObject(r *http.Request) (map[string]any, error) {
	value, err := readJSON(r)
	if err != nil {
		return nil, err
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, invalidRequest("Request body must be a JSON object.")
	}
	return object, nil
}
