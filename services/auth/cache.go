package auth

import (
	"sync"
	"time"

	"github.com/objecthost/objecthost/services/auth/driver"
)

// maxCached bounds the cache. Only keys that exist are cached, so noise cannot
// fill it.
const maxCached = 10_000

// cache keeps looked-up keys for a short time, by hash and by id.
//
// A look-up that was under way while its key was revoked must not put the old
// row back: forget raises the generation, and put drops rows that were read
// under an older one.
type cache struct {
	ttl time.Duration

	mu         sync.Mutex
	generation uint64
	byHash     map[string]cached
	hashOf     map[string]string
}

type cached struct {
	key    driver.Key
	loaded time.Time
}

func newCache(ttl time.Duration) *cache {
	return &cache{ttl: ttl, byHash: map[string]cached{}, hashOf: map[string]string{}}
}

func (c *cache) get(hash string, now time.Time) (driver.Key, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry, ok := c.byHash[hash]
	if !ok || now.Sub(entry.loaded) >= c.ttl || now.Before(entry.loaded) {
		return driver.Key{}, false
	}
	return entry.key, true
}

func (c *cache) getByID(id string, now time.Time) (driver.Key, bool) {
	c.mu.Lock()
	hash := c.hashOf[id]
	c.mu.Unlock()
	return c.get(hash, now)
}

// begin returns the generation that a look-up hands to put.
func (c *cache) begin() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.generation
}

func (c *cache) put(key driver.Key, now time.Time, generation uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ttl <= 0 || generation != c.generation {
		return
	}
	if len(c.byHash) >= maxCached {
		// Starting over costs one look-up per key in use, and happens only to
		// hosts with more live keys than the bound.
		clear(c.byHash)
		clear(c.hashOf)
	}
	c.byHash[key.Hash] = cached{key: key, loaded: now}
	c.hashOf[key.ID] = key.Hash
}

func (c *cache) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	delete(c.byHash, c.hashOf[id])
	delete(c.hashOf, id)
}
