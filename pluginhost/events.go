package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/pluginhost/bundle"
	"github.com/objecthost/objecthost/pluginsdk"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/storage"
)

const (
	// leaseTime is how long a host that died keeps others from handing over
	// the events of a handler.
	leaseTime = 30 * time.Second
	// idlePoll is how often an inbox is looked at without a wake-up.
	idlePoll = 2 * time.Second
	// batchTimeout bounds the handling of one batch.
	batchTimeout = time.Minute
	// The pauses after failures.
	minPause, maxPause = 100 * time.Millisecond, 30 * time.Second
)

// consumerName is a handler's name in the event log.
func consumerName(plugin, handler string) string { return "plugin." + plugin + "." + handler }

// join makes the plugin a consumer of the log under a handler's name. It copies
// the handler's events from the log to its inbox, in the transaction that moves
// the position in the log. The plugin gets them from the inbox, with no
// transaction open. Which events the handler wants is looked up in the contract
// of the moment.
func (w *wiring) join(ctx context.Context, handler string) error {
	cfg := realtime.ConsumerConfig{Name: consumerName(w.name, handler)}
	return w.events.Join(ctx, cfg, func(ctx context.Context, events []*event.Event) error {
		c := w.current.Load()
		e, known := c.event(handler)
		if !known {
			return errNotNow // about to leave
		}
		var texts [][]byte
		for _, x := range events {
			if !c.receives(e, x) {
				continue
			}
			text, err := x.AppendJSON(nil, "")
			if err != nil {
				return err
			}
			texts = append(texts, text)
		}
		if len(texts) == 0 {
			return nil
		}
		storage.AfterCommit(ctx, func(context.Context) { w.wakeHandler(handler) })
		return w.store.Put(ctx, w.name, handler, texts)
	})
}

var errNotNow = errors.New("pluginhost: the plugin's event handler is not there at the moment")

// receives tells whether a handler wants an event and the plugin may have it.
func (c *contract) receives(e pluginsdk.EventDeclaration, x *event.Event) bool {
	if (e.Object != "" && e.Object != x.Object) || (len(e.Types) > 0 && !slices.Contains(e.Types, x.Type)) {
		return false
	}
	return c.policy.allows(func(c bundle.Capabilities) bool { return c.CanReceive(x.Type) && c.CanRead(x.Object) })
}

// forget ends handlers that the next contract does not have any more: their
// place in the log, and what waits for them.
func (w *wiring) forget(ctx context.Context, old, next *contract) {
	if old == nil {
		return
	}
	for _, e := range old.decl.Events {
		if _, stays := next.event(e.Name); stays {
			continue
		}
		name := consumerName(w.name, e.Name)
		err := w.events.Leave(ctx, name)
		if err == nil {
			err = w.events.Drop(ctx, name)
		}
		if err == nil || errors.Is(err, realtime.ErrUnknownConsumer) {
			err = w.store.Forget(ctx, w.name, e.Name)
		}
		if err != nil {
			w.log.Warn("remove an event handler that is no more", "handler", e.Name, "error", err)
		}
	}
}

func ring(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// wake makes the pumps look into their inboxes.
func (w *wiring) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pumps {
		ring(p.wake)
	}
}

func (w *wiring) wakeHandler(handler string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.pumps[handler]; p != nil {
		ring(p.wake)
	}
}

// syncPumps makes a pump for each event handler of the contract, between start
// and stop, ends those of other handlers, and tells the rest of the change.
func (w *wiring) syncPumps() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.run == nil || w.run.Err() != nil {
		return
	}
	c := w.current.Load()
	for name, p := range w.pumps {
		if _, stays := c.event(name); !stays {
			p.cancel()
			delete(w.pumps, name)
			continue
		}
		ring(p.wake)
	}
	if c == nil {
		return
	}
	for _, e := range c.decl.Events {
		if w.pumps[e.Name] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(w.run)
		p := &pump{wiring: w, handler: e.Name, owner: newToken(), size: e.Batch, wake: make(chan struct{}, 1), cancel: cancel}
		w.pumps[e.Name] = p
		w.work.Go(func() { p.run(ctx) })
	}
}

// pump hands over the events of one handler while this host holds its lease.
type pump struct {
	*wiring
	handler  string
	owner    string
	wake     chan struct{}
	cancel   context.CancelFunc
	renew    time.Time // when the lease has to be renewed
	session  session
	bound    *contract // of the session
	release  func()    // of the session's generation
	size     int       // of the next batch
	failures int
}

func (p *pump) run(ctx context.Context) {
	defer p.leave()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-timer.C:
		}
		wait := idlePoll
		if !p.disabled() {
			if err := p.drain(ctx); err != nil && ctx.Err() == nil {
				wait = p.failed(err)
			} else {
				p.failures = 0
			}
		}
		p.closeSession()
		timer.Reset(wait)
	}
}

// drain hands over what is in the inbox, and returns when it is empty, when
// another host holds the lease, or with the first failure. After an upgrade it
// goes on with the new generation: the batch before was answered by the old one
// and is no longer in the inbox.
func (p *pump) drain(ctx context.Context) error {
	for ctx.Err() == nil && !p.disabled() {
		c := p.current.Load()
		e, known := c.event(p.handler)
		if !known {
			return nil
		}
		if now := time.Now(); now.After(p.renew) {
			held, err := p.store.Lease(ctx, p.name, p.handler, p.owner, leaseTime+batchTimeout)
			if err != nil || !held {
				return err
			}
			p.renew = now.Add(leaseTime / 3)
		}
		p.size = min(e.Batch, max(1, p.size))
		items, err := p.store.Waiting(ctx, p.name, p.handler, p.size)
		if err != nil || len(items) == 0 {
			return err
		}
		if err := p.open(ctx, c); err != nil {
			return err
		}
		texts := make([][]byte, len(items))
		for i, item := range items {
			texts[i] = item.Event
		}
		if err := p.session.hand(texts, batchTimeout); err != nil {
			return err
		}
		if err := p.store.Handled(ctx, items); err != nil {
			return err
		}
		p.failures = 0
		p.size *= 2
	}
	return nil
}

// open makes sure of a session with the generation that handles the contract.
func (p *pump) open(ctx context.Context, c *contract) error {
	if p.session != nil && p.bound == c {
		return nil
	}
	p.closeSession()
	g, release, err := p.target(c)
	if err != nil {
		return err
	}
	s, err := g.handle(ctx, p.handler)
	if err != nil {
		release()
		return err
	}
	p.session, p.bound, p.release = s, c, release
	return nil
}

// failed notes a failure and returns the pause. The next batch holds one event,
// so that those before the one that fails get through.
func (p *pump) failed(err error) time.Duration {
	var lost errSession
	if !errors.As(err, &lost) && !pluginsdk.IsCode(err, pluginsdk.CodeUnavailable) {
		p.size = 1
	}
	p.failures++
	if n := p.failures; n&(n-1) == 0 {
		p.log.Warn("events were not handled, they come again", "handler", p.handler, "failures", n, "error", err)
	}
	return min(maxPause, minPause<<min(p.failures-1, 12))
}

func (p *pump) closeSession() {
	if p.session != nil {
		p.session.close()
		p.release()
		p.session, p.bound, p.release = nil, nil, nil
	}
}

// leave gives the lease back, so that another host need not wait.
func (p *pump) leave() {
	p.closeSession()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := p.store.Release(ctx, p.name, p.handler, p.owner); err != nil {
		p.log.Warn("release the events of a plugin", "handler", p.handler, "error", err)
	}
}

// setConsumers switches a plugin's consumers in the log on or off.
func (w *wiring) setConsumers(ctx context.Context, enabled bool) error {
	c := w.current.Load()
	if c == nil {
		return nil
	}
	for _, e := range c.decl.Events {
		if err := w.events.SetEnabled(ctx, consumerName(w.name, e.Name), enabled); err != nil {
			return fmt.Errorf("pluginhost: plugin %s: events of %s: %w", w.name, e.Name, err)
		}
	}
	return nil
}
