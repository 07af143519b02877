package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Stage copies the bundle in source to a folder of its own beside the plugins
// in dir, where no host looks for plugins, and compares every file with the
// manifest. Give it to [Bundle.Commit] or [Bundle.Discard]. Errors are those of
// [Open], *[TamperedError] and those of the file system.
func Stage(dir, source string) (_ *Bundle, err error) {
	b, err := Open(source)
	if err != nil {
		return nil, err
	}
	stage, err := os.MkdirTemp(dir, "."+b.Manifest.Name+".next-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(stage))
		}
	}()
	root, err := os.OpenRoot(source) // nothing is read from outside, links included
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for _, name := range slices.Sorted(maps.Keys(b.Manifest.Files)) {
		mode := os.FileMode(0o644)
		if b.runs(name) {
			mode = 0o755
		}
		got, err := copyFile(root, name, filepath.Join(stage, name), mode)
		want := b.Manifest.Files[name]
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, &TamperedError{Plugin: b.Manifest.Name, File: name, Want: want}
		case err != nil:
			return nil, err
		case got != want:
			return nil, &TamperedError{Plugin: b.Manifest.Name, File: name, Want: want, Got: got}
		}
	}
	if err := os.WriteFile(filepath.Join(stage, ManifestFile), b.text, 0o644); err != nil {
		return nil, err
	}
	_, err = copyFile(root, SignatureFile, filepath.Join(stage, SignatureFile), 0o644)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return Open(stage)
}

func (b *Bundle) runs(name string) bool {
	for _, e := range b.Manifest.Executables {
		if e.Path == name {
			return true
		}
	}
	return false
}

// Discard removes a staged bundle.
func (b *Bundle) Discard() error { return os.RemoveAll(b.Dir) }

// Commit moves a staged bundle to home, in the place of what is there, and
// writes the entry into the lock file of dir. On an error both are as they
// were. A crash in the middle leaves a plugin whose manifest is not the one of
// the lock file, which no host runs.
func (b *Bundle) Commit(dir, home string, e Entry) (*Bundle, error) {
	old := b.Dir + ".old"
	var undo []func() error
	err := UpdateLock(dir, func(l Lock) error {
		err := os.Rename(home, old)
		switch {
		case err == nil:
			undo = append(undo, func() error { return os.Rename(old, home) })
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		if err := os.Rename(b.Dir, home); err != nil {
			return err
		}
		undo = append(undo, func() error { return os.Rename(home, b.Dir) })
		l[b.Manifest.Name] = e
		return nil
	})
	if err != nil {
		for _, f := range slices.Backward(undo) {
			err = errors.Join(err, f())
		}
		return nil, fmt.Errorf("bundle: install %s: %w", b.Manifest.Name, err)
	}
	installed := *b
	installed.Dir = home
	return &installed, os.RemoveAll(old)
}

// Remove takes a plugin out of the lock file of dir and removes its bundle in
// home.
func Remove(dir, home, name string) error {
	old, err := os.MkdirTemp(dir, "."+name+".old-")
	if err != nil {
		return err
	}
	err = UpdateLock(dir, func(l Lock) error {
		delete(l, name)
		err := os.Rename(home, filepath.Join(old, name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return errors.Join(err, os.RemoveAll(old))
}
