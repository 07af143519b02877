package bundles

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
)

// templates are the files of a new plugin.
//
//go:embed templates
var templates embed.FS

// scaffold is what the templates are filled in with.
type scaffold struct {
	Name, Module, Checkout string
}

var scaffoldName = regexp.MustCompile(`^[a-z][a-z0-9]{0,19}$`)

func newPlugin() *cobra.Command {
	var s scaffold
	c := &cobra.Command{
		Use: "new DIR", Short: "Write a plugin that builds and passes its tests as it is", Args: cobra.ExactArgs(1),
		Example: "  host plugin new ../crm --checkout .",
		RunE: func(c *cobra.Command, args []string) error {
			if s.Name == "" {
				s.Name = filepath.Base(args[0])
			}
			if s.Module == "" {
				s.Module = "example.com/" + s.Name
			}
			if err := s.write(args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "%s: now GOWORK=off go test ./...\n", args[0])
			return err
		},
	}
	c.Flags().StringVar(&s.Name, "name", "", "name of the plugin and prefix of its objects, lower-case letters and digits (default the folder's)")
	c.Flags().StringVar(&s.Module, "module", "", "path of its Go module (default example.com/NAME)")
	c.Flags().StringVar(&s.Checkout, "checkout", ".", "checkout of objecthost that it is built against, until its modules are published")
	return c
}

// write writes the plugin into a folder that is not there yet.
func (s scaffold) write(dir string) (err error) {
	if !scaffoldName.MatchString(s.Name) {
		return fmt.Errorf("%q is no name for a new plugin: a lower-case letter, then letters and digits, at most 20", s.Name)
	}
	if s.Checkout, err = filepath.Abs(s.Checkout); err != nil {
		return err
	}
	mod, sum, err := s.modules()
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for name, text := range map[string][]byte{"go.mod": mod, "go.sum": sum} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	all, err := template.ParseFS(templates, "templates/*.tmpl")
	if err != nil {
		return err
	}
	for _, t := range all.Templates() {
		file, err := os.Create(filepath.Join(dir, strings.TrimSuffix(t.Name(), ".tmpl")))
		if err != nil {
			return err
		}
		if err := errors.Join(t.Execute(file, s), file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// modules makes go.mod and go.sum of those of the SDK, so that the plugin asks
// for the versions that the SDK was tested with and nothing has to be looked
// up.
func (s scaffold) modules() (mod, sum []byte, err error) {
	sdk := filepath.Join(s.Checkout, "pluginsdk")
	if mod, err = os.ReadFile(filepath.Join(sdk, "go.mod")); err != nil {
		return nil, nil, fmt.Errorf("no checkout of objecthost: %w", err)
	}
	if sum, err = os.ReadFile(filepath.Join(sdk, "go.sum")); err != nil {
		return nil, nil, err
	}
	const prefix = "github.com/objecthost/objecthost/"
	text := strings.NewReplacer(
		"module "+prefix+"pluginsdk\n", "module "+s.Module+"\n",
		"\t"+prefix+"core v0.0.0\n", "\t"+prefix+"core v0.0.0\n\t"+prefix+"pluginsdk v0.0.0\n",
		"replace "+prefix+"core => ../core\n", "replace "+prefix+"core => "+filepath.Join(s.Checkout, "core")+"\n\nreplace "+prefix+"pluginsdk => "+sdk+"\n",
	).Replace(string(mod))
	return []byte(text), sum, nil
}
