package coretest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core"
)

// worker is a plugin with a goroutine between Start and Stop, and functions
// that spoil it.
type worker struct {
	id   string
	mu   sync.Mutex // an abandoned Start runs beside Stop
	quit chan struct{}
	done chan struct{}

	init, start, stop, health func(ctx context.Context) error
}

func (w *worker) Manifest() core.Manifest { return core.Manifest{ID: w.id} }

func call(ctx context.Context, f func(context.Context) error) error {
	if f == nil {
		return nil
	}
	return f(ctx)
}

func (w *worker) Init(ctx context.Context, _ core.Context) error { return call(ctx, w.init) }

func (w *worker) Start(ctx context.Context) error {
	w.mu.Lock()
	quit, done := make(chan struct{}), make(chan struct{})
	w.quit, w.done = quit, done
	w.mu.Unlock()
	go func() {
		defer close(done)
		<-quit
	}()
	return call(ctx, w.start)
}

func (w *worker) Stop(ctx context.Context) error {
	w.mu.Lock()
	quit, done := w.quit, w.done
	w.quit = nil
	w.mu.Unlock()
	if quit != nil {
		close(quit)
		<-done
	}
	return call(ctx, w.stop)
}

func (w *worker) CheckHealth(ctx context.Context) error { return call(ctx, w.health) }

func TestSoundPluginsPass(t *testing.T) {
	t.Parallel()
	t.Run("with everything", func(t *testing.T) {
		t.Parallel()
		Run(t, func() core.Plugin { return &worker{id: "good"} })
	})
	t.Run("refusing ended contexts", func(t *testing.T) {
		t.Parallel()
		ended := func(ctx context.Context) error { return ctx.Err() }
		Run(t, func() core.Plugin { return &worker{id: "good", init: ended, start: ended, stop: ended} })
	})
	t.Run("with partners", func(t *testing.T) {
		t.Parallel()
		RunWith(t, Setup{
			New:      func() core.Plugin { return &least{core.Manifest{ID: "user", DependsOn: []string{"partner"}}} },
			Partners: func() []core.Plugin { return []core.Plugin{&worker{id: "partner"}} },
		})
	})
}

type least struct{ manifest core.Manifest }

func (l *least) Manifest() core.Manifest { return l.manifest }

func (*least) Init(context.Context, core.Context) error { return nil }

// Each rule finds the plugin that breaks it, and says what is wrong.
func TestBrokenPluginsFail(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	hang := func(release chan struct{}) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			if ctx.Err() != nil {
				<-release
			}
			return nil
		}
	}
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	instances := 0
	tests := []struct {
		rule string
		name string
		new  func() core.Plugin
		want string
	}{
		{"manifest", "invalid", func() core.Plugin { return &worker{id: "not valid"} }, "ID must be letters"},
		{"manifest", "changing", func() core.Plugin { instances++; return &worker{id: fmt.Sprintf("w%d", instances)} }, "the manifest changes from"},
		{"start and stop", "start fails", func() core.Plugin {
			return &worker{id: "w", start: func(context.Context) error { return broken }}
		}, `start of plugin "w": broken`},
		{"start and stop", "stop fails", func() core.Plugin {
			return &worker{id: "w", stop: func(context.Context) error { return broken }}
		}, `stop of plugin "w": broken`},
		{"start and stop", "leak", func() core.Plugin {
			return &worker{id: "w", start: func(context.Context) error { go func() { <-release }(); return nil }}
		}, "goroutines are left after Stop:"},
		{"start and stop", "health panics", func() core.Plugin {
			return &worker{id: "w", health: func(context.Context) error { panic("sick") }}
		}, `health check of plugin "w" panicked: sick`},
		{"stop without start", "stop needs start", func() core.Plugin {
			w := &worker{id: "w"}
			w.stop = func(context.Context) error { <-w.done; return nil }
			return needsStart{w}
		}, `stop of plugin "w" panicked`},
		{"stop twice", "closes twice", func() core.Plugin {
			c := make(chan struct{})
			return &worker{id: "w", stop: func(context.Context) error { close(c); return nil }}
		}, "second stop: panics: close of closed channel"},
		{"cancelled init", "hangs", func() core.Plugin { return &worker{id: "w", init: hang(release)} }, "init with an ended context does not return within"},
		{"cancelled start", "hangs", func() core.Plugin { return &worker{id: "w", start: hang(release)} }, "start with an ended context does not return within"},
		{"cancelled start", "panics", func() core.Plugin {
			return &worker{id: "w", start: func(ctx context.Context) error {
				if ctx.Err() != nil {
					panic("ended")
				}
				return nil
			}}
		}, "start with an ended context panics: ended"},
		{"cancelled start", "cannot be stopped after it", func() core.Plugin {
			failed := false
			return &worker{
				id:    "w",
				start: func(ctx context.Context) error { failed = ctx.Err() != nil; return ctx.Err() },
				stop: func(context.Context) error {
					if failed {
						return broken
					}
					return nil
				},
			}
		}, `stop after a cancelled start: core: stop of plugin "w": broken`},
		{"cancelled stop", "hangs", func() core.Plugin { return &worker{id: "w", stop: hang(release)} }, "stop with an ended context does not return within"},
	}
	for _, tt := range tests {
		t.Run(tt.rule+"/"+tt.name, func(t *testing.T) {
			s := Setup{New: tt.new, Prompt: 50 * time.Millisecond}.withDefaults()
			for _, c := range cases {
				if c.name != tt.rule {
					continue
				}
				if err := s.check(t.Context(), c); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("check = %v\nwant %s", err, tt.want)
				}
				return
			}
			t.Fatalf("no rule %q", tt.rule)
		})
	}
}

// needsStart panics in a Stop that no Start came before.
type needsStart struct{ *worker }

func (n needsStart) Stop(ctx context.Context) error {
	close(n.quit)
	return n.worker.stop(ctx)
}
