package bundle

import (
	"fmt"
	"slices"
	"strings"
)

// Access to an object's records.
const (
	AccessRead  = "read"
	AccessWrite = "write" // includes reading
)

// Capabilities are what a plugin may do. The zero value is nothing. A name that
// ends in * stands for all names with that beginning, and never for the
// platform's own objects under sys_, which have to be named.
type Capabilities struct {
	// Objects maps objects to read or write.
	Objects map[string]string `json:"objects,omitempty"`
	// Events are the types that the plugin may receive, of objects that it may
	// read.
	Events []string `json:"events,omitempty"`
	// Publish are the types that it may append to the event log.
	Publish []string `json:"publish,omitempty"`
	// Hooks are the objects whose writes it may look at, change and refuse.
	Hooks []string `json:"hooks,omitempty"`
	// Egress are the host names that it may send requests to; *.example.com
	// stands for all names under it.
	Egress []string `json:"egress,omitempty"`
	// Services are the services of other plugins that it may call.
	Services []string `json:"services,omitempty"`
	// Provides are the services that it may offer.
	Provides []string `json:"provides,omitempty"`
	// Nodes are the types of flow nodes that it may offer.
	Nodes []string `json:"nodes,omitempty"`
	// Routes admits HTTP routes, KV the key-value storage.
	Routes bool `json:"routes,omitempty"`
	KV     bool `json:"kv,omitempty"`
}

// CanRead reports whether records of the object may be read.
func (c Capabilities) CanRead(object string) bool { return c.access(object) != "" }

// CanWrite reports whether records of the object may be written.
func (c Capabilities) CanWrite(object string) bool { return c.access(object) == AccessWrite }

// access is the widest access that an entry gives.
func (c Capabilities) access(object string) string {
	best := ""
	for pattern, access := range c.Objects {
		if matchObject(pattern, object) && (best == "" || access == AccessWrite) {
			best = access
		}
	}
	return best
}

// CanReceive reports whether events of the type may be received.
func (c Capabilities) CanReceive(kind string) bool { return matchAny(c.Events, kind) }

// CanPublish reports whether events of the type may be published.
func (c Capabilities) CanPublish(kind string) bool { return matchAny(c.Publish, kind) }

// CanHook reports whether writes of the object may be looked at.
func (c Capabilities) CanHook(object string) bool {
	return slices.ContainsFunc(c.Hooks, func(p string) bool { return matchObject(p, object) })
}

// CanReach reports whether requests may go to the host name.
func (c Capabilities) CanReach(host string) bool {
	host = strings.ToLower(host)
	return slices.ContainsFunc(c.Egress, func(p string) bool {
		p = strings.ToLower(p)
		if suffix, wild := strings.CutPrefix(p, "*"); wild {
			return strings.HasPrefix(suffix, ".") && strings.HasSuffix(host, suffix) && len(host) > len(suffix)
		}
		return p == host
	})
}

// CanCall reports whether the service of another plugin may be called.
func (c Capabilities) CanCall(service string) bool { return matchAny(c.Services, service) }

// CanProvide reports whether the service may be offered.
func (c Capabilities) CanProvide(service string) bool { return matchAny(c.Provides, service) }

// CanRun reports whether the type of flow nodes may be offered.
func (c Capabilities) CanRun(node string) bool { return matchAny(c.Nodes, node) }

func matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return match(p, name) })
}

func match(pattern, name string) bool {
	if prefix, wild := strings.CutSuffix(pattern, "*"); wild {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}

func matchObject(pattern, object string) bool {
	if strings.HasSuffix(pattern, "*") && strings.HasPrefix(object, "sys_") {
		return false
	}
	return match(pattern, object)
}

// Validate returns the first thing that is wrong.
func (c Capabilities) Validate() error {
	for object, access := range c.Objects {
		if access != AccessRead && access != AccessWrite {
			return fmt.Errorf("capabilities.objects.%s: %q is neither read nor write", object, access)
		}
	}
	for _, host := range c.Egress {
		if host == "" || strings.ContainsAny(host, "/:@ ") {
			return fmt.Errorf("capabilities.egress: %q is no host name", host)
		}
	}
	return nil
}
