// Package client speaks to a host's HTTP API, for the commands and the demo.
package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxAnswer bounds an answer that is read into memory.
const maxAnswer = 64 << 20

// Record is a record as the API gives it; numbers are json.Number.
type Record = map[string]any

// Client calls one host with one API key. It is safe for concurrent use.
type Client struct {
	base string
	key  string
	http *http.Client
}

// Error is an answer outside 2xx.
type Error struct {
	Status int
	// Code is the API's error code, "" when the answer held none.
	Code, Message string
}

func (e *Error) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("HTTP %d: %s", e.Status, e.Message)
	}
	return fmt.Sprintf("%s (HTTP %d, %s)", e.Message, e.Status, e.Code)
}

// New returns a client for the host at baseURL. It refuses a URL that is not
// absolute http or https.
func New(baseURL, key string) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is not a URL such as http://127.0.0.1:8080", baseURL)
	}
	return &Client{base: strings.TrimRight(baseURL, "/"), key: key, http: &http.Client{Timeout: time.Minute}}, nil
}

// Within is the client with another bound for each call, a minute at first; 0
// sets none.
func (c *Client) Within(d time.Duration) *Client {
	other := *c
	other.http = &http.Client{Timeout: d}
	return &other
}

// Lines calls line with each line of an answer as it comes, until the answer or
// ctx ends or line returns an error. An answer outside 2xx is an *[Error].
func (c *Client) Lines(ctx context.Context, path string, line func(string) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	if c.key != "" {
		req.Header.Set("X-API-Key", c.key)
	}
	resp, err := c.Within(0).http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		if err != nil {
			return fmt.Errorf("read answer: %w", err)
		}
		return answerError(resp.StatusCode, data)
	}
	in := bufio.NewScanner(resp.Body)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		if err := line(in.Text()); err != nil {
			return err
		}
	}
	return in.Err()
}

// Do sends in as JSON, when it is not nil, and decodes the answer into out,
// when that is not nil. An answer outside 2xx is an *[Error].
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("X-API-Key", c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return answerError(resp.StatusCode, data)
	}
	if out == nil {
		return nil
	}
	if err := decode(data, out); err != nil {
		return fmt.Errorf("read answer of %s: %w", path, err)
	}
	return nil
}

// Create makes a record and returns it as stored.
func (c *Client) Create(ctx context.Context, object string, values Record) (Record, error) {
	return c.write(ctx, http.MethodPost, recordPath(object, ""), values)
}

// Update changes some fields of a record and returns it as stored.
func (c *Client) Update(ctx context.Context, object, id string, values Record) (Record, error) {
	return c.write(ctx, http.MethodPatch, recordPath(object, id), values)
}

func (c *Client) write(ctx context.Context, method, path string, in any) (Record, error) {
	var answer struct {
		Record Record `json:"record"`
	}
	if err := c.Do(ctx, method, path, in, &answer); err != nil {
		return nil, err
	}
	return answer.Record, nil
}

// Get reads one record.
func (c *Client) Get(ctx context.Context, object, id string) (Record, error) {
	return c.write(ctx, http.MethodGet, recordPath(object, id), nil)
}

// Delete removes a record.
func (c *Client) Delete(ctx context.Context, object, id string) error {
	return c.Do(ctx, http.MethodDelete, recordPath(object, id), nil, nil)
}

// Query is what a search asks for; see the data API for the form of its parts.
type Query struct {
	Where   Record      `json:"where,omitempty"`
	Fields  []string    `json:"fields,omitempty"`
	OrderBy []OrderTerm `json:"orderBy,omitempty"`
	Limit   int         `json:"limit,omitempty"`
}

// OrderTerm sorts by a field, asc or desc.
type OrderTerm struct {
	Field string `json:"field"`
	Order string `json:"order"`
}

// Page is what a search found.
type Page struct {
	Records []Record `json:"records"`
	Total   int64    `json:"total"`
	HasMore bool     `json:"hasMore"`
}

// Find searches records of an object.
func (c *Client) Find(ctx context.Context, object string, q Query) (Page, error) {
	var page Page
	return page, c.Do(ctx, http.MethodPost, recordPath(object, "query"), q, &page)
}

func recordPath(object, id string) string {
	path := "/api/v1/data/" + url.PathEscape(object)
	if id != "" {
		path += "/" + url.PathEscape(id)
	}
	return path
}

// answerError reads all of the API's error envelopes.
func answerError(status int, data []byte) error {
	var flat struct {
		Code    string          `json:"code"`
		Message string          `json:"message"`
		Error   json.RawMessage `json:"error"`
	}
	e := &Error{Status: status, Message: http.StatusText(status)}
	if json.Unmarshal(data, &flat) != nil {
		return e
	}
	var wrapped struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	var text string
	if json.Unmarshal(flat.Error, &wrapped) != nil {
		_ = json.Unmarshal(flat.Error, &text) // absent or of another form: the status says enough
	}
	e.Code = first(flat.Code, wrapped.Code)
	e.Message = strings.ReplaceAll(first(flat.Message, wrapped.Message, text, e.Message), "\n", " ")
	return e
}

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

func decode(data []byte, out any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	return dec.Decode(out)
}
