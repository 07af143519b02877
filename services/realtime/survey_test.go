package realtime_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime"
	"github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/services/realtime/sqllog"
	"github.com/objecthost/objecthost/storage"
)

// tally is a log that counts what it is asked.
type tally struct {
	driver.Log
	mu    sync.Mutex
	count counts
	calm  int // surveys since anything else
	rest  int // how many of these are awaited
	calms chan struct{}
}

type counts struct{ Surveys, Reads, Backlogs int }

// newTally awaits that nothing but surveys are asked for, so often.
func newTally(log driver.Log, rest int) *tally {
	return &tally{Log: log, rest: rest, calms: make(chan struct{}, 1)}
}

func (l *tally) add(c counts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count.Surveys += c.Surveys
	l.count.Reads += c.Reads
	l.count.Backlogs += c.Backlogs
	if l.calm += c.Surveys; c.Reads+c.Backlogs > 0 {
		l.calm = 0
	}
	if l.calm == l.rest {
		select {
		case l.calms <- struct{}{}:
		default:
		}
	}
}

// await waits until nothing but surveys were asked for, since now.
func (l *tally) await(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	l.calm = 0
	select {
	case <-l.calms: // an earlier rest
	default:
	}
	l.mu.Unlock()
	select {
	case <-l.calms:
	case <-time.After(time.Minute):
		t.Fatal("the log is read for ever")
	}
}

func (l *tally) take() counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.count
	l.count = counts{}
	return c
}

func (l *tally) Survey(ctx context.Context, consumer string) (driver.Survey, error) {
	l.add(counts{Surveys: 1})
	return l.Log.Survey(ctx, consumer)
}

func (l *tally) Read(ctx context.Context, q driver.Query) (driver.Page, error) {
	l.add(counts{Reads: 1})
	return l.Log.Read(ctx, q)
}

func (l *tally) Backlog(ctx context.Context, q driver.Query) (driver.Backlog, error) {
	l.add(counts{Backlogs: 1})
	return l.Log.Backlog(ctx, q)
}

// However many consumers and subscribers there are, an idle process looks once
// per interval, and once for its monitor.
func TestIdleServiceLooksOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, in := newMemory(t, realtime.Config{}), &inbox{}
		log := newTally(m.log, 0)
		s, err := realtime.New(m.tx, log, realtime.Config{PollInterval: 5 * time.Second, MonitorInterval: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b", "c"} {
			if err := s.Consume(realtime.ConsumerConfig{Name: name}, in.handle); err != nil {
				t.Fatal(err)
			}
		}
		start(t, s)
		for range 3 {
			subscribe(t, s, realtime.Filter{}, in)
		}
		if err := s.Split(t.Context(), "a", 128); err != nil {
			t.Fatal(err)
		}
		if err := s.Append(t.Context(), events("e")...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // virtual time
		equal(t, "events", 6, len(in.take()))
		log.take()
		time.Sleep(30 * time.Minute)
		got := log.take()
		if low, high := 30*60/6, 30*60/4+1; got.Surveys < low || got.Surveys > high {
			t.Errorf("%d surveys in half an hour, want %d to %d", got.Surveys, low, high)
		}
		got.Surveys = 0
		equal(t, "other looks", counts{}, got)
		time.Sleep(time.Hour)
		log.take()
		status, err := s.Consumers(t.Context())
		if err != nil || len(status) != 3 || status[0].LagEvents != 0 || len(status[0].Ranges) != 2 {
			t.Errorf("status %+v, %v", status, err)
		}
		equal(t, "looks for the status", counts{Surveys: 1}, log.take())
	})
}

// What another process committed without a word is found by the next survey,
// by consumers and subscribers alike.
func TestSurveysFindWhatOthersAppended(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, in, seen := newMemory(t, realtime.Config{PollInterval: 5 * time.Second}), &inbox{}, &inbox{}
		other := m.join(realtime.Config{})
		consume(t, m.Service, realtime.ConsumerConfig{}, in.handle)
		start(t, m.Service)
		subscribe(t, m.Service, realtime.Filter{}, seen)
		for _, name := range []string{"a", "b", "c"} {
			time.Sleep(10 * time.Minute) // virtual time, at rest
			if err := other.Append(t.Context(), events(name)...); err != nil {
				t.Fatal(err)
			}
			time.Sleep(6 * time.Second)
			synctest.Wait()
			equal(t, "consumed", []string{name}, in.take())
			equal(t, "subscribed", []string{name}, seen.take())
		}
	})
}

// The same on databases: a process at rest asks for surveys alone, and still
// finds what others append.
func TestIdleServiceReadsNothing(t *testing.T) {
	t.Parallel()
	onEachDialect(t, func(t *testing.T, db *storage.DB) {
		const rest = 4
		log := newTally(sqllog.New(db, nil), rest)
		s, err := realtime.New(db, log, realtime.Config{PollInterval: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		done, seen := newSignal(), newSignal()
		consume(t, s, realtime.ConsumerConfig{}, (&effects{db: db, committed: done}).handle)
		start(t, s)
		if err := s.Split(t.Context(), "c", 128); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Subscribe(realtime.Filter{}, func(context.Context, *event.Event) { seen.add(1) }); err != nil {
			t.Fatal(err)
		}
		other := newSQL(t, db, realtime.Config{})
		for i, name := range []string{"a", "b"} {
			if err := other.Append(t.Context(), events(name)...); err != nil {
				t.Fatal(err)
			}
			done.wait(t, i+1)
			seen.wait(t, i+1)
			log.await(t)
		}
	})
}
