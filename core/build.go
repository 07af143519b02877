package core

import (
	"context"
	"fmt"
	"slices"
)

type constructionKey struct{}

// construction is the instance whose factory the context was given to.
func construction(ctx context.Context) *instance {
	in, _ := ctx.Value(constructionKey{}).(*instance)
	return in
}

// get finds the service and returns its instance, making it when needed. A
// missing service is a *ServiceNotFoundError with nothing but names in it.
func (r *registry) get(ctx context.Context, name, plugin, scope string, scoped bool) (any, error) {
	r.mu.Lock()
	s := r.services[name]
	if r.closed {
		r.mu.Unlock()
		return nil, &SealedError{Plugin: plugin}
	}
	if s == nil {
		r.mu.Unlock()
		return nil, &ServiceNotFoundError{Service: name, Plugin: plugin}
	}
	if reason := s.misused(scope, scoped); reason != "" {
		r.mu.Unlock()
		return nil, &UsageError{Service: name, Plugin: plugin, Reason: reason}
	}
	if s.factory != nil && s.factory.Lifetime == LifetimeTransient {
		r.mu.Unlock()
		return r.transient(ctx, s)
	}
	in := s.instances[scope]
	if in == nil {
		in = r.begin(s, scope)
	} else if in.finished() {
		defer r.mu.Unlock()
		return in.value, in.err
	}
	parent := construction(ctx)
	if err := r.join(parent, in); err != nil {
		r.mu.Unlock()
		return nil, err
	}
	r.mu.Unlock()
	return r.await(ctx, parent, in)
}

// misused tells why the lookup does not fit the service, "" when it does.
func (s *service) misused(scope string, scoped bool) string {
	isScoped := s.factory != nil && s.factory.Lifetime == LifetimeScoped
	switch {
	case isScoped && !scoped:
		return "is scoped, look it up with a scope"
	case !isScoped && scoped:
		return "is not scoped"
	case scoped && scope == "":
		return "a scope must not be empty"
	}
	return ""
}

// begin starts the construction of a kept instance. The caller holds the lock.
func (r *registry) begin(s *service, scope string) *instance {
	in := &instance{service: s, scope: scope, done: make(chan struct{}), waits: make(map[*instance]int)}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), constructionKey{}, in))
	in.cancel = cancel
	s.instances[scope] = in
	r.building++
	go r.build(ctx, in)
	return in
}

// build makes a kept instance. Replacements that come while it is at work are
// caught up with before anybody gets the instance.
func (r *registry) build(ctx context.Context, in *instance) {
	defer in.cancel()
	s := in.service
	var raw, value any
	err := <-detach(s.owner, s.factoryPhase(), func() (err error) {
		raw, err = s.factory.New(ctx, in.scope)
		return err
	})
	made := err == nil
	value = raw
	for applied := 0; ; {
		r.mu.Lock()
		if err != nil || in.dropped != nil || applied == len(s.wraps) {
			break
		}
		wraps := s.wraps[applied:]
		r.mu.Unlock()
		value, err = wrapAll(s, wraps, value)
		applied += len(wraps)
	}
	if err == nil {
		err = in.dropped
	}
	if err == nil {
		r.made++
		s.version++
		in.number, in.raw, in.value = r.made, raw, value
	} else {
		in.err = s.failed(err)
		if s.instances[in.scope] == in {
			delete(s.instances, in.scope)
		}
	}
	close(in.done)
	r.mu.Unlock()
	if made && err != nil {
		r.dispose(context.WithoutCancel(ctx), in, raw)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.building--
	if r.closed && r.building == 0 {
		close(r.idle)
	}
}

func wrapAll(s *service, wraps []func(any) (any, error), value any) (any, error) {
	for _, wrap := range wraps {
		err := protect(s.owner, s.factoryPhase(), func() (err error) {
			value, err = wrap(value)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return value, nil
}

// join counts a lookup as waiting for in. It refuses one that would wait for
// itself. The caller holds the lock.
func (r *registry) join(parent, in *instance) error {
	if parent != nil && !parent.finished() {
		if path := in.pathTo(parent, make(map[*instance]bool)); path != nil {
			return cycleOf(append([]string{parent.service.name}, path...))
		}
		parent.waits[in]++
	}
	in.waiters++
	return nil
}

// pathTo follows what constructions wait for from in to target.
func (in *instance) pathTo(target *instance, seen map[*instance]bool) []string {
	if in == target {
		return []string{in.service.name}
	}
	seen[in] = true
	for next := range in.waits {
		if seen[next] || next.finished() {
			continue
		}
		if path := next.pathTo(target, seen); path != nil {
			return append([]string{in.service.name}, path...)
		}
	}
	return nil
}

// cycleOf names a closed path in a form that does not depend on who met it
// first: it begins with the smallest name.
func cycleOf(path []string) *CycleError {
	ring := path[:len(path)-1]
	at := slices.Index(ring, slices.Min(ring))
	ring = slices.Concat(ring[at:], ring[:at])
	return &CycleError{Kind: "service", Path: append(ring, ring[0])}
}

// await waits for an instance. The last one to give up cancels it.
func (r *registry) await(ctx context.Context, parent, in *instance) (any, error) {
	select {
	case <-in.done:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	in.waiters--
	if parent != nil && parent.waits[in] > 0 {
		if parent.waits[in]--; parent.waits[in] == 0 {
			delete(parent.waits, in)
		}
	}
	if in.finished() {
		return in.value, in.err
	}
	if in.waiters == 0 && in.dropped == nil {
		in.dropped = context.Canceled
		in.cancel()
		if s := in.service; s.instances[in.scope] == in {
			delete(s.instances, in.scope)
		}
	}
	return nil, fmt.Errorf("core: look up service %q: %w", in.service.name, context.Cause(ctx))
}

// transient makes an instance for one caller, on its goroutine and with its
// context.
func (r *registry) transient(ctx context.Context, s *service) (any, error) {
	parent := construction(ctx)
	in := &instance{service: s, done: make(chan struct{}), waits: make(map[*instance]int), parent: parent}
	path := []string{s.name}
	for up := parent; up != nil && !up.finished(); up = up.parent {
		path = append([]string{up.service.name}, path...)
		if up.service == s {
			return nil, cycleOf(path)
		}
	}
	r.mu.Lock()
	_ = r.join(parent, in) // Nothing waits for parent through a new instance.
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		close(in.done)
		if parent != nil {
			delete(parent.waits, in)
		}
	}()

	var value any
	err := protect(s.owner, s.factoryPhase(), func() (err error) {
		value, err = s.factory.New(context.WithValue(ctx, constructionKey{}, in), "")
		return err
	})
	if err == nil {
		r.mu.Lock()
		wraps := s.wraps
		r.mu.Unlock()
		value, err = wrapAll(s, wraps, value)
	}
	if err != nil {
		return nil, s.failed(err)
	}
	return value, nil
}

// failed names the service that could not be made and its provider.
func (s *service) failed(err error) error {
	return call{plugin: s.owner, phase: s.factoryPhase()}.wrap(err)
}

func (s *service) factoryPhase() Phase { return PhaseFactory + Phase(" of "+s.name) }
