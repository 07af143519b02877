package realtime

import (
	"context"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/storage"
)

const (
	// announceTimeout bounds one announcement.
	announceTimeout = 5 * time.Second
	// announceSpacing is the least time between two announcements. What is
	// committed meanwhile shares the next one, so that a busy node costs the
	// transport at most a hundred calls a second.
	announceSpacing = 10 * time.Millisecond
)

// topicEvents is announced for the log itself.
const topicEvents = "events"

// A topic is a name, or a name with a detail after a colon. Each is short, so
// that many fit into one announcement.
var (
	topicName   = regexp.MustCompile(`^[a-z][a-z0-9_.-]{0,39}$`)
	topicDetail = regexp.MustCompile(`^[A-Za-z0-9_.-]{0,59}$`)
)

// Announce tells the other nodes, after the commit of ctx's transaction, that
// they may find something: whoever registered for the name with
// [Service.OnAnnounce] there is called. Announcements are wake-ups and get lost
// when the transport is; what they tell of has to be found by looking as well.
// They are coalesced, and dropped when nothing connects this node with others.
//
// name is 1 to 40 of a-z, 0-9, _, . and -, beginning with a letter; detail, which
// may be empty, up to 59 of these and capitals, else the error is a
// *[ConfigError].
func (s *Service) Announce(ctx context.Context, name, detail string) error {
	switch {
	case !topicName.MatchString(name) || name == topicEvents:
		return &ConfigError{"name", "1 to 40 of a-z, 0-9, _, ., -, beginning with a letter, and not events"}
	case !topicDetail.MatchString(detail):
		return &ConfigError{"detail", "up to 59 of a-z, A-Z, 0-9, _, ., -"}
	case s.cfg.Fanout == nil:
		return nil
	}
	topic := name
	if detail != "" {
		topic += ":" + detail
	}
	storage.AfterCommit(ctx, func(context.Context) { s.announced.add(topic) })
	return nil
}

// OnAnnounce has fn called when another node announces name, with the details
// that came together. Without details fn is to look at everything: an
// announcement had none, had too many, or may have been missed. fn must return
// at once. It is called by one goroutine after the service's start, and not
// after its stop.
func (s *Service) OnAnnounce(name string, fn func(details []string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard[name] = append(slices.Clip(s.heard[name]), fn)
}

// announcements are the topics that were not announced yet.
type announcements struct {
	signal chan struct{}
	mu     sync.Mutex
	topics map[string]struct{}
}

func (a *announcements) add(topic string) {
	a.mu.Lock()
	a.topics[topic] = struct{}{}
	if len(a.topics) > driver.MaxTopics {
		// Names without details stand for all of them.
		for t := range a.topics {
			name, _, _ := strings.Cut(t, ":")
			delete(a.topics, t)
			a.topics[name] = struct{}{}
		}
	}
	a.mu.Unlock()
	poke(a.signal)
}

func (a *announcements) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	topics := slices.Sorted(maps.Keys(a.topics))
	clear(a.topics)
	return topics
}

// announceLoop tells other nodes about commits.
func (s *Service) announceLoop(ctx context.Context) {
	failing := false
	for {
		select {
		case <-s.stop:
			return
		case <-s.announced.signal:
		}
		call, cancel := context.WithTimeout(ctx, announceTimeout)
		err := s.cfg.Fanout.Announce(call, s.announced.take())
		cancel()
		if err != nil && !failing {
			s.cfg.Logger.WarnContext(ctx, "other nodes can't be woken, they poll", slog.Any("error", err))
		}
		failing = err != nil
		if !s.wait(ctx, announceSpacing, nil) {
			return
		}
	}
}

// listenLoop is woken by other nodes.
func (s *Service) listenLoop(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	limits := ConsumerConfig{}.withDefaults()
	for failures := 1; ; failures++ {
		began := time.Now()
		err := s.cfg.Fanout.Listen(ctx, s.hear)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > limits.MaxBackoff {
			failures = 1
		}
		s.cfg.Logger.WarnContext(ctx, "wake-ups of other nodes are lost, polling", slog.Any("error", err))
		if !s.wait(ctx, jitter(backoff(limits, failures)), nil) {
			return
		}
	}
}

// hear passes on what other nodes announced; without topics, that anything may
// have happened.
func (s *Service) hear(topics []string) {
	if len(topics) == 0 || slices.Contains(topics, topicEvents) {
		s.Wake()
	}
	details := map[string][]string{}
	whole := map[string]bool{}
	for _, t := range topics {
		name, detail, _ := strings.Cut(t, ":")
		details[name] = append(details[name], detail)
		whole[name] = whole[name] || detail == ""
	}
	s.mu.Lock()
	var calls []func()
	for name, fns := range s.heard {
		about, named := details[name]
		if len(topics) > 0 && !named {
			continue
		}
		if whole[name] {
			about = nil
		}
		for _, fn := range fns {
			calls = append(calls, func() { fn(about) })
		}
	}
	s.mu.Unlock()
	for _, call := range calls {
		call()
	}
}
