package webhooks

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/objecthost/objecthost/plugins/webhooks/sqlstore"
	"github.com/objecthost/objecthost/services/messaging"
)

// subscriptionStore is what the cache reads; *sqlstore.Store implements it.
type subscriptionStore interface {
	Version(ctx context.Context) (int64, error)
	ChangedSince(ctx context.Context, version int64) (ids []string, known bool, err error)
	All(ctx context.Context) ([]sqlstore.Webhook, error)
	Some(ctx context.Context, ids []string) ([]sqlstore.Webhook, error)
}

var _ subscriptionStore = (*sqlstore.Store)(nil)

// subscription is a compiled webhook. All but the secrets is immutable.
type subscription struct {
	id, organization, name string
	object, url, method    string
	triggers               []string
	rules                  rules
	projection             projection
	// References of the stored secrets, "" for none.
	secretRef, headersRef, authRef string
	// broken tells why nothing can be sent, "" when all is well.
	broken string

	secrets openedSecrets
}

// subject is what a subscription listens to. The empty object stands for all
// objects that are not system ones.
type subject struct{ organization, object, trigger string }

// subscriptions is the cache of the active webhooks. A lookup costs as much as
// it finds, however many webhooks there are. It is safe for concurrent use.
type subscriptions struct {
	store subscriptionStore

	mu      sync.RWMutex
	loaded  bool
	version int64
	byID    map[string]*subscription
	index   map[subject][]*subscription
}

func newSubscriptions(store subscriptionStore) *subscriptions {
	return &subscriptions{store: store}
}

// refresh makes the cache at least as new as what the transaction of ctx sees.
func (c *subscriptions) refresh(ctx context.Context) error {
	version, err := c.store.Version(ctx)
	if err != nil {
		return err
	}
	c.mu.RLock()
	fresh := c.loaded && c.version >= version
	c.mu.RUnlock()
	if fresh {
		return nil
	}
	return c.reload(ctx, version)
}

// reload reads what changed, or everything when that is no longer known. The
// version is read before the rows: rows that are newer than it are read again
// next time, which is harmless, while the other way round would miss some.
func (c *subscriptions) reload(ctx context.Context, version int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loaded && c.version >= version {
		return nil
	}
	if c.loaded {
		changed, known, err := c.store.ChangedSince(ctx, c.version)
		if err != nil {
			return err
		}
		if known {
			rows, err := c.store.Some(ctx, changed)
			if err != nil {
				return err
			}
			for _, id := range changed {
				c.remove(id)
			}
			for i := range rows {
				c.add(&rows[i])
			}
			c.version = version
			return nil
		}
	}
	rows, err := c.store.All(ctx)
	if err != nil {
		return err
	}
	c.byID = make(map[string]*subscription, len(rows))
	c.index = make(map[subject][]*subscription, len(rows))
	for i := range rows {
		c.add(&rows[i])
	}
	c.loaded, c.version = true, version
	return nil
}

func (c *subscriptions) add(row *sqlstore.Webhook) {
	if !row.Active {
		return
	}
	s := compile(row)
	c.byID[s.id] = s
	for _, key := range s.subjects() {
		c.index[key] = append(c.index[key], s)
	}
}

// remove takes a subscription out without touching the lists that lookups
// have already returned.
func (c *subscriptions) remove(id string) {
	s, ok := c.byID[id]
	if !ok {
		return
	}
	delete(c.byID, id)
	for _, key := range s.subjects() {
		list := c.index[key]
		rest := make([]*subscription, 0, len(list)-1)
		for _, one := range list {
			if one != s {
				rest = append(rest, one)
			}
		}
		if len(rest) == 0 {
			delete(c.index, key)
		} else {
			c.index[key] = rest
		}
	}
}

func (s *subscription) subjects() []subject {
	out := make([]subject, 0, len(s.triggers))
	for _, trigger := range s.triggers {
		out = append(out, subject{s.organization, s.object, trigger})
	}
	return out
}

// find calls yield for every subscription to a trigger of an object. Webhooks
// of an organization get its events only, webhooks without one those of none.
func (c *subscriptions) find(organization, object, trigger string, system bool, yield func(*subscription)) {
	c.mu.RLock()
	named := c.index[subject{organization, object, trigger}]
	var wide []*subscription
	if !system && object != "" {
		wide = c.index[subject{organization, "", trigger}]
	}
	c.mu.RUnlock()
	for _, list := range [][]*subscription{named, wide} {
		for _, s := range list {
			yield(s)
		}
	}
}

// newest returns the subscription that has taken the place of one, nil when the
// webhook is gone or inactive.
func (c *subscriptions) newest(ctx context.Context, id string) (*subscription, error) {
	if err := c.refresh(ctx); err != nil {
		return nil, err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byID[id], nil
}

// compile makes a subscription of a row. A row that the write door would have
// refused, because somebody else wrote it, still matches: its deliveries are
// parked with the reason, which is seen, while silence is not.
func compile(row *sqlstore.Webhook) *subscription {
	s := &subscription{
		id: row.ID, organization: row.OrganizationID, name: row.Name, object: row.ObjectName,
		url: row.URL, method: strings.ToUpper(row.Method),
		secretRef: row.Secret, headersRef: row.Headers, authRef: row.Auth,
	}
	for _, name := range parseTriggers(row.Triggers) {
		if name != "" && !slices.Contains(s.triggers, name) {
			s.triggers = append(s.triggers, name)
		}
	}
	d, problems, headers := parseDefinition([]byte(row.Definition))
	switch {
	case len(problems) > 0:
		s.breaks("the webhook's definition is unusable: %s", problems[0].message)
	case headers != nil:
		s.breaks("the webhook's definition is unusable: %s", headers)
	case d.moved:
		s.breaks("the webhook's definition holds a secret in clear; save the webhook again")
	}
	if d != nil {
		s.rules = d.rules
	}
	s.projection = newProjection(s.rules.payloadFields)
	// What no request could carry is replaced, so that the parked delivery can
	// be stored at all.
	if err := messaging.ValidateURL(s.url); err != nil {
		s.url = unsendableURL
		s.breaks("the webhook's URL is unusable: %s", err)
	}
	if err := messaging.ValidateMethod(s.method); err != nil {
		s.method = "POST"
		s.breaks("the webhook's method is unusable: %s", err)
	}
	return s
}

// breaks notes why nothing can be sent, unless it is known.
func (s *subscription) breaks(format string, args ...any) {
	if s.broken == "" {
		s.broken = fmt.Sprintf(format, args...)
	}
}
