// Package receiver is the other end of a webhook: an HTTP server that verifies
// what arrives and answers as told. It shares no code with the host that sends,
// so that it can vouch for it.
package receiver

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// maxBody is the largest body that is read.
const maxBody = 32 << 20

// Request is one delivery attempt as it arrived.
type Request struct {
	At time.Time
	// Delivery, Event and Attempt are what the headers say; Attempt is 0 when
	// it is no number.
	Delivery, Event string
	Attempt         int
	// Body holds the bytes as they came.
	Body []byte
	// Signed tells that a signature came along, Verified that it fits.
	Signed, Verified bool
	// Answer is the status that was answered.
	Answer int
}

// Receiver serves deliveries. The fields are set before the first request.
type Receiver struct {
	// Secret is what the sender signs with; with an empty one nothing
	// verifies.
	Secret []byte
	// Decide chooses the status of the answer.
	Decide func(Request) int
	// Arrived is called after the answer was chosen and before it is sent,
	// from the goroutine of each request.
	Arrived func(Request)
}

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, in.Body, maxBody))
	if err != nil {
		http.Error(w, "the body could not be read", http.StatusBadRequest)
		return
	}
	got := Request{
		At: time.Now(), Body: body,
		Delivery: in.Header.Get("X-Objectstack-Delivery"), Event: in.Header.Get("X-Objectstack-Event"),
	}
	got.Attempt, _ = strconv.Atoi(in.Header.Get("X-Objectstack-Attempt")) // 0 when it is none
	signature := in.Header.Get("X-Objectstack-Signature")
	got.Signed, got.Verified = signature != "", r.verify(signature, body)
	got.Answer = r.Decide(got)
	r.Arrived(got)
	w.WriteHeader(got.Answer)
}

// verify recomputes the signature over the bytes as they came and compares it
// in constant time.
func (r *Receiver) verify(header string, body []byte) bool {
	if len(r.Secret) == 0 {
		return false
	}
	mac := hmac.New(sha256.New, r.Secret)
	mac.Write(body)
	want := "sha256=" + hex.EncodeToString(mac.Sum(nil))
	return hmac.Equal([]byte(header), []byte(want))
}

// Listen serves r on addr until ctx ends and returns the address that it got.
func (r *Receiver) Listen(ctx context.Context, addr string) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("open the receiver's socket: %w", err)
	}
	server := &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }() // ends with ErrServerClosed
	return listener.Addr().String(), nil
}
