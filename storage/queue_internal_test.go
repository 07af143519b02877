package storage

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func take(context.Context) error { return nil }

// Writers are served in the order in which they came.
func TestWriterQueueIsFair(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &DB{queue: newWriterQueue(time.Minute)}
		release, err := db.queue.acquire(t.Context(), take)
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for i := range 20 {
			go func() {
				release, err := db.queue.acquire(context.Background(), take)
				if err != nil {
					t.Error(err)
					return
				}
				got = append(got, i)
				release()
			}()
			synctest.Wait()
		}
		if n := db.Waiting(); n != 20 {
			t.Errorf("Waiting = %d, want 20", n)
		}
		release()
		synctest.Wait()
		if len(got) != 20 || !slices.IsSorted(got) {
			t.Errorf("order = %v, want 0 to 19", got)
		}
		if n := db.Waiting(); n != 0 {
			t.Errorf("Waiting = %d, want 0", n)
		}
	})
}

// The wait in the queue and the wait for the connection share one bound.
func TestWriterQueueBound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newWriterQueue(10 * time.Second)
		release, err := q.acquire(Named(t.Context(), "first"), take)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(4*time.Second, release)
		start := time.Now()
		_, err = q.acquire(t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		var busy *WriterBusyError
		if !errors.As(err, &busy) || busy.Waited != 10*time.Second || time.Since(start) != 10*time.Second {
			t.Fatalf("acquire = %v after %v, want a WriterBusyError after 10s", err, time.Since(start))
		}
		if busy.Holder != "another process" {
			t.Errorf("holder = %q", busy.Holder)
		}
		release, err = q.acquire(Named(t.Context(), "second"), take)
		if err != nil {
			t.Fatalf("the turn was lost: %v", err)
		}
		defer release()
		time.Sleep(3 * time.Second) // the holder works
		_, err = q.acquire(t.Context(), take)
		want := "storage: the database's writer was still held by second (for 13s) after 10s"
		if err == nil || err.Error() != want {
			t.Errorf("acquire = %v, want %q", err, want)
		}
	})
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	for attempt, limit := range map[int]time.Duration{
		1: 4 * time.Millisecond, 2: 16 * time.Millisecond, 4: 256 * time.Millisecond,
		5: 500 * time.Millisecond, 99: 500 * time.Millisecond,
	} {
		low, high := time.Hour, time.Duration(0)
		for range 2000 {
			d := backoff(attempt)
			low, high = min(low, d), max(high, d)
		}
		if low < time.Millisecond || high > limit+time.Millisecond {
			t.Errorf("backoff(%d) is %v to %v, want 1ms to %v", attempt, low, high, limit)
		}
		if high < limit*9/10 || low > limit/10+time.Millisecond {
			t.Errorf("backoff(%d) is %v to %v: no full jitter over %v", attempt, low, high, limit)
		}
	}
}
