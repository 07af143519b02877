package pluginhost_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/pluginhost"
	"github.com/objecthost/objecthost/pluginhost/bundle"
	"github.com/objecthost/objecthost/pluginhost/hosttest"
)

// sign signs a bundle in the name of the key k.
func sign(t *testing.T, path string, key ed25519.PrivateKey) *bundle.Bundle {
	t.Helper()
	b, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Sign("k", key); err != nil {
		t.Fatal(err)
	}
	return b
}

// trust makes the signatures of the key k count.
func trust(t *testing.T, dir string, key ed25519.PublicKey) {
	t.Helper()
	if err := os.MkdirAll(pluginhost.TrustDir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(pluginhost.TrustDir(dir), "k.pub"), []byte(base64.StdEncoding.EncodeToString(key)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// install signs the fixture's bundle, trusts the key and locks it.
func install(t *testing.T, dir string) (*bundle.Bundle, ed25519.PrivateKey) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := sign(t, filepath.Join(dir, "fixture"), private)
	trust(t, dir, public)
	err = bundle.UpdateLock(dir, func(l bundle.Lock) error {
		l["fixture"] = bundle.Entry{Version: "1.0.0", Digest: b.Digest, KeyID: "k", Enabled: true, Grants: grants()}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b, private
}

func TestOnlyWhatWasSignedRuns(t *testing.T) {
	tests := []struct {
		name   string
		change func(t *testing.T, dir string)
		want   string // "" runs
	}{
		{"as installed", func(*testing.T, string) {}, ""},
		{"tampered binary", func(t *testing.T, dir string) {
			path := filepath.Join(dir, "fixture", "plugin")
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, append(text, 0), 0o755); err != nil {
				t.Fatal(err)
			}
		}, "has the SHA-256"},
		{"unsigned", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "fixture", bundle.SignatureFile)); err != nil {
				t.Fatal(err)
			}
		}, "not signed"},
		{"untrusted key", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(pluginhost.TrustDir(dir), "k.pub")); err != nil {
				t.Fatal(err)
			}
		}, "not in the trust store"},
		{"not installed", func(t *testing.T, dir string) {
			if err := bundle.UpdateLock(dir, func(l bundle.Lock) error { l["fixture"] = bundle.Entry{Enabled: true}; return nil }); err != nil {
				t.Fatal(err)
			}
		}, "not in the lock file"},
		{"other manifest", func(t *testing.T, dir string) {
			if err := bundle.UpdateLock(dir, func(l bundle.Lock) error {
				e := l["fixture"]
				e.Digest = strings.Repeat("0", 64)
				l["fixture"] = e
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}, "the lock file says"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := start(t, "", func(c *hosttest.Config) {
				c.Strict = true
				install(t, c.Dir)
				tt.change(t, c.Dir)
			})
			if tt.want == "" {
				if s := wantState(t, h, pluginhost.StateReady); s.KeyID != "k" {
					t.Errorf("status = %+v", s)
				}
				return
			}
			s := wantState(t, h, pluginhost.StateFailed)
			if !strings.Contains(s.Reason, tt.want) || s.Generation != 1 {
				t.Errorf("reason after %d starts = %q, want %q", s.Generation, s.Reason, tt.want)
			}
		})
	}
}

// TestTamperedWhileRunning: the hash is checked at every start.
func TestTamperedWhileRunning(t *testing.T) {
	var dir string
	h := start(t, "", func(c *hosttest.Config) {
		c.Strict, dir = true, c.Dir
		install(t, c.Dir)
	})
	s := wantState(t, h, pluginhost.StateReady)
	if err := os.WriteFile(filepath.Join(dir, "fixture", "plugin"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	kill(t, s.PID)
	if s := wantState(t, h, pluginhost.StateFailed); !strings.Contains(s.Reason, "has the SHA-256") {
		t.Errorf("reason = %q", s.Reason)
	}
}

// TestManifestMustAgree: a program that contributes something else than its
// manifest says is not run.
func TestManifestMustAgree(t *testing.T) {
	h := start(t, "", func(c *hosttest.Config) {
		b, err := bundle.Open(filepath.Join(c.Dir, "fixture"))
		if err != nil {
			t.Fatal(err)
		}
		m := b.Manifest
		m.Contributes.Services = nil
		if _, err := bundle.Write(b.Dir, m, "plugin"); err != nil {
			t.Fatal(err)
		}
	})
	if s := wantState(t, h, pluginhost.StateFailed); !strings.Contains(s.Reason, "contributes") {
		t.Errorf("reason = %q", s.Reason)
	}
}
