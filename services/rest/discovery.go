package rest

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
)

// apiName is how the host calls itself in discovery.
const apiName = "objecthost"

// discovery tells a client what the host has. Clients take the bases of all
// their calls from Routes.
type discovery struct {
	Version      string                       `json:"version"`
	Name         string                       `json:"name"`
	APIName      string                       `json:"apiName"`
	Environment  string                       `json:"environment"`
	Routes       map[string]string            `json:"routes"`
	Locale       locale                       `json:"locale"`
	Services     map[string]discoveredService `json:"services"`
	Capabilities map[string]capability        `json:"capabilities"`
	Scoping      scoping                      `json:"scoping"`
}

type locale struct {
	Default   string   `json:"default"`
	Supported []string `json:"supported"`
	Timezone  string   `json:"timezone"`
}

// discoveredService tells about one service. Status is available, degraded (it
// runs, but not for clients) or unavailable; HandlerReady that its HTTP routes are
// mounted, and then Route is their base.
type discoveredService struct {
	Enabled      bool   `json:"enabled"`
	Status       string `json:"status"`
	HandlerReady bool   `json:"handlerReady"`
	Route        string `json:"route,omitempty"`
	Message      string `json:"message,omitempty"`
}

type capability struct {
	Enabled bool `json:"enabled"`
}

// scoping would tell that paths are scoped by environment; this host's are not.
type scoping struct {
	Enabled    bool   `json:"enabled"`
	Resolution string `json:"resolution"`
	Scoped     bool   `json:"scoped"`
}

// slot is a service of the wire protocol that a host may have.
type slot struct {
	name string
	// routeKey and base are the key and the base of its HTTP routes, "" for
	// services that have none.
	routeKey, base string
	// always lists the base in discovery even when nothing is served there:
	// clients build these paths without looking.
	always bool
	// unmounted says what a registered service without routes is good for.
	unmounted string
}

const inProcess = "In-process only: no HTTP routes are mounted"

// slots in the order of the protocol.
var slots = []slot{
	{name: "metadata", routeKey: "metadata", base: metaBase, always: true},
	{name: "data", routeKey: "data", base: dataBase, always: true},
	{
		name: "auth", routeKey: "auth", base: apiBase + "/auth", always: true,
		unmounted: "API keys only: no sign-in routes are mounted",
	},
	{name: "automation", routeKey: "automation", base: apiBase + "/automation", always: true},
	{name: "realtime", routeKey: "realtime", base: eventsBase},
	{name: "messaging", routeKey: "deliveries", base: apiBase + "/deliveries"},
	{name: "webhook.autoEnqueuer", routeKey: "webhooks", base: apiBase + "/webhooks"},
	{name: "notification", routeKey: "notifications", base: apiBase + "/notifications"},
	{name: "i18n", routeKey: "i18n", base: apiBase + "/i18n"},
	{name: "analytics", routeKey: "analytics", base: apiBase + "/analytics"},
	{name: "ui", routeKey: "ui", base: apiBase + "/ui"},
	{name: "packages", routeKey: "packages", base: apiBase + "/packages"},
	{name: "search", routeKey: "search", base: apiBase + "/search"},
	{name: "file-storage", routeKey: "storage", base: apiBase + "/storage"},
	{name: "ai", routeKey: "ai", base: apiBase + "/ai"},
	{name: "cache"}, {name: "queue"}, {name: "job"},
}

func (s *Server) discoveryRoutes() []OwnedRoute {
	return []OwnedRoute{
		own(http.MethodGet, apiBase+"/discovery", "Tell what the host has",
			func(w http.ResponseWriter, _ *http.Request) error {
				return writeJSON(w, http.StatusOK, s.discover())
			}, unasked, flatFamily),
		own(http.MethodGet, "/.well-known/objectstack", "Tell what the host has",
			func(w http.ResponseWriter, _ *http.Request) error {
				return writeJSON(w, http.StatusOK, envelope{Success: true, Data: s.discover()})
			}, unasked),
	}
}

// discover is made anew for every request: plugins may add services while the
// host runs.
func (s *Server) discover() discovery {
	registered := s.names()
	d := discovery{
		Version: s.cfg.Version, Name: apiName, APIName: apiName, Environment: s.cfg.Environment,
		Routes:       map[string]string{},
		Locale:       locale{Default: defaultLocale, Supported: []string{defaultLocale}, Timezone: "UTC"},
		Services:     map[string]discoveredService{},
		Capabilities: map[string]capability{},
		Scoping:      scoping{Resolution: "auto"},
	}
	for _, slot := range slots {
		service := s.look(slot, registered)
		d.Services[slot.name] = service
		if slot.always || service.HandlerReady {
			d.Routes[slot.routeKey] = slot.base
		}
	}
	for name, enabled := range s.capabilities(d.Services) {
		d.Capabilities[name] = capability{Enabled: enabled}
	}
	return d
}

// look tells about one service what is so: enabled when it is registered (and,
// if it is for clients, reached by HTTP), and in what state.
func (s *Server) look(slot slot, registered []string) discoveredService {
	present := slices.Contains(registered, slot.name)
	service := discoveredService{HandlerReady: slot.base != "" && s.mounted(slot.base)}
	switch {
	case !present && !service.HandlerReady:
		service.Status, service.Message = "unavailable", "Not part of this host"
	case slot.base != "" && !service.HandlerReady:
		service.Status, service.Message = "degraded", cmp.Or(slot.unmounted, inProcess)
		service.Enabled = slot.always
	default:
		service.Enabled, service.Status = true, "available"
	}
	if service.HandlerReady {
		service.Route = slot.base
	}
	return service
}

// mounted reports whether some route lies at or below a base.
func (s *Server) mounted(base string) bool {
	return slices.ContainsFunc(s.routes, func(r OwnedRoute) bool {
		rest, ok := strings.CutPrefix(r.Pattern, base)
		return ok && (rest == "" || rest[0] == '/')
	})
}

// capabilities claims what routes are there for, and denies the rest by name:
// clients treat a missing key as "ask and see".
func (s *Server) capabilities(services map[string]discoveredService) map[string]bool {
	ready := func(name string) bool { return services[name].Enabled && services[name].HandlerReady }
	return map[string]bool{
		"automation":         ready("automation"),
		"notifications":      ready("notification"),
		"i18n":               ready("i18n"),
		"analytics":          ready("analytics"),
		"ai":                 ready("ai"),
		"files":              ready("file-storage"),
		"search":             ready("search"),
		"transactionalBatch": s.mounted(apiBase + "/batch"),
		"websockets":         false,
		"chunkedUpload":      false,
		"comments":           false,
		"cron":               false,
		"export":             s.mounted(objectPath + "/export"),
	}
}
