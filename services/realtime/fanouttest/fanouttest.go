// Package fanouttest is the suite that every implementation of driver.Fanout
// passes.
package fanouttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/objecthost/objecthost/services/realtime/driver"
)

// Transport is what one test joins nodes with.
type Transport struct {
	// Join returns the fanout of a new node.
	Join func(t *testing.T) driver.Fanout
	// Stranger returns that of a node which shares the transport but not the
	// log; nil when the transport has no such thing.
	Stranger func(t *testing.T) driver.Fanout
	// Cut breaks the transport under the listeners and Restore mends it; nil
	// when it can't break.
	Cut, Restore func()
}

// wide bounds waits for what must happen.
const wide = 30 * time.Second

// Run runs the suite. open is called once per test.
func Run(t *testing.T, open func(t *testing.T) Transport) {
	tests := map[string]func(*testing.T, Transport){
		"OthersHearTheTopics":      othersHear,
		"NobodyHearsItself":        notItself,
		"ManyTopicsFitIn":          manyTopics,
		"NothingOfManyCallsIsLost": manyCalls,
		"ListenEndsWithItsContext": ends,
		"StrangersAreNotHeard":     strangers,
		"ALossIsReportedAndMended": loss,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, open(t)) })
	}
}

// ear is a listener that notes what it hears.
type ear struct {
	mu     sync.Mutex
	topics map[string]int
	all    int // calls without topics
	more   chan struct{}
	ended  chan error
	stop   context.CancelFunc
}

// listen starts a listener and returns when it hears.
func listen(t *testing.T, f driver.Fanout) *ear {
	t.Helper()
	e := begin(t, f)
	e.await(t, "the first call", func() bool { return e.all > 0 })
	return e
}

func begin(t *testing.T, f driver.Fanout) *ear {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	e := &ear{topics: map[string]int{}, more: make(chan struct{}, 1), ended: make(chan error, 1), stop: cancel}
	go func() { e.ended <- f.Listen(ctx, e.wake) }()
	return e
}

func (e *ear) wake(topics []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(topics) == 0 {
		e.all++
	}
	for _, t := range topics {
		e.topics[t]++
	}
	select {
	case e.more <- struct{}{}:
	default:
	}
}

// await waits until the condition, which reads the ear, holds.
func (e *ear) await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(wide)
	for {
		e.mu.Lock()
		ok, heard := holds(), fmt.Sprint(e.topics, " ", e.all)
		e.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-e.more:
		case err := <-e.ended:
			t.Fatalf("Listen ended before %s: %v", what, err)
		case <-deadline:
			t.Fatalf("%s did not come, heard %s", what, heard)
		}
	}
}

func (e *ear) hears(t *testing.T, topics ...string) {
	t.Helper()
	e.await(t, strings.Join(topics, " "), func() bool {
		return !slices.ContainsFunc(topics, func(topic string) bool { return e.topics[topic] == 0 })
	})
}

func announce(t *testing.T, f driver.Fanout, topics ...string) {
	t.Helper()
	if err := f.Announce(t.Context(), topics); err != nil {
		t.Fatalf("Announce = %v", err)
	}
}

func othersHear(t *testing.T, tr Transport) {
	one, two, three := tr.Join(t), tr.Join(t), tr.Join(t)
	second, third := listen(t, two), listen(t, three)
	announce(t, one, "events")
	announce(t, one, "a", "b:1", "b:C-2_x.y")
	for _, e := range []*ear{second, third} {
		e.hears(t, "events", "a", "b:1", "b:C-2_x.y")
		e.mu.Lock()
		if len(e.topics) != 4 {
			t.Errorf("heard %v", e.topics)
		}
		e.mu.Unlock()
	}
}

func notItself(t *testing.T, tr Transport) {
	one, two := tr.Join(t), tr.Join(t)
	first, second := listen(t, one), listen(t, two)
	announce(t, one, "mine")
	second.hears(t, "mine")
	announce(t, two, "yours")
	// Transports keep the order, so what comes later shows what never came.
	first.hears(t, "yours")
	first.mu.Lock()
	defer first.mu.Unlock()
	if first.topics["mine"] != 0 {
		t.Error("a node was woken by itself")
	}
}

func manyTopics(t *testing.T, tr Transport) {
	var topics []string
	for i := range driver.MaxTopics {
		topics = append(topics, fmt.Sprintf("%02d:%s", i, strings.Repeat("x", 97)))
	}
	one, two := tr.Join(t), tr.Join(t)
	e := listen(t, two)
	announce(t, one, topics...)
	e.hears(t, topics...)
}

func manyCalls(t *testing.T, tr Transport) {
	const nodes, each = 4, 50
	e := listen(t, tr.Join(t))
	var wg sync.WaitGroup
	var want []string
	for n := range nodes {
		f := tr.Join(t)
		for i := range each {
			want = append(want, fmt.Sprintf("n%d:%d", n, i))
		}
		wg.Go(func() {
			for i := range each {
				if err := f.Announce(t.Context(), []string{fmt.Sprintf("n%d:%d", n, i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	e.hears(t, want...)
}

func ends(t *testing.T, tr Transport) {
	e := listen(t, tr.Join(t))
	e.stop()
	select {
	case err := <-e.ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Listen = %v, want the context's error", err)
		}
	case <-time.After(wide):
		t.Fatal("Listen goes on without its context")
	}
}

func strangers(t *testing.T, tr Transport) {
	if tr.Stranger == nil {
		return
	}
	one, two := tr.Join(t), tr.Join(t)
	e := listen(t, two)
	announce(t, tr.Stranger(t), "theirs")
	announce(t, one, "ours")
	e.hears(t, "ours")
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.topics["theirs"] != 0 {
		t.Error("a node of another log was heard")
	}
}

// Either Listen returns after a loss and is called again, or it mends itself;
// in both cases it asks to look at everything once more.
func loss(t *testing.T, tr Transport) {
	if tr.Cut == nil {
		return
	}
	one, two := tr.Join(t), tr.Join(t)
	e := listen(t, two)
	e.mu.Lock()
	e.all = 0
	e.mu.Unlock()
	tr.Cut()
	tr.Restore()
	deadline := time.After(wide)
	for mended := false; !mended; {
		select {
		case err := <-e.ended:
			if err == nil {
				t.Fatal("Listen ended without an error")
			}
			e = begin(t, two)
			continue
		case <-e.more:
		case <-deadline:
			t.Fatal("the transport was not mended")
		}
		e.mu.Lock()
		mended = e.all > 0
		e.mu.Unlock()
	}
	for i := 0; ; i++ {
		if err := one.Announce(t.Context(), []string{"again"}); err == nil {
			break
		} else if i == 100 {
			t.Fatal(err)
		}
	}
	e.hears(t, "again")
}
