package demo

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"

	"github.com/objecthost/objecthost/cmd/host/internal/receiver"
)

// request is one request that the scene's receiver got.
type request struct {
	receiver.Request
	body struct {
		Object, RecordID, Action string
		After                    struct{ Name string }
	}
}

// endpoint is the receiver of the scene. It answers 500 to the first attempt of
// an update and 400 to everything about the account called unwanted.
type endpoint struct {
	url     string
	arrived chan request

	mu     sync.Mutex
	failed map[string]bool // deliveries that were answered 500
}

// open listens on a free port of the loopback interface until ctx ends. secret
// is what the host was told to sign with.
func open(ctx context.Context, secret string) (*endpoint, error) {
	e := &endpoint{arrived: make(chan request, 64), failed: map[string]bool{}}
	r := &receiver.Receiver{
		Secret: []byte(secret),
		Decide: func(got receiver.Request) int { return e.decide(parse(got)) },
		Arrived: func(got receiver.Request) {
			select {
			case e.arrived <- parse(got):
			case <-ctx.Done():
			}
		},
	}
	addr, err := r.Listen(ctx, "127.0.0.1:0")
	e.url = "http://" + addr + "/hook"
	return e, err
}

func parse(got receiver.Request) request {
	out := request{Request: got}
	if json.Unmarshal(got.Body, &out.body) != nil {
		out.body.Action = "not JSON"
	}
	return out
}

func (e *endpoint) decide(got request) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case !got.Verified:
		return http.StatusUnauthorized
	case got.body.After.Name == unwanted:
		return http.StatusBadRequest
	case got.body.Action == "updated" && !e.failed[got.Delivery]:
		e.failed[got.Delivery] = true
		return http.StatusInternalServerError
	}
	return http.StatusOK
}
