package core

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Phase names what the kernel was doing when something went wrong.
type Phase string

// The phases of a plugin's life, and of the services and hooks that it adds.
const (
	PhaseRegister Phase = "register"
	PhaseValidate Phase = "validate"
	PhaseInit     Phase = "init"
	PhaseStart    Phase = "start"
	PhaseRunning  Phase = "running"
	PhaseHook     Phase = "hook"
	PhaseHealth   Phase = "health check"
	PhaseFactory  Phase = "factory"
	PhaseReplace  Phase = "replace"
	PhaseStop     Phase = "stop"
	PhaseDispose  Phase = "dispose"
)

// ErrReservedHook is returned by Emit for the kernel's own hooks.
var ErrReservedHook = errors.New("core: hooks under kernel: are emitted by the kernel only")

// ErrStopping is the cause with which contexts end because [Kernel.Stop] was
// called.
var ErrStopping = errors.New("core: the kernel is stopping")

// StateError is returned for a call that the kernel's state does not allow.
type StateError struct {
	Op    string
	State State
}

func (e *StateError) Error() string {
	return fmt.Sprintf("core: cannot %s: the kernel is %s", e.Op, e.State)
}

// ConfigError is returned for a kernel setting or a plugin configuration that
// is not valid.
type ConfigError struct {
	// Plugin is empty for the kernel's own settings.
	Plugin string
	// Field is the setting; empty when the configuration as a whole is meant.
	Field string
	Err   error
}

func (e *ConfigError) Error() string {
	switch {
	case e.Plugin == "":
		return fmt.Sprintf("core: config field %s %v", e.Field, e.Err)
	case e.Field == "":
		return fmt.Sprintf("core: configuration of plugin %q: %v", e.Plugin, e.Err)
	}
	return fmt.Sprintf("core: configuration of plugin %q: %s %v", e.Plugin, e.Field, e.Err)
}

func (e *ConfigError) Unwrap() error { return e.Err }

// ManifestError is returned for a manifest with an invalid field.
type ManifestError struct {
	Plugin, Field, Reason string
}

func (e *ManifestError) Error() string {
	return fmt.Sprintf("core: manifest of plugin %q: %s %s", e.Plugin, e.Field, e.Reason)
}

// DuplicatePluginError is returned when a plugin ID is registered twice.
type DuplicatePluginError struct{ ID string }

func (e *DuplicatePluginError) Error() string {
	return fmt.Sprintf("core: plugin %q is already registered", e.ID)
}

// DuplicateServiceError is returned when a service name is registered, or
// declared in manifests, by a second provider.
type DuplicateServiceError struct {
	Service string
	// Provider has the name, Plugin wanted it.
	Provider, Plugin string
}

func (e *DuplicateServiceError) Error() string {
	return fmt.Sprintf("core: service %q of %s is already provided by %s", e.Service, who(e.Plugin), who(e.Provider))
}

// MissingDependencyError is returned when a plugin depends on one that is not
// there.
type MissingDependencyError struct{ Plugin, Dependency string }

func (e *MissingDependencyError) Error() string {
	return fmt.Sprintf("core: plugin %q depends on %q, which is not registered", e.Plugin, e.Dependency)
}

// CycleError is returned when plugins or services need each other.
type CycleError struct {
	// Kind is plugin or service.
	Kind string
	// Path is the whole cycle; its first and last elements are the same.
	Path []string
}

func (e *CycleError) Error() string {
	return fmt.Sprintf("core: %s dependency cycle: %s", e.Kind, strings.Join(e.Path, " -> "))
}

// OrderError is returned when plugins require services of plugins that are
// initialized later. It lists every case.
type OrderError struct{ Violations []Violation }

// Violation is one plugin that requires a service too early.
type Violation struct{ Plugin, Service, Provider string }

func (e *OrderError) Error() string {
	var b strings.Builder
	b.WriteString("core: services are required before they are provided:")
	for i, v := range e.Violations {
		if i > 0 {
			b.WriteByte(';')
		}
		fmt.Fprintf(&b, " %q requires %q of %q", v.Plugin, v.Service, v.Provider)
	}
	b.WriteString(" (add the provider to DependsOn)")
	return b.String()
}

// ServiceNotFoundError is returned for a service that nobody has registered.
type ServiceNotFoundError struct {
	Service string
	// Plugin asked, while it was in the phase During.
	Plugin string
	During Phase
	// DeclaredBy is the plugin whose manifest promises the service, if any.
	DeclaredBy string
}

func (e *ServiceNotFoundError) Error() string {
	s := fmt.Sprintf("core: service %q not found (asked for by %s during %s", e.Service, who(e.Plugin), e.During)
	if e.DeclaredBy != "" {
		return s + fmt.Sprintf("; plugin %q declares it)", e.DeclaredBy)
	}
	return s + "; no plugin declares it)"
}

// MissingServicesError is returned when services are absent after the plugins
// ran that should have registered them.
type MissingServicesError struct {
	Services []string
	// Plugin declared them in Provides and did not register them; empty for
	// services that the host program requires.
	Plugin string
}

func (e *MissingServicesError) Error() string {
	names := strings.Join(e.Services, ", ")
	if e.Plugin != "" {
		return fmt.Sprintf("core: plugin %q declares services that its Init did not register: %s", e.Plugin, names)
	}
	return "core: required services are missing: " + names
}

// TypeError is returned when a service is not of the type that was asked for.
type TypeError struct {
	Service string
	// Provider registered a Got, Plugin asked for a Want. Got is nil when the
	// value is a nil interface.
	Provider, Plugin string
	Want, Got        reflect.Type
}

func (e *TypeError) Error() string {
	got := "nil"
	if e.Got != nil {
		got = e.Got.String()
	}
	return fmt.Sprintf("core: service %q of %s is a %s, but %s wants a %s", e.Service, who(e.Provider), got, who(e.Plugin), e.Want)
}

// UsageError is returned for a registration or lookup that makes no sense for
// the service.
type UsageError struct{ Service, Plugin, Reason string }

func (e *UsageError) Error() string {
	return fmt.Sprintf("core: service %q (%s): %s", e.Service, who(e.Plugin), e.Reason)
}

// SealedError is returned by the Context of a plugin that has failed, run out
// of time, or stopped.
type SealedError struct{ Plugin string }

func (e *SealedError) Error() string {
	return fmt.Sprintf("core: the context of %s is no longer valid", who(e.Plugin))
}

// PhaseError wraps the error that a plugin returned from a phase.
type PhaseError struct {
	Plugin string
	Phase  Phase
	Err    error
}

func (e *PhaseError) Error() string {
	return fmt.Sprintf("core: %s of %s: %v", e.Phase, who(e.Plugin), e.Err)
}

func (e *PhaseError) Unwrap() error { return e.Err }

// PhaseTimeoutError is returned for a plugin that did not finish a phase in
// time. It matches [context.DeadlineExceeded].
type PhaseTimeoutError struct {
	Plugin string
	Phase  Phase
	// After is the time that the plugin had.
	After time.Duration
	// Abandoned tells that the call still runs: it ignored its context.
	Abandoned bool
}

func (e *PhaseTimeoutError) Error() string {
	s := fmt.Sprintf("core: %s of %s timed out after %s", e.Phase, who(e.Plugin), e.After)
	if e.Abandoned {
		s += " and was abandoned"
	}
	return s
}

func (e *PhaseTimeoutError) Unwrap() error { return context.DeadlineExceeded }

// PanicError is a panic in a plugin's code. A call that ends its goroutine with
// runtime.Goexit is reported in the same way.
type PanicError struct {
	Plugin string
	Phase  Phase
	Value  any
	Stack  []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("core: %s of %s panicked: %v", e.Phase, who(e.Plugin), e.Value)
}

// Unwrap returns the value of the panic when it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// BootError is what Start returns when the boot failed. Everything that had
// been initialized is stopped by then.
type BootError struct {
	// Plugin is the plugin that failed, empty when no single one did.
	Plugin string
	Phase  Phase
	Err    error
	// Stopped lists the plugins that were torn down, in the order of their
	// stopping. It includes the failing plugin when its Init was called.
	Stopped []string
	// Teardown joins the errors of the teardown.
	Teardown error
}

func (e *BootError) Error() string {
	s := fmt.Sprintf("core: boot failed in phase %s: %v", e.Phase, e.Err)
	if e.Teardown != nil {
		s += fmt.Sprintf(" (teardown: %v)", e.Teardown)
	}
	return s
}

// Unwrap returns the cause; the errors of the teardown are not part of the
// chain.
func (e *BootError) Unwrap() error { return e.Err }

// who names a plugin in a message; the host program has no ID.
func who(plugin string) string {
	if plugin == "" {
		return "the host"
	}
	return fmt.Sprintf("plugin %q", plugin)
}
