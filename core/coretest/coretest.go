// Package coretest holds the conformance suite that every plugin passes,
// whether it runs in the host's process or in one of its own.
//
//	func TestConformance(t *testing.T) {
//		coretest.Run(t, func() core.Plugin { return mine.NewPlugin(mine.Config{}) })
//	}
package coretest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/objecthost/objecthost/core"
)

// Setup tells how to run a plugin that does not stand alone.
type Setup struct {
	// New returns a new instance of the plugin; it is called for every case.
	// Required.
	New func() core.Plugin
	// Partners returns new instances of the plugins that it needs; nil for
	// none.
	Partners func() []core.Plugin
	// Kernel is the configuration of the kernels that the plugin runs in, its
	// own configuration for example. A nil Logger writes to the test's output.
	Kernel core.Config
	// Prompt is how long a call may take to return whose context has ended, and
	// how long goroutines may take to end after Stop. Default 5 s.
	Prompt time.Duration
}

// Run checks a plugin that needs no others and no configuration.
func Run(t *testing.T, newPlugin func() core.Plugin) {
	t.Helper()
	RunWith(t, Setup{New: newPlugin})
}

// RunWith runs the suite, one sub-test per rule. It checks that
//
//   - the manifest is valid and always the same,
//   - the plugin starts and stops, and a second instance does so after the
//     first,
//   - Stop works without Start, as after the failure of another plugin,
//   - a second Stop does no harm,
//   - Init, Start and Stop return promptly when their context has ended, and
//     whatever they return the plugin can still be stopped,
//   - no goroutine that the plugin or its partners began is left after Stop.
//
// Goroutines are told apart by profiler labels, so that tests may run in
// parallel; a plugin that sets labels of its own keeps its goroutines from
// being seen.
func RunWith(t *testing.T, setup Setup) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := setup.withDefaults()
			if s.Kernel.Logger == nil {
				s.Kernel.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
			}
			if err := s.check(t.Context(), c); err != nil {
				t.Error(err)
			}
		})
	}
}

func (s Setup) withDefaults() Setup {
	if s.Prompt == 0 {
		s.Prompt = 5 * time.Second
	}
	if s.Partners == nil {
		s.Partners = func() []core.Plugin { return nil }
	}
	return s
}

// kernel returns a kernel with the partners, the plugin and more, in this
// order.
func (s Setup) kernel(plugin core.Plugin, more ...core.Plugin) (*core.Kernel, error) {
	k := core.New(s.Kernel)
	if err := k.Use(s.Partners()...); err != nil {
		return nil, err
	}
	if err := k.Use(plugin); err != nil {
		return nil, err
	}
	return k, k.Use(more...)
}

// cancelled is a context that has ended.
func cancelled(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}
