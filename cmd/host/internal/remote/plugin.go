package remote

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// pluginStatus is a plugin as a host tells it.
type pluginStatus struct {
	Name       string           `json:"name"`
	ID         string           `json:"id"`
	Version    string           `json:"version"`
	KeyID      string           `json:"keyId,omitempty"`
	State      string           `json:"state"`
	Reason     string           `json:"reason,omitempty"`
	NextRetry  time.Time        `json:"nextRetry,omitzero"`
	LastPanic  string           `json:"lastPanic,omitempty"`
	Generation int              `json:"generation"`
	Restarts   int              `json:"restarts"`
	PID        int              `json:"pid,omitempty"`
	ReadySince time.Time        `json:"readySince,omitzero"`
	Memory     uint64           `json:"memory,omitempty"`
	Calls      int64            `json:"calls"`
	Errors     int64            `json:"errors"`
	Latency    float64          `json:"latencyMs"`
	LogLines   int64            `json:"logLines"`
	LogDropped int64            `json:"logDropped"`
	Denied     map[string]int64 `json:"denied,omitempty"`
}

const pluginsPath = "/api/v1/system/plugins"

func (s *session) plugin() *cobra.Command {
	action := func(verb, short string) *cobra.Command {
		return &cobra.Command{
			Use: verb + " NAME", Short: short, Args: cobra.ExactArgs(1),
			RunE: func(c *cobra.Command, args []string) error {
				return s.showPlugin(c, http.MethodPost, pluginsPath+"/"+url.PathEscape(args[0])+"/"+verb)
			},
		}
	}
	lines, follow := 100, false
	logs := &cobra.Command{
		Use: "logs NAME", Short: "Print the end of a plugin's log", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if follow {
				return s.followLogs(c, args[0], lines)
			}
			return s.pluginLogs(c, args[0], lines)
		},
	}
	logs.Flags().IntVar(&lines, "lines", lines, "how many lines, at most 500")
	logs.Flags().BoolVarP(&follow, "follow", "f", false, "go on with the lines that come")
	return group("plugin", "Run plugins in processes of their own, and make bundles of them",
		&cobra.Command{
			Use: "list", Short: "List the plugins of a running host", Args: cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error { return s.listPlugins(c) },
		},
		&cobra.Command{
			Use: "info NAME", Short: "Show how a plugin is", Args: cobra.ExactArgs(1),
			RunE: func(c *cobra.Command, args []string) error {
				return s.showPlugin(c, http.MethodGet, pluginsPath+"/"+url.PathEscape(args[0]))
			},
		},
		action("enable", "Switch a plugin on"), action("disable", "Switch a plugin off"),
		action("restart", "Start a plugin anew, with what is in its folder"), logs,
		s.installPlugin(), s.upgradePlugin(), s.uninstallPlugin(),
	)
}

func (s *session) listPlugins(c *cobra.Command) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	var answer struct {
		Data []pluginStatus `json:"data"`
	}
	if err := api.Do(c.Context(), http.MethodGet, pluginsPath, nil, &answer); err != nil {
		return err
	}
	return s.show(c, answer.Data, func(w io.Writer) error {
		t := newTable("NAME", "VERSION", "STATE", "RESTARTS", "REASON")
		for _, p := range answer.Data {
			t.add(p.Name, p.Version, p.State, fmt.Sprint(p.Restarts), p.Reason)
		}
		return t.print(w, widthOf(w, s.getenv))
	})
}

// showPlugin makes a request that is answered with a plugin's status.
func (s *session) showPlugin(c *cobra.Command, method, path string) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	var answer struct {
		Data pluginStatus `json:"data"`
	}
	if err := api.Do(c.Context(), method, path, nil, &answer); err != nil {
		return err
	}
	return s.show(c, answer.Data, func(w io.Writer) error { return pairs(w, answer.Data.cells()...) })
}

// cells are names and values in turn, without those that say nothing.
func (p pluginStatus) cells() []string {
	var cells []string
	add := func(name, value string) {
		if value != "" && value != "0" {
			cells = append(cells, name, value)
		}
	}
	moment := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.Local().Format(time.DateTime)
	}
	add("name", p.Name)
	add("id", p.ID)
	add("version", p.Version)
	add("signed by", p.KeyID)
	add("state", p.State)
	add("reason", p.Reason)
	add("next retry", moment(p.NextRetry))
	add("ready since", moment(p.ReadySince))
	add("process", fmt.Sprint(p.PID))
	add("memory", fmt.Sprint(p.Memory))
	add("restarts", fmt.Sprint(p.Restarts))
	add("calls", fmt.Sprint(p.Calls))
	add("errors", fmt.Sprint(p.Errors))
	if p.Calls > 0 {
		add("mean latency", fmt.Sprintf("%.2f ms", p.Latency))
	}
	add("log lines", fmt.Sprint(p.LogLines))
	add("dropped", fmt.Sprint(p.LogDropped))
	for _, capability := range slices.Sorted(maps.Keys(p.Denied)) {
		add("denied", fmt.Sprintf("%s, %d times", capability, p.Denied[capability]))
	}
	first, _, _ := strings.Cut(p.LastPanic, "\n")
	add("last panic", first)
	return cells
}

func (s *session) pluginLogs(c *cobra.Command, name string, lines int) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	var answer struct {
		Data []string `json:"data"`
	}
	path := fmt.Sprintf("%s/%s/logs?lines=%d", pluginsPath, url.PathEscape(name), lines)
	if err := api.Do(c.Context(), http.MethodGet, path, nil, &answer); err != nil {
		return err
	}
	return s.show(c, answer.Data, func(w io.Writer) error {
		for _, line := range answer.Data {
			if _, err := fmt.Fprintln(w, printable(line)); err != nil {
				return err
			}
		}
		return nil
	})
}
