package pluginhost

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/objecthost/objecthost/core"
	"github.com/objecthost/objecthost/pluginhost/bundle"
	"github.com/objecthost/objecthost/pluginsdk"
)

// TrustDir is where the keys lie whose signatures count, in a folder of
// plugins.
func TrustDir(dir string) string { return filepath.Join(dir, "trust") }

// inProcess is a plugin in the host's process that is served like one in its
// own.
type inProcess struct {
	manager *Manager
	guest   *pluginsdk.Guest
	wiring  *wiring
	denials *denials
	// contract is the only one that it has.
	contract *contract
	api      *api
	stopped  atomic.Bool
}

var (
	_ core.Plugin        = (*inProcess)(nil)
	_ core.Starter       = (*inProcess)(nil)
	_ core.Stopper       = (*inProcess)(nil)
	_ core.HealthChecker = (*inProcess)(nil)
)

// InProcess wraps a plugin for the kernel so that it gets the same API, by the
// same grants, and contributes the same as in a process of its own. Its routes
// lie under /api/v1/plugins/<name>. It is trusted code all the same: the grants
// bound what goes through the API only.
func (m *Manager) InProcess(name string, p core.Plugin, grants bundle.Capabilities) (core.Plugin, error) {
	guest, err := pluginsdk.NewGuest(p)
	if err != nil {
		return nil, err
	}
	i := &inProcess{manager: m, guest: guest, wiring: newWiring(m.board, name, guest.Manifest().ID), denials: newDenials()}
	i.wiring.target, i.wiring.disabled = i.target, func() bool { return false }
	i.contract = &contract{decl: guest.Declaration(), policy: &policy{requested: grants, granted: grants, denials: i.denials}}
	return i, nil
}

// Manifest implements core.Plugin.
func (i *inProcess) Manifest() core.Manifest {
	m := i.guest.Manifest()
	m.DependsOn, m.After = slices.Clone(m.DependsOn), append(slices.Clone(m.After), used...)
	for _, id := range needed {
		if !slices.Contains(m.DependsOn, id) {
			m.DependsOn = append(m.DependsOn, id)
		}
	}
	m.Contributes.Routes = nil // the board sets them
	return m
}

// Init ties the contributions to the host and initializes the plugin.
func (i *inProcess) Init(ctx context.Context, host core.Context) error {
	i.wiring.log, i.denials.log = host.Log(), host.Log()
	found, err := lookup(ctx, host, i.manager.db)
	if err != nil {
		return err
	}
	i.wiring.services = found
	i.api = &api{services: found, name: i.wiring.name, policy: i.contract.policy}
	if err := i.manager.board.apply(ctx, i.wiring, i.contract); err != nil {
		return err
	}
	return i.guest.Init(ctx, guestContext{host, i.api})
}

// Start starts the plugin.
func (i *inProcess) Start(ctx context.Context) error {
	if err := i.guest.Start(ctx); err != nil {
		return err
	}
	i.wiring.start()
	return nil
}

// Stop stops the plugin.
func (i *inProcess) Stop(ctx context.Context) error {
	i.stopped.Store(true)
	return errors.Join(i.wiring.stop(ctx), i.guest.Stop(ctx))
}

// CheckHealth asks the plugin.
func (i *inProcess) CheckHealth(ctx context.Context) error { return i.guest.CheckHealth(ctx) }

// guestContext is the kernel's context with the host's API for this plugin.
type guestContext struct {
	core.Context
	api pluginsdk.Host
}

func (c guestContext) LookupService(ctx context.Context, name string) (any, error) {
	if name == pluginsdk.HostKey.Name() {
		return c.api, nil
	}
	return c.Context.LookupService(ctx, name)
}

// target is the plugin itself, until it is stopped.
func (i *inProcess) target(*contract) (guest, func(), error) {
	if i.stopped.Load() {
		return nil, nil, &pluginsdk.Error{Code: pluginsdk.CodeUnavailable, Retryable: true, Message: "the plugin " + i.wiring.name + " was stopped"}
	}
	return local{i.guest}, func() {}, nil
}
