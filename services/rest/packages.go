package rest

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"

	"github.com/objecthost/objecthost/core"
)

const packageBase = apiBase + "/packages"

// installed is a plugin as clients know packages. What they could do with one
// besides reading (install, disable, publish …) is done by the operator of the
// host, so that it is never writable.
type installed struct {
	Manifest packageManifest `json:"manifest"`
	Status   string          `json:"status"`
	Enabled  bool            `json:"enabled"`
	Writable bool            `json:"writable"`
}

type packageManifest struct {
	ID           string            `json:"id"`
	Name         string            `json:"name"`
	Namespace    string            `json:"namespace,omitempty"`
	Version      string            `json:"version"`
	Type         string            `json:"type"`
	Scope        string            `json:"scope"`
	Objects      []string          `json:"objects,omitempty"`
	Permissions  []string          `json:"permissions,omitempty"`
	Dependencies map[string]string `json:"dependencies,omitempty"`
}

func (s *Server) packageRoutes() []OwnedRoute {
	return []OwnedRoute{
		own(http.MethodGet, packageBase, "List the plugins of the host", s.servePackages),
		own(http.MethodGet, packageBase+"/{id}", "Read about one plugin", s.servePackage),
	}
}

// servePackages lists the plugins in the order of their start.
func (s *Server) servePackages(w http.ResponseWriter, r *http.Request) error {
	params, err := queryParams(r)
	if err != nil {
		return err
	}
	if err := onlyParams(params, "status", "type", "enabled"); err != nil {
		return err
	}
	packages := []installed{}
	for _, m := range s.catalogue() {
		p := s.packageOf(m)
		if matches(params.Get("status"), p.Status) && matches(params.Get("type"), p.Manifest.Type) && matches(params.Get("enabled"), strconv.FormatBool(p.Enabled)) {
			packages = append(packages, p)
		}
	}
	return writeJSON(w, http.StatusOK, envelope{Success: true, Data: map[string]any{"packages": packages, "total": len(packages)}})
}

// matches compares with a parameter that may be absent.
func matches(wanted, value string) bool { return wanted == "" || wanted == value }

func (s *Server) servePackage(w http.ResponseWriter, r *http.Request) error {
	m, ok := s.catalogue().find(r.PathValue("id"))
	if !ok {
		return resourceNotFound(fmt.Sprintf("Package %s not found", r.PathValue("id")))
	}
	return writeJSON(w, http.StatusOK, envelope{Success: true, Data: map[string]any{"package": s.packageOf(m)}})
}

// packageOf tells of a plugin what its manifest says, and of one in a process of
// its own what its supervisor knows. A plugin in the host's process runs when the
// host does.
func (s *Server) packageOf(m core.Manifest) installed {
	p := packageManifest{
		ID: m.ID, Name: m.ID, Namespace: m.Namespace, Version: cmp.Or(m.Version, "0.0.0"), Type: "plugin", Scope: "project",
	}
	if core.PlatformPlugin(m.ID) {
		p.Scope = "system"
	}
	for i := range m.Contributes.Objects {
		p.Objects = append(p.Objects, m.Contributes.Objects[i].Name)
	}
	for _, permission := range m.Contributes.Permissions {
		p.Permissions = append(p.Permissions, permission.Name)
	}
	for _, id := range m.DependsOn {
		if p.Dependencies == nil {
			p.Dependencies = map[string]string{}
		}
		p.Dependencies[id] = "*" // a manifest names no versions of others
	}
	status, known := s.state(m.ID)
	if !known {
		status = "installed"
	}
	return installed{Manifest: p, Status: status, Enabled: status != "disabled"}
}
