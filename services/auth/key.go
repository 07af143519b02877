package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// The form of an API key.
const (
	keyPrefix = "osk_"
	keyBytes  = 32
	// shownLength is how much of a key is kept in clear to tell keys apart:
	// osk_ and 48 of its 256 bits.
	shownLength = 12
)

var keyLength = len(keyPrefix) + base64.RawURLEncoding.EncodedLen(keyBytes)

// newSecret returns a fresh key. crypto/rand never fails: it ends the program
// when the system has no randomness.
func newSecret() string {
	var b [keyBytes]byte
	_, _ = rand.Read(b[:])
	return keyPrefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// newID returns a 16-character id over A-Z a-z 0-9 _ -.
func newID() string {
	var b [12]byte
	_, _ = rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// wellFormed reports whether s has the form of a key, so that noise costs no
// look-up. Each key has one spelling: what a decoder passes over (line breaks,
// set bits past the end) is refused.
func wellFormed(s string) bool {
	body, ok := strings.CutPrefix(s, keyPrefix)
	if !ok || len(s) != keyLength {
		return false
	}
	b, err := base64.RawURLEncoding.DecodeString(body)
	return err == nil && base64.RawURLEncoding.EncodeToString(b) == body
}

// hashSecret is the form in which a key is stored. A fast hash is right here:
// a key has 256 random bits, so there is nothing to guess.
func hashSecret(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
