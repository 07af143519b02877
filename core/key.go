package core

// Key names a service and fixes the type under which it is registered. Keys
// are declared as package variables beside the interface that they carry:
//
//	var ServiceKey = core.NewKey[Service]("messaging")
//
// A consumer that does not import the provider declares a key of the same name
// with a small interface of its own; [Lookup] succeeds when the registered
// value implements it.
type Key[T any] struct{ name string }

// NewKey returns a key for the service called name.
func NewKey[T any](name string) Key[T] { return Key[T]{name: name} }

// Name is the public name of the service.
func (k Key[T]) Name() string { return k.name }

// String returns the public name.
func (k Key[T]) String() string { return k.name }
