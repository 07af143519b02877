package automation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/objecthost/objecthost/services/automation/sqlstore"
	"github.com/objecthost/objecthost/services/data"
	"github.com/objecthost/objecthost/storage"
)

// staleAfter is how old the catalogue may be where a change on another node
// need not count at once.
const staleAfter = time.Second

// catalogue holds the flows as this process knows them. Every change of a flow
// moves a revision on in its own transaction; readers compare it.
type catalogue struct {
	s *Service

	mu       sync.RWMutex
	loaded   bool
	revision int64
	checked  time.Time
	heads    map[string]*head
	compiled map[string]*flow // by name and version
}

// head is a flow and its state.
type head struct {
	sqlstore.Flow
	flow *flow // nil when the stored definition cannot be used any more
}

// enabled reports whether the flow may run.
func (h *head) enabled() bool {
	return h.Enabled && h.flow != nil && (h.flow.def.Status == StatusDraft || h.flow.def.Status == StatusActive)
}

// forget makes the next look compile everything anew.
func (c *catalogue) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loaded, c.compiled = false, nil
}

// refresh brings the catalogue up to date when it is older than age. With age 0
// it asks the database in any case. No lock is held while the database is
// asked: callers inside transactions could otherwise keep each other from their
// connections for ever.
func (c *catalogue) refresh(ctx context.Context, age time.Duration) error {
	c.mu.RLock()
	fresh := c.loaded && age > 0 && time.Since(c.checked) < age
	c.mu.RUnlock()
	if fresh {
		return nil
	}
	revision, err := c.s.store.Revision(ctx)
	if err != nil {
		return fmt.Errorf("read flows: %w", err)
	}
	if c.current(revision) {
		return nil
	}
	flows, err := c.s.store.Flows(ctx)
	if err != nil {
		return fmt.Errorf("read flows: %w", err)
	}
	heads := make(map[string]*head, len(flows))
	for _, f := range flows {
		h := &head{Flow: f}
		h.flow, err = c.load(ctx, f.Name, f.Version)
		var invalid *ValidationError
		switch {
		case errors.As(err, &invalid):
			c.s.log.ErrorContext(ctx, "stored flow cannot be used", "flow", f.Name, "version", f.Version, "error", err)
		case err != nil:
			return fmt.Errorf("read flow %s: %w", f.Name, err)
		}
		heads[f.Name] = h
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.loaded || revision >= c.revision { // another caller may have read later
		c.heads, c.revision, c.checked, c.loaded = heads, revision, time.Now(), true
	}
	return nil
}

// current notes that the catalogue is that of a revision, when it is.
func (c *catalogue) current(revision int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.loaded || c.revision != revision {
		return false
	}
	c.checked = time.Now()
	return true
}

// changed takes in a change of this node's own once it has committed.
func (c *catalogue) changed(ctx context.Context) {
	storage.AfterCommit(ctx, func(ctx context.Context) {
		if err := c.refresh(context.WithoutCancel(ctx), 0); err != nil {
			c.s.log.WarnContext(ctx, "flows could not be read anew", "error", err)
		}
		c.s.poke()
	})
}

// opened reports whether the flows were ever read: before that, while the host
// starts, no flow is bound to anything.
func (c *catalogue) opened() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.heads != nil
}

// load returns a version, compiled.
func (c *catalogue) load(ctx context.Context, name string, version int) (*flow, error) {
	key := fmt.Sprintf("%s@%d", name, version)
	c.mu.RLock()
	f := c.compiled[key]
	c.mu.RUnlock()
	if f != nil {
		return f, nil
	}
	row, err := c.s.store.Version(ctx, name, version)
	if err != nil {
		return nil, err
	}
	source, err := c.s.cfg.Sealer.Open(row.Sealed, sealedAs(name, version))
	if err != nil {
		return nil, err
	}
	if f, err = c.s.parse(source); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.compiled == nil || len(c.compiled) >= keptFlows {
		c.compiled = map[string]*flow{}
	}
	c.compiled[key] = f
	return f, nil
}

// keptFlows bounds the compiled versions in memory.
const keptFlows = 10_000

func sealedAs(name string, version int) []byte {
	return fmt.Appendf(nil, "sys_automation_version/%s/%d", name, version)
}

// version returns one version of a flow, also of one that is deleted.
func (c *catalogue) version(ctx context.Context, name string, version int) (*flow, error) {
	f, err := c.load(ctx, name, version)
	if err != nil {
		return nil, fmt.Errorf("read flow %s version %d: %w", name, version, err)
	}
	return f, nil
}

// find returns the head of a flow as the database has it now.
func (c *catalogue) find(ctx context.Context, name string) (*head, error) {
	if err := c.refresh(ctx, 0); err != nil {
		return nil, err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if h := c.heads[name]; h != nil {
		return h, nil
	}
	return nil, ErrFlowNotFound
}

// runnable returns a flow that may start now.
func (c *catalogue) runnable(ctx context.Context, name string) (*flow, error) {
	h, err := c.find(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case !h.enabled():
		return nil, ErrFlowDisabled
	case h.flow.start == nil:
		return nil, ErrNoStartNode
	}
	return h.flow, nil
}

// names lists all flows in the order of their registration.
func (c *catalogue) names(ctx context.Context) ([]string, error) {
	if err := c.refresh(ctx, 0); err != nil {
		return nil, err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	heads := make([]*head, 0, len(c.heads))
	for _, h := range c.heads {
		heads = append(heads, h)
	}
	slices.SortFunc(heads, func(a, b *head) int {
		if d := a.CreatedAt - b.CreatedAt; d != 0 {
			return int(max(-1, min(1, d)))
		}
		return strings.Compare(a.Name, b.Name)
	})
	names := make([]string, len(heads))
	for i, h := range heads {
		names[i] = h.Name
	}
	return names, nil
}

// bound returns the enabled flows that match, by name.
func (c *catalogue) bound(match func(*binding) bool) []*flow {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []*flow
	for _, h := range c.heads {
		if h.enabled() && h.flow.start != nil && h.flow.binding != nil && match(h.flow.binding) {
			out = append(out, h.flow)
		}
	}
	slices.SortFunc(out, func(a, b *flow) int { return strings.Compare(a.def.Name, b.def.Name) })
	return out
}

// on returns the flows that a write of an object starts.
func (c *catalogue) on(object string, before bool, op data.Operation) []*flow {
	return c.bound(func(b *binding) bool {
		return b.object == object && b.before == before && slices.Contains(b.operations, op)
	})
}

// Origins of flows.
const (
	sourceAPI  = "api"
	sourceFile = "file"
)

// Put registers a flow, or a new version of it when the definition differs from
// the current one. A version number that is not above the current one is
// replaced by the next. Masked secrets keep what is stored. The error is a
// *ValidationError for a definition that cannot be used.
func (s *Service) Put(ctx context.Context, source []byte) (*Definition, error) {
	return s.put(ctx, source, sourceAPI)
}

func (s *Service) put(ctx context.Context, source []byte, origin string) (*Definition, error) {
	parsed, err := s.parse(source)
	if err != nil {
		return nil, err
	}
	var def *Definition
	err = s.db.InTx(ctx, func(ctx context.Context) error {
		if err := s.store.Bump(ctx); err != nil {
			return err
		}
		def = parsed.def
		stored, err := s.store.Flow(ctx, def.Name)
		if err != nil && !errors.Is(err, sqlstore.ErrNotFound) {
			return err
		}
		now := s.cfg.Now().UnixMilli()
		head := &sqlstore.Flow{Name: def.Name, Version: def.Version, Enabled: true, Source: origin, CreatedAt: now, UpdatedAt: now}
		if err == nil {
			same, next, err := s.revise(ctx, stored, def, source, origin)
			if err != nil || same {
				return err
			}
			def = next
			head.Version, head.CreatedAt = def.Version, stored.CreatedAt
			if !stored.Deleted {
				head.Enabled, head.Source = stored.Enabled, stored.Source
				head.Customized = stored.Customized || stored.Source == sourceFile && origin == sourceAPI
			}
		}
		text, err := encodeJSON(def)
		if err != nil {
			return err
		}
		sealed, err := s.cfg.Sealer.Seal(text, sealedAs(def.Name, def.Version))
		if err != nil {
			return fmt.Errorf("seal flow: %w", err)
		}
		if err := s.store.AddVersion(ctx, &sqlstore.Version{Name: def.Name, Version: def.Version, Sealed: sealed, CreatedAt: now}); err != nil {
			return err
		}
		return s.store.PutFlow(ctx, head)
	})
	if err != nil {
		return nil, fmt.Errorf("register flow: %w", err)
	}
	s.flows.changed(ctx)
	return def, nil
}

// revise compares a definition with the stored one: same when nothing is to be
// written, else the definition under its new version.
func (s *Service) revise(ctx context.Context, stored *sqlstore.Flow, def *Definition, source []byte, origin string) (same bool, next *Definition, err error) {
	row, err := s.store.Version(ctx, stored.Name, stored.Version)
	if err != nil {
		return false, nil, err
	}
	old, err := s.cfg.Sealer.Open(row.Sealed, sealedAs(stored.Name, stored.Version))
	if err != nil {
		return false, nil, fmt.Errorf("read stored flow: %w", err)
	}
	if filled, changed := unmask(source, old); changed {
		f, err := s.parse(filled)
		if err != nil {
			return false, nil, err
		}
		def = f.def
	}
	var current Definition
	if err := json.Unmarshal(old, &current); err == nil && !stored.Deleted {
		if previous, problems := decodeDefinition(old); len(problems) == 0 && previous.canonical() == def.canonical() && def.Version <= stored.Version {
			*def = *previous
			return true, nil, nil
		}
	}
	if origin == sourceFile && !stored.Deleted && (stored.Source != sourceFile || stored.Customized) {
		s.log.InfoContext(ctx, "flow of a file left alone: it was made or edited through the API", "flow", def.Name)
		return true, nil, nil
	}
	copied := *def
	copied.Version = max(def.Version, stored.Version+1)
	return false, &copied, nil
}

// Get returns the definition of a flow, or ErrFlowNotFound.
func (s *Service) Get(ctx context.Context, name string) (*Definition, error) {
	h, err := s.flows.find(ctx, name)
	if err != nil {
		return nil, err
	}
	if h.flow == nil {
		return nil, fmt.Errorf("flow %s: %w", name, ErrFlowDisabled)
	}
	return h.flow.def, nil
}

// Names lists the flows in the order of their registration.
func (s *Service) Names(ctx context.Context) ([]string, error) { return s.flows.names(ctx) }

// Toggle switches a flow on or off. Runs that have begun go on.
func (s *Service) Toggle(ctx context.Context, name string, enabled bool) error {
	return s.change(ctx, name, func(f *sqlstore.Flow) { f.Enabled = enabled })
}

// Delete removes a flow. Runs that have begun go on, and the log stays.
func (s *Service) Delete(ctx context.Context, name string) error {
	return s.change(ctx, name, func(f *sqlstore.Flow) { f.Deleted = true })
}

func (s *Service) change(ctx context.Context, name string, edit func(*sqlstore.Flow)) error {
	err := s.db.InTx(ctx, func(ctx context.Context) error {
		if err := s.store.Bump(ctx); err != nil {
			return err
		}
		stored, err := s.store.Flow(ctx, name)
		if errors.Is(err, sqlstore.ErrNotFound) || err == nil && stored.Deleted {
			return ErrFlowNotFound
		}
		if err != nil {
			return err
		}
		edit(stored)
		stored.UpdatedAt = s.cfg.Now().UnixMilli()
		return s.store.PutFlow(ctx, stored)
	})
	if err != nil {
		return err
	}
	s.flows.changed(ctx)
	return nil
}
