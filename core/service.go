package core

import (
	"context"
	"errors"
	"fmt"
	"reflect"
)

// Lifetime tells how long an instance that a factory made is kept.
type Lifetime int

// The lifetimes.
const (
	// LifetimeSingleton keeps one instance, made at the first lookup.
	LifetimeSingleton Lifetime = iota
	// LifetimeTransient makes a new instance for every lookup. The caller owns
	// it.
	LifetimeTransient
	// LifetimeScoped keeps one instance per scope until the scope is cleared.
	LifetimeScoped
)

// String returns singleton, transient or scoped.
func (l Lifetime) String() string {
	switch l {
	case LifetimeSingleton:
		return "singleton"
	case LifetimeTransient:
		return "transient"
	case LifetimeScoped:
		return "scoped"
	}
	return fmt.Sprintf("lifetime(%d)", int(l))
}

// FactoryOf makes instances of a service on demand. Only New is required.
type FactoryOf[T any] struct {
	// Lifetime is how long an instance is kept; the zero value is
	// [LifetimeSingleton].
	Lifetime Lifetime
	// DependsOn names the services that New looks up. Cycles among declared
	// dependencies are refused at registration, and a dependency that nobody
	// has registered when all plugins are initialized fails the boot.
	DependsOn []string
	// New makes an instance. scope is empty unless the lifetime is
	// [LifetimeScoped]. Lookups that belong to the construction must use ctx,
	// so that a cycle is reported instead of waited for. Concurrent lookups of
	// one instance share one call, whose ctx is that of no single caller: it
	// carries no values and ends when the last of them has given up. A
	// transient instance is made with its caller's ctx.
	New func(ctx context.Context, scope string) (T, error)
	// Dispose releases what New returned, whatever has replaced it since. It is
	// called once per kept instance: when its scope is cleared, or after all
	// plugins have stopped. Transient factories may not set it.
	Dispose func(ctx context.Context, value T) error
}

// Factory is a [FactoryOf] without its type, as a [Context] takes it.
type Factory = FactoryOf[any]

// ServiceInfo describes a registered service.
type ServiceInfo struct {
	Name string
	// Provider is the ID of the plugin that registered the service, empty for
	// the host program itself.
	Provider string
	// Lifetime is LifetimeSingleton for a plain value.
	Lifetime Lifetime
}

// Provide registers value under key. Every value counts, zero values and nil
// too. It returns a *[DuplicateServiceError] when the name is taken.
func Provide[T any](host Context, key Key[T], value T) error {
	return host.ProvideService(key.Name(), value)
}

// ProvideFactory registers a factory under key. Besides the errors of
// [Provide] it returns a *[CycleError] for a cycle of declared dependencies and
// a *[UsageError] for a factory that makes no sense.
func ProvideFactory[T any](host Context, key Key[T], f FactoryOf[T]) error {
	erased := Factory{Lifetime: f.Lifetime, DependsOn: f.DependsOn}
	if f.New != nil {
		erased.New = func(ctx context.Context, scope string) (any, error) { return f.New(ctx, scope) }
	}
	if f.Dispose != nil {
		erased.Dispose = func(ctx context.Context, value any) error {
			typed, _ := as[T](value)
			return f.Dispose(ctx, typed)
		}
	}
	return host.ProvideServiceFactory(key.Name(), erased)
}

// Lookup returns the service that is registered under key's name. It succeeds
// when the registered value is a T, so that a consumer may ask with an
// interface of its own. It returns a *[ServiceNotFoundError], a *[TypeError], a
// *[UsageError] for a scoped service, a *[CycleError] when the lookup belongs
// to the construction of the service itself, or the factory's error.
func Lookup[T any](ctx context.Context, host Context, key Key[T]) (T, error) {
	value, err := host.LookupService(ctx, key.Name())
	return typed(host, key, value, err)
}

// Scoped returns the instance of a scoped service for the scope, making it when
// there is none. Its errors are those of [Lookup].
func Scoped[T any](ctx context.Context, host Context, key Key[T], scope string) (T, error) {
	value, err := host.ScopedService(ctx, key.Name(), scope)
	return typed(host, key, value, err)
}

// ClearScope forgets the instances of every scoped service for the scope and
// disposes them, latest first. All are disposed; the errors are joined.
func ClearScope(ctx context.Context, host Context, scope string) error {
	return host.ClearServiceScope(ctx, scope)
}

// Replace puts what wrap returns in the place of the service under key. It
// works on values and on factories of every lifetime: instances that exist are
// wrapped at once, later ones when they are made. wrap runs again when a
// concurrent change got in between; it must not keep the first result. When it
// returns an error for an instance that exists nothing is replaced; for a later
// one the error is that of the lookup. Replace returns a
// *[ServiceNotFoundError] when nothing is registered and a *[TypeError] when
// the service is no T.
func Replace[T any](host Context, key Key[T], wrap func(current T) (T, error)) error {
	return host.ReplaceService(key.Name(), func(current any) (any, error) {
		value, err := typed(host, key, current, nil)
		if err != nil {
			return nil, err
		}
		return wrap(value)
	})
}

// typed gives value the key's type or tells why it has another.
func typed[T any](host Context, key Key[T], value any, err error) (T, error) {
	var zero T
	if err != nil {
		return zero, err
	}
	if t, ok := as[T](value); ok {
		return t, nil
	}
	e := &TypeError{Service: key.Name(), Plugin: host.PluginID(), Want: reflect.TypeFor[T](), Got: reflect.TypeOf(value)}
	for _, s := range host.Services() {
		if s.Name == key.Name() {
			e.Provider = s.Provider
		}
	}
	return zero, e
}

// as is value.(T) that lets a nil interface value pass for a T that can be nil.
func as[T any](value any) (T, bool) {
	t, ok := value.(T)
	if ok || value != nil {
		return t, ok
	}
	switch reflect.TypeFor[T]().Kind() {
	case reflect.Interface, reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan:
		return t, true
	}
	return t, false
}

// IsServiceNotFound reports whether err says that a service is not registered,
// which a plugin with an optional partner tests for.
func IsServiceNotFound(err error) bool {
	var e *ServiceNotFoundError
	return errors.As(err, &e)
}
