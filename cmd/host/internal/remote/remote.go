// Package remote holds the commands that work on a running host through its
// HTTP API: object, webhook, deliveries, replay and plugin.
package remote

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/objecthost/objecthost/cmd/host/internal/client"
	"github.com/objecthost/objecthost/cmd/host/internal/settings"
)

// The environment variables that stand for --url and --key.
const (
	EnvURL = "HOST_URL"
	EnvKey = "HOST_KEY"
)

// session is what the commands share: where the host is, and how to show
// answers.
type session struct {
	getenv   func(string) string
	url, key string
	json     bool
}

// Commands returns the commands. getenv reads the environment.
func Commands(getenv func(string) string) []*cobra.Command {
	s := &session{getenv: getenv}
	commands := []*cobra.Command{s.object(), s.webhook(), s.deliveries(), s.replay()}
	plugin := s.plugin()
	// Beside these, plugin gets commands that work on files.
	for _, c := range append(plugin.Commands(), commands...) {
		flags := c.PersistentFlags()
		flags.StringVar(&s.url, "url", "", "address of the host ("+EnvURL+"; default http://127.0.0.1:8080)")
		flags.StringVar(&s.key, "key", "", "API key; better given in "+EnvKey+", where other users do not see it")
		flags.BoolVar(&s.json, "json", false, "print JSON instead of a table")
	}
	return append(commands, plugin)
}

// group is a command that only holds others.
func group(use, short string, sub ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(sub...)
	return c
}

func (s *session) client() (*client.Client, error) {
	url, key := s.url, s.key
	if url == "" {
		url = s.getenv(EnvURL)
	}
	if url == "" {
		url = "http://127.0.0.1:8080"
	}
	if key == "" {
		key = s.getenv(EnvKey)
	}
	c, err := client.New(url, key)
	if err != nil {
		return nil, misuse("--url", "%v", err)
	}
	return c, nil
}

// misuse is a value on the command line that cannot be used.
func misuse(flag, format string, args ...any) error {
	return &settings.Error{Source: flag, Message: fmt.Sprintf(format, args...)}
}

// show prints value as JSON, or calls table when a table is wanted.
func (s *session) show(c *cobra.Command, value any, table func(io.Writer) error) error {
	if !s.json {
		return table(c.OutOrStdout())
	}
	enc := json.NewEncoder(c.OutOrStdout())
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(value)
}

// text is a value of a record as it stands in a table.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		if v {
			return "yes"
		}
		return "no"
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

// list is a value of a record that holds several texts.
func list(v any) []string {
	items, _ := v.([]any)
	out := make([]string, 0, len(items))
	for _, item := range items {
		out = append(out, text(item))
	}
	return out
}
