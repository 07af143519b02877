package seal

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"
)

const (
	sealedPrefix  = "s1."
	keyringPrefix = "ohk1."
)

// encoding refuses line breaks and spare bits, so that a text has one spelling.
var encoding = base64.RawURLEncoding.Strict()

// ErrUnreadable is returned by [Keyring.Open] for whatever it can't open: text
// of another form, sealed with an unknown key, changed, or bound to other data.
// It says nothing more, so that no error holds a secret.
var ErrUnreadable = errors.New("seal: the sealed text can't be opened with this keyring")

// ErrInvalidKeyring is returned for a text that is no keyring.
var ErrInvalidKeyring = errors.New("seal: the text is no keyring")

// Keyring seals with its primary key and opens with any of its keys. It never
// changes and is safe for concurrent use. Printing it shows ids only.
type Keyring struct {
	handle *keyset.Handle
	aead   tink.AEAD
}

// Generate returns a keyring with one new key.
func Generate() (*Keyring, error) {
	handle, err := keyset.NewHandle(aead.XAES256GCM192BitNonceKeyTemplate())
	if err != nil {
		return nil, fmt.Errorf("seal: make a key: %w", err)
	}
	return newKeyring(handle)
}

func newKeyring(handle *keyset.Handle) (*Keyring, error) {
	primitive, err := aead.New(handle)
	if err != nil {
		return nil, fmt.Errorf("seal: use the keyring: %w", err)
	}
	return &Keyring{handle: handle, aead: primitive}, nil
}

// Parse reads the text of [Keyring.Export]. The error is ErrInvalidKeyring and
// holds nothing of the text.
func Parse(text string) (*Keyring, error) {
	body, ok := strings.CutPrefix(strings.TrimSpace(text), keyringPrefix)
	if !ok {
		return nil, ErrInvalidKeyring
	}
	raw, err := encoding.DecodeString(body)
	if err != nil {
		return nil, ErrInvalidKeyring
	}
	handle, err := insecurecleartextkeyset.Read(keyset.NewBinaryReader(bytes.NewReader(raw)))
	if err != nil {
		return nil, ErrInvalidKeyring
	}
	k, err := newKeyring(handle)
	if err != nil {
		return nil, ErrInvalidKeyring
	}
	return k, nil
}

// Export returns the keyring with its keys in clear, one line: what a key file
// or an environment variable holds.
func (k *Keyring) Export() (string, error) {
	var b bytes.Buffer
	if err := insecurecleartextkeyset.Write(k.handle, keyset.NewBinaryWriter(&b)); err != nil {
		return "", fmt.Errorf("seal: export the keyring: %w", err)
	}
	return keyringPrefix + encoding.EncodeToString(b.Bytes()), nil
}

// Seal returns the sealed form of plaintext, which opens with the same aad
// only. aad names the place of the secret, such as its table, column and row,
// so that a sealed text copied to another place doesn't open there.
func (k *Keyring) Seal(plaintext, aad []byte) (string, error) {
	sealed, err := k.aead.Encrypt(plaintext, aad)
	if err != nil {
		return "", fmt.Errorf("seal: seal: %w", err)
	}
	return sealedPrefix + encoding.EncodeToString(sealed), nil
}

// Open returns the plaintext of a sealed text, or ErrUnreadable.
func (k *Keyring) Open(sealed string, aad []byte) ([]byte, error) {
	body, ok := strings.CutPrefix(sealed, sealedPrefix)
	if !ok {
		return nil, ErrUnreadable
	}
	raw, err := encoding.DecodeString(body)
	if err != nil || strings.ContainsAny(body, "\r\n") {
		return nil, ErrUnreadable
	}
	plaintext, err := k.aead.Decrypt(raw, aad)
	if err != nil {
		return nil, ErrUnreadable
	}
	return plaintext, nil
}

// KeyID is the id of the primary key, eight hexadecimal digits.
func (k *Keyring) KeyID() string { return formatID(k.handle.KeysetInfo().GetPrimaryKeyId()) }

// KeyIDs returns the ids of all keys in the order they were added.
func (k *Keyring) KeyIDs() []string {
	var ids []string
	for _, key := range k.handle.KeysetInfo().GetKeyInfo() {
		ids = append(ids, formatID(key.GetKeyId()))
	}
	return ids
}

// Add returns a keyring with one more key, which opens but doesn't seal until
// it is promoted, and the key's id.
func (k *Keyring) Add() (*Keyring, string, error) {
	m := keyset.NewManagerFromHandle(k.handle)
	id, err := m.Add(aead.XAES256GCM192BitNonceKeyTemplate())
	if err != nil {
		return nil, "", fmt.Errorf("seal: add a key: %w", err)
	}
	more, err := fromManager(m)
	return more, formatID(id), err
}

// Promote returns a keyring that seals with the key of the given id.
func (k *Keyring) Promote(id string) (*Keyring, error) {
	number, err := strconv.ParseUint(id, 16, 32)
	if err != nil || !slices.Contains(k.KeyIDs(), id) {
		return nil, fmt.Errorf("seal: the keyring has no key %q", id)
	}
	m := keyset.NewManagerFromHandle(k.handle)
	if err := m.SetPrimary(uint32(number)); err != nil {
		return nil, fmt.Errorf("seal: promote key %s: %w", id, err)
	}
	return fromManager(m)
}

func fromManager(m *keyset.Manager) (*Keyring, error) {
	handle, err := m.Handle()
	if err != nil {
		return nil, fmt.Errorf("seal: change the keyring: %w", err)
	}
	return newKeyring(handle)
}

// only returns a keyring with nothing but the key of the given id, for check
// values, which must not open with another key.
func (k *Keyring) only(id string) (*Keyring, error) {
	promoted, err := k.Promote(id)
	if err != nil {
		return nil, err
	}
	m := keyset.NewManagerFromHandle(promoted.handle)
	for _, key := range k.handle.KeysetInfo().GetKeyInfo() {
		if formatID(key.GetKeyId()) == id {
			continue
		}
		if err := m.Delete(key.GetKeyId()); err != nil {
			return nil, fmt.Errorf("seal: check the keyring: %w", err)
		}
	}
	return fromManager(m)
}

func formatID(id uint32) string { return fmt.Sprintf("%08x", id) }

// String shows the primary key's id and the number of keys.
func (k *Keyring) String() string {
	return fmt.Sprintf("keyring(primary %s of %d)", k.KeyID(), len(k.KeyIDs()))
}

// GoString is String, so that %#v shows no key.
func (k *Keyring) GoString() string { return k.String() }

// LogValue is String for logs.
func (k *Keyring) LogValue() slog.Value { return slog.StringValue(k.String()) }
