package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/objecthost/objecthost/core"
)

// graph is a random acyclic set of plugins in random order of registration.
type graph struct {
	plugins []*fake
	journal *journal
}

func drawGraph(t *rapid.T) graph {
	n := rapid.IntRange(1, 9).Draw(t, "plugins")
	g := graph{journal: &journal{}}
	for i := range n {
		p := named(fmt.Sprintf("p%d", i), g.journal)
		for d := range i {
			switch rapid.SampledFrom([]string{"", "", "depends", "after"}).Draw(t, fmt.Sprintf("p%d on p%d", i, d)) {
			case "depends":
				p.manifest.DependsOn = append(p.manifest.DependsOn, fmt.Sprintf("p%d", d))
			case "after":
				p.manifest.After = append(p.manifest.After, fmt.Sprintf("p%d", d), "absent")
			}
		}
		p.manifest.After = slices.Compact(p.manifest.After)
		if i := slices.Index(p.manifest.After, "absent"); i >= 0 {
			p.manifest.After = append(slices.DeleteFunc(p.manifest.After, func(s string) bool { return s == "absent" }), "absent")
		}
		g.plugins = append(g.plugins, p)
	}
	g.plugins = rapid.Permutation(g.plugins).Draw(t, "registered")
	return g
}

func (g graph) kernel(t *rapid.T, config core.Config) *core.Kernel {
	k := core.New(config)
	for _, p := range g.plugins {
		if err := k.Use(p); err != nil {
			t.Fatalf("Use: %v", err)
		}
	}
	return k
}

// of returns the IDs of the journal's entries of one kind.
func (g graph) of(what string) []string {
	var ids []string
	for _, e := range g.journal.list() {
		if id, ok := strings.CutPrefix(e, what+" "); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// before maps each plugin to all that must start before it.
func (g graph) before() map[string]map[string]bool {
	byID, all := map[string]*fake{}, map[string]map[string]bool{}
	for _, p := range g.plugins {
		byID[p.manifest.ID] = p
	}
	var visit func(p *fake) map[string]bool
	visit = func(p *fake) map[string]bool {
		if set, ok := all[p.manifest.ID]; ok {
			return set
		}
		set := map[string]bool{}
		for _, id := range slices.Concat(p.manifest.DependsOn, p.manifest.After) {
			if byID[id] == nil {
				continue
			}
			set[id] = true
			for up := range visit(byID[id]) {
				set[up] = true
			}
		}
		all[p.manifest.ID] = set
		return set
	}
	for _, p := range g.plugins {
		visit(p)
	}
	return all
}

// checkOrder wants dependencies first, and otherwise the order of registration:
// a plugin may start before one that was registered earlier only when that one,
// or another registered at its place or earlier, waits for it.
func (g graph) checkOrder(t *rapid.T, order []string) {
	before := g.before()
	for i, id := range order {
		for _, later := range order[i+1:] {
			if before[id][later] {
				t.Fatalf("%s starts before its dependency %s: %q", id, later, order)
			}
		}
	}
	for at, p := range g.plugins {
		for _, q := range g.plugins[at+1:] {
			pi, qi := slices.Index(order, p.manifest.ID), slices.Index(order, q.manifest.ID)
			if pi < 0 || qi < 0 || pi < qi {
				continue
			}
			needed := slices.ContainsFunc(g.plugins[:at+1], func(r *fake) bool { return before[r.manifest.ID][q.manifest.ID] })
			if !needed {
				t.Fatalf("%s overtakes %s without need: %q", q.manifest.ID, p.manifest.ID, order)
			}
		}
	}
}

func reversed(ids []string) []string {
	ids = slices.Clone(ids)
	slices.Reverse(ids)
	return ids
}

func TestPropertyStartAndStopOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t)
		k := g.kernel(t, core.Config{})
		if err := k.Start(context.Background()); err != nil {
			t.Fatalf("Start: %v", err)
		}
		if err := k.Stop(context.Background()); err != nil {
			t.Fatalf("Stop: %v", err)
		}
		order := g.of("init")
		if len(order) != len(g.plugins) {
			t.Fatalf("initialized %q of %d plugins", order, len(g.plugins))
		}
		g.checkOrder(t, order)
		if got := g.of("start"); !slices.Equal(got, order) {
			t.Fatalf("started %q, initialized %q", got, order)
		}
		if got := g.of("stop"); !slices.Equal(got, reversed(order)) {
			t.Fatalf("stopped %q, initialized %q", got, order)
		}
	})
}

// failure is a way in which one phase of one plugin goes wrong.
type failure struct {
	phase string
	how   string
}

func (f failure) act(release <-chan struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		switch f.how {
		case "error":
			return errBroken
		case "panic":
			panic(f.phase)
		case "timeout":
			return obey(ctx)
		case "abandon":
			return ignore(release)(ctx)
		}
		return nil
	}
}

// plant makes the plugin fail.
func (f failure) plant(p *fake, release <-chan struct{}) {
	act := f.act(release)
	switch f.phase {
	case "init":
		p.init = func(ctx context.Context, _ core.Context) error { return act(ctx) }
	case "start":
		p.start = act
	case "stop":
		p.stop = act
	default:
		p.init = func(_ context.Context, host core.Context) error {
			host.On(f.phase, func(ctx context.Context, _ any) error { return act(ctx) })
			return nil
		}
	}
}

// Whatever fails, wherever and however: each plugin is initialized, started and
// stopped at most once, exactly those are stopped that were initialized, and in
// exactly the reverse order.
func TestPropertyEveryFailureIsTornDown(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		// rapid ends a failed check by a panic, which must not leave the bubble.
		var failed any
		synctest.Test(t, func(*testing.T) {
			defer func() { failed = recover() }()
			tearDownOnce(rt)
		})
		if failed != nil {
			panic(failed)
		}
	})
}

func tearDownOnce(t *rapid.T) {
	g := drawGraph(t)
	release := make(chan struct{})
	end := sync.OnceFunc(func() { close(release) })
	defer end()
	fails := map[string]failure{}
	for range rapid.IntRange(1, 3).Draw(t, "failures") {
		p := rapid.SampledFrom(g.plugins).Draw(t, "plugin")
		f := failure{
			phase: rapid.SampledFrom([]string{"init", "start", "stop", core.HookReady, core.HookListening, core.HookShutdown}).Draw(t, "phase"),
			how:   rapid.SampledFrom([]string{"error", "panic", "timeout", "abandon"}).Draw(t, "how"),
		}
		if _, taken := fails[p.manifest.ID]; !taken {
			fails[p.manifest.ID] = f
			f.plant(p, release)
		}
	}
	stopAfter := rapid.SampledFrom([]time.Duration{time.Hour, 0, 5 * second, 31 * second}).Draw(t, "stop after")

	k := g.kernel(t, core.Config{})
	stopped := make(chan error, 1)
	go func() {
		time.Sleep(stopAfter)
		stopped <- k.Stop(context.Background())
	}()
	err := k.Start(context.Background())
	stopErr := <-stopped
	end()
	if k.State() != core.StateStopped {
		t.Fatalf("state = %q", k.State())
	}

	inits, starts, stops := g.of("init"), g.of("start"), g.of("stop")
	g.checkOrder(t, inits)
	if !slices.Equal(stops, reversed(inits)) {
		t.Fatalf("stopped %q, initialized %q (Start = %v)", stops, inits, err)
	}
	if len(starts) > len(inits) || !slices.Equal(starts, inits[:len(starts)]) {
		t.Fatalf("started %q, initialized %q", starts, inits)
	}
	bootFails, stopFails := false, false
	for _, f := range fails {
		bootFails = bootFails || f.phase != "stop" && f.phase != core.HookShutdown
		stopFails = stopFails || f.phase == "stop"
	}
	var be *core.BootError
	switch {
	case err == nil:
		if bootFails || (stopErr != nil) != stopFails {
			t.Fatalf("Start = nil, Stop = %v with failures %v", stopErr, fails)
		}
	case errors.As(err, &be):
		if stopErr != nil || !slices.Equal(be.Stopped, stops) {
			t.Fatalf("Stop = %v, stopped %q, reported %q", stopErr, stops, be.Stopped)
		}
		if !bootFails && !errors.Is(err, core.ErrStopping) {
			t.Fatalf("Start = %v without a reason", err)
		}
	default:
		var se *core.StateError
		if !errors.As(err, &se) || len(inits) != 0 {
			t.Fatalf("Start = %v", err)
		}
	}
}

// Any set of edges with a cycle is refused before anything runs, and the path
// in the error is a cycle of the graph.
func TestPropertyCyclesAreFound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t)
		n := rapid.IntRange(1, len(g.plugins)).Draw(t, "length")
		for i := range n {
			p, next := g.plugins[i], g.plugins[(i+1)%n].manifest.ID
			if !slices.Contains(p.manifest.DependsOn, next) {
				p.manifest.DependsOn = append(p.manifest.DependsOn, next)
			}
		}
		edges := map[string][]string{}
		for _, p := range g.plugins {
			edges[p.manifest.ID] = slices.Concat(p.manifest.DependsOn, p.manifest.After)
		}
		err := g.kernel(t, core.Config{}).Start(context.Background())
		var cycle *core.CycleError
		if !errors.As(err, &cycle) || len(g.journal.list()) != 0 {
			t.Fatalf("Start = %v, calls %q", err, g.journal.list())
		}
		if len(cycle.Path) < 2 || cycle.Path[0] != cycle.Path[len(cycle.Path)-1] {
			t.Fatalf("path = %q", cycle.Path)
		}
		for i, id := range cycle.Path[:len(cycle.Path)-1] {
			if !slices.Contains(edges[id], cycle.Path[i+1]) {
				t.Fatalf("path %q has no edge from %s", cycle.Path, id)
			}
		}
	})
}
