package rest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// checkTimeout bounds one round of readiness checks.
	checkTimeout = 2 * time.Second
	// checkAge is how long a round's result is given out, so that the open
	// route cannot be used to keep the database busy.
	checkAge = time.Second
)

// readiness knows whether the host can do its work.
type readiness struct {
	mu       sync.Mutex
	checks   []*readinessCheck
	stopping bool

	round   sync.Mutex // held while a round runs
	checked time.Time
	failed  []failedCheck
}

type readinessCheck struct {
	name string
	run  func(context.Context) error
	// busy is set while run runs: a check that is stuck is not called again on
	// top of itself.
	busy atomic.Bool
}

var errStuck = errors.New("the check has not returned yet")

type failedCheck struct {
	name string
	err  error
}

func (r *readiness) add(name string, run func(context.Context) error) (remove func()) {
	check := &readinessCheck{name: name, run: run}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checks = append(r.checks, check)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.checks = slices.DeleteFunc(r.checks, func(c *readinessCheck) bool { return c == check })
	}
}

func (r *readiness) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
}

var errStopping = errors.New("the host is stopping")

// ask returns the checks that fail, sorted by name. Checks run side by side;
// one that overstays its time counts as failed and is not waited for.
func (r *readiness) ask(ctx context.Context) []failedCheck {
	r.round.Lock()
	defer r.round.Unlock()
	r.mu.Lock()
	checks, stopping := slices.Clone(r.checks), r.stopping
	r.mu.Unlock()
	if stopping {
		return []failedCheck{{"host", errStopping}}
	}
	if !r.checked.IsZero() && time.Since(r.checked) < checkAge {
		return r.failed
	}
	// The asker may go away; the result is for the next one too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	results := make([]chan error, len(checks))
	for i, check := range checks {
		results[i] = make(chan error, 1)
		go func() { results[i] <- runCheck(ctx, check) }()
	}
	r.failed = nil
	for i, check := range checks {
		var err error
		select {
		case err = <-results[i]:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			r.failed = append(r.failed, failedCheck{check.name, err})
		}
	}
	slices.SortStableFunc(r.failed, func(a, b failedCheck) int { return cmp.Compare(a.name, b.name) })
	r.checked = time.Now()
	return r.failed
}

func runCheck(ctx context.Context, check *readinessCheck) (err error) {
	if !check.busy.CompareAndSwap(false, true) {
		return errStuck
	}
	defer check.busy.Store(false)
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("check panicked: %v", v)
		}
	}()
	return check.run(ctx)
}

func (s *Server) healthRoutes() []OwnedRoute {
	return []OwnedRoute{
		own(http.MethodGet, "/api/v1/health", "Tell whether the process answers", s.serveHealth, unasked),
		own(http.MethodGet, "/api/v1/ready", "Tell whether the host can do its work", s.serveReady, unasked),
	}
}

type status struct {
	Status string `json:"status"`
	// Failing names what is not ready.
	Failing []string `json:"failing,omitempty"`
}

// serveHealth answers as long as the process lives: a database that is gone
// does not get better by a restart.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) error {
	return writeJSON(w, http.StatusOK, envelope{Success: true, Data: status{Status: "ok"}})
}

func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) error {
	failed := s.checks.ask(r.Context())
	if len(failed) == 0 {
		return writeJSON(w, http.StatusOK, envelope{Success: true, Data: status{Status: "ready"}})
	}
	answer := status{Status: "not-ready"}
	causes := make([]error, 0, len(failed))
	for _, f := range failed {
		answer.Failing = append(answer.Failing, f.name)
		causes = append(causes, fmt.Errorf("%s: %w", f.name, f.err))
	}
	exchangeOf(r.Context()).cause = errors.Join(causes...)
	return writeJSON(w, http.StatusServiceUnavailable, envelope{Success: false, Data: answer})
}
