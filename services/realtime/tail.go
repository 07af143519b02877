package realtime

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime/driver"
)

// tail reads the end of the log for the subscribers of this process. Reading,
// instead of passing on what Append was given, has three gains: subscribers see
// the log's order, although commit hooks of different transactions run in any
// order; they see other nodes' events; and nothing but a wake-up has to travel.
type tail struct {
	s        *Service
	signal   chan struct{}
	woken    atomic.Bool // the signal is a wake-up and not a poll
	handlers sync.WaitGroup

	mu       sync.Mutex
	byObject map[string]map[receiver]struct{} // "" holds those for every object
	joining  []*joiner
	count    int
	closed   bool
	// position is empty while nobody is subscribed; then nothing is read.
	position string
	opened   bool
	marks    int // receivers that want positions
}

// receiver takes events that the tail offers; it must not block. mark is the
// position after the event, empty when no receiver wants marks.
type receiver interface {
	objects() []string // none for every one
	matches(e *event.Event) bool
	offer(ctx context.Context, e *event.Event, mark string)
	wantsMarks() bool
}

// joiner is a receiver that begins at the end of a round of reading, which it
// is told. The round begins after it asked.
type joiner struct {
	receiver
	at chan string
}

const (
	tailBatch = 500
	// tailOpenTimeout bounds the look at the log's end in Subscribe.
	tailOpenTimeout = 10 * time.Second
)

func newTail(s *Service) *tail {
	return &tail{s: s, signal: make(chan struct{}, 1), byObject: map[string]map[receiver]struct{}{}}
}

func (t *tail) wake() {
	t.woken.Store(true)
	poke(t.signal)
}

// look has the tail read when something may be after its position.
func (t *tail) look(ahead func(position string) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.position != "" && ahead(t.position) {
		poke(t.signal)
	}
}

// open takes the position for those who subscribed before the start.
func (t *tail) open(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.opened = true
	if t.count == 0 || t.position != "" {
		return nil
	}
	var err error
	t.position, err = t.s.log.Position(ctx, driver.Latest)
	return err
}

func (t *tail) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

func (t *tail) add(r receiver) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.admit(); err != nil {
		return err
	}
	if t.opened && t.position == "" {
		ctx, cancel := context.WithTimeout(context.Background(), tailOpenTimeout)
		defer cancel()
		position, err := t.s.log.Position(ctx, driver.Latest)
		if err != nil {
			return err
		}
		t.position = position
	}
	t.register(r)
	t.count++
	return nil
}

// admit tells whether one more may come; t.mu is held.
func (t *tail) admit() error {
	switch {
	case t.closed:
		return ErrStopped
	case t.count >= t.s.cfg.MaxSubscriptions:
		return ErrTooManySubscriptions
	}
	return nil
}

// register lists a receiver under its objects; t.mu is held.
func (t *tail) register(r receiver) {
	for _, object := range under(r) {
		all := t.byObject[object]
		if all == nil {
			all = map[receiver]struct{}{}
			t.byObject[object] = all
		}
		all[r] = struct{}{}
	}
	if r.wantsMarks() {
		t.marks++
	}
}

// under lists what a receiver is listed under.
func under(r receiver) []string {
	if objects := r.objects(); len(objects) > 0 {
		return objects
	}
	return []string{""}
}

// join asks for the receiver's beginning at the end of the next round, which
// begins at once. The position arrives at the channel.
func (t *tail) join(r receiver) (*joiner, error) {
	j := &joiner{receiver: r, at: make(chan string, 1)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.admit(); err != nil {
		return nil, err
	}
	t.joining = append(t.joining, j)
	t.count++
	t.wake()
	return j, nil
}

// leave ends what join began.
func (t *tail) leave(j *joiner) {
	t.mu.Lock()
	t.joining = slices.DeleteFunc(t.joining, func(other *joiner) bool { return other == j })
	t.mu.Unlock()
	t.remove(j.receiver)
}

func (t *tail) remove(r receiver) {
	t.mu.Lock()
	defer t.mu.Unlock()
	registered := false
	for _, object := range under(r) {
		all := t.byObject[object]
		_, listed := all[r]
		registered = registered || listed
		delete(all, r)
		if len(all) == 0 {
			delete(t.byObject, object)
		}
	}
	if registered && r.wantsMarks() {
		t.marks--
	}
	if t.count--; t.count == 0 {
		t.position = ""
	}
}

// run serves the subscribers until the stop, then lets handlers finish.
func (t *tail) run(ctx context.Context) {
	defer t.handlers.Wait()
	limits := ConsumerConfig{}.withDefaults()
	for failures := 0; t.pause(ctx, limits, failures); {
		woken := t.woken.Swap(false)
		found, err := t.read(ctx)
		if found && !woken {
			t.s.polled.Store(true)
		}
		switch {
		case err == nil:
			failures = 0
		case ctx.Err() == nil:
			failures++
			if failures == 1 {
				t.s.cfg.Logger.ErrorContext(ctx, "subscribers can't be served, waiting for the database", slog.Any("error", err))
			}
		}
	}
}

// pause waits for a signal, after failures not for ever, and tells whether to
// go on.
func (t *tail) pause(ctx context.Context, limits ConsumerConfig, failures int) bool {
	if failures > 0 {
		return t.s.wait(ctx, jitter(backoff(limits, failures)), t.signal)
	}
	select {
	case <-t.s.stop:
		return false
	case <-ctx.Done():
		return false
	case <-t.signal:
	}
	return !t.s.stopping()
}

// read is one round: it passes on all that is new and tells whether there was
// something. At its end those who asked before it begin.
func (t *tail) read(ctx context.Context) (found bool, err error) {
	t.mu.Lock()
	joining := slices.Clone(t.joining)
	t.mu.Unlock()
	for !t.s.stopping() {
		position, marks, err := t.begin(ctx, len(joining) > 0)
		if position == "" || err != nil {
			return found, err
		}
		page, err := t.s.log.Read(ctx, driver.Query{Position: position, Last: lastPartition, Limit: tailBatch, Marks: marks})
		if errors.Is(err, driver.ErrForeignPosition) {
			page.Next, err = t.s.log.Position(ctx, driver.Latest)
			t.s.cfg.Logger.WarnContext(ctx, "the database was replaced, subscribers go on at its end")
		}
		if err != nil {
			return found, err
		}
		t.pass(ctx, position, page, joining)
		found = found || len(page.Events) > 0
		if !page.More {
			break
		}
	}
	return found, nil
}

// begin returns where to read, nowhere when nobody is there, and whether
// positions are wanted.
func (t *tail) begin(ctx context.Context, joining bool) (position string, marks bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.position == "" && joining {
		if t.position, err = t.s.log.Position(ctx, driver.Latest); err != nil {
			return "", false, err
		}
	}
	return t.position, t.marks > 0, nil
}

// pass moves the position and offers the events, unless all subscribers that
// the page was read for have left meanwhile. After the last page of a round the
// joining ones begin.
func (t *tail) pass(ctx context.Context, position string, page driver.Page, joining []*joiner) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.position != position {
		return
	}
	t.position = page.Next
	for i, e := range page.Events {
		mark := ""
		if i < len(page.Marks) {
			mark = page.Marks[i]
		}
		t.offer(ctx, e.Object, e, mark)
		if e.Object != "" {
			t.offer(ctx, "", e, mark)
		}
	}
	if page.More {
		return
	}
	for _, j := range joining {
		if i := slices.Index(t.joining, j); i >= 0 {
			t.joining = slices.Delete(t.joining, i, i+1)
			t.register(j.receiver)
			j.at <- t.position
		}
	}
}

func (t *tail) offer(ctx context.Context, object string, e *event.Event, mark string) {
	for r := range t.byObject[object] {
		if r.matches(e) {
			r.offer(ctx, e, mark)
		}
	}
}
