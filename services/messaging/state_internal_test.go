package messaging

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/services/messaging/sqlstore"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// TestTransitionTable puts a row into every state, does to it everything that
// can be done to a row, and compares what became of it with the table: no
// change that is not in it happens, and every one that is in it does.
func TestTransitionTable(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		w := newWalk(t, db)
		seen := make(map[string]bool)
		for _, from := range []Status{StatusPending, StatusInFlight, StatusSuccess, StatusFailed, StatusDead} {
			for name, do := range w.deeds() {
				id := w.row(from)
				by := do(id)
				to := w.status(id)
				if to == from {
					continue
				}
				if !slices.Contains(transitions[from][to], by) {
					t.Errorf("%s led from %s to %s, which the table does not have", name, from, to)
				}
				seen[change(from, to, by)] = true
			}
		}
		for from, targets := range transitions {
			for to, causes := range targets {
				for _, by := range causes {
					if !seen[change(from, to, by)] {
						t.Errorf("%s from %s to %s is in the table and did not happen", by, from, to)
					}
				}
			}
		}
	})
}

func change(from, to Status, by cause) string { return fmt.Sprint(from, "→", to, " by ", by) }

// walk is a service over a store that nothing dispatches.
type walk struct {
	t      *testing.T
	ctx    context.Context
	db     *storage.DB
	s      *Service
	store  *sqlstore.Store
	target driver.Target
	n      int
}

func newWalk(t *testing.T, db *storage.DB) *walk {
	t.Helper()
	if err := db.Migrate(t.Context(), sqlstore.Migrations()); err != nil {
		t.Fatal(err)
	}
	w := &walk{t: t, ctx: t.Context(), db: db, store: sqlstore.New(db)}
	var err error
	if w.s, err = New(Config{Store: w.store, Tx: db}); err != nil {
		t.Fatal(err)
	}
	return w
}

// row makes a row of a target of its own in a state, claimed as "token" when
// it is in flight, about to crash for the last time.
func (w *walk) row(status Status) (id string) {
	w.t.Helper()
	w.n++
	w.target = driver.Target{Source: "test", Key: fmt.Sprint("target-", w.n), State: TargetActive}
	if err := w.store.PutTarget(w.ctx, &w.target, false); err != nil {
		w.t.Fatal(err)
	}
	got, err := w.s.Enqueue(w.ctx, Request{Source: "test", TargetKey: w.target.Key, URL: "http://recv.test/", Payload: []byte("{}")})
	if err != nil {
		w.t.Fatal(err)
	}
	finished := "NULL"
	if status.Terminal() {
		finished = "1"
	}
	w.exec(`UPDATE sys_http_delivery SET status = $1, finished_at = `+finished+`, claim_token = 'token', claim_expires_at = 1 WHERE id = $2`, string(status), got.ID)
	return got.ID
}

func (w *walk) exec(query string, args ...any) {
	w.t.Helper()
	if _, err := w.db.Write(w.ctx).ExecContext(w.ctx, query, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *walk) status(id string) Status {
	w.t.Helper()
	row, err := w.store.Get(w.ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return row.Status
}

// deeds are the things that can be done to a row, each with its cause.
func (w *walk) deeds() map[string]func(id string) cause {
	must := func(err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	record := func(o driver.Outcome) error {
		o.Token = "token"
		_, err := w.store.Record(w.ctx, []driver.Outcome{o}, nil)
		return err
	}
	expire := func() {
		_, _, err := w.store.Expire(w.ctx, false, deadAt, 10)
		must(err)
	}
	deeds := map[string]func(string) cause{
		"claim": func(string) cause {
			_, err := w.store.Claim(w.ctx, driver.ClaimRequest{Node: "n", Token: "t", Hold: time.Second,
				Wants: []driver.Want{{TargetID: w.target.ID, First: 5, Retry: 5}}})
			must(err)
			return causeClaim
		},
		"release": func(id string) cause {
			must(record(driver.Outcome{ID: id, Status: StatusPending, Released: true}))
			return causeRelease
		},
		"expiry": func(string) cause { expire(); return causeExpiry },
		"last expiry": func(id string) cause {
			w.exec(`UPDATE sys_http_delivery SET crash_count = $1, sent_alone = TRUE WHERE id = $2`, deadAt-1, id)
			expire()
			return causeExpiry
		},
		"cancel": func(id string) cause {
			_, _ = w.s.Cancel(w.ctx, id, "test", RedeliverOptions{}) // refused where the table says so
			return causeCancel
		},
		"sweep": func(string) cause {
			w.target.State = TargetGone
			must(w.store.PutTarget(w.ctx, &w.target, false))
			_, err := w.store.Sweep(w.ctx, 10)
			must(err)
			return causeSweep
		},
		"redeliver": func(id string) cause {
			_, _ = w.s.Redeliver(w.ctx, id, RedeliverOptions{}) // refused where the table says so
			return causeRedeliver
		},
	}
	for _, to := range []Status{StatusSuccess, StatusFailed, StatusDead, StatusPending} {
		deeds["outcome "+string(to)] = func(id string) cause {
			must(record(driver.Outcome{ID: id, Status: to, Attempts: 1, RetryIn: time.Hour}))
			return causeOutcome
		}
	}
	return deeds
}
