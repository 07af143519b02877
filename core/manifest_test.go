package core_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/object"
)

func TestManifestIsValidated(t *testing.T) {
	t.Parallel()
	objects := func(names ...string) core.Contributions {
		var c core.Contributions
		for _, n := range names {
			c.Objects = append(c.Objects, object.Schema{Name: n})
		}
		return c
	}
	handler := http.NotFoundHandler()
	tests := []struct {
		name string
		m    core.Manifest
		want []string // fields
	}{
		{"least", core.Manifest{ID: "a"}, nil},
		{"reverse domain", core.Manifest{ID: "com.objectstack.plugin-webhook-outbox", Version: "1.2.3-rc.1+b5"}, nil},
		{"empty", core.Manifest{}, []string{"ID"}},
		{"dots", core.Manifest{ID: "a..b"}, []string{"ID"}},
		{"long", core.Manifest{ID: strings.Repeat("a", 129)}, []string{"ID"}},
		{"version", core.Manifest{ID: "a", Version: "1.2"}, []string{"Version"}},
		{"leading zero", core.Manifest{ID: "a", Version: "1.02.3"}, []string{"Version"}},
		{"namespace", core.Manifest{ID: "a", Namespace: "sys"}, []string{"Namespace"}},
		{"lists", core.Manifest{ID: "a", DependsOn: []string{""}, After: []string{"b", "b"}, Requires: []string{""}, Provides: []string{"s", "s"}},
			[]string{"DependsOn", "After", "Requires", "Provides"}},
		{"schema", core.Manifest{ID: "a", ConfigSchema: json.RawMessage("{")}, []string{"ConfigSchema"}},
		{"timeouts", core.Manifest{ID: "a", InitTimeout: -1, StartTimeout: -1, StopTimeout: -1}, []string{"InitTimeout", "StartTimeout", "StopTimeout"}},
		{"health", core.Manifest{ID: "a", Health: core.HealthPolicy{Interval: -1}}, []string{"Health.Interval"}},
		{"own objects", core.Manifest{ID: "a", Namespace: "crm", Contributes: objects("crm_account", "crm_a_b")}, nil},
		{"other objects", core.Manifest{ID: "a", Namespace: "crm", Contributes: objects("account", "crm", "crm_", "crmx_a", "crm__a", "Crm_a")},
			[]string{"Contributes.Objects", "Contributes.Objects", "Contributes.Objects", "Contributes.Objects", "Contributes.Objects", "Contributes.Objects"}},
		{"no namespace", core.Manifest{ID: "a", Contributes: objects("account", "a__b")}, []string{"Contributes.Objects"}},
		{"sys_ of a stranger", core.Manifest{ID: "com.objectstackevil.x", Contributes: objects("sys_webhook")}, []string{"Contributes.Objects"}},
		{"sys_ of the platform", core.Manifest{ID: "com.objectstack.service.auth", Namespace: "auth", Contributes: objects("sys_user", "auth_x")}, nil},
		{"route", core.Manifest{ID: "a", Contributes: core.Contributions{Routes: []core.Route{{Method: "GET", Pattern: "/x", Handler: handler}}}}, nil},
		{"bad routes", core.Manifest{ID: "a", Contributes: core.Contributions{Routes: []core.Route{
			{Method: "get", Pattern: "/x", Handler: handler},
			{Method: "GET", Pattern: "x", Handler: handler},
			{Method: "GET", Pattern: "/x"},
			{Method: "GET", Pattern: "/x", Handler: handler, Anonymous: true, Permission: "p"},
		}}}, []string{"Contributes.Routes", "Contributes.Routes", "Contributes.Routes", "Contributes.Routes"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, err := range core.ValidateManifest(tt.m) {
				var me *core.ManifestError
				if !errors.As(err, &me) || me.Plugin != tt.m.ID {
					t.Fatalf("error = %#v", err)
				}
				got = append(got, me.Field)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("fields = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestValidNamespace(t *testing.T) {
	t.Parallel()
	for ns, want := range map[string]bool{
		"crm": true, "a1": true, "a_b": true, strings.Repeat("a", 20): true,
		"": false, "a": false, strings.Repeat("a", 21): false, "1a": false, "_a": false, "Crm": false, "a-b": false,
		"a__b": false, "base": false, "system": false, "sys": false,
	} {
		if got := core.ValidNamespace(ns); got != want {
			t.Errorf("ValidNamespace(%q) = %t", ns, got)
		}
	}
}
