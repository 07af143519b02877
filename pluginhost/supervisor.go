package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/objecthost/objecthost/pluginsdk"
)

// running is a started plugin, one generation of it.
type running interface {
	// done is closed when it has ended by itself.
	done() <-chan struct{}
	// fault tells why it ended.
	fault() error
	// health asks how it is: a problem that it states, or an error when it does
	// not answer.
	health(ctx context.Context) (problem string, err error)
	// stop ends it within the grace time and the time that killing takes.
	stop(grace time.Duration)
}

// launch starts a generation. It returns within ctx and leaves nothing behind
// when it fails.
type launch func(ctx context.Context, generation int, step func(State)) (running, error)

// permanent marks an error that another start would meet again.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// supervisorConfig is what a supervisor needs to know.
type supervisorConfig struct {
	name           string
	launch         launch
	log            *slog.Logger
	policy         RestartPolicy
	startTimeout   time.Duration
	grace          time.Duration
	healthInterval time.Duration
	healthTimeout  time.Duration
	healthFailures int
}

// supervisor keeps one plugin running. It is safe for concurrent use.
type supervisor struct {
	cfg supervisorConfig

	mu         sync.Mutex
	state      State
	reason     string
	next       time.Time
	since      time.Time
	generation int // of what runs
	counter    int // of generations
	restarts   int
	current    running
	adoption   *adoption     // one that waits
	swap       chan struct{} // tells run of it
	closed     bool          // shut down: nothing begins any more
	settled    chan struct{} // closed when the first attempt has ended
	cancel     context.CancelFunc
	ended      chan struct{} // closed when run has returned; nil before
}

func newSupervisor(cfg supervisorConfig) *supervisor {
	return &supervisor{cfg: cfg, state: StateInstalled, settled: make(chan struct{}), swap: make(chan struct{}, 1)}
}

// adoption is a generation that was started elsewhere and takes over.
type adoption struct {
	next       running
	generation int
	taken      chan running // gets the one before, or nil
}

// number counts a generation that is about to be started.
func (s *supervisor) number() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counter++
	return s.counter
}

// adopt makes next, which runs already, the generation that is kept running,
// and returns the one before, which is the caller's to end; nil when none ran.
// When the supervisor was shut down it returns next itself. It waits for a start
// that is under way.
func (s *supervisor) adopt(next running, generation int) (old running) {
	a := &adoption{next, generation, make(chan running, 1)}
	for {
		s.mu.Lock()
		if s.closed {
			s.adoption = nil
			s.mu.Unlock()
			return next
		}
		s.adoption = a
		s.mu.Unlock()
		select {
		case s.swap <- struct{}{}:
		default:
		}
		s.start()
		s.mu.Lock()
		ended := s.ended
		s.mu.Unlock()
		select {
		case old := <-a.taken:
			return old
		case <-ended: // it failed for good, or was shut down, a moment ago
		}
		select {
		case old := <-a.taken:
			return old
		default:
		}
	}
}

// take takes over what waits to be adopted in the place of old, if anything.
func (s *supervisor) take(old running) (next running) {
	s.mu.Lock()
	a := s.adoption
	if a == nil {
		s.mu.Unlock()
		return nil
	}
	s.adoption, s.current, s.generation, s.since = nil, a.next, a.generation, time.Time{}
	s.mu.Unlock()
	a.taken <- old
	return a.next
}

// shutDown is stop for good.
func (s *supervisor) shutDown(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	return s.stop(ctx)
}

// set moves to a state. A transition that the table does not know is a bug.
func (s *supervisor) set(state State, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state == StateReady && s.since.IsZero() {
		s.since = time.Now()
	}
	if s.state == state {
		s.reason = reason
		return
	}
	if !slices.Contains(transitions[s.state], state) {
		panic(fmt.Sprintf("pluginhost: %s: from %s to %s", s.cfg.name, s.state, state))
	}
	s.cfg.log.Info("plugin state", "from", s.state, "to", state, "reason", reason)
	s.state, s.reason = state, reason
	if state != StateBackoff {
		s.next = time.Time{}
	}
	if state != StateReady && state != StateDegraded {
		s.since = time.Time{}
	}
}

// start begins to keep the plugin running. It does nothing when that has begun
// and not ended in failure.
func (s *supervisor) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if s.ended != nil {
		select {
		case <-s.ended:
		default:
			return
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.ended, s.settled = cancel, make(chan struct{}), make(chan struct{})
	go s.run(ctx, s.ended, sync.OnceFunc(func() { close(s.settled) }))
}

// wait waits for the first attempt to be ready or to fail, within ctx.
func (s *supervisor) wait(ctx context.Context) {
	s.mu.Lock()
	settled := s.settled
	s.mu.Unlock()
	select {
	case <-settled:
	case <-ctx.Done():
	}
}

// stop ends the plugin and waits for it, within ctx. The plugin's end takes no
// longer than the ladder of running.stop in any case.
func (s *supervisor) stop(ctx context.Context) error {
	s.mu.Lock()
	cancel, ended := s.cancel, s.ended
	s.mu.Unlock()
	if ended == nil {
		s.set(StateDisabled, "")
		return nil
	}
	cancel()
	select {
	case <-ended:
		s.set(StateDisabled, "")
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run starts the plugin again and again until it is stopped or the breaker
// opens.
func (s *supervisor) run(ctx context.Context, ended chan struct{}, settle func()) {
	defer close(ended)
	defer settle()
	var recent failures
	for ctx.Err() == nil {
		up, err := s.generate(ctx, settle)
		if ctx.Err() != nil {
			return
		}
		wait, open := recent.add(s.cfg.policy, time.Now(), up, rand.Float64())
		var permanent permanentError
		if open || errors.As(err, &permanent) {
			s.cfg.log.Error("plugin failed, it is not started again", "error", err, "failures", len(recent.at))
			s.set(StateFailed, err.Error())
			return
		}
		s.cfg.log.Warn("plugin failed", "error", err, "retry_in", wait, "failures", len(recent.at))
		s.set(StateBackoff, err.Error())
		s.mu.Lock()
		s.next = time.Now().Add(wait)
		s.restarts++
		s.mu.Unlock()
		settle()
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-s.swap:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// generate starts one generation and watches it to its end. It returns how long
// the plugin was ready and why it is no more.
func (s *supervisor) generate(ctx context.Context, settle func()) (up time.Duration, err error) {
	r := s.take(nil)
	if r != nil {
		s.set(StateVerified, "")
		s.set(StateStarting, "")
	} else {
		if r, err = s.launchNext(ctx); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	s.set(StateReady, "")
	settle()
	r, err = s.watch(ctx, r)
	up = time.Since(began)
	if ctx.Err() == nil {
		s.set(StateBackoff, err.Error()) // its end takes a while
	}
	s.mu.Lock()
	s.current = nil
	s.mu.Unlock()
	r.stop(s.cfg.grace)
	return up, err
}

// launchNext starts a generation.
func (s *supervisor) launchNext(ctx context.Context) (running, error) {
	generation := s.number()
	s.mu.Lock()
	s.generation = generation
	s.mu.Unlock()
	startCtx, cancel := context.WithTimeout(ctx, s.cfg.startTimeout)
	defer cancel()
	r, err := s.cfg.launch(startCtx, generation, func(state State) { s.set(state, "") })
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = r
	return r, nil
}

// watch returns when the plugin has ended, does not answer, or ctx has ended,
// and which generation that is about: another may have taken over meanwhile.
func (s *supervisor) watch(ctx context.Context, r running) (running, error) {
	ticker := time.NewTicker(s.cfg.healthInterval)
	defer ticker.Stop()
	missed := 0
	for {
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-s.swap:
			if next := s.take(r); next != nil {
				r, missed = next, 0
				s.set(StateReady, "")
			}
			continue
		case <-r.done():
			return r, r.fault()
		case <-ticker.C:
		}
		checkCtx, cancel := context.WithTimeout(ctx, s.cfg.healthTimeout)
		problem, err := r.health(checkCtx)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil:
			if missed++; missed >= s.cfg.healthFailures {
				select {
				case <-r.done():
					return r, r.fault()
				default:
				}
				return r, fmt.Errorf("pluginhost: plugin %s does not answer: %w", s.cfg.name, err)
			}
		case problem != "":
			missed = 0
			s.set(StateDegraded, problem)
		case err == nil:
			missed = 0
			s.set(StateReady, "")
		}
	}
}

// instance returns the generation that runs, or an error with CodeUnavailable.
func (s *supervisor) instance() (running, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return nil, &pluginsdk.Error{Code: pluginsdk.CodeUnavailable, Retryable: true, Message: fmt.Sprintf("the plugin %s is %s", s.cfg.name, s.state)}
	}
	return s.current, nil
}

// status fills in what the supervisor knows.
func (s *supervisor) status(to *Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to.State, to.Reason, to.NextRetry = s.state, s.reason, s.next
	to.Generation, to.Restarts, to.ReadySince = s.generation, s.restarts, s.since
}
