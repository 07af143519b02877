package bundle_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/objecthost/objecthost/pluginhost/bundle"
)

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func manifest() bundle.Manifest {
	return bundle.Manifest{Name: "crm", ID: "com.example.crm", Version: "1.0.0", Protocol: 1,
		Executables: map[string]bundle.Executable{"linux/amd64": {Path: "bin/crm", Args: []string{"-x"}}}}
}

// setup makes a bundle signed by the key "k".
func setup(t *testing.T) (*bundle.Bundle, bundle.Trust) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "bin/crm", "binary")
	write(t, dir, "data.txt", "data")
	b, err := bundle.Write(dir, manifest(), "bin/crm", "data.txt")
	if err != nil {
		t.Fatal(err)
	}
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Sign("k", private); err != nil {
		t.Fatal(err)
	}
	return b, bundle.Trust{"k": public}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	other, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		change func(t *testing.T, b *bundle.Bundle, trust bundle.Trust)
		want   string // "" verifies
	}{
		{"as it is", func(*testing.T, *bundle.Bundle, bundle.Trust) {}, ""},
		{"changed manifest", func(t *testing.T, b *bundle.Bundle, _ bundle.Trust) {
			path := filepath.Join(b.Dir, bundle.ManifestFile)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			write(t, b.Dir, bundle.ManifestFile, strings.Replace(string(text), "1.0.0", "1.0.1", 1))
		}, "does not fit the manifest"},
		{"unknown key", func(_ *testing.T, _ *bundle.Bundle, trust bundle.Trust) { delete(trust, "k") }, "not in the trust store"},
		{"other key", func(_ *testing.T, _ *bundle.Bundle, trust bundle.Trust) { trust["k"] = other }, "does not fit the manifest"},
		{"garbage", func(t *testing.T, b *bundle.Bundle, _ bundle.Trust) {
			write(t, b.Dir, bundle.SignatureFile, "ed25519:k")
		}, "not of the form"},
		{"short", func(t *testing.T, b *bundle.Bundle, _ bundle.Trust) {
			write(t, b.Dir, bundle.SignatureFile, "ed25519:k:AAAA")
		}, "no Ed25519 signature"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b, trust := setup(t)
			tt.change(t, b, trust)
			b, err := bundle.Open(b.Dir)
			if err != nil {
				t.Fatal(err)
			}
			key, err := b.Verify(trust)
			if tt.want == "" {
				if key != "k" || err != nil {
					t.Errorf("verify = %q, %v", key, err)
				}
				return
			}
			var bad *bundle.SignatureError
			if !errors.As(err, &bad) || !strings.Contains(bad.Reason, tt.want) {
				t.Errorf("verify = %v, want %q", err, tt.want)
			}
		})
	}
	b, trust := setup(t)
	if err := os.Remove(filepath.Join(b.Dir, bundle.SignatureFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Verify(trust); !errors.Is(err, bundle.ErrUnsigned) {
		t.Errorf("unsigned = %v", err)
	}
}

func TestMaterializeHashesWhatItWrites(t *testing.T) {
	t.Parallel()
	b, _ := setup(t)
	dst := t.TempDir()
	path, args, err := b.Materialize(dst, "linux/amd64")
	if err != nil || path != filepath.Join(dst, "bin/crm") || len(args) != 1 {
		t.Fatalf("materialize = %q %q, %v", path, args, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o500 {
		t.Errorf("executable = %v, %v", info, err)
	}
	var platform *bundle.PlatformError
	if _, _, err := b.Materialize(t.TempDir(), "plan9/arm"); !errors.As(err, &platform) {
		t.Errorf("other platform = %v", err)
	}
	var tampered *bundle.TamperedError
	write(t, b.Dir, "data.txt", "dat4")
	if _, _, err := b.Materialize(t.TempDir(), "linux/amd64"); !errors.As(err, &tampered) || tampered.File != "data.txt" || tampered.Got == "" {
		t.Errorf("changed file = %v", err)
	}
	if err := os.Remove(filepath.Join(b.Dir, "data.txt")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(b.Dir, "data.txt")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Materialize(t.TempDir(), "linux/amd64"); err == nil {
		t.Error("a link out of the bundle was followed")
	}
}

func TestManifestIsRefused(t *testing.T) {
	t.Parallel()
	good := `"name":"crm","id":"com.example.crm","version":"1.0.0","protocol":1,"executables":{"any":{"path":"x"}},"files":{"x":"` + strings.Repeat("ab", 32) + `"}`
	if _, err := bundle.Decode([]byte("{" + good + "}")); err != nil {
		t.Fatal(err)
	}
	tests := map[string][2]string{
		"unknown key":   {`"protocol"`, `"extra":1,"protocol"`},
		"wrong version": {`"protocol":1`, `"protocol":2`},
		"bad name":      {`"crm"`, `"../crm"`},
		"bad id":        {`com.example.crm`, `com..crm`},
		"path outside":  {`"files":{"x"`, `"files":{"../x"`},
		"unlisted":      {`{"path":"x"}`, `{"path":"y"}`},
		"bad hash":      {`ababab`, `zz`},
		"bad access":    {`"protocol"`, `"capabilities":{"objects":{"a":"all"}},"protocol"`},
		"sys object":    {`"protocol"`, `"contributes":{"objects":[{"name":"sys_x","fields":{}}]},"protocol"`},
	}
	for name, change := range tests {
		text := strings.Replace("{"+good+"}", change[0], change[1], 1)
		if _, err := bundle.Decode([]byte(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestCapabilities(t *testing.T) {
	t.Parallel()
	c := bundle.Capabilities{
		Objects: map[string]string{"crm_*": "read", "crm_account": "write", "*": "read", "sys_user": "read"},
		Events:  []string{"data.record.*"}, Hooks: []string{"crm_*"}, Egress: []string{"api.example.com", "*.example.org"},
	}
	tests := []struct {
		name      string
		got, want bool
	}{
		{"read by pattern", c.CanRead("crm_contact"), true},
		{"write by pattern", c.CanWrite("crm_contact"), false},
		{"write by name", c.CanWrite("crm_account"), true},
		{"a pattern is not for sys_", c.CanRead("sys_api_key"), false},
		{"sys_ by name", c.CanRead("sys_user"), true},
		{"event", c.CanReceive("data.record.created"), true},
		{"other event", c.CanReceive("data.records.deleted"), false},
		{"hook", c.CanHook("crm_x"), true},
		{"egress", c.CanReach("API.example.com"), true},
		{"egress below", c.CanReach("x.example.com"), false},
		{"egress wildcard", c.CanReach("a.b.example.org"), true},
		{"egress wildcard is not its root", c.CanReach("example.org"), false},
		{"egress lookalike", c.CanReach("evilexample.org"), false},
		{"nothing by default", bundle.Capabilities{}.CanRead("a") || bundle.Capabilities{}.CanCall("a") || bundle.Capabilities{}.CanPublish("a"), false},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s = %t", tt.name, tt.got)
		}
	}
}

func TestLockKeepsEveryUpdate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			err := bundle.UpdateLock(dir, func(l bundle.Lock) error {
				l[fmt.Sprintf("p%d", i)] = bundle.Entry{Version: "1.0.0", Grants: bundle.Capabilities{KV: true}}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	lock, err := bundle.LoadLock(dir)
	if err != nil || len(lock) != 20 || !lock["p7"].Grants.KV {
		t.Errorf("lock = %v, %v", lock, err)
	}
}

func TestLoadTrust(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "acme.pub", base64.StdEncoding.EncodeToString(public)+"\n")
	trust, err := bundle.LoadTrust(dir)
	if err != nil || !trust["acme"].Equal(public) {
		t.Errorf("trust = %v, %v", trust, err)
	}
	write(t, dir, "bad.pub", "AAAA")
	if _, err := bundle.LoadTrust(dir); err == nil {
		t.Error("a bad key was accepted")
	}
}
