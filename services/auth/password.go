package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
)

// How passwords are hashed: argon2id with 19 MiB, two passes and one lane, the
// first choice of the OWASP Password Storage Cheat Sheet. A hash says how it was
// made (the PHC string format), so that these can grow: an older one is replaced
// when its password is given.
const (
	argonMemory = 19 * 1024 // KiB
	argonTime   = 2
	argonLanes  = 1
	saltBytes   = 16
	hashBytes   = 32
)

// The length of a password: in characters at least, in bytes at most.
const (
	minPassword = 8
	maxPassword = 1024
)

// maxHashing is how many passwords are hashed at the same time. The memory that
// sign-ins take is bounded by it; the others wait.
const maxHashing = 4

// hasher hashes and compares passwords.
type hasher struct {
	slots chan struct{}
	// nobody is the hash that the passwords of unknown users are compared
	// with, so that they take as long as the others.
	nobody string
}

func newHasher() *hasher {
	h := &hasher{slots: make(chan struct{}, maxHashing)}
	h.nobody = encodeHash(argonMemory, argonTime, argonLanes, make([]byte, saltBytes), make([]byte, hashBytes))
	return h
}

// enter waits for a slot.
func (h *hasher) enter(ctx context.Context) error {
	select {
	case h.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *hasher) leave() { <-h.slots }

func (h *hasher) hash(ctx context.Context, password string) (string, error) {
	if err := h.enter(ctx); err != nil {
		return "", err
	}
	defer h.leave()
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // never fails
	key := argon2.IDKey([]byte(password), salt, argonTime, argonMemory, argonLanes, hashBytes)
	return encodeHash(argonMemory, argonTime, argonLanes, salt, key), nil
}

func encodeHash(memory, passes, lanes uint32, salt, key []byte) string {
	enc := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, memory, passes, lanes, enc.EncodeToString(salt), enc.EncodeToString(key))
}

// compare reports whether the password belongs to the hash, "" for none, and
// whether the hash was made with other parameters than today's.
func (h *hasher) compare(ctx context.Context, encoded, password string) (match, outdated bool, err error) {
	known := encoded != ""
	if !known {
		encoded = h.nobody
	}
	p, err := decodeHash(encoded)
	if err != nil {
		return false, false, err
	}
	if err := h.enter(ctx); err != nil {
		return false, false, err
	}
	defer h.leave()
	key := argon2.IDKey([]byte(password), p.salt, p.passes, p.memory, p.lanes, uint32(len(p.key)))
	match = subtle.ConstantTimeCompare(key, p.key) == 1 && known
	return match, p.memory != argonMemory || p.passes != argonTime || p.lanes != argonLanes, nil
}

type hashParts struct {
	memory, passes uint32
	lanes          uint8
	salt, key      []byte
}

// decodeHash reads a PHC string. The parameters are bounded: the table may have
// been written to by others.
func decodeHash(encoded string) (hashParts, error) {
	var p hashParts
	var version int
	parts := strings.Split(encoded, "$")
	bad := fmt.Errorf("auth: a stored password hash is not argon2id in the PHC format")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" {
		return p, bad
	}
	if _, err := fmt.Sscanf(parts[2], "v=%d", &version); err != nil || version != argon2.Version {
		return p, bad
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &p.memory, &p.passes, &p.lanes); err != nil {
		return p, bad
	}
	var saltErr, keyErr error
	p.salt, saltErr = base64.RawStdEncoding.DecodeString(parts[4])
	p.key, keyErr = base64.RawStdEncoding.DecodeString(parts[5])
	switch {
	case saltErr != nil, keyErr != nil, len(p.salt) < 8, len(p.key) < 16, len(p.key) > 64,
		p.memory < 8, p.memory > 1<<20, p.passes < 1, p.passes > 64, p.lanes < 1:
		return p, bad
	}
	return p, nil
}

// checkPassword returns an *[InvalidError] for a password that is not taken.
func checkPassword(password string) error {
	switch {
	case !utf8.ValidString(password):
		return &InvalidError{Field: "password", Reason: "must be valid UTF-8"}
	case utf8.RuneCountInString(password) < minPassword:
		return &InvalidError{Field: "password", Reason: fmt.Sprintf("must have at least %d characters", minPassword)}
	case len(password) > maxPassword:
		return &InvalidError{Field: "password", Reason: fmt.Sprintf("must have at most %d bytes", maxPassword)}
	}
	return nil
}
