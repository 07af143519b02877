package messaging

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// SignatureScheme chooses the headers that carry a delivery's signature.
type SignatureScheme string

// The signature schemes. An empty scheme is SignatureObjectstack.
const (
	// SignatureObjectstack sends X-Objectstack-Signature.
	SignatureObjectstack SignatureScheme = "objectstack"
	// SignatureStandard sends the three headers of Standard Webhooks.
	SignatureStandard SignatureScheme = "standard"
	// SignatureBoth sends all of them.
	SignatureBoth SignatureScheme = "both"
)

// Header names, in the canonical form that header maps need.
const (
	headerDelivery  = "X-Objectstack-Delivery"
	headerAttempt   = "X-Objectstack-Attempt"
	headerEvent     = "X-Objectstack-Event"
	headerSignature = "X-Objectstack-Signature"
	headerPrevious  = "X-Objectstack-Signature-Previous"
	headerStdID     = "Webhook-Id"
	headerStdTime   = "Webhook-Timestamp"
	headerStdSign   = "Webhook-Signature"
)

// signaturePrefix names the algorithm in X-Objectstack-Signature.
const signaturePrefix = "sha256="

// standardSecretPrefix marks a Standard Webhooks secret: base64 follows.
const standardSecretPrefix = "whsec_"

// ErrSignature is returned when a signature is missing or does not match.
var ErrSignature = errors.New("messaging: signature does not match")

var errStandardSecret = errors.New("secret: the text after whsec_ is not base64")

// VerifySignature tells whether body was signed with secret: it checks
// X-Objectstack-Signature and, for receivers that still hold the old secret
// during a rotation, X-Objectstack-Signature-Previous, in constant time. body
// must be the bytes as received, before any decoding. The error is
// [ErrSignature]; an empty secret never verifies.
func VerifySignature(secret, body []byte, header http.Header) error {
	if len(secret) == 0 {
		return ErrSignature
	}
	want := digest(secret, body)
	ok := false
	for _, name := range [...]string{headerSignature, headerPrevious} {
		// Two values would let a forger add one of his own beside the real one.
		values := header[name]
		if len(values) != 1 {
			continue
		}
		text, found := strings.CutPrefix(values[0], signaturePrefix)
		got, err := hex.DecodeString(text)
		if found && err == nil && hmac.Equal(got, want) {
			ok = true
		}
	}
	if !ok {
		return ErrSignature
	}
	return nil
}

// digest is HMAC-SHA256 of the parts in order.
func digest(secret []byte, parts ...[]byte) []byte {
	mac := hmac.New(sha256.New, secret)
	for _, p := range parts {
		mac.Write(p)
	}
	return mac.Sum(nil)
}

// signBody returns the value of X-Objectstack-Signature. The secret's bytes
// are the key as they are, a whsec_ prefix and white space included.
func signBody(secret, body []byte) string {
	text := make([]byte, 0, len(signaturePrefix)+2*sha256.Size)
	text = append(text, signaturePrefix...)
	return string(hex.AppendEncode(text, digest(secret, body)))
}

// standardKey returns the key of Standard Webhooks: the decoded base64 after
// whsec_, or the secret's own bytes when it has no such prefix.
func standardKey(secret []byte) ([]byte, error) {
	text, ok := strings.CutPrefix(string(secret), standardSecretPrefix)
	if !ok {
		return secret, nil
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) == 0 {
		return nil, errStandardSecret
	}
	return key, nil
}

// signStandard returns one entry of webhook-signature for id.timestamp.body.
func signStandard(secret []byte, id, timestamp string, body []byte) (string, error) {
	key, err := standardKey(secret)
	if err != nil {
		return "", err
	}
	sum := digest(key, []byte(id), []byte{'.'}, []byte(timestamp), []byte{'.'}, body)
	return "v1," + base64.StdEncoding.EncodeToString(sum), nil
}

// ValidateSecret tells whether a secret can sign with a scheme: one that begins
// with whsec_ must go on in base64 for the Standard Webhooks headers.
func ValidateSecret(secret []byte, scheme SignatureScheme) error {
	switch scheme {
	case "", SignatureObjectstack:
		return nil
	case SignatureStandard, SignatureBoth:
		_, err := standardKey(secret)
		return err
	}
	return errors.New("signature: scheme must be objectstack, standard or both")
}

// sign adds the signature headers of a delivery to h and returns the value
// that is recorded with it. Nothing is added without a secret.
func sign(h http.Header, o *Outgoing, at time.Time) (string, error) {
	if err := ValidateSecret(o.Secret, o.SignatureScheme); err != nil {
		return "", err
	}
	if len(o.Secret) == 0 {
		return "", nil
	}
	recorded := ""
	if o.SignatureScheme != SignatureStandard {
		recorded = signBody(o.Secret, o.Body)
		h[headerSignature] = []string{recorded}
		if len(o.PreviousSecret) > 0 {
			h[headerPrevious] = []string{signBody(o.PreviousSecret, o.Body)}
		}
	}
	if o.SignatureScheme == SignatureStandard || o.SignatureScheme == SignatureBoth {
		timestamp := strconv.FormatInt(at.Unix(), 10)
		value, err := signStandard(o.Secret, o.ID, timestamp, o.Body)
		if err != nil {
			return "", err
		}
		if len(o.PreviousSecret) > 0 {
			previous, err := signStandard(o.PreviousSecret, o.ID, timestamp, o.Body)
			if err != nil {
				return "", err
			}
			value += " " + previous
		}
		h[headerStdID] = []string{o.ID}
		h[headerStdTime] = []string{timestamp}
		h[headerStdSign] = []string{value}
		if recorded == "" {
			recorded = value
		}
	}
	return recorded, nil
}
