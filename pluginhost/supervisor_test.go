package pluginhost

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/objecthost/objecthost/pluginsdk"
)

func TestBackoffAndBreaker(t *testing.T) {
	t.Parallel()
	p := RestartPolicy{MinBackoff: time.Second, MaxBackoff: 10 * time.Second, MaxFailures: 6, Window: time.Minute, StableAfter: 30 * time.Second}
	now := time.Unix(1000, 0)
	var f failures
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second} {
		if got, open := f.add(p, now, 0, 1); got != want || open {
			t.Errorf("failure %d waits %s (%t), want %s", i+1, got, open, want)
		}
	}
	if _, open := f.add(p, now, 0, 1); !open {
		t.Error("the 6th failure within the window leaves the breaker closed")
	}
	if got, open := f.add(p, now, 30*time.Second, 0); got != time.Second/2 || open {
		t.Errorf("after a stable time: %s, %t", got, open)
	}
	if got, open := f.add(p, now.Add(2*time.Minute), 0, 0); got != time.Second/2 || open || len(f.at) != 1 {
		t.Errorf("after the window: %s, %t, %d", got, open, len(f.at))
	}
}

// fake is a plugin that runs until it is told to end.
type fake struct {
	ended   chan struct{}
	err     error
	problem atomic.Pointer[string]
	silent  atomic.Bool
	stops   atomic.Int32
}

func (f *fake) done() <-chan struct{} { return f.ended }
func (f *fake) fault() error          { return f.err }
func (f *fake) stop(time.Duration)    { f.stops.Add(1) }

func (f *fake) health(ctx context.Context) (string, error) {
	if f.silent.Load() {
		<-ctx.Done()
		return "", ctx.Err()
	}
	if p := f.problem.Load(); p != nil {
		return *p, nil
	}
	return "", nil
}

// stage launches fakes and remembers them.
type stage struct {
	mu   sync.Mutex
	all  []*fake
	fail error
}

func (s *stage) launch(_ context.Context, _ int, step func(State)) (running, error) {
	step(StateVerified)
	step(StateStarting)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return nil, s.fail
	}
	f := &fake{ended: make(chan struct{}), err: errors.New("fell over")}
	s.all = append(s.all, f)
	return f, nil
}

func (s *stage) at(i int) *fake {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[i]
}

func (s *stage) supervisor() *supervisor {
	return newSupervisor(supervisorConfig{
		name: "p", launch: s.launch, log: slog.New(slog.DiscardHandler),
		policy:       RestartPolicy{MinBackoff: time.Second, MaxBackoff: time.Minute, MaxFailures: 3, Window: time.Hour, StableAfter: time.Hour},
		startTimeout: time.Second, grace: time.Second, healthInterval: 10 * time.Second, healthTimeout: time.Second, healthFailures: 3,
	})
}

func states(s *supervisor) Status {
	var st Status
	s.status(&st)
	return st
}

func TestSupervisorRestartsUntilTheBreakerOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s stage
		sup := s.supervisor()
		sup.start()
		sup.wait(t.Context())
		for i := range 3 {
			synctest.Wait()
			if st := states(sup); st.State != StateReady || st.Generation != i+1 || st.Restarts != i {
				t.Fatalf("round %d: %+v", i, st)
			}
			close(s.at(i).ended)
			synctest.Wait()
			if i < 2 {
				st := states(sup)
				if st.State != StateBackoff || st.Reason != "fell over" || time.Until(st.NextRetry) > 2*time.Second {
					t.Fatalf("after failure %d: %+v", i, st)
				}
				if _, err := sup.instance(); !pluginsdk.IsCode(err, pluginsdk.CodeUnavailable) || !pluginsdk.Retryable(err) {
					t.Errorf("instance in backoff = %v", err)
				}
				time.Sleep(time.Until(st.NextRetry))
			}
		}
		if st := states(sup); st.State != StateFailed {
			t.Fatalf("after three failures: %+v", st)
		}
		sup.start()
		synctest.Wait()
		if st := states(sup); st.State != StateReady || st.Generation != 4 {
			t.Errorf("started by hand: %+v", st)
		}
		if err := sup.stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if st := states(sup); st.State != StateDisabled {
			t.Errorf("stopped: %+v", st)
		}
		for i, f := range s.all {
			if f.stops.Load() != 1 {
				t.Errorf("generation %d was stopped %d times", i+1, f.stops.Load())
			}
		}
	})
}

func TestSupervisorKillsWhatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s stage
		sup := s.supervisor()
		sup.start()
		sup.wait(t.Context())
		s.at(0).silent.Store(true)
		time.Sleep(34 * time.Second) // three checks and their timeouts
		synctest.Wait()
		if st := states(sup); st.Generation != 2 || s.at(0).stops.Load() != 1 {
			t.Errorf("after three checks without an answer: %+v", st)
		}
		problem := "no disk"
		s.at(1).problem.Store(&problem)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if st := states(sup); st.State != StateDegraded || st.Reason != "no disk" {
			t.Errorf("with a problem: %+v", st)
		}
		s.at(1).problem.Store(nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if st := states(sup); st.State != StateReady || st.Reason != "" {
			t.Errorf("without: %+v", st)
		}
		if err := sup.stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestSupervisorDoesNotRepeatWhatCannotSucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stage{fail: permanentError{errors.New("tampered")}}
		sup := s.supervisor()
		sup.start()
		sup.wait(t.Context())
		synctest.Wait()
		if st := states(sup); st.State != StateFailed || st.Generation != 1 || st.Reason != "tampered" {
			t.Errorf("status = %+v", st)
		}
	})
}

// TestAdopt: a generation that was started elsewhere takes over from whatever
// there is, and is kept running like any other.
func TestAdopt(t *testing.T) {
	waiting := func(s *supervisor, next *fake) <-chan running {
		old := make(chan running, 1)
		number := s.number()
		go func() { old <- s.adopt(next, number) }()
		return old
	}
	synctest.Test(t, func(t *testing.T) {
		var s stage
		sup := s.supervisor()
		newFake := func() *fake { return &fake{ended: make(chan struct{}), err: errors.New("fell over")} }
		check := func(when string, state State, generation int) {
			t.Helper()
			synctest.Wait()
			if st := states(sup); st.State != state || st.Generation != generation {
				t.Errorf("%s: %+v, want %s of generation %d", when, st, state, generation)
			}
		}
		first := newFake() // nothing runs
		if old := <-waiting(sup, first); old != nil {
			t.Errorf("before was %v", old)
		}
		check("adopted", StateReady, 1)
		second := newFake()
		if old := <-waiting(sup, second); old != first || first.stops.Load() != 0 {
			t.Errorf("before was %v, stopped %d times", old, first.stops.Load())
		}
		check("in the place of another", StateReady, 2)
		close(second.ended) // it is watched, and started again in its turn
		check("after its end", StateBackoff, 2)
		third := newFake() // without waiting for the retry
		if old := <-waiting(sup, third); old != nil {
			t.Errorf("before was %v", old)
		}
		check("in backoff", StateReady, 3)
		s.fail = permanentError{errors.New("tampered")}
		close(third.ended)
		time.Sleep(10 * time.Second)
		check("failed for good", StateFailed, 4)
		fourth := newFake()
		if old := <-waiting(sup, fourth); old != nil {
			t.Errorf("before was %v", old)
		}
		check("after a failure for good", StateReady, 5)
		if err := sup.shutDown(t.Context()); err != nil {
			t.Fatal(err)
		}
		check("shut down", StateDisabled, 5)
		fifth := newFake()
		if old := <-waiting(sup, fifth); old != fifth {
			t.Errorf("after the end: %v, want the same back", old)
		}
		sup.start()
		check("started after the end", StateDisabled, 5)
		for i, f := range []*fake{second, third, fourth} {
			if f.stops.Load() != 1 {
				t.Errorf("generation %d was stopped %d times", i+2, f.stops.Load())
			}
		}
	})
}

func TestStopWhileStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s stage
		sup := s.supervisor()
		sup.cfg.launch = func(ctx context.Context, _ int, _ func(State)) (running, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		sup.cfg.startTimeout = time.Hour
		sup.start()
		synctest.Wait()
		if err := sup.stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if st := states(sup); st.State != StateDisabled || st.Generation != 1 {
			t.Errorf("status = %+v", st)
		}
	})
}

// TestTransitionsAreClosed: every state is known, and every one but disabled
// leads there.
func TestTransitionsAreClosed(t *testing.T) {
	t.Parallel()
	for from, list := range transitions {
		for _, to := range list {
			if _, known := transitions[to]; !known {
				t.Errorf("%s leads to %s, which is no state", from, to)
			}
		}
		if from != StateDisabled && !slices.Contains(list, StateDisabled) {
			t.Errorf("%s cannot be disabled", from)
		}
	}
}

func FuzzParseLine(f *testing.F) {
	for _, s := range []string{"", "plain", `{"@message":42}`, `{"msg":"x","level":"WARN","a":[1]}`, `{"@message":"y","@level":"trace"}`, "panic: x", `{"msg":"\ud800"}`, "{"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		_, message, attrs := parseLine(s)
		if len(message) > maxText || len(attrs) > 32 {
			t.Errorf("%d bytes, %d attributes", len(message), len(attrs))
		}
	})
}

func TestParseLine(t *testing.T) {
	t.Parallel()
	tests := []struct {
		line, message string
		level         slog.Level
		attrs         int
	}{
		{"plain text", "plain text", slog.LevelInfo, 0},
		{`{"time":"x","level":"WARN","msg":"slow","n":1.50}`, "slow", slog.LevelWarn, 1},
		{`{"@level":"error","@message":"hclog","@timestamp":"x","k":"v"}`, "hclog", slog.LevelError, 1},
		{`{"@level":"trace","@message":"t"}`, "t", slog.LevelDebug, 0},
		{`{"@message":42}`, `{"@message":42}`, slog.LevelInfo, 0},
		{"panic: boom", "panic: boom", slog.LevelError, 0},
	}
	for _, tt := range tests {
		level, message, attrs := parseLine(tt.line)
		if level != tt.level || message != tt.message || len(attrs) != tt.attrs {
			t.Errorf("%s = %s %q %v", tt.line, level, message, attrs)
		}
	}
}
