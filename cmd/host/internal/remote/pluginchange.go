package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/objecthost/objecthost/cmd/host/internal/bundles"
)

// changeTime bounds an install or upgrade, which waits for the new version to
// start and for the old one to end.
const changeTime = 3 * time.Minute

// pluginChange is the body of an install or upgrade.
type pluginChange struct {
	Bundle string          `json:"bundle,omitempty"`
	Grant  bool            `json:"grant,omitempty"`
	Grants json.RawMessage `json:"grants,omitempty"`
	Config json.RawMessage `json:"config,omitempty"`
}

// changing are the flags of install and upgrade.
type changing struct {
	grant          bool
	grants, config string
}

func (g *changing) flags(c *cobra.Command) {
	c.Flags().BoolVar(&g.grant, "grant", false, "grant the capabilities that the bundle requests")
	c.Flags().StringVar(&g.grants, "grants", "", "JSON file with the capabilities to grant instead")
	c.Flags().StringVar(&g.config, "config", "", "JSON file with the plugin's configuration")
	c.MarkFlagsMutuallyExclusive("grant", "grants")
}

// body makes the request; the bundle's path is meant as seen from here.
func (g *changing) body(bundle string) (body pluginChange, err error) {
	body.Grant = g.grant
	if bundle != "" {
		if body.Bundle, err = filepath.Abs(bundle); err != nil {
			return body, err
		}
	}
	for _, f := range []struct {
		path string
		into *json.RawMessage
	}{{g.grants, &body.Grants}, {g.config, &body.Config}} {
		if f.path == "" {
			continue
		}
		if *f.into, err = os.ReadFile(f.path); err != nil {
			return body, err
		}
		if !json.Valid(*f.into) {
			return body, fmt.Errorf("%s is not valid JSON", f.path)
		}
	}
	return body, nil
}

func (s *session) installPlugin() *cobra.Command {
	var g changing
	var plugins string
	c := &cobra.Command{
		Use: "install BUNDLE", Short: "Install a plugin into a running host, or with --plugins into a folder", Args: cobra.ExactArgs(1),
		Long: "Install a plugin into a running host, or with --plugins into a folder.\n\n" +
			"BUNDLE is a folder on the host's machine. A running host checks its signature and files, copies it, starts it and ties\n" +
			"it in; when one of that fails nothing of it remains. With --plugins no host is asked: it takes the plugin when it starts,\n" +
			"and a new version of one that runs by upgrade or restart.",
		RunE: func(c *cobra.Command, args []string) error {
			if plugins != "" {
				if g.grants != "" || g.config != "" {
					return misuse("--plugins", "--grants and --config are for a running host")
				}
				return bundles.Install(c.OutOrStdout(), args[0], plugins, g.grant)
			}
			if !g.grant && g.grants == "" {
				return errors.New("nothing was installed: say --grant to give the plugin what it requests (host plugin verify shows it), or --grants FILE")
			}
			body, err := g.body(args[0])
			if err != nil {
				return err
			}
			return s.changePlugin(c, http.MethodPost, pluginsPath, body)
		},
	}
	g.flags(c)
	c.Flags().StringVar(&plugins, "plugins", "", "folder of plugins to install into, without a running host")
	return c
}

func (s *session) upgradePlugin() *cobra.Command {
	var g changing
	c := &cobra.Command{
		Use: "upgrade NAME [BUNDLE]", Short: "Put a new version in a plugin's place while it serves", Args: cobra.RangeArgs(1, 2),
		Long: "Put a new version in a plugin's place while it serves.\n\n" +
			"The new version is started beside the old one and asked how it is; then it takes over, and the old one ends when its\n" +
			"calls have ended. When anything fails, the old version goes on. Without BUNDLE, a folder on the host's machine, the\n" +
			"version that was put into the plugin's folder is taken. What was granted stays granted, unless --grant or --grants says\n" +
			"otherwise.",
		RunE: func(c *cobra.Command, args []string) error {
			source := ""
			if len(args) == 2 {
				source = args[1]
			}
			body, err := g.body(source)
			if err != nil {
				return err
			}
			return s.changePlugin(c, http.MethodPost, pluginsPath+"/"+url.PathEscape(args[0])+"/upgrade", body)
		},
	}
	g.flags(c)
	return c
}

// changePlugin makes a request that takes its time and is answered with a
// plugin's status.
func (s *session) changePlugin(c *cobra.Command, method, path string, body any) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	var answer struct {
		Data pluginStatus `json:"data"`
	}
	if err := api.Within(changeTime).Do(c.Context(), method, path, body, &answer); err != nil {
		return err
	}
	return s.show(c, answer.Data, func(w io.Writer) error { return pairs(w, answer.Data.cells()...) })
}

func (s *session) uninstallPlugin() *cobra.Command {
	var purge bool
	c := &cobra.Command{
		Use: "uninstall NAME", Short: "End a plugin and remove it, but not the records of its objects", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			api, err := s.client()
			if err != nil {
				return err
			}
			path := pluginsPath + "/" + url.PathEscape(args[0])
			if purge {
				path += "?purge=true"
			}
			var answer struct {
				Data struct {
					Name        string `json:"name"`
					Uninstalled bool   `json:"uninstalled"`
				} `json:"data"`
			}
			if err := api.Within(changeTime).Do(c.Context(), http.MethodDelete, path, nil, &answer); err != nil {
				return err
			}
			return s.show(c, answer.Data, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s is uninstalled\n", answer.Data.Name)
				return err
			})
		},
	}
	c.Flags().BoolVar(&purge, "purge", false, "remove the values that it stored too")
	return c
}

// followLogs prints a plugin's log until the command is interrupted or the host
// ends.
func (s *session) followLogs(c *cobra.Command, name string, lines int) error {
	api, err := s.client()
	if err != nil {
		return err
	}
	path := fmt.Sprintf("%s/%s/logs?follow=true&lines=%d", pluginsPath, url.PathEscape(name), lines)
	err = api.Lines(c.Context(), path, func(line string) error {
		_, err := fmt.Fprintln(c.OutOrStdout(), printable(line))
		return err
	})
	if c.Context().Err() != nil {
		return nil
	}
	return err
}
