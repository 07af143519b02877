package core_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"

	"github.com/objecthost/objecthost/core"
)

// foreign is a Context that is not the kernel's, as a plugin in a process of
// its own has one. It knows plain values only.
type foreign map[string]any

var _ core.Context = foreign(nil)

func (foreign) PluginID() string                                { return "far" }
func (foreign) Config() json.RawMessage                         { return nil }
func (foreign) Log() *slog.Logger                               { return slog.New(slog.DiscardHandler) }
func (foreign) Manifests() []core.Manifest                      { return nil }
func (foreign) On(string, core.HookHandler) func()              { return func() {} }
func (foreign) Emit(context.Context, string, any) error         { return nil }
func (foreign) ClearServiceScope(context.Context, string) error { return nil }

func (f foreign) ProvideService(name string, value any) error {
	f[name] = value
	return nil
}

func (f foreign) ProvideServiceFactory(name string, factory core.Factory) error {
	value, err := factory.New(context.Background(), "")
	f[name] = value
	return errors.Join(err, factory.Dispose(context.Background(), value))
}

func (f foreign) LookupService(_ context.Context, name string) (any, error) { return f[name], nil }

func (f foreign) ScopedService(_ context.Context, name, scope string) (any, error) {
	return f[name+scope], nil
}

func (f foreign) ReplaceService(name string, wrap func(any) (any, error)) (err error) {
	f[name], err = wrap(f[name])
	return err
}

func (f foreign) Services() []core.ServiceInfo {
	return []core.ServiceInfo{{Name: "number", Provider: "near"}}
}

// The typed functions need nothing of the kernel's own Context.
func TestForeignContext(t *testing.T) {
	t.Parallel()
	host := foreign{}
	disposed := 0
	must(t, core.ProvideFactory(host, numKey, core.FactoryOf[int]{New: constant(3), Dispose: func(_ context.Context, n int) error { disposed = n; return nil }}))
	must(t, core.Replace(host, numKey, func(n int) (int, error) { return n + 1, nil }))
	if n, err := core.Lookup(t.Context(), host, numKey); n != 4 || err != nil || disposed != 3 {
		t.Errorf("number = %d, %v, disposed %d", n, err, disposed)
	}
	must(t, core.Provide(host, core.NewKey[string]("sx"), "v"))
	if s, err := core.Scoped(t.Context(), host, core.NewKey[string]("s"), "x"); s != "v" || err != nil {
		t.Errorf("scoped = %q, %v", s, err)
	}
	_, err := core.Lookup(t.Context(), host, core.NewKey[string]("number"))
	if want := `core: service "number" of plugin "near" is a int, but plugin "far" wants a string`; err == nil || err.Error() != want {
		t.Errorf("wrong type = %v", err)
	}
}
