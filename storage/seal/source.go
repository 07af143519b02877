package seal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Source tells where the keyring is. The first one that is set counts: Value,
// then Env when the variable exists and isn't empty, then File.
type Source struct {
	// Value is a keyring's text.
	Value string
	// Env names an environment variable with a keyring's text.
	Env string
	// File is the path of a file with a keyring's text. On SQLite it defaults
	// to <database file>.key. Ensure creates it when the database has no key
	// recorded and there is none anywhere.
	File string
}

// ErrNoSource is returned when nothing says where the keyring is or may be put.
var ErrNoSource = errors.New("seal: name a key file (or give the key in an environment variable); every node of the database needs the same key")

// Load reads the keyring, or returns nil and no error when there is none yet.
// Errors name the place and nothing of its content.
func Load(src Source) (*Keyring, error) {
	text, place, err := src.read()
	if err != nil || text == "" {
		return nil, err
	}
	k, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w (%s)", err, place)
	}
	return k, nil
}

func (src Source) read() (text, place string, err error) {
	if src.Value != "" {
		return src.Value, "the configured value", nil
	}
	if src.Env != "" {
		if text := os.Getenv(src.Env); text != "" {
			return text, "environment variable " + src.Env, nil
		}
	}
	if src.File == "" {
		return "", "", nil
	}
	raw, err := os.ReadFile(src.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", "", nil
	case err != nil:
		return "", "", fmt.Errorf("seal: read the key file: %w", err)
	case len(raw) == 0:
		return "", "", fmt.Errorf("%w (file %s is empty)", ErrInvalidKeyring, src.File)
	}
	return string(raw), "file " + src.File, nil
}

// WriteFile writes the keyring to a file that only its owner may read. The
// file is replaced as a whole and is on disk when WriteFile returns.
func (k *Keyring) WriteFile(path string) error {
	return k.write(path, os.Rename)
}

// createFile is WriteFile for a file that must not exist yet.
func (k *Keyring) createFile(path string) error {
	return k.write(path, func(temporary, path string) error {
		defer func() { _ = os.Remove(temporary) }()
		return os.Link(temporary, path)
	})
}

func (k *Keyring) write(path string, place func(temporary, path string) error) (err error) {
	text, err := k.Export()
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("seal: write the key file: %w", err)
	}
	// CreateTemp's files have mode 0600.
	f, err := os.CreateTemp(dir, filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("seal: write the key file: %w", err)
	}
	_, err = f.WriteString(text + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = place(f.Name(), path)
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("seal: write the key file: %w", err)
	}
	return nil
}
