package proc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// API calls the API of a host at URL with Key.
type API struct{ URL, Key string }

// Call sends body, as JSON, to a path below /api/v1 and returns the answer. An
// error means that there was no whole answer: the call may have been done.
func (a API) Call(ctx context.Context, method, path string, body any) (status int, answer []byte, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, a.URL+"/api/v1"+path, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+a.Key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// Create creates a record, or fails.
func (a API) Create(ctx context.Context, object string, record any) error {
	status, answer, err := a.Call(ctx, http.MethodPost, "/data/"+object, record)
	if err != nil {
		return fmt.Errorf("create %s: %w", object, err)
	}
	if status != http.StatusCreated {
		return fmt.Errorf("create %s: HTTP %d %s", object, status, answer)
	}
	return nil
}
