package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// left is a pattern of checks (group/name) that do not run, because the host
// itself tells in discovery that it lacks what they are about.
type left struct {
	checks, why string
	// has tells from discovery that the host has it.
	has func(discovery) bool
}

// discovery is what the host tells about itself.
type discovery struct {
	Services map[string]struct {
		Enabled      bool `json:"enabled"`
		HandlerReady bool `json:"handlerReady"`
	} `json:"services"`
	Capabilities map[string]struct {
		Enabled bool `json:"enabled"`
	} `json:"capabilities"`
}

func (d discovery) serves(service string) bool {
	return d.Services[service].Enabled && d.Services[service].HandlerReady
}

// conditional is everything that may be left out. Other checks of auth, data,
// metadata, errors and webhooks always run.
var conditional = []left{
	{
		checks: `automation/`, why: "no automation service",
		has: func(d discovery) bool { return d.serves("automation") },
	},
	{
		checks: `data/cross-object transaction`, why: "no transactions over several objects (capability transactionalBatch)",
		has: func(d discovery) bool { return d.Capabilities["transactionalBatch"].Enabled },
	},
	{checks: `meta/view`, why: "no ui service", has: func(d discovery) bool { return d.serves("ui") }},
	{checks: `peripheral/packages`, why: "no packages service", has: func(d discovery) bool { return d.serves("packages") }},
	{checks: `peripheral/notifications`, why: "no notification service", has: func(d discovery) bool { return d.serves("notification") }},
	{checks: `peripheral/i18n`, why: "no i18n service", has: func(d discovery) bool { return d.serves("i18n") }},
}

// leftOut asks the host what it has and returns what has to be left out.
func leftOut(ctx context.Context, base string) ([]left, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/v1/discovery", nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("discovery answered %s", answer.Status)
	}
	var d discovery
	if err := json.NewDecoder(answer.Body).Decode(&d); err != nil {
		return nil, fmt.Errorf("read discovery: %w", err)
	}
	return missing(d), nil
}

func missing(d discovery) []left {
	var out []left
	for _, l := range conditional {
		if !l.has(d) {
			out = append(out, l)
		}
	}
	return out
}

// pattern is a regular expression that matches all of them, and nothing when
// there are none.
func pattern(list []left) string {
	if len(list) == 0 {
		return "^$"
	}
	checks := make([]string, len(list))
	for i, l := range list {
		checks[i] = l.checks
	}
	return "^(" + strings.Join(checks, "|") + ")"
}
