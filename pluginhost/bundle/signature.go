package bundle

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrUnsigned is returned for a bundle without a signature.
var ErrUnsigned = errors.New("bundle: the plugin is not signed")

// SignatureError is a signature that does not hold.
type SignatureError struct {
	Plugin, KeyID, Reason string
}

func (e *SignatureError) Error() string {
	return fmt.Sprintf("bundle: plugin %s: signature by key %q: %s", e.Plugin, e.KeyID, e.Reason)
}

// Trust holds the public keys whose signatures count, by key id.
type Trust map[string]ed25519.PublicKey

// LoadTrust reads the files *.pub of a folder: the key's id is the file's name
// without the ending, its content base64. A folder that is not there holds no
// keys.
func LoadTrust(dir string) (Trust, error) {
	trust := Trust{}
	paths, err := filepath.Glob(filepath.Join(dir, "*.pub"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
		if err != nil || len(key) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("bundle: %s is no Ed25519 public key in base64", path)
		}
		trust[strings.TrimSuffix(filepath.Base(path), ".pub")] = key
	}
	return trust, nil
}

// Verify checks the signature of the manifest's bytes as [Open] read them and
// returns the id of the key. Errors are [ErrUnsigned] and *[SignatureError].
func (b *Bundle) Verify(trust Trust) (keyID string, err error) {
	text, err := os.ReadFile(filepath.Join(b.Dir, SignatureFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", ErrUnsigned
	}
	if err != nil {
		return "", err
	}
	fail := func(reason string) error {
		return &SignatureError{Plugin: b.Manifest.Name, KeyID: keyID, Reason: reason}
	}
	parts := strings.Split(strings.TrimSpace(string(text)), ":")
	if len(parts) != 3 || parts[0] != "ed25519" {
		return "", fail("not of the form ed25519:<key id>:<base64>")
	}
	keyID = parts[1]
	signature, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil || len(signature) != ed25519.SignatureSize {
		return "", fail("no Ed25519 signature in base64")
	}
	key, known := trust[keyID]
	if !known {
		return "", fail("the key is not in the trust store")
	}
	if !ed25519.Verify(key, b.text, signature) {
		return "", fail("does not fit the manifest")
	}
	return keyID, nil
}

// Sign writes the signature of the bundle's manifest.
func (b *Bundle) Sign(keyID string, key ed25519.PrivateKey) error {
	if keyID == "" || strings.ContainsAny(keyID, ":/\n") {
		return fmt.Errorf("bundle: %q is no key id", keyID)
	}
	text := "ed25519:" + keyID + ":" + base64.StdEncoding.EncodeToString(ed25519.Sign(key, b.text)) + "\n"
	return os.WriteFile(filepath.Join(b.Dir, SignatureFile), []byte(text), 0o644)
}
