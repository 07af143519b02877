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

// consume copies the events of a handler from the log to its inbox, in the
// transaction that moves the position in the log. The plugin gets them from the
// inbox, with no transaction open.
func (w *wiring) consume(e pluginsdk.EventDeclaration) error {
	wake := make(chan struct{}, 1)
	w.wakes[e.Name] = wake
	cfg := realtime.ConsumerConfig{Name: consumerName(w.name, e.Name)}
	return w.events.Consume(cfg, func(ctx context.Context, events []*event.Event) error {
		var texts [][]byte
		for _, x := range events {
			if !w.receives(e, x) {
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
		storage.AfterCommit(ctx, func(context.Context) { ring(wake) })
		return w.store.Put(ctx, w.name, e.Name, texts)
	})
}

func ring(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// receives tells whether a handler wants an event and the plugin may have it.
func (w *wiring) receives(e pluginsdk.EventDeclaration, x *event.Event) bool {
	if (e.Object != "" && e.Object != x.Object) || (len(e.Types) > 0 && !slices.Contains(e.Types, x.Type)) {
		return false
	}
	return w.policy.allows(func(c bundle.Capabilities) bool { return c.CanReceive(x.Type) && c.CanRead(x.Object) })
}

// wake makes the pumps look into their inboxes.
func (w *wiring) wake() {
	for _, wake := range w.wakes {
		ring(wake)
	}
}

// pump hands over the events of one handler while this host holds its lease.
func (w *wiring) pump(ctx context.Context, e pluginsdk.EventDeclaration) {
	p := &pump{wiring: w, decl: e, owner: newToken(), size: e.Batch}
	defer p.release()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wakes[e.Name]:
		case <-timer.C:
		}
		wait := idlePoll
		if !w.disabled() {
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

// pump is the state of handing over.
type pump struct {
	*wiring
	decl     pluginsdk.EventDeclaration
	owner    string
	renew    time.Time // when the lease has to be renewed
	session  session
	size     int // of the next batch
	failures int
}

// drain hands over what is in the inbox, and returns when it is empty, when
// another host holds the lease, or with the first failure.
func (p *pump) drain(ctx context.Context) error {
	for ctx.Err() == nil && !p.disabled() {
		if now := time.Now(); now.After(p.renew) {
			held, err := p.store.Lease(ctx, p.name, p.decl.Name, p.owner, leaseTime+batchTimeout)
			if err != nil || !held {
				return err
			}
			p.renew = now.Add(leaseTime / 3)
		}
		items, err := p.store.Waiting(ctx, p.name, p.decl.Name, p.size)
		if err != nil || len(items) == 0 {
			return err
		}
		if p.session == nil {
			g, err := p.target()
			if err != nil {
				return err
			}
			if p.session, err = g.handle(ctx, p.decl.Name); err != nil {
				return err
			}
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
		p.size = min(p.decl.Batch, p.size*2)
	}
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
		p.log.Warn("events were not handled, they come again", "handler", p.decl.Name, "failures", n, "error", err)
	}
	return min(maxPause, minPause<<min(p.failures-1, 12))
}

func (p *pump) closeSession() {
	if p.session != nil {
		p.session.close()
		p.session = nil
	}
}

// release gives the lease back, so that another host need not wait.
func (p *pump) release() {
	p.closeSession()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := p.store.Release(ctx, p.name, p.decl.Name, p.owner); err != nil {
		p.log.Warn("release the events of a plugin", "handler", p.decl.Name, "error", err)
	}
}

// setConsumers switches a plugin's consumers in the log on or off.
func (w *wiring) setConsumers(ctx context.Context, enabled bool) error {
	for _, e := range w.decl.Events {
		if err := w.events.SetEnabled(ctx, consumerName(w.name, e.Name), enabled); err != nil {
			return fmt.Errorf("pluginhost: plugin %s: events of %s: %w", w.name, e.Name, err)
		}
	}
	return nil
}
