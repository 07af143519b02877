package core

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/objecthost/objecthost/core/object"
)

// Plugin is a unit of composition. The same interface serves plugins that run
// in the host's process and those that run in a process of their own.
//
// Init registers services and hooks; it must not start goroutines or touch the
// network. Optional behaviour is added by implementing [Starter], [Stopper] or
// [HealthChecker].
type Plugin interface {
	// Manifest describes the plugin. The kernel calls it once, in Use, and
	// keeps the answer.
	Manifest() Manifest
	// Init registers what the plugin provides. ctx is cancelled when
	// Manifest.InitTimeout has passed or the boot is given up.
	Init(ctx context.Context, host Context) error
}

// Starter is implemented by plugins that do work of their own. Start returns
// once the work is running; ctx bounds the start only, not the work.
type Starter interface {
	Start(ctx context.Context) error
}

// Stopper is implemented by plugins that hold resources after Init or Start.
// Stop drains to ctx's deadline. It is called once for every plugin whose Init
// was called, also when that Init or Start ended in an error.
type Stopper interface {
	Stop(ctx context.Context) error
}

// HealthChecker is implemented by plugins that can tell whether they work.
// A nil error is healthy. Check must return when ctx ends.
type HealthChecker interface {
	CheckHealth(ctx context.Context) error
}

// Manifest is what a plugin says about itself before it runs.
type Manifest struct {
	// ID names the plugin, unique in a host (com.example.crm).
	ID string
	// Version is a semantic version; empty means 0.0.0.
	Version string
	// Namespace is the prefix of the objects that the plugin contributes
	// (crm for crm_account); empty for none. See [ValidNamespace].
	Namespace string
	// DependsOn lists plugin IDs that must be present; they start earlier.
	DependsOn []string
	// After lists plugin IDs that start earlier when they are present.
	After []string
	// Requires lists service names that Init looks up.
	Requires []string
	// Provides lists service names that Init registers unconditionally.
	Provides []string
	// ConfigSchema is a JSON Schema for the plugin's configuration; nil when
	// it takes none.
	ConfigSchema json.RawMessage
	// Health sets how the plugin is checked; zero fields take the kernel's
	// default. It has no effect on a plugin that is no [HealthChecker].
	Health HealthPolicy
	// InitTimeout, StartTimeout and StopTimeout bound one call each; zero
	// means the kernel's default.
	InitTimeout, StartTimeout, StopTimeout time.Duration
	// Contributes holds what other services collect from the plugin.
	Contributes Contributions
}

// Contributions are the declarative parts of a plugin. The data service
// collects objects, the HTTP server routes and navigation, the auth service
// permissions.
type Contributions struct {
	Objects     []object.Schema
	Routes      []Route
	Navigation  []NavigationItem
	Permissions []Permission
}

// Route is an HTTP route that a plugin contributes.
type Route struct {
	// Method is an HTTP method in upper case.
	Method string
	// Pattern is a path as net/http's ServeMux spells it, without a method or
	// host: /api/v1/webhooks/{id}/test. Handlers read {id} by r.PathValue.
	Pattern string
	// Permission is the system permission that the caller needs. Empty means
	// any authenticated caller. A route for everybody sets Anonymous.
	Permission string
	// Anonymous opens the route to callers without credentials.
	Anonymous bool
	// Summary is one line for the API description.
	Summary string
	// Handler serves the request. The caller's principal is in its context.
	Handler http.Handler
}

// NavigationItem is an entry of the host's navigation.
type NavigationItem struct {
	ID, Label, ObjectName, Icon string
}

// Permission is a system permission that a plugin introduces
// (webhooks.redeliver).
type Permission struct {
	Name, Description string
	// Host marks a permission that reaches over organizations: only callers of
	// the default organization can have it.
	Host bool
}

// Context is the host as a plugin sees it. It is safe for concurrent use and
// valid until the plugin has stopped; from then on, and for registrations
// already when the plugin's Init or Start has failed or run out of time, its
// methods return a *[SealedError]. Services are registered and found with the
// functions [Provide], [ProvideFactory], [Lookup], [Scoped] and [Replace].
type Context interface {
	// PluginID is the ID of the plugin that the context belongs to.
	PluginID() string
	// Config is the plugin's configuration as JSON, valid against
	// Manifest.ConfigSchema; nil when none was given.
	Config() json.RawMessage
	// Log is the host's logger with the plugin's ID attached.
	Log() *slog.Logger
	// Manifests returns the manifests of all plugins in start order. What they
	// refer to is shared and must not be changed.
	Manifests() []Manifest
	// On calls handler whenever the named hook is emitted, after the handlers
	// that were added earlier; a handler added during a round runs in that
	// round. The returned function removes it, also in the middle of a round,
	// and may be called more than once. A nil handler panics.
	On(hook string, handler HookHandler) (remove func())
	// Emit calls the handlers of a hook one after the other and returns the
	// first error, which also ends the round. A handler's panic becomes a
	// *[PanicError]. The hooks under kernel: are the kernel's own and are
	// refused with [ErrReservedHook].
	Emit(ctx context.Context, hook string, payload any) error

	// The registry without types. Plugins use the functions [Provide],
	// [ProvideFactory], [Lookup], [Scoped], [ClearScope] and [Replace] instead,
	// which check the type and name both types when it is wrong.
	ProvideService(name string, value any) error
	ProvideServiceFactory(name string, factory Factory) error
	LookupService(ctx context.Context, name string) (any, error)
	ScopedService(ctx context.Context, name, scope string) (any, error)
	ClearServiceScope(ctx context.Context, scope string) error
	ReplaceService(name string, wrap func(any) (any, error)) error
	// Services lists what is registered, sorted by name.
	Services() []ServiceInfo
}

// HookHandler handles one emission of a hook.
type HookHandler func(ctx context.Context, payload any) error

// The hooks that the kernel itself emits. The first three propagate the first
// error and fail the boot; HookShutdown runs every handler and only logs
// errors. HookShutdown is emitted when HookReady was.
const (
	HookReady        = "kernel:ready"
	HookBootstrapped = "kernel:bootstrapped"
	HookListening    = "kernel:listening"
	HookShutdown     = "kernel:shutdown"
)
