package receiver_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/cmd/host/internal/receiver"
)

// The signature is the one of openssl for this secret and
// body: printf '{"a":1}' | openssl dgst -sha256 -hmac topsecret
const (
	secret = "topsecret"
	body   = `{"a":1}`
	good   = "sha256=bf1e6501b7fa928ec2391fea9dd90af3c9ad1b7b1ef6ff319c25940cec746bf8"
)

func TestReceiver(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, secret, signature string
		signed, verified        bool
	}{
		{"good", secret, good, true, true},
		{"wrong secret", "other", good, true, false},
		{"no secret", "", good, true, false},
		{"other body's", secret, strings.Replace(good, "=", "=00", 1), true, false},
		{"none", secret, "", false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			arrived := make(chan receiver.Request, 1)
			r := &receiver.Receiver{
				Secret:  []byte(tc.secret),
				Decide:  func(receiver.Request) int { return http.StatusTeapot },
				Arrived: func(got receiver.Request) { arrived <- got },
			}
			addr, err := r.Listen(t.Context(), "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Objectstack-Delivery", "d1")
			req.Header.Set("X-Objectstack-Event", "data.record.created")
			req.Header.Set("X-Objectstack-Attempt", "3")
			if tc.signature != "" {
				req.Header.Set("X-Objectstack-Signature", tc.signature)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			got := <-arrived
			if resp.StatusCode != http.StatusTeapot || got.Delivery != "d1" || got.Event != "data.record.created" || got.Attempt != 3 ||
				string(got.Body) != body || got.Signed != tc.signed || got.Verified != tc.verified || got.Answer != http.StatusTeapot {
				t.Errorf("status %d, got %+v", resp.StatusCode, got)
			}
		})
	}
}
