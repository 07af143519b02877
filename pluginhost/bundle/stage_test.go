package bundle

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/objecthost/objecthost/pluginsdk"
)

// made makes a bundle of a version.
func made(t *testing.T, version string) *Bundle {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "plugin"), []byte("#!/bin/sh\necho "+version+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	b, err := Write(dir, Manifest{
		Name: "crm", ID: "com.example.crm", Version: version, Protocol: pluginsdk.ProtocolVersion,
		Executables: map[string]Executable{"any": {Path: "plugin"}},
	}, "plugin")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestStageCommitRemove(t *testing.T) {
	dir := t.TempDir()
	home := filepath.Join(dir, "crm")
	for _, version := range []string{"1.0.0", "2.0.0"} {
		staged, err := Stage(dir, made(t, version).Dir)
		if err != nil {
			t.Fatal(err)
		}
		installed, err := staged.Commit(dir, home, Entry{Version: version, Digest: staged.Digest, Enabled: true})
		if err != nil || installed.Dir != home {
			t.Fatalf("commit = %+v, %v", installed, err)
		}
		again, err := Open(home)
		lock, lockErr := LoadLock(dir)
		if err != nil || lockErr != nil || again.Manifest.Version != version || lock["crm"].Digest != again.Digest {
			t.Errorf("installed %+v, %v, lock %+v, %v", again, err, lock, lockErr)
		}
		if got := names(t, dir); len(got) != 2 {
			t.Errorf("in the folder: %v", got)
		}
	}
	if err := Remove(dir, home, "crm"); err != nil {
		t.Fatal(err)
	}
	if lock, err := LoadLock(dir); err != nil || len(lock) != 0 {
		t.Errorf("lock = %v, %v", lock, err)
	}
	if got := names(t, dir); len(got) != 1 || got[0] != LockFile {
		t.Errorf("after the removal: %v", got)
	}
}

// TestCommitUndone: when the lock file cannot be written the old version is in
// its place.
func TestCommitUndone(t *testing.T) {
	dir := t.TempDir()
	home := filepath.Join(dir, "crm")
	first, err := Stage(dir, made(t, "1.0.0").Dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Commit(dir, home, Entry{Digest: first.Digest}); err != nil {
		t.Fatal(err)
	}
	second, err := Stage(dir, made(t, "2.0.0").Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, LockFile+".next"), 0o755); err != nil { // which stands in the way
		t.Fatal(err)
	}
	if b, err := second.Commit(dir, home, Entry{Digest: second.Digest}); err == nil || b != nil {
		t.Fatalf("commit = %v, %v", b, err)
	}
	b, err := Open(home)
	lock, lockErr := LoadLock(dir)
	if err != nil || lockErr != nil || b.Manifest.Version != "1.0.0" || lock["crm"].Digest != b.Digest {
		t.Errorf("afterwards %+v, %v, %v, %v", b, err, lock, lockErr)
	}
	if err := second.Discard(); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); len(got) != 3 {
		t.Errorf("in the folder: %v", got)
	}
}

// TestStageRefuses: nothing is left of a bundle that is not what it says.
func TestStageRefuses(t *testing.T) {
	dir, b := t.TempDir(), made(t, "1.0.0")
	path := filepath.Join(b.Dir, "plugin")
	for what, change := range map[string]func() error{
		"other bytes": func() error { return os.WriteFile(path, []byte("other"), 0o755) },
		"missing":     func() error { return os.Remove(path) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		var tampered *TamperedError
		if _, err := Stage(dir, b.Dir); !errors.As(err, &tampered) {
			t.Errorf("%s: %v", what, err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(t.TempDir(), "secret")
	if err := errors.Join(os.WriteFile(outside, []byte("x"), 0o644), os.Remove(path), os.Symlink(outside, path)); err != nil {
		t.Fatal(err)
	}
	if _, err := Stage(dir, b.Dir); err == nil {
		t.Error("a file was read from outside of the bundle")
	}
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("left behind: %v", got)
	}
}
