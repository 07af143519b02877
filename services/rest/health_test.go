package rest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	p := setupPlain(t, Config{})
	p.AddReadinessCheck("database", func(context.Context) error { return errors.New("gone") })
	want(t, call(t, p.handler, "GET", "/api/v1/health", ""), 200, `{"success":true,"data":{"status":"ok"}}`)
}

func TestReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := setupPlain(t, Config{})
		ask := func(status int, body string) {
			t.Helper()
			want(t, call(t, p.handler, "GET", "/api/v1/ready", ""), status, body)
			time.Sleep(checkAge) // a bubble's clock: no waiting
		}
		const ready = `{"success":true,"data":{"status":"ready"}}`
		ask(200, ready)
		p.AddReadinessCheck("fine", func(context.Context) error { return nil })
		ask(200, ready)
		removeB := p.AddReadinessCheck("b", func(context.Context) error { return errors.New("dial db.internal") })
		ask(503, `{"success":false,"data":{"status":"not-ready","failing":["b"]}}`)
		p.AddReadinessCheck("a", func(context.Context) error { panic("oops") })
		ask(503, `{"success":false,"data":{"status":"not-ready","failing":["a","b"]}}`)
		removeB()
		removeB()
		ask(503, `{"success":false,"data":{"status":"not-ready","failing":["a"]}}`)
		if got := p.log.lines(t)[2]["error"]; got != "b: dial db.internal" {
			t.Errorf("logged %v", got)
		}
		if err := p.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		ask(503, `{"success":false,"data":{"status":"not-ready","failing":["host"]}}`)
	})
}

func TestReadyDoesNotWaitForStuckChecks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := setupPlain(t, Config{})
		release := make(chan struct{})
		var calls atomic.Int64
		p.AddReadinessCheck("stuck", func(context.Context) error { calls.Add(1); <-release; return nil })
		for _, want := range []time.Duration{checkTimeout, 0} {
			began := time.Now()
			answer := call(t, p.handler, "GET", "/api/v1/ready", "")
			if took := time.Since(began); answer.Code != 503 || took != want {
				t.Errorf("%d after %v, want 503 after %v", answer.Code, took, want)
			}
			time.Sleep(checkAge)
		}
		if n := calls.Load(); n != 1 {
			t.Errorf("a stuck check was called %d times", n)
		}
		close(release)
		synctest.Wait()
		want(t, call(t, p.handler, "GET", "/api/v1/ready", ""), 200, `{"success":true,"data":{"status":"ready"}}`)
	})
}

func TestReadyAsksOncePerSecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := setupPlain(t, Config{})
		var asked atomic.Int64
		p.AddReadinessCheck("counted", func(context.Context) error { asked.Add(1); return nil })
		for range 50 {
			call(t, p.handler, "GET", "/api/v1/ready", "")
		}
		time.Sleep(checkAge)
		call(t, p.handler, "GET", "/api/v1/ready", "")
		if n := asked.Load(); n != 2 {
			t.Errorf("asked %d times, want 2", n)
		}
	})
}
