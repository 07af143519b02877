package coretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// label marks the goroutines of a case in the profile; goroutines inherit it
// from the one that begins them.
const label = "coretest"

var lastRun atomic.Int64

// check runs a case and looks for goroutines that are left.
func (s Setup) check(ctx context.Context, c testCase) error {
	run := strconv.FormatInt(lastRun.Add(1), 10)
	var err error
	pprof.Do(ctx, pprof.Labels(label, run), func(ctx context.Context) { err = c.run(ctx, s) })
	return errors.Join(err, s.leaked(run))
}

// leaked waits until the goroutines of a run have ended and returns an error
// with the stacks of those that have not in time.
func (s Setup) leaked(run string) error {
	deadline := time.NewTimer(s.Prompt)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		stacks, err := goroutines(run)
		if err != nil || stacks == "" {
			return err
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return fmt.Errorf("goroutines are left after Stop:\n%s", stacks)
		}
	}
}

// goroutines returns the profile's records of a run's goroutines. A record is a
// paragraph with a line of its labels.
func goroutines(run string) (string, error) {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return "", err
	}
	mark := fmt.Sprintf("# labels: {%q:%q", label, run)
	var found []string
	for record := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(record, mark) {
			found = append(found, record)
		}
	}
	return strings.Join(found, "\n\n"), nil
}

// strayError is a call that did not come back as a call should.
type strayError struct{ how string }

func (e *strayError) Error() string { return e.how }

// promptly returns what call returns, or a *strayError when it panics or is not
// back in time.
func (s Setup) promptly(call func() error) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				done <- &strayError{fmt.Sprintf("panics: %v", v)}
			}
		}()
		done <- call()
	}()
	timer := time.NewTimer(s.Prompt)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return &strayError{fmt.Sprintf("does not return within %s", s.Prompt)}
	}
}
