package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// errStopped is the cause of a context that ended because of a signal.
var errStopped = errors.New("stopped by a signal")

// untilSignal returns a context that ends at the first SIGINT or SIGTERM. The
// second one ends the process at once. stop gives the signals back.
func untilSignal(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 2)
	done := make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
			cancel(errStopped)
		case <-done:
			return
		}
		select {
		case s := <-signals:
			code := exitFailure
			if n, ok := s.(syscall.Signal); ok {
				code = 128 + int(n)
			}
			os.Exit(code)
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}
