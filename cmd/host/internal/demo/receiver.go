package demo

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// request is one request that the receiver got.
type request struct {
	at       time.Time
	delivery string
	event    string
	attempt  int
	raw      []byte
	body     struct {
		Object, RecordID, Action string
		After                    struct{ Name string }
		Changes                  map[string]any
	}
	signed bool
	answer int
}

// receiver is what stands at the other end of the webhook: a server of its own
// that shares no code with the host. It answers 500 to the first attempt of an
// update and 400 to everything about the account called unwanted.
type receiver struct {
	secret   []byte
	unwanted string
	url      string
	arrived  chan request

	mu     sync.Mutex
	failed map[string]bool // updates that were answered 500
}

// startReceiver listens on a free port of the loopback interface until ctx
// ends. secret is what the host was told to sign with.
func startReceiver(ctx context.Context, secret, unwanted string) (*receiver, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open the receiver's socket: %w", err)
	}
	r := &receiver{
		secret: []byte(secret), unwanted: unwanted, url: "http://" + listener.Addr().String() + "/hook",
		arrived: make(chan request, 64), failed: map[string]bool{},
	}
	server := &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }() // ends with ErrServerClosed
	return r, nil
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	raw, err := io.ReadAll(io.LimitReader(in.Body, 1<<20))
	if err != nil {
		return // the host has gone away
	}
	got := request{
		at: time.Now(), raw: raw, delivery: in.Header.Get("X-Objectstack-Delivery"),
		event: in.Header.Get("X-Objectstack-Event"), signed: r.verify(in.Header.Get("X-Objectstack-Signature"), raw),
	}
	got.attempt, _ = strconv.Atoi(in.Header.Get("X-Objectstack-Attempt")) // 0 fails the check of attempts
	if json.Unmarshal(raw, &got.body) != nil {
		got.body.Action = "not JSON"
	}
	got.answer = r.decide(got)
	w.WriteHeader(got.answer)
	select {
	case r.arrived <- got:
	case <-in.Context().Done():
	}
}

// verify recomputes the signature over the bytes as they came and compares it
// in constant time.
func (r *receiver) verify(header string, raw []byte) bool {
	mac := hmac.New(sha256.New, r.secret)
	mac.Write(raw)
	want := "sha256=" + hex.EncodeToString(mac.Sum(nil))
	return hmac.Equal([]byte(header), []byte(want))
}

func (r *receiver) decide(got request) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !got.signed:
		return http.StatusUnauthorized
	case got.body.After.Name == r.unwanted:
		return http.StatusBadRequest
	case got.body.Action == "updated" && !r.failed[got.delivery]:
		r.failed[got.delivery] = true
		return http.StatusInternalServerError
	}
	return http.StatusOK
}
