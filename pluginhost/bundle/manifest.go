package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/pluginsdk"
)

// ManifestFile and SignatureFile are the names inside a bundle.
const (
	ManifestFile  = "plugin.json"
	SignatureFile = "plugin.json.sig"
)

// maxManifest bounds what is read of a manifest that nobody has verified yet.
const maxManifest = 4 << 20

// Manifest is what plugin.json holds.
type Manifest struct {
	// Name is the name in routes, commands and folders: a lower-case letter,
	// then letters, digits and -, at most 24 characters.
	Name string `json:"name"`
	// ID and Version are those of the plugin's core.Manifest.
	ID      string `json:"id"`
	Version string `json:"version"`
	// Protocol is the version of the protocol that the plugin speaks.
	Protocol int `json:"protocol"`
	// Transport is mtls, the default, or plain for plugins whose language's
	// gRPC cannot easily do the handshake's mutual TLS. The socket lies in a
	// folder that only the host's user can enter in either case.
	Transport string `json:"transport,omitempty"`
	// Executables are by platform (linux/amd64, or any for scripts).
	Executables map[string]Executable `json:"executables"`
	// Files are the SHA-256 of every file, by its path in the bundle.
	Files        map[string]string     `json:"files"`
	Capabilities Capabilities          `json:"capabilities"`
	Contributes  pluginsdk.Declaration `json:"contributes"`
}

// Executable is what is run on a platform.
type Executable struct {
	// Path is one of the manifest's files.
	Path string   `json:"path"`
	Args []string `json:"args,omitempty"`
}

// ManifestError tells what is wrong with a manifest.
type ManifestError struct {
	Path, Reason string
}

func (e *ManifestError) Error() string { return fmt.Sprintf("bundle: %s: %s", e.Path, e.Reason) }

// TamperedError is a file that is not what the manifest says.
type TamperedError struct {
	Plugin, File string
	// Want and Got are SHA-256 in hex; Got is empty for a file that is missing.
	Want, Got string
}

func (e *TamperedError) Error() string {
	if e.Got == "" {
		return fmt.Sprintf("bundle: plugin %s: file %s is missing", e.Plugin, e.File)
	}
	return fmt.Sprintf("bundle: plugin %s: file %s has the SHA-256 %s, the manifest says %s", e.Plugin, e.File, e.Got, e.Want)
}

// PlatformError is a bundle without an executable for the platform.
type PlatformError struct {
	Plugin, Platform string
	Has              []string
}

func (e *PlatformError) Error() string {
	return fmt.Sprintf("bundle: plugin %s has no executable for %s, only for %s", e.Plugin, e.Platform, strings.Join(e.Has, ", "))
}

var pluginName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,23}$`)

// Bundle is a folder whose manifest was read and found valid. Its signature and
// files were not looked at.
type Bundle struct {
	Dir      string
	Manifest Manifest
	// Digest is the SHA-256 of the manifest's bytes in hex.
	Digest string

	text []byte
}

// Open reads the manifest of the bundle in dir. Errors are those of the file
// system and *[ManifestError].
func Open(dir string) (*Bundle, error) {
	path := filepath.Join(dir, ManifestFile)
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxManifest+1))
	if err != nil {
		return nil, err
	}
	m, err := Decode(text)
	if err != nil {
		return nil, &ManifestError{Path: path, Reason: err.Error()}
	}
	sum := sha256.Sum256(text)
	return &Bundle{Dir: dir, Manifest: m, Digest: hex.EncodeToString(sum[:]), text: text}, nil
}

// Decode reads a manifest strictly: unknown keys are errors.
func Decode(text []byte) (Manifest, error) {
	var m Manifest
	if len(text) > maxManifest {
		return m, fmt.Errorf("longer than %d bytes", maxManifest)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m); err != nil {
		return m, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return m, errors.New("more than one JSON value")
	}
	return m, m.validate()
}

func (m Manifest) validate() error {
	switch {
	case !pluginName.MatchString(m.Name):
		return fmt.Errorf("name: %q is no plugin name", m.Name)
	case m.Protocol != pluginsdk.ProtocolVersion:
		return fmt.Errorf("protocol: version %d, this host speaks %d", m.Protocol, pluginsdk.ProtocolVersion)
	case m.Transport != "" && m.Transport != "mtls" && m.Transport != "plain":
		return fmt.Errorf("transport: %q is neither mtls nor plain", m.Transport)
	case len(m.Executables) == 0:
		return errors.New("executables: there is none")
	case m.Version == "":
		return errors.New("version: missing")
	}
	for path, sum := range m.Files {
		if raw, err := hex.DecodeString(sum); err != nil || len(raw) != sha256.Size {
			return fmt.Errorf("files.%s: %q is no SHA-256 in hex", path, sum)
		}
		if !fs.ValidPath(path) || path == "." || path == ManifestFile || path == SignatureFile {
			return fmt.Errorf("files.%s: not a path inside the bundle", path)
		}
	}
	for platform, e := range m.Executables {
		if _, listed := m.Files[e.Path]; !listed {
			return fmt.Errorf("executables.%s: %q is not under files", platform, e.Path)
		}
	}
	if err := m.Capabilities.Validate(); err != nil {
		return err
	}
	return errors.Join(core.ValidateManifest(m.Core())...)
}

// Core is the manifest as the kernel knows it, without routes, whose handlers
// a host adds.
func (m Manifest) Core() core.Manifest {
	return core.Manifest{
		ID: m.ID, Version: m.Version, Namespace: m.Contributes.Namespace, DependsOn: m.Contributes.DependsOn,
		ConfigSchema: m.Contributes.ConfigSchema,
		Contributes: core.Contributions{
			Objects: m.Contributes.Objects, Permissions: m.Contributes.Permissions, Navigation: m.Contributes.Navigation,
		},
	}
}

// RunsOn returns a *[PlatformError] unless there is an executable for the
// platform.
func (m Manifest) RunsOn(platform string) error {
	_, err := m.executable(platform)
	return err
}

// executable finds what is run on a platform.
func (m Manifest) executable(platform string) (Executable, error) {
	if e, ok := m.Executables[platform]; ok {
		return e, nil
	}
	if e, ok := m.Executables["any"]; ok {
		return e, nil
	}
	return Executable{}, &PlatformError{Plugin: m.Name, Platform: platform, Has: slices.Sorted(maps.Keys(m.Executables))}
}

// Materialize copies the bundle's files into the empty folder dst, readable by
// nobody else, and returns the path of the platform's executable there. Errors
// are *[TamperedError], *[PlatformError] and those of the file system.
func (b *Bundle) Materialize(dst, platform string) (path string, args []string, err error) {
	e, err := b.Manifest.executable(platform)
	if err != nil {
		return "", nil, err
	}
	root, err := os.OpenRoot(b.Dir) // nothing is read from outside, links included
	if err != nil {
		return "", nil, err
	}
	defer root.Close()
	for _, name := range slices.Sorted(maps.Keys(b.Manifest.Files)) {
		mode := os.FileMode(0o400)
		if name == e.Path {
			mode = 0o500
		}
		got, err := copyFile(root, name, filepath.Join(dst, name), mode)
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil, &TamperedError{Plugin: b.Manifest.Name, File: name, Want: b.Manifest.Files[name]}
		}
		if err != nil {
			return "", nil, err
		}
		if want := b.Manifest.Files[name]; got != want {
			return "", nil, &TamperedError{Plugin: b.Manifest.Name, File: name, Want: want, Got: got}
		}
	}
	return filepath.Join(dst, e.Path), e.Args, nil
}

// copyFile copies a file and returns the SHA-256 of what it wrote.
func copyFile(root *os.Root, name, dst string, mode os.FileMode) (string, error) {
	in, err := root.Open(name)
	if err != nil {
		return "", err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(dst), 0o700); err != nil {
		return "", err
	}
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, sum), in)
	return hex.EncodeToString(sum.Sum(nil)), errors.Join(err, out.Close())
}

// Write makes a bundle of the folder dir: it hashes the named files into the
// manifest and writes that. What the folder held of an older signature is
// removed.
func Write(dir string, m Manifest, files ...string) (*Bundle, error) {
	m.Files = map[string]string{}
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(text)
		m.Files[filepath.ToSlash(name)] = hex.EncodeToString(sum[:])
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	if _, err := Decode(text); err != nil {
		return nil, &ManifestError{Path: filepath.Join(dir, ManifestFile), Reason: err.Error()}
	}
	if err := os.Remove(filepath.Join(dir, SignatureFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, ManifestFile), append(text, '\n'), 0o644); err != nil {
		return nil, err
	}
	return Open(dir)
}
