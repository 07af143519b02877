package messaging

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/objecthost/objecthost/services/messaging/messagingtest"
)

// vector is one entry of testdata/signatures.json. The file was made by a
// Python program with nothing in common with this package.
type vector struct {
	Name, Scheme, Secret string
	Body                 []byte
	Headers              map[string]string
	Now                  int64
	Valid                bool
}

func vectors(t testing.TB) []vector {
	t.Helper()
	data, err := os.ReadFile("testdata/signatures.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors []vector }
	if err := json.Unmarshal(data, &file); err != nil || len(file.Vectors) < 40 {
		t.Fatalf("%d vectors: %v", len(file.Vectors), err)
	}
	return file.Vectors
}

// verifyDelivery stands in docs/receivers/README.md, for receivers that do not
// import this module.
func verifyDelivery(secret, body []byte, header http.Header) bool {
	if len(secret) == 0 {
		return false
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write(body)
	want, ok := mac.Sum(nil), false
	for _, name := range []string{"X-Objectstack-Signature", "X-Objectstack-Signature-Previous"} {
		values := header.Values(name)
		if len(values) != 1 {
			continue
		}
		text, found := strings.CutPrefix(values[0], "sha256=")
		got, err := hex.DecodeString(text)
		if found && err == nil && hmac.Equal(got, want) {
			ok = true
		}
	}
	return ok
}

func TestVectors(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		header := http.Header{}
		for name, value := range v.Headers {
			header.Set(name, value)
		}
		if v.Scheme == "standard" {
			// The library judges time by the wall clock, so that the sender's
			// own signature is compared where the vector is about the time.
			key, err := standardKey([]byte(v.Secret))
			if err != nil {
				t.Fatalf("%s: %v", v.Name, err)
			}
			hook, _ := standardwebhooks.NewWebhookRaw(key)
			at, _ := strconv.ParseInt(v.Headers["Webhook-Timestamp"], 10, 64)
			age := v.Now - at
			valid := hook.VerifyIgnoringTimestamp(v.Body, header) == nil && age <= 300 && age >= -300
			if valid != v.Valid {
				t.Errorf("standard, %s: %v, want %v", v.Name, valid, v.Valid)
			}
			if v.Valid {
				got, err := signStandard([]byte(v.Secret), v.Headers["Webhook-Id"], v.Headers["Webhook-Timestamp"], v.Body)
				if err != nil || !strings.Contains(v.Headers["Webhook-Signature"], got) {
					t.Errorf("standard, %s: signed as %s (%v), want %s", v.Name, got, err, v.Headers["Webhook-Signature"])
				}
			}
			continue
		}
		err := VerifySignature([]byte(v.Secret), v.Body, header)
		if (err == nil) != v.Valid || err != nil && !errors.Is(err, ErrSignature) {
			t.Errorf("%s: %v, want valid %v", v.Name, err, v.Valid)
		}
		if got := verifyDelivery([]byte(v.Secret), v.Body, header); got != v.Valid {
			t.Errorf("%s: the documented function says %v", v.Name, got)
		}
		if got := signBody([]byte(v.Secret), v.Body); v.Valid && !strings.EqualFold(header.Get(headerSignature), got) && header.Get(headerPrevious) != got {
			t.Errorf("%s: signed as %s", v.Name, got)
		}
	}
	forged := http.Header{headerSignature: {signBody([]byte("k"), nil), signBody([]byte("evil"), nil)}}
	if err := VerifySignature([]byte("k"), nil, forged); err == nil || verifyDelivery([]byte("k"), nil, forged) {
		t.Error("two values are accepted")
	}
}

// What receivers are told is what is tested here.
func TestPublishedVerifiersAreTheTestedOnes(t *testing.T) {
	t.Parallel()
	const docs = "../../docs/receivers/"
	published, err := os.ReadFile(docs + "vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	golden, err := os.ReadFile("testdata/signatures.json")
	if err != nil || !bytes.Equal(published, golden) {
		t.Errorf("docs/receivers/vectors.json differs from testdata/signatures.json (%v)", err)
	}
	readme, err := os.ReadFile(docs + "README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("signature_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, function, _ := strings.Cut(string(source), "\nfunc verifyDelivery(")
	function, _, _ = strings.Cut(function, "\n}\n")
	if !strings.Contains(string(readme), "func verifyDelivery("+function+"\n}\n") {
		t.Error("the function in docs/receivers/README.md is not the tested one")
	}
}

func TestCase_BOD_04_SecretsAreKeptExactly(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	s := newSender(t)
	o := outgoing(r.URL)
	o.Body = []byte(`{"name":"Ñandú 😀 客户 ` + "\u2028" + `"}`)
	// computed by Python's hmac module over the same bytes
	for secret, signature := range map[string]string{
		"clé-秘":   "sha256=492fd04fce1f0ecf50ce261c6e9ea6f928d2babcd255cc29b22477e31f60dcc8",
		"clé-秘\n": "sha256=053b81994fcbcc77003f542ab30b19dff29f997fff0a57be160caef4e0e69ab0",
		" clé-秘":  "sha256=6391870344444154dbec7b6d01373295d9b29f614ac926b88fff56977e77c48a",
	} {
		o.Secret = []byte(secret)
		a := s.Send(t.Context(), o)
		want(t, a, 200, ClassNone, "")
		requests := r.Requests()
		got := requests[len(requests)-1]
		if a.Signature != signature || got.Header.Get(headerSignature) != signature || got.ContentLength != int64(len(o.Body)) {
			t.Errorf("%q: signed %s, length %d", secret, a.Signature, got.ContentLength)
		}
	}
}

func TestStandardWebhooksHeaders(t *testing.T) {
	t.Parallel()
	r := messagingtest.New(t)
	now := time.Now()
	s := newSender(t, func(c *SenderConfig) { c.Now = func() time.Time { return now } })
	const current, old = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "an old raw secret"
	for _, scheme := range []SignatureScheme{SignatureStandard, SignatureBoth} {
		o := outgoing(r.URL)
		o.SignatureScheme, o.Secret, o.PreviousSecret = scheme, []byte(current), []byte(old)
		a := s.Send(t.Context(), o)
		want(t, a, 200, ClassNone, "")
		requests := r.Requests()
		got := requests[len(requests)-1]
		newHook, err := standardwebhooks.NewWebhook(current)
		if err != nil {
			t.Fatal(err)
		}
		oldHook, _ := standardwebhooks.NewWebhookRaw([]byte(old))
		for _, hook := range []*standardwebhooks.Webhook{newHook, oldHook} {
			if err := hook.Verify(got.Body, got.Header); err != nil {
				t.Errorf("%s: %v", scheme, err)
			}
		}
		if got.Header.Get("Webhook-Id") != o.ID || got.Header.Get("Webhook-Timestamp") != strconv.FormatInt(now.Unix(), 10) {
			t.Errorf("%s: headers are %v", scheme, got.Header)
		}
		_, own := got.Header[headerSignature]
		if own != (scheme == SignatureBoth) || (a.Signature == got.Header.Get("Webhook-Signature")) != (scheme == SignatureStandard) {
			t.Errorf("%s: own header %v, recorded %s", scheme, own, a.Signature)
		}
	}
	o := outgoing(r.URL)
	o.SignatureScheme = SignatureBoth
	for secret, reason := range map[string]string{"whsec_***": "secret: the text after whsec_ is not base64", "whsec_": "secret: the text after whsec_ is not base64"} {
		o.Secret = []byte(secret)
		a := s.Send(t.Context(), o)
		want(t, a, 0, ClassUnusable, reason)
	}
	o.SignatureScheme = "rot13"
	want(t, s.Send(t.Context(), o), 0, ClassUnusable, "signature: scheme must be objectstack, standard or both")
	o.SignatureScheme, o.Secret = SignatureBoth, nil
	want(t, s.Send(t.Context(), o), 200, ClassNone, "")
	requests := r.Requests()
	for name := range requests[len(requests)-1].Header {
		if strings.Contains(name, "Signature") || strings.HasPrefix(name, "Webhook-") {
			t.Errorf("without a secret %s is sent", name)
		}
	}
}

func ExampleVerifySignature() {
	secret := []byte("s3cret-key")
	handler := func(body []byte, header http.Header) int {
		if err := VerifySignature(secret, body, header); err != nil {
			return http.StatusUnauthorized
		}
		return http.StatusNoContent
	}
	header := http.Header{}
	header.Set("X-Objectstack-Signature", "sha256=27137ef005f1c7600f8767f839bf6fad7d0a11d2addc384663c3e8efa3e81c14")
	fmt.Println(handler([]byte(`{"object":"account"}`), header))
	fmt.Println(handler([]byte(`{"object":"Account"}`), header))
	// Output:
	// 204
	// 401
}
