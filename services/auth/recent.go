package auth

import (
	"sync"
	"time"
)

// recent keeps what was read a moment ago, by a key. As with the cache of API
// keys, what was being read while something changed is not kept: forget raises
// the generation.
type recent[V any] struct {
	ttl time.Duration

	mu         sync.Mutex
	generation uint64
	entries    map[string]stamped[V]
}

type stamped[V any] struct {
	value V
	read  time.Time
}

func newRecent[V any](ttl time.Duration) *recent[V] {
	return &recent[V]{ttl: ttl, entries: map[string]stamped[V]{}}
}

// load returns what is kept under key, or reads it.
func (r *recent[V]) load(key string, now time.Time, read func() (V, error)) (V, error) {
	r.mu.Lock()
	entry, ok := r.entries[key]
	generation := r.generation
	r.mu.Unlock()
	if ok && now.Sub(entry.read) < r.ttl && !now.Before(entry.read) {
		return entry.value, nil
	}
	value, err := read()
	if err != nil || r.ttl <= 0 {
		return value, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if generation == r.generation {
		if len(r.entries) >= maxCached {
			clear(r.entries)
		}
		r.entries[key] = stamped[V]{value, now}
	}
	return value, nil
}

// forget drops everything. Changes are rare, and reading anew costs a look-up
// for each caller who is active.
func (r *recent[V]) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.generation++
	clear(r.entries)
}
