package pluginhost

import (
	"reflect"
	"sync/atomic"

	"github.com/objecthost/objecthost/pluginhost/bundle"
	"github.com/objecthost/objecthost/pluginsdk"
)

// contract is what one version of a plugin contributes and may do. Hooks,
// routes and all else are bound to the contract of their version, so that an
// upgrade changes them all in one step.
type contract struct {
	decl   pluginsdk.Declaration
	policy *policy
	// digest tells which manifest it is of, "" in the host's process.
	digest string
	// process is the generation that was started last by this contract; nil in
	// the host's process.
	process atomic.Pointer[instance]
}

// same tells that a restart may keep the other contract.
func (c *contract) same(other *contract) bool {
	return other != nil && c.digest == other.digest && reflect.DeepEqual(c.policy.granted, other.policy.granted)
}

// granted is the declaration without what the operator did not grant, which is
// counted and logged.
func (c *contract) granted() pluginsdk.Declaration {
	if c == nil {
		return pluginsdk.Declaration{}
	}
	d := c.decl
	may := func(capability string, can func(bundle.Capabilities) bool) bool {
		return c.policy.check(capability, can) == nil
	}
	d.Before = keep(d.Before, func(h pluginsdk.HookDeclaration) bool {
		return may("hooks "+h.Object, func(g bundle.Capabilities) bool { return g.CanHook(h.Object) })
	})
	d.After = keep(d.After, func(h pluginsdk.HookDeclaration) bool {
		return may("hooks "+h.Object, func(g bundle.Capabilities) bool { return g.CanHook(h.Object) })
	})
	d.Services = keep(d.Services, func(name string) bool {
		return may("provides "+name, func(g bundle.Capabilities) bool { return g.CanProvide(name) })
	})
	d.Nodes = keep(d.Nodes, func(n pluginsdk.NodeDeclaration) bool {
		return may("nodes "+n.Type, func(g bundle.Capabilities) bool { return g.CanRun(n.Type) })
	})
	d.Routes = keep(d.Routes, func(pluginsdk.RouteDeclaration) bool {
		return may("routes", func(g bundle.Capabilities) bool { return g.Routes })
	})
	return d
}

func keep[T any](list []T, wanted func(T) bool) []T {
	var kept []T
	for _, x := range list {
		if wanted(x) {
			kept = append(kept, x)
		}
	}
	return kept
}

// event finds the declaration of a handler.
func (c *contract) event(handler string) (pluginsdk.EventDeclaration, bool) {
	if c != nil {
		for _, e := range c.decl.Events {
			if e.Name == handler {
				return e, true
			}
		}
	}
	return pluginsdk.EventDeclaration{}, false
}
