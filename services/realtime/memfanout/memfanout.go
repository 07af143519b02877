// Package memfanout joins several realtime services of one process, as tests
// of clusters and programs that embed more than one host do.
package memfanout

import (
	"context"
	"sync"

	"github.com/objecthost/objecthost/services/realtime/driver"
)

// Hub connects its members. The zero value works.
type Hub struct {
	mu        sync.Mutex
	next      int
	listeners map[*listener]struct{}
}

type listener struct {
	node int
	wake func(topics []string)
}

// Join returns the fanout of a new member.
func (h *Hub) Join() driver.Fanout {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	return &member{hub: h, node: h.next}
}

type member struct {
	hub  *Hub
	node int
}

var _ driver.Fanout = (*member)(nil)

// Announce implements [driver.Fanout].
func (m *member) Announce(_ context.Context, topics []string) error {
	m.hub.mu.Lock()
	var wakes []func(topics []string)
	for l := range m.hub.listeners {
		if l.node != m.node {
			wakes = append(wakes, l.wake)
		}
	}
	m.hub.mu.Unlock()
	for _, wake := range wakes {
		wake(topics)
	}
	return nil
}

// Listen implements [driver.Fanout].
func (m *member) Listen(ctx context.Context, wake func(topics []string)) error {
	l := &listener{node: m.node, wake: wake}
	m.hub.mu.Lock()
	if m.hub.listeners == nil {
		m.hub.listeners = map[*listener]struct{}{}
	}
	m.hub.listeners[l] = struct{}{}
	m.hub.mu.Unlock()
	wake(nil)
	<-ctx.Done()
	m.hub.mu.Lock()
	delete(m.hub.listeners, l)
	m.hub.mu.Unlock()
	return ctx.Err()
}
