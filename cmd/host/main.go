// Command host runs an objecthost server and speaks to running ones.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/objecthost/objecthost/cmd/host/internal/bundles"
	"github.com/objecthost/objecthost/cmd/host/internal/document"
	"github.com/objecthost/objecthost/cmd/host/internal/pluginconfig"
	"github.com/objecthost/objecthost/cmd/host/internal/remote"
	"github.com/objecthost/objecthost/cmd/host/internal/settings"
	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/plugins/webhooks"
	"github.com/objecthost/objecthost/services/rest"
	"github.com/objecthost/objecthost/storage/dsn"
)

// The exit codes. Everything that a caller has to spell in another way, in a
// flag, a variable or a file, is misuse.
const (
	exitOK      = 0
	exitFailure = 1
	exitMisuse  = 2
)

// gcPercent is the garbage collector's GOGC where the environment names none. A
// host's live heap is small beside its program and its database's cache, and
// collecting half as often leaves a drain a sixth of its processor time.
const gcPercent = 200

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	os.Exit(run(context.Background(), os.Args[1:], environment{
		getenv: os.Getenv, environ: os.Environ(), stdout: os.Stdout, stderr: os.Stderr,
	}))
}

// environment is what the process stands in.
type environment struct {
	getenv         func(string) string
	environ        []string
	stdout, stderr io.Writer
}

// run executes one command line and returns its exit code. Errors are printed
// as one line on stderr.
func run(ctx context.Context, args []string, env environment) int {
	reached := false
	root := rootCommand(env)
	root.SetArgs(args)
	root.SetOut(env.stdout)
	root.SetErr(env.stderr)
	eachCommand(root, func(c *cobra.Command) {
		if inner := c.RunE; inner != nil {
			c.RunE = func(c *cobra.Command, args []string) error {
				reached = true
				return inner(c, args)
			}
		}
	})
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	err, misuse := explain(err)
	fmt.Fprintln(env.stderr, "host: "+oneLine(err))
	if !reached || misuse {
		return exitMisuse
	}
	return exitFailure
}

func rootCommand(env environment) *cobra.Command {
	root := &cobra.Command{
		Use:   "host",
		Short: "Objects with an API, and their changes delivered to webhooks",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
		// Errors are printed by run, without the usage.
		SilenceErrors: true, SilenceUsage: true,
	}
	root.AddCommand(serveCommand(env), demoCommand(env), migrateCommand(env), storageCommand(env), receiveCommand(env), benchCommand(env), versionCommand())
	for _, c := range remote.Commands(env.getenv) {
		if c.Name() == "plugin" {
			c.AddCommand(bundles.Commands()...)
		}
		root.AddCommand(c)
	}
	return root
}

func eachCommand(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, sub := range c.Commands() {
		eachCommand(sub, do)
	}
}

// explain returns the part of an error that its reader can do something about,
// without the way that it took through the kernel, and whether it is misuse.
func explain(err error) (_ error, misuse bool) {
	var (
		setting *settings.Error
		fault   *document.Error
		faults  pluginconfig.Faults
		config  *core.ConfigError
		webhook *webhooks.DeclarationError
		listen  *rest.ListenError
	)
	switch {
	case errors.As(err, &faults):
		return faults, true
	case errors.As(err, &setting):
		return setting, true
	case errors.As(err, &fault):
		return fault, true
	case errors.As(err, &webhook):
		return webhook, true
	case errors.As(err, &config):
		return config, true
	case errors.As(err, &listen):
		return listen, false
	}
	return err, errors.Is(err, dsn.ErrUnknown)
}

// oneLine is the text of an error without line breaks; cobra appends
// suggestions on lines of their own.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

// settingsFlags adds a flag for every setting to c and returns how to load
// them.
func settingsFlags(c *cobra.Command, env environment) func() (settings.Settings, error) {
	flags := c.Flags()
	file := flags.String("config", "", "configuration file (HOST_CONFIG; default ./"+settings.DefaultFile+" when it exists)")
	for _, s := range settings.All() {
		usage := s.Usage + " (" + s.Env() + ")"
		switch s.Kind {
		case settings.List:
			flags.StringArray(s.Name, nil, usage)
		case settings.Switch:
			flags.Bool(s.Name, s.Default == "true", usage)
		default:
			flags.String(s.Name, s.Default, usage)
		}
	}
	return func() (settings.Settings, error) {
		in := settings.Input{
			File: *file, Environ: env.environ, Flags: map[string][]string{},
			OtherVars: []string{remote.EnvURL, remote.EnvKey, envKeyring, envAdminEmail, envAdminPassword, envOIDCSecret, "HOST_CONFIG"},
		}
		if in.File == "" {
			in.File = env.getenv("HOST_CONFIG")
		}
		for _, s := range settings.All() {
			if f := flags.Lookup(s.Name); f.Changed {
				in.Flags[s.Name] = []string{f.Value.String()}
				if list, ok := f.Value.(interface{ GetSlice() []string }); ok {
					in.Flags[s.Name] = list.GetSlice()
				}
			}
		}
		return settings.Load(in)
	}
}
