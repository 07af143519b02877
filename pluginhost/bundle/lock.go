package bundle

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// LockFile is the name of the lock file in the folder of the plugins.
const LockFile = "plugins.lock"

// Lock is what an operator decided about the plugins of a folder, by name.
type Lock map[string]Entry

// Entry pins one plugin and holds what it was granted.
type Entry struct {
	Version string `json:"version"`
	// Digest is the SHA-256 of the manifest that was installed, in hex.
	Digest string `json:"digest"`
	// KeyID is the key that signed it, empty for an unsigned one.
	KeyID   string       `json:"keyId,omitempty"`
	Enabled bool         `json:"enabled"`
	Grants  Capabilities `json:"grants"`
	// Config is the plugin's configuration, for one that was configured when it
	// was installed and not in the host's own settings.
	Config json.RawMessage `json:"config,omitempty"`
	// GrantedBy and GrantedAt tell whose decision it was.
	GrantedBy string    `json:"grantedBy,omitempty"`
	GrantedAt time.Time `json:"grantedAt,omitzero"`
}

// LoadLock reads the lock file of a folder; one that is not there is empty.
func LoadLock(dir string) (Lock, error) {
	text, err := os.ReadFile(filepath.Join(dir, LockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Lock{}, nil
	}
	if err != nil {
		return nil, err
	}
	lock := Lock{}
	if err := json.Unmarshal(text, &lock); err != nil {
		return nil, fmt.Errorf("bundle: %s: %w", filepath.Join(dir, LockFile), err)
	}
	for name, e := range lock {
		if err := e.Grants.Validate(); err != nil {
			return nil, fmt.Errorf("bundle: %s: %s: %w", filepath.Join(dir, LockFile), name, err)
		}
	}
	return lock, nil
}

// UpdateLock changes the lock file of a folder. Updates of several processes
// come one after the other; a crash leaves the old file or the new one.
func UpdateLock(dir string, change func(Lock) error) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer folder.Close() // which also unlocks
	if err := unix.Flock(int(folder.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("bundle: lock %s: %w", dir, err)
	}
	lock, err := LoadLock(dir)
	if err != nil {
		return err
	}
	if err := change(lock); err != nil {
		return err
	}
	text, err := json.MarshalIndent(lock, "", "  ")
	if err != nil {
		return err
	}
	next := filepath.Join(dir, LockFile+".next")
	if err := os.WriteFile(next, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(dir, LockFile))
}
