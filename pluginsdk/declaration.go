package pluginsdk

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/core/object"
)

// Declaration is everything that a plugin contributes, without the code: what a
// bundle's manifest says under contributes, so that an operator and the host
// know it before the plugin has run.
type Declaration struct {
	Namespace    string                `json:"namespace,omitempty"`
	DependsOn    []string              `json:"dependsOn,omitempty"`
	ConfigSchema json.RawMessage       `json:"configSchema,omitempty"`
	Objects      []object.Schema       `json:"objects,omitempty"`
	Routes       []RouteDeclaration    `json:"routes,omitempty"`
	Permissions  []core.Permission     `json:"permissions,omitempty"`
	Navigation   []core.NavigationItem `json:"navigation,omitempty"`
	Events       []EventDeclaration    `json:"events,omitempty"`
	Before       []HookDeclaration     `json:"before,omitempty"`
	After        []HookDeclaration     `json:"after,omitempty"`
	Services     []string              `json:"services,omitempty"`
	Nodes        []NodeDeclaration     `json:"nodes,omitempty"`
}

// RouteDeclaration is a [core.Route]; the pattern is relative to the plugin's
// place under /api/v1/plugins/<name>.
type RouteDeclaration struct {
	Method     string `json:"method"`
	Pattern    string `json:"pattern"`
	Permission string `json:"permission,omitempty"`
	Anonymous  bool   `json:"anonymous,omitempty"`
	Summary    string `json:"summary,omitempty"`
}

// EventDeclaration is an [EventHandler].
type EventDeclaration struct {
	Name   string   `json:"name"`
	Object string   `json:"object,omitempty"`
	Types  []string `json:"types,omitempty"`
	Batch  int      `json:"batch"`
}

// HookDeclaration is a [BeforeHook] or [AfterHook] with its defaults filled in.
type HookDeclaration struct {
	Object     string   `json:"object"`
	Operations []string `json:"operations"`
	DeadlineMS int64    `json:"deadlineMs"`
	OnError    OnError  `json:"onError,omitempty"`
}

// Wants tells whether the hook looks at an operation of the data service. A
// write of everything that a filter selects (update_where, delete_where) counts
// as what it does, so that no write goes past a hook.
func (h HookDeclaration) Wants(operation string) bool {
	return slices.Contains(h.Operations, strings.TrimSuffix(operation, "_where"))
}

// declare makes the declaration of a plugin. Lists keep their order.
func declare(m core.Manifest, c Contributions) Declaration {
	d := Declaration{
		Namespace: m.Namespace, DependsOn: m.DependsOn, ConfigSchema: m.ConfigSchema, Objects: m.Contributes.Objects,
		Permissions: m.Contributes.Permissions, Navigation: m.Contributes.Navigation,
	}
	for _, r := range m.Contributes.Routes {
		d.Routes = append(d.Routes, RouteDeclaration{Method: r.Method, Pattern: r.Pattern, Permission: r.Permission, Anonymous: r.Anonymous, Summary: r.Summary})
	}
	for _, h := range c.Events {
		batch := h.Batch
		if batch == 0 {
			batch = DefaultBatch
		}
		d.Events = append(d.Events, EventDeclaration{Name: h.Name, Object: h.Object, Types: h.Types, Batch: batch})
	}
	for _, h := range c.Before {
		d.Before = append(d.Before, HookDeclaration{h.Object, operations(h.Operations), deadlineMS(h.Deadline.Milliseconds()), h.OnError})
	}
	for _, h := range c.After {
		d.After = append(d.After, HookDeclaration{h.Object, operations(h.Operations), deadlineMS(h.Deadline.Milliseconds()), ""})
	}
	for _, s := range c.Services {
		d.Services = append(d.Services, s.Name)
	}
	for _, n := range c.Nodes {
		d.Nodes = append(d.Nodes, n.declare())
	}
	return d
}

func operations(named []string) []string {
	if len(named) == 0 {
		return []string{OpCreate, OpUpdate}
	}
	return named
}

func deadlineMS(ms int64) int64 {
	if ms == 0 {
		return DefaultDeadline.Milliseconds()
	}
	return ms
}

// muxOf serves the plugin's routes at their own patterns.
func muxOf(routes []core.Route) *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.Handle(r.Method+" "+r.Pattern, r.Handler)
	}
	return mux
}
