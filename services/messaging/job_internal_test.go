package messaging

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/objecthost/objecthost/services/messaging/driver"
)

// jobClock is a store without jobs that notes when it is asked for one.
type jobClock struct {
	driver.Store
	driver.JobStore
	began time.Time

	mu   sync.Mutex
	at   []int // in seconds
	fail bool
}

func (c *jobClock) ClaimJob(context.Context, []string, string, time.Duration) (*driver.Job, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = append(c.at, int(time.Since(c.began).Seconds()))
	if c.fail {
		c.fail = false
		return nil, errors.New("no database")
	}
	return nil, nil
}

// until lets virtual time pass up to a second and returns when jobs were asked for.
func (c *jobClock) until(second int) []int {
	time.Sleep(time.Until(c.began.Add(time.Duration(second)*time.Second + time.Millisecond)))
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.at
	c.at = nil
	return at
}

// nodes keeps what is registered.
type nodes map[string]func([]string)

func (n nodes) Announce(context.Context, string, string) error     { return nil }
func (n nodes) OnAnnounce(topic string, fn func(details []string)) { n[topic] = fn }

// Jobs are looked for often when there is a reason to expect one, and else seldom.
func TestJobsAreLookedForWithAReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, peers := &jobClock{began: time.Now()}, nodes{}
		s := &Service{cfg: Config{Store: c, Exclusive: true, Nodes: peers, PollInterval: 5 * time.Second}, log: slog.New(slog.DiscardHandler)}
		r := newJobRunner(s)
		r.start(t.Context())
		defer r.stop()
		check := func(what string, second int, want ...int) {
			t.Helper()
			if diff := cmp.Diff(want, c.until(second)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		// jobLease is 10 s: a process that died just now left nothing later.
		check("after the start", 109, 0, 5, 10, 40, 70, 100)
		peers[topicJob](nil)
		check("announced", 159, 109, 114, 119, 149)
		r.seek()
		check("started here", 219, 159, 164, 169, 199)
		c.mu.Lock()
		c.fail = true
		c.mu.Unlock()
		check("after a failure", 289, 229, 234, 239, 269)
		s.cfg.PollInterval = time.Minute
		r.seek()
		check("rare polls stay rare", 419, 289, 349, 409)
	})
}

// Where other processes may serve, they may leave a job at any time.
func TestJobsOfOthersAreLookedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &jobClock{began: time.Now()}
		r := newJobRunner(&Service{cfg: Config{Store: c, PollInterval: 10 * time.Second}, log: slog.New(slog.DiscardHandler)})
		r.start(t.Context())
		defer r.stop()
		if diff := cmp.Diff([]int{0, 10, 20, 30, 40, 50, 60}, c.until(60)); diff != "" {
			t.Errorf("looks (-want +got):\n%s", diff)
		}
	})
}
