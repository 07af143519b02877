package core

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// ErrScopeCleared is returned to lookups that waited for a scoped instance
// while its scope was cleared.
var ErrScopeCleared = errors.New("core: the scope was cleared while the service was being made")

// registry is the one table of services, values and factories alike. Its lock
// is never held while a factory, a disposer or a wrapper runs.
type registry struct {
	mu       sync.Mutex
	services map[string]*service
	closed   bool
	made     int           // number of the latest kept instance
	building int           // constructions of kept instances under way
	idle     chan struct{} // closed when building is 0 after closing
	// dispose releases an instance whose construction ended after it had been
	// dropped.
	dispose func(ctx context.Context, in *instance, raw any)
}

type service struct {
	name, owner string
	// factory is nil for a plain value.
	factory *Factory
	// wraps are the replacements that later instances go through.
	wraps []func(any) (any, error)
	// version grows with every change of wraps or of a finished instance.
	version   int
	instances map[string]*instance
}

// instance is an instance of a service, finished or under construction.
type instance struct {
	service *service
	scope   string
	// done is closed when value or err is set.
	done chan struct{}
	// number is the place in the order of creation, 0 until finished.
	number int
	// raw is what the factory returned, value what lookups get.
	raw, value any
	err        error
	// waiters counts the lookups that wait; when the last one gives up, the
	// construction is cancelled and dropped is the reason.
	waiters int
	cancel  context.CancelFunc
	dropped error
	// waits counts the lookups by which this construction waits for others.
	waits map[*instance]int
	// parent is the construction whose lookup makes this transient instance.
	parent *instance
}

func (in *instance) finished() bool {
	select {
	case <-in.done:
		return true
	default:
		return false
	}
}

func newRegistry(dispose func(context.Context, *instance, any)) *registry {
	return &registry{services: make(map[string]*service), idle: make(chan struct{}), dispose: dispose}
}

// add registers a value, or a factory when f is not nil.
func (r *registry) add(name, owner string, value any, f *Factory) error {
	if reason := unusable(name, f); reason != "" {
		return &UsageError{Service: name, Plugin: owner, Reason: reason}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return &SealedError{Plugin: owner}
	}
	if old, ok := r.services[name]; ok {
		return &DuplicateServiceError{Service: name, Provider: old.owner, Plugin: owner}
	}
	s := &service{name: name, owner: owner, factory: f, instances: make(map[string]*instance)}
	if f == nil {
		in := &instance{service: s, done: make(chan struct{}), raw: value, value: value}
		close(in.done)
		s.instances[""] = in
	} else if path := r.declaredPath(f.DependsOn, name, nil); path != nil {
		return &CycleError{Kind: "service", Path: append([]string{name}, path...)}
	}
	r.services[name] = s
	return nil
}

// unusable tells why a registration makes no sense, "" when it does.
func unusable(name string, f *Factory) string {
	switch {
	case name == "":
		return "a service needs a name"
	case f == nil:
		return ""
	case f.New == nil:
		return "a factory needs New"
	case f.Lifetime < LifetimeSingleton || f.Lifetime > LifetimeScoped:
		return "unknown " + f.Lifetime.String()
	case f.Lifetime == LifetimeTransient && f.Dispose != nil:
		return "transient instances belong to their callers and are not disposed"
	}
	return ""
}

// declaredPath follows declared dependencies from any of names to target.
func (r *registry) declaredPath(names []string, target string, seen map[string]bool) []string {
	if seen == nil {
		seen = make(map[string]bool)
	}
	for _, name := range names {
		if name == target {
			return []string{name}
		}
		s := r.services[name]
		if s == nil || s.factory == nil || seen[name] {
			continue
		}
		seen[name] = true
		if path := r.declaredPath(s.factory.DependsOn, target, seen); path != nil {
			return append([]string{name}, path...)
		}
	}
	return nil
}

// undeclared returns, by service, the declared dependencies that nobody has
// registered, each as owner and name.
func (r *registry) undeclared() []*ServiceNotFoundError {
	r.mu.Lock()
	defer r.mu.Unlock()
	var missing []*ServiceNotFoundError
	for _, name := range slices.Sorted(maps.Keys(r.services)) {
		s := r.services[name]
		if s.factory == nil {
			continue
		}
		for _, dep := range s.factory.DependsOn {
			if r.services[dep] == nil {
				missing = append(missing, &ServiceNotFoundError{Service: dep, Plugin: s.owner, During: s.factoryPhase()})
			}
		}
	}
	return missing
}

func (r *registry) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.services[name] != nil
}

func (r *registry) list() []ServiceInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	infos := make([]ServiceInfo, 0, len(r.services))
	for _, s := range r.services {
		info := ServiceInfo{Name: s.name, Provider: s.owner}
		if s.factory != nil {
			info.Lifetime = s.factory.Lifetime
		}
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(a, b ServiceInfo) int { return cmp.Compare(a.Name, b.Name) })
	return infos
}

// replace wraps the instances that exist and remembers wrap for later ones.
// wrap runs without the lock; when anything has changed meanwhile it runs again
// on what is there then. admit guards the moment of the change.
func (r *registry) replace(name, plugin string, wrap func(any) (any, error), admit func(func() error) error) error {
	for {
		r.mu.Lock()
		s := r.services[name]
		if s == nil || r.closed {
			r.mu.Unlock()
			return &ServiceNotFoundError{Service: name, Plugin: plugin}
		}
		version, current := s.version, s.finished()
		replaced := make([]any, len(current))
		for i, in := range current {
			replaced[i] = in.value
		}
		r.mu.Unlock()

		for i := range replaced {
			err := protect(plugin, PhaseReplace, func() (err error) {
				replaced[i], err = wrap(replaced[i])
				return err
			})
			if err != nil {
				return err
			}
		}
		applied := false
		err := admit(func() error {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.closed || s.version != version {
				return nil
			}
			applied = true
			s.version++
			for i, in := range current {
				in.value = replaced[i]
			}
			if s.factory != nil {
				s.wraps = append(s.wraps, wrap)
			}
			return nil
		})
		if err != nil || applied {
			return err
		}
	}
}

// finished lists the finished instances in the order of their creation.
func (s *service) finished() []*instance {
	var list []*instance
	for _, in := range s.instances {
		if in.finished() {
			list = append(list, in)
		}
	}
	slices.SortFunc(list, func(a, b *instance) int { return cmp.Compare(a.number, b.number) })
	return list
}

// clearScope forgets the instances of a scope and returns the finished ones,
// latest first. Constructions under way are cancelled and disposed of by
// themselves.
func (r *registry) clearScope(scope string) []*instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.take(ErrScopeCleared, func(in *instance) bool {
		return in.service.factory.Lifetime == LifetimeScoped && in.scope == scope
	})
}

// take removes the kept instances that match, drops those under construction,
// and returns the finished ones, latest first. The caller holds the lock.
func (r *registry) take(reason error, match func(*instance) bool) []*instance {
	var taken []*instance
	for _, s := range r.services {
		if s.factory == nil {
			continue
		}
		for scope, in := range s.instances {
			if !match(in) {
				continue
			}
			delete(s.instances, scope)
			s.version++
			if in.finished() {
				taken = append(taken, in)
			} else {
				in.dropped = reason
				in.cancel()
			}
		}
	}
	slices.SortFunc(taken, func(a, b *instance) int { return cmp.Compare(b.number, a.number) })
	return taken
}

// close ends the registry: later lookups fail, constructions are cancelled and
// waited for up to grace. It returns all kept instances, latest first.
func (r *registry) close(grace time.Duration) []*instance {
	r.mu.Lock()
	r.closed = true
	kept := r.take(&SealedError{}, func(*instance) bool { return true })
	if r.building == 0 {
		close(r.idle)
	}
	r.mu.Unlock()

	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-r.idle:
	case <-timer.C:
	}
	return kept
}
