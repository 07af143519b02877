package main

import (
	"encoding/json"
	"regexp"
	"testing"
)

func TestLeftOut(t *testing.T) {
	for _, c := range []struct {
		name, discovery string
		left, kept      []string
	}{
		{
			"keys and records only", `{"services":{"auth":{"enabled":true}},"capabilities":{"transactionalBatch":{"enabled":false}}}`,
			[]string{"automation/list", "meta/view", "data/cross-object transaction with $ref", "peripheral/packages"},
			[]string{"auth/login with a wrong password", "auth/me (get-session)", "auth/anonymous data is refused", "auth/mint an API key", "auth/API key headers", "meta/types", "data/create", "errors/unknown route", "webhooks/redeliver", "discovery/connect"},
		},
		{
			"a service that is there but not reached", `{"services":{"automation":{"enabled":true,"handlerReady":false}}}`,
			[]string{"automation/list"}, nil,
		},
		{
			"everything", `{"services":{"auth":{"enabled":true,"handlerReady":true},"automation":{"enabled":true,"handlerReady":true},"ui":{"enabled":true,"handlerReady":true},
				"packages":{"enabled":true,"handlerReady":true},"notification":{"enabled":true,"handlerReady":true},"i18n":{"enabled":true,"handlerReady":true}},
				"capabilities":{"transactionalBatch":{"enabled":true}}}`,
			nil, []string{"auth/login", "automation/list", "meta/view", "data/cross-object transaction with $ref", "peripheral/packages"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d discovery
			if err := json.Unmarshal([]byte(c.discovery), &d); err != nil {
				t.Fatal(err)
			}
			skip := regexp.MustCompile(pattern(missing(d)))
			for _, check := range c.left {
				if !skip.MatchString(check) {
					t.Errorf("%s is not left out by %s", check, skip)
				}
			}
			for _, check := range c.kept {
				if skip.MatchString(check) {
					t.Errorf("%s is left out by %s", check, skip)
				}
			}
		})
	}
}
