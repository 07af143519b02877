package core_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core"
)

// journal records what happens to plugins, in order.
type journal struct {
	mu      sync.Mutex
	entries []string
}

func (j *journal) add(entry string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entry)
}

func (j *journal) list() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries)
}

// fake is a plugin with every optional interface, made of functions that may be
// nil. Calls are entered in the journal, when there is one.
type fake struct {
	manifest core.Manifest
	journal  *journal
	init     func(ctx context.Context, host core.Context) error
	start    func(ctx context.Context) error
	stop     func(ctx context.Context) error
	health   func(ctx context.Context) error

	host core.Context
}

func named(id string, j *journal) *fake {
	return &fake{manifest: core.Manifest{ID: id}, journal: j}
}

func (f *fake) note(what string) {
	if f.journal != nil {
		f.journal.add(what + " " + f.manifest.ID)
	}
}

func (f *fake) Manifest() core.Manifest { return f.manifest }

func (f *fake) Init(ctx context.Context, host core.Context) error {
	f.note("init")
	f.host = host
	if f.init == nil {
		return nil
	}
	return f.init(ctx, host)
}

func (f *fake) Start(ctx context.Context) error {
	f.note("start")
	if f.start == nil {
		return nil
	}
	return f.start(ctx)
}

func (f *fake) Stop(ctx context.Context) error {
	f.note("stop")
	if f.stop == nil {
		return nil
	}
	return f.stop(ctx)
}

func (f *fake) CheckHealth(ctx context.Context) error {
	if f.health == nil {
		return nil
	}
	return f.health(ctx)
}

// initOnly is a plugin without optional interfaces.
type initOnly struct {
	manifest core.Manifest
	init     func(ctx context.Context, host core.Context) error
}

func (p *initOnly) Manifest() core.Manifest { return p.manifest }

func (p *initOnly) Init(ctx context.Context, host core.Context) error {
	if p.init == nil {
		return nil
	}
	return p.init(ctx, host)
}

// newKernel returns a kernel with the plugins, which must be acceptable.
func newKernel(t testing.TB, config core.Config, plugins ...core.Plugin) *core.Kernel {
	t.Helper()
	if config.Logger == nil {
		config.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	k := core.New(config)
	if err := k.Use(plugins...); err != nil {
		t.Fatalf("Use: %v", err)
	}
	return k
}

// started returns a running kernel that is stopped with the test.
func started(t testing.TB, config core.Config, plugins ...core.Plugin) *core.Kernel {
	t.Helper()
	k := newKernel(t, config, plugins...)
	if err := k.Start(t.Context()); err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() {
		if err := k.Stop(context.Background()); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
	return k
}

// ignore blocks until release is closed, whatever the context says.
func ignore(release <-chan struct{}) func(context.Context) error {
	return func(context.Context) error {
		<-release
		return nil
	}
}

// obey blocks until the context ends.
func obey(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

const (
	second = time.Second
	minute = time.Minute
)
