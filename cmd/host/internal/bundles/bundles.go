// Package bundles holds the commands that make and check bundles of plugins, and
// installs them. It works on files, without a running host.
package bundles

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/objecthost/objecthost/pluginhost"
	"github.com/objecthost/objecthost/pluginhost/bundle"
	"github.com/objecthost/objecthost/pluginsdk"
)

// Commands returns the commands, to be put beside those that speak to a running
// host.
func Commands() []*cobra.Command {
	return []*cobra.Command{newPlugin(), keygen(), pack(), verify()}
}

// keygen makes a pair of keys.
func keygen() *cobra.Command {
	return &cobra.Command{
		Use: "keygen ID", Short: "Make a key pair for signatures: ID.key, to be kept, and ID.pub, for the trust folder", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			public, private, err := ed25519.GenerateKey(nil)
			if err != nil {
				return err
			}
			if err := writeNew(args[0]+".key", private.Seed(), 0o600); err != nil {
				return err
			}
			return writeNew(args[0]+".pub", public, 0o644)
		},
	}
}

// writeNew writes a key in base64 and overwrites nothing.
func writeNew(path string, key []byte, mode os.FileMode) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, base64.StdEncoding.EncodeToString(key))
	return errors.Join(err, file.Close())
}

// readKey reads what keygen wrote. The key's id is the file's name.
func readKey(path string) (id string, key ed25519.PrivateKey, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", nil, err
	}
	seed, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(seed) != ed25519.SeedSize {
		return "", nil, fmt.Errorf("%s holds no key", path)
	}
	return strings.TrimSuffix(filepath.Base(path), ".key"), ed25519.NewKeyFromSeed(seed), nil
}

// packing are the flags of pack.
type packing struct {
	name, program, capabilities, key string
	plain                            bool
}

func pack() *cobra.Command {
	var p packing
	c := &cobra.Command{
		Use: "pack DIR", Short: "Make a bundle of a folder: ask the program what it contributes, hash all files, sign", Args: cobra.ExactArgs(1),
		Example: "  host plugin pack dist/crm --name crm --program plugin --capabilities capabilities.json --key acme.key",
		RunE:    func(c *cobra.Command, args []string) error { return p.run(c, args[0]) },
	}
	c.Flags().StringVar(&p.name, "name", "", "name of the plugin (default the folder's)")
	c.Flags().StringVar(&p.program, "program", "plugin", "the program, a file in the folder")
	c.Flags().StringVar(&p.capabilities, "capabilities", "", "JSON file with the capabilities to request (default none)")
	c.Flags().StringVar(&p.key, "key", "", "key to sign with, made by keygen (default unsigned)")
	c.Flags().BoolVar(&p.plain, "plain", false, "the program does no mutual TLS in its handshake")
	return c
}

func (p packing) run(c *cobra.Command, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	m := bundle.Manifest{Name: p.name, Protocol: pluginsdk.ProtocolVersion}
	if m.Name == "" {
		m.Name = filepath.Base(dir)
	}
	if p.plain {
		m.Transport = "plain"
	}
	if p.capabilities != "" {
		text, err := os.ReadFile(p.capabilities)
		if err != nil {
			return err
		}
		decoder := json.NewDecoder(strings.NewReader(string(text)))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&m.Capabilities); err != nil {
			return fmt.Errorf("%s: %w", p.capabilities, err)
		}
	}
	out, err := exec.CommandContext(c.Context(), filepath.Join(dir, p.program), "describe").Output()
	if err != nil {
		return fmt.Errorf("%s describe: %w", p.program, err)
	}
	var says pluginsdk.Description
	if err := json.Unmarshal(out, &says); err != nil {
		return fmt.Errorf("%s describe: %w", p.program, err)
	}
	m.ID, m.Version, m.Contributes = says.ID, says.Version, says.Contributes
	files, err := filesOf(dir)
	if err != nil {
		return err
	}
	m.Executables = map[string]bundle.Executable{platformOf(filepath.Join(dir, p.program)): {Path: p.program}}
	b, err := bundle.Write(dir, m, files...)
	if err != nil {
		return err
	}
	if p.key != "" {
		id, key, err := readKey(p.key)
		if err != nil {
			return err
		}
		if err := b.Sign(id, key); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "%s %s, %d files, manifest %s\n", m.Name, m.Version, len(files), b.Digest)
	return err
}

// filesOf lists the files of a folder without those that make the bundle.
func filesOf(dir string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil && name != bundle.ManifestFile && name != bundle.SignatureFile {
			files = append(files, filepath.ToSlash(name))
		}
		return err
	})
	return files, err
}

// platformOf is any for a script and this machine's platform for a program.
func platformOf(path string) string {
	if text, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(text), "#!") {
		return "any"
	}
	return runtime.GOOS + "/" + runtime.GOARCH
}

// check verifies a bundle's signature by the keys of a folder of plugins, and
// all of its files.
func check(path, plugins string) (b *bundle.Bundle, keyID string, err error) {
	if b, err = bundle.Open(path); err != nil {
		return nil, "", err
	}
	trust, err := bundle.LoadTrust(pluginhost.TrustDir(plugins))
	if err != nil {
		return nil, "", err
	}
	if keyID, err = b.Verify(trust); err != nil {
		return nil, "", err
	}
	scratch, err := os.MkdirTemp("", "host-plugin")
	if err != nil {
		return nil, "", err
	}
	defer os.RemoveAll(scratch)
	_, _, err = b.Materialize(scratch, runtime.GOOS+"/"+runtime.GOARCH)
	return b, keyID, err
}

func verify() *cobra.Command {
	var plugins string
	c := &cobra.Command{
		Use: "verify BUNDLE", Short: "Check a bundle's signature and files, and show what it requests", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			b, keyID, err := check(args[0], plugins)
			if err != nil {
				return err
			}
			return show(c.OutOrStdout(), b, keyID)
		},
	}
	pluginsFlag(c, &plugins)
	return c
}

func pluginsFlag(c *cobra.Command, plugins *string) {
	c.Flags().StringVar(plugins, "plugins", "plugins", "folder of plugins, with the keys whose signatures count in trust/")
}

// show prints what an operator decides by.
func show(w io.Writer, b *bundle.Bundle, keyID string) error {
	text, err := json.MarshalIndent(b.Manifest.Capabilities, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s %s (%s), signed by %s\nrequests %s\n", b.Manifest.Name, b.Manifest.Version, b.Manifest.ID, keyID, text)
	return err
}

// Install checks a bundle, copies it into a folder of plugins without a running
// host, and grants what it requests; without grant it only shows that.
func Install(w io.Writer, path, plugins string, grant bool) error {
	trust, err := bundle.LoadTrust(pluginhost.TrustDir(plugins))
	if err != nil {
		return err
	}
	staged, err := bundle.Stage(plugins, path)
	if err != nil {
		return err
	}
	installed := false
	keyID, err := staged.Verify(trust)
	if err == nil {
		err = staged.Manifest.RunsOn(runtime.GOOS + "/" + runtime.GOARCH)
	}
	if err == nil {
		err = show(w, staged, keyID)
	}
	switch {
	case err != nil:
	case !grant:
		err = errors.New("nothing was installed: say --grant to give the plugin what it requests")
	default:
		name := staged.Manifest.Name
		var home *bundle.Bundle
		home, err = staged.Commit(plugins, filepath.Join(plugins, name), entry(staged, keyID))
		installed = home != nil
	}
	if !installed {
		err = errors.Join(err, staged.Discard())
	}
	return err
}

// entry is the decision of whoever runs the command.
func entry(b *bundle.Bundle, keyID string) bundle.Entry {
	who := "unknown"
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	return bundle.Entry{
		Version: b.Manifest.Version, Digest: b.Digest, KeyID: keyID, Enabled: true,
		Grants: b.Manifest.Capabilities, GrantedBy: who, GrantedAt: time.Now().UTC().Truncate(time.Second),
	}
}
