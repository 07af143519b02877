// Package drivertest is the suite that every store of the outbox passes.
package drivertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/storage"
)

// Open returns an empty store and the transactor whose transactions it joins.
type Open func(t *testing.T) (driver.Store, storage.Transactor)

const hold = 10 * time.Second

// Run runs the suite.
func Run(t *testing.T, open Open) {
	for name, test := range map[string]func(t *testing.T, s *bench){
		"InsertTellsNewFromKnown":         testInsert,
		"InsertClaimsOnlyFreeKeys":        testInsertClaims,
		"ClaimTakesDueRowsInOrder":        testClaimOrder,
		"ClaimLeavesHeldTargets":          testClaimHeld,
		"ClaimKeepsBlockedKeys":           testClaimBlocked,
		"ClaimLeavesBigPayloads":          testClaimBigPayload,
		"RecordIsFenced":                  testRecordFenced,
		"RecordKeepsWhatCame":             testRecordSuccess,
		"RecordRetriesBeforeTheExpiry":    testRecordRetry,
		"ReleaseLeavesTheRowAsItWas":      testRelease,
		"ExpireCountsCrashes":             testExpire,
		"ExpireCountsOnlyCrashesAlone":    testExpireAlone,
		"EditFollowsItsStates":            testEdit,
		"SweepEndsRowsOfGoneTargets":      testSweep,
		"CleanRemovesOldRowsWithAttempts": testClean,
		"TargetsKeepVersionsAndStreaks":   testTargets,
		"OutlookTellsWhatWaits":           testOutlook,
		"EverythingRollsBack":             testRollback,
		"RandomOperationsMatchTheModel":   testModel,
		"ConcurrentInsertsOfOneKeyAgree":  testConcurrentInserts,
		"ConcurrentClaimsTakeEachRowOnce": testConcurrentClaims,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, tx := open(t)
			test(t, &bench{Store: store, tx: tx, ctx: t.Context()})
		})
	}
}

// bench is a store with short ways to use it.
type bench struct {
	driver.Store
	tx  storage.Transactor
	ctx context.Context
	n   int
}

func (b *bench) target(t *testing.T, key string) *driver.Target {
	t.Helper()
	target := &driver.Target{Source: "test", Key: key, State: driver.TargetActive}
	b.put(t, target)
	return target
}

func (b *bench) put(t *testing.T, target *driver.Target) {
	t.Helper()
	if err := b.PutTarget(b.ctx, target, false); err != nil {
		t.Fatal(err)
	}
}

// row is a pending row of a target; its id, dedup key and order follow from
// the number of rows made before.
func (b *bench) row(target *driver.Target) *driver.Row {
	b.n++
	id := fmt.Sprintf("00000000-0000-7000-8000-%012d", b.n)
	return &driver.Row{
		ID: id, Source: "test", RefID: "ref", TargetKey: target.Key, TargetID: target.ID, DedupKey: "key-" + id,
		Label: "label", URL: "http://recv.test/in", Method: "POST", TimeoutMillis: 15_000, Payload: []byte(`{"n":1.10,"t":"ñ<&>"}`),
		PayloadSize: 24, Partition: 7, OrderSeq: int64(b.n), Status: driver.Pending,
	}
}

func (b *bench) insert(t *testing.T, rows ...*driver.Row) []driver.Inserted {
	t.Helper()
	out, err := b.Insert(b.ctx, rows, driver.Terms{Hold: hold})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (b *bench) claim(t *testing.T, token string, wants ...driver.Want) []*driver.Row {
	t.Helper()
	rows, err := b.Claim(b.ctx, driver.ClaimRequest{Node: "node", Token: token, Wants: wants, Hold: hold})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func (b *bench) record(t *testing.T, outcomes ...driver.Outcome) []bool {
	t.Helper()
	applied, err := b.Record(b.ctx, outcomes, nil)
	if err != nil {
		t.Fatal(err)
	}
	return applied
}

func (b *bench) get(t *testing.T, id string) *driver.Row {
	t.Helper()
	row, err := b.Get(b.ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	return row
}

func ids(rows []*driver.Row) []string {
	out := []string{}
	for _, r := range rows {
		out = append(out, r.ID)
	}
	return out
}

// failer is a test of package testing or rapid.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
}

func equal(t failer, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func testInsert(t *testing.T, b *bench) {
	target := b.target(t, "a")
	first, twin, other := b.row(target), b.row(target), b.row(target)
	twin.DedupKey = first.DedupKey
	other.DedupKey, other.OrganizationID = first.DedupKey, "org"
	got := b.insert(t, first, twin, other)
	equal(t, "inserted", got, []driver.Inserted{{ID: first.ID, New: true}, {ID: first.ID}, {ID: other.ID, New: true}})
	equal(t, "inserted again", b.insert(t, twin), []driver.Inserted{{ID: first.ID}})
	row := b.get(t, first.ID)
	if row.CreatedAt == 0 || row.CreatedAt != row.UpdatedAt {
		t.Errorf("created_at = %d, updated_at = %d", row.CreatedAt, row.UpdatedAt)
	}
	want := *first
	want.CreatedAt, want.UpdatedAt, want.PayloadSize = row.CreatedAt, row.UpdatedAt, len(want.Payload)
	equal(t, "stored row", *row, want)
	if row := b.get(t, "unknown"); row != nil {
		t.Errorf("unknown row = %+v", row)
	}
}

func testInsertClaims(t *testing.T, b *bench) {
	target, held := b.target(t, "a"), &driver.Target{Source: "test", Key: "held", State: driver.TargetHeld}
	b.put(t, held)
	claimed := func(target *driver.Target, key int64) *driver.Row {
		r := b.row(target)
		r.Status, r.ClaimToken, r.ClaimedBy, r.OrderKey = driver.InFlight, "token", "node", key
		return r
	}
	free, busy, none, onHeld := claimed(target, 5), claimed(target, 5), claimed(target, 0), claimed(held, 0)
	b.insert(t, free)
	got := b.insert(t, busy, none, onHeld)
	equal(t, "claimed", []bool{got[0].Claimed, got[1].Claimed, got[2].Claimed}, []bool{false, true, false})
	row := b.get(t, free.ID)
	if row.Status != driver.InFlight || row.ClaimExpiresAt != row.ClaimedAt+15_000+hold.Milliseconds() || row.ClaimToken != "token" {
		t.Errorf("claimed row = %+v", row)
	}
	if row := b.get(t, busy.ID); row.Status != driver.Pending || row.ClaimToken != "" || row.ClaimedBy != "" {
		t.Errorf("row of a busy key = %+v", row)
	}
}

func testClaimOrder(t *testing.T, b *bench) {
	a, c := b.target(t, "a"), b.target(t, "c")
	rows := []*driver.Row{b.row(a), b.row(a), b.row(a), b.row(c)}
	rows[0].OrderSeq, rows[1].OrderSeq, rows[2].OrderSeq = 30, 10, 20
	b.insert(t, rows...)
	got := b.claim(t, "t1", driver.Want{TargetID: a.ID, First: 2, Retry: 5})
	equal(t, "first claim", ids(got), []string{rows[1].ID, rows[2].ID})
	if got[0].TargetVersion != a.Version || string(got[0].Payload) != string(rows[1].Payload) {
		t.Errorf("claimed row = %+v", got[0])
	}
	b.record(t,
		driver.Outcome{ID: rows[1].ID, Token: "t1", Status: driver.Pending, Attempts: 1},
		driver.Outcome{ID: rows[2].ID, Token: "t1", Status: driver.Pending, Attempts: 1, RetryIn: time.Hour})
	got = b.claim(t, "t2", driver.Want{TargetID: a.ID, First: 5, Retry: 5}, driver.Want{TargetID: c.ID, First: 5})
	equal(t, "second claim, without the row whose retry is in an hour", sortedIDs(got), sortedIDs([]*driver.Row{rows[0], rows[1], rows[3]}))
	equal(t, "nothing is left", ids(b.claim(t, "t3", driver.Want{TargetID: a.ID, First: 5, Retry: 5})), []string{})
}

func testClaimHeld(t *testing.T, b *bench) {
	a := b.target(t, "a")
	b.insert(t, b.row(a))
	a.State = driver.TargetHeld
	b.put(t, a)
	equal(t, "claim of a held target", ids(b.claim(t, "t1", driver.Want{TargetID: a.ID, First: 5})), []string{})
	a.State = driver.TargetActive
	b.put(t, a)
	equal(t, "claims after the hold", len(b.claim(t, "t2", driver.Want{TargetID: a.ID, First: 5})), 1)
}

func testClaimBlocked(t *testing.T, b *bench) {
	a := b.target(t, "a")
	rows := []*driver.Row{b.row(a), b.row(a), b.row(a)}
	for i, r := range rows {
		r.BlockOnRetry, r.OrderKey = true, 9
		if i == 2 {
			r.OrderKey = 10
		}
	}
	b.insert(t, rows...)
	all := driver.Want{TargetID: a.ID, First: 9, Retry: 9}
	equal(t, "one row of each key", ids(b.claim(t, "t1", all)), []string{rows[0].ID, rows[2].ID})
	b.record(t, driver.Outcome{ID: rows[0].ID, Token: "t1", Status: driver.Pending, Attempts: 1, RetryIn: time.Hour})
	equal(t, "while the first waits for its retry", ids(b.claim(t, "t2", all)), []string{})
	if _, ok, err := b.Edit(b.ctx, driver.Edit{ID: rows[0].ID, From: []driver.Status{driver.Pending}, Status: driver.Failed, Error: "x"}); err != nil || !ok {
		t.Fatal(ok, err)
	}
	equal(t, "after the first has ended", ids(b.claim(t, "t3", all)), []string{rows[1].ID})
}

func testClaimBigPayload(t *testing.T, b *bench) {
	a := b.target(t, "a")
	big, small := b.row(a), b.row(a)
	big.Payload = []byte(strings.Repeat("é", driver.MaxClaimedPayload/2) + "x")
	small.Payload = []byte(strings.Repeat("é", driver.MaxClaimedPayload/2))
	b.insert(t, big, small)
	got := b.claim(t, "t1", driver.Want{TargetID: a.ID, First: 5})
	equal(t, "sizes", []int{got[0].PayloadSize, len(got[0].Payload), got[1].PayloadSize, len(got[1].Payload)},
		[]int{driver.MaxClaimedPayload + 1, 0, driver.MaxClaimedPayload, driver.MaxClaimedPayload})
	equal(t, "read back", string(b.get(t, big.ID).Payload) == string(big.Payload), true)
}

func testRecordFenced(t *testing.T, b *bench) {
	a := b.target(t, "a")
	r := b.row(a)
	b.insert(t, r)
	all := driver.Want{TargetID: a.ID, First: 5, Retry: 5}
	b.claim(t, "old", all)
	if n, _, err := b.Expire(b.ctx, true, 6, 10); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	b.claim(t, "new", all)
	late := driver.Outcome{ID: r.ID, Token: "old", Status: driver.Dead, Attempts: 9, Error: "HTTP 400", Attempt: attempt(r, 9)}
	equal(t, "late outcome", b.record(t, late), []bool{false})
	equal(t, "right outcome", b.record(t, driver.Outcome{ID: r.ID, Token: "new", Status: driver.Success, Attempts: 1, ResponseCode: 200}), []bool{true})
	late.Token = "new"
	equal(t, "outcome after the end", b.record(t, late), []bool{false})
	row := b.get(t, r.ID)
	equal(t, "row", []any{row.Status, row.Attempts, row.Error, row.ResponseCode}, []any{driver.Success, 1, "", 200})
	got, err := b.Attempts(b.ctx, r.ID)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "attempts of late outcomes", len(got), 0)
}

// attempt is the n-th try of a row with every field set.
func attempt(r *driver.Row, n int) *driver.Attempt {
	return &driver.Attempt{
		DeliveryID: r.ID, Round: r.Round, Attempt: n, Node: "node", StartedAgo: 40 * time.Millisecond, Duration: 30 * time.Millisecond,
		DNS: time.Millisecond, Connect: 2 * time.Millisecond, TLS: 3 * time.Millisecond, FirstByte: 4 * time.Microsecond,
		RemoteAddr: "127.0.0.1:80", RequestHeaders: `{"A":["•••"]}`, ResponseCode: 200, ResponseHeaders: `{"B":["ü"]}`,
		ResponseBody: "ok 😀", Truncated: true, LocationHost: "l.test", ErrorClass: "status", Error: "HTTP 500", OrganizationID: "org",
	}
}

func testRecordSuccess(t *testing.T, b *bench) {
	a := b.target(t, "a")
	r := b.row(a)
	b.insert(t, r)
	b.claim(t, "t", driver.Want{TargetID: a.ID, First: 5})
	equal(t, "applied", b.record(t, driver.Outcome{
		ID: r.ID, Token: "t", Status: driver.Success, Attempts: 1, Signature: "sha256=00", ResponseCode: 200,
		ResponseBody: "ok 😀", ResponseTruncated: true, Attempt: attempt(r, 1),
	}), []bool{true})
	row := b.get(t, r.ID)
	equal(t, "outcome", []any{row.Status, row.Attempts, row.Signature, row.ResponseCode, row.ResponseBody, row.ResponseTruncated, row.Error, row.NextRetryAt},
		[]any{driver.Success, 1, "sha256=00", 200, "ok 😀", true, "", int64(0)})
	equal(t, "claim", []any{row.ClaimedBy, row.ClaimedAt, row.ClaimToken, row.ClaimExpiresAt}, []any{"", int64(0), "", int64(0)})
	if row.FinishedAt == 0 || row.LastAttemptAt == 0 || row.FinishedAt-row.LastAttemptAt < 40 {
		t.Errorf("finished_at = %d, last_attempted_at = %d, want 40 ms between them", row.FinishedAt, row.LastAttemptAt)
	}
	got, err := b.Attempts(b.ctx, r.ID)
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	want := *attempt(r, 1)
	want.StartedAgo, want.StartedAt = 0, got[0].StartedAt
	equal(t, "attempt", got[0], want)
	if got[0].StartedAt == 0 {
		t.Error("started_at is not set")
	}
}

func testRecordRetry(t *testing.T, b *bench) {
	a := b.target(t, "a")
	plain, expiring := b.row(a), b.row(a)
	expiring.ExpiresAt = 60_000
	b.insert(t, plain, expiring)
	b.claim(t, "t", driver.Want{TargetID: a.ID, First: 5})
	for _, r := range []*driver.Row{plain, expiring} {
		b.record(t, driver.Outcome{ID: r.ID, Token: "t", Status: driver.Pending, Attempts: 1, RetryIn: time.Hour, ResponseCode: 500, Error: "HTTP 500"})
	}
	row := b.get(t, plain.ID)
	equal(t, "row", []any{row.Status, row.Attempts, row.Error, row.ResponseCode, row.FinishedAt}, []any{driver.Pending, 1, "HTTP 500", 500, int64(0)})
	if d := row.NextRetryAt - row.UpdatedAt; d < 3_599_000 || d > 3_601_000 {
		t.Errorf("the retry is due %d ms after the outcome, want an hour", d)
	}
	row = b.get(t, expiring.ID)
	equal(t, "a retry after the expiry is due at the expiry", row.NextRetryAt, row.ExpiresAt)
}

func testRelease(t *testing.T, b *bench) {
	a := b.target(t, "a")
	r := b.row(a)
	b.insert(t, r)
	want := driver.Want{TargetID: a.ID, First: 5, Retry: 5}
	b.claim(t, "t1", want)
	b.record(t, driver.Outcome{ID: r.ID, Token: "t1", Status: driver.Pending, Attempts: 1, RetryIn: 0, ResponseCode: 503, Error: "HTTP 503"})
	before := b.get(t, r.ID)
	if got := b.claim(t, "t2", want); len(got) != 1 {
		t.Fatalf("claimed %d rows, want 1", len(got))
	}
	equal(t, "applied", b.record(t, driver.Outcome{ID: r.ID, Token: "t2", Status: driver.Pending, Released: true}), []bool{true})
	after := b.get(t, r.ID)
	after.UpdatedAt = before.UpdatedAt
	equal(t, "released row", *after, *before)
}

func testExpire(t *testing.T, b *bench) {
	a := b.target(t, "a")
	r := b.row(a)
	b.insert(t, r)
	for crash := 1; crash <= 3; crash++ {
		if got := b.claim(t, "t", driver.Want{TargetID: a.ID, First: 5, Retry: 5}); len(got) != 1 || got[0].CrashCount != crash-1 {
			t.Fatalf("claim before crash %d = %+v", crash, got)
		}
		if n, dead, err := b.Expire(b.ctx, false, 3, 10); n != 0 || len(dead) != 0 || err != nil {
			t.Fatalf("a claim that has not ended expired: %d %v %v", n, dead, err)
		}
		n, dead, err := b.Expire(b.ctx, true, 3, 10)
		if err != nil {
			t.Fatal(err)
		}
		if crash < 3 {
			equal(t, "requeued", []int{n, len(dead)}, []int{1, 0})
			continue
		}
		equal(t, "dead", []int{n, len(dead)}, []int{0, 1})
	}
	row := b.get(t, r.ID)
	equal(t, "row", []any{row.Status, row.CrashCount, row.Attempts, row.Error},
		[]any{driver.Dead, 3, 0, "the host ended abnormally 3 times while sending this delivery"})
}

// From AloneAt on only crashes while a row is sent alone count.
func testExpireAlone(t *testing.T, b *bench) {
	a := b.target(t, "a")
	r := b.row(a)
	b.insert(t, r)
	counts := []int{}
	for crash := range 6 {
		b.claim(t, "t", driver.Want{TargetID: a.ID, First: 5, Retry: 5})
		if crash == 4 {
			if _, ok, err := b.Edit(b.ctx, driver.Edit{ID: r.ID, From: []driver.Status{driver.InFlight}, Alone: true}); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		if _, dead, err := b.Expire(b.ctx, true, 6, 10); len(dead) != 0 || err != nil {
			t.Fatal(dead, err)
		}
		counts = append(counts, b.get(t, r.ID).CrashCount)
	}
	equal(t, "crash counts", counts, []int{1, 2, 3, 3, 4, 4})
}

func testEdit(t *testing.T, b *bench) {
	a := b.target(t, "a")
	r := b.row(a)
	r.OrganizationID, r.OrderKey, r.BlockOnRetry, r.ExpiresAt = "org", 4, true, 60_000
	b.insert(t, r)
	cancel := driver.Edit{ID: r.ID, From: []driver.Status{driver.Pending}, Status: driver.Failed, Error: "cancelled", Scoped: true, OrganizationID: "other"}
	if row, ok, err := b.Edit(b.ctx, cancel); row != nil || ok || err != nil {
		t.Fatalf("edit of a foreign row = %v %v %v", row, ok, err)
	}
	cancel.OrganizationID = "org"
	row, ok, err := b.Edit(b.ctx, cancel)
	if err != nil || !ok || row.Status != driver.Failed || row.Error != "cancelled" || row.FinishedAt == 0 {
		t.Fatalf("cancelled row = %+v %v %v", row, ok, err)
	}
	if row, ok, err := b.Edit(b.ctx, cancel); ok || err != nil || row.Status != driver.Failed {
		t.Fatalf("cancelled twice: %+v %v %v", row, ok, err)
	}
	row, ok, err = b.Edit(b.ctx, driver.Edit{
		ID: r.ID, From: []driver.Status{driver.Failed}, Redeliver: true, Replace: true, URL: "http://new.test/", Method: "PUT", HeadersSealed: "h", TimeoutMillis: 2000,
	})
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	equal(t, "redelivered row", []any{row.Status, row.Attempts, row.Round, row.Error, row.ExpiresAt, row.FinishedAt, row.OrderKey, row.BlockOnRetry, row.URL, row.Method, row.HeadersSealed, row.TimeoutMillis},
		[]any{driver.Pending, 0, 1, "", int64(0), int64(0), int64(0), false, "http://new.test/", "PUT", "h", int64(2000)})
	if row, ok, err := b.Edit(b.ctx, driver.Edit{ID: "unknown", Redeliver: true}); row != nil || ok || err != nil {
		t.Fatalf("edit of an unknown row = %v %v %v", row, ok, err)
	}
}

func testSweep(t *testing.T, b *bench) {
	a, c := b.target(t, "a"), b.target(t, "c")
	gone, stays := b.row(a), b.row(c)
	b.insert(t, gone, stays)
	a.State, a.Reason = driver.TargetGone, "webhook deleted"
	b.put(t, a)
	rows, err := b.Sweep(b.ctx, 10)
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	equal(t, "swept", []any{rows[0].ID, rows[0].Status, rows[0].Error}, []any{gone.ID, driver.Failed, "webhook deleted"})
	equal(t, "other row", b.get(t, stays.ID).Status, driver.Pending)
}

func testClean(t *testing.T, b *bench) {
	a := b.target(t, "a")
	done, waits := b.row(a), b.row(a)
	waits.OrderSeq += 10
	b.insert(t, done, waits)
	b.claim(t, "t", driver.Want{TargetID: a.ID, First: 1})
	b.record(t, driver.Outcome{ID: done.ID, Token: "t", Status: driver.Success, Attempts: 1, ResponseCode: 200, Attempt: attempt(done, 1)})
	if done, err := b.Clean(b.ctx, driver.Clean{Keep: time.Hour, Limit: 10}); done.Removed != 0 || !done.Done || err != nil {
		t.Fatal(done, err)
	}
	removed := 0
	for after := ""; ; {
		done, err := b.Clean(b.ctx, driver.Clean{Keep: -time.Hour, Limit: 1, After: after})
		if err != nil {
			t.Fatal(err)
		}
		removed, after = removed+done.Removed, done.Last
		if done.Done {
			break
		}
	}
	equal(t, "removed", removed, 1)
	if b.get(t, done.ID) != nil || b.get(t, waits.ID) == nil {
		t.Error("the wrong row was removed")
	}
	got, err := b.Attempts(b.ctx, done.ID)
	if err != nil || len(got) != 0 {
		t.Errorf("attempts of a removed delivery = %v, %v", got, err)
	}
}

func testTargets(t *testing.T, b *bench) {
	target := &driver.Target{
		Source: "webhook", Key: "k", OrganizationID: "org", State: driver.TargetActive, MaxConcurrency: 3, RatePerSecond: 2.5, RateBurst: 4,
		RetryPolicy: `{"maxRetries":1}`, SignatureScheme: "both", SecretSealed: "s", PreviousSecretSealed: "p", PreviousUntil: 7, AuthSealed: "x",
	}
	b.put(t, target)
	kept := &driver.Target{Source: "webhook", Key: "k", OrganizationID: "org", State: driver.TargetGone}
	if err := b.PutTarget(b.ctx, kept, true); err != nil {
		t.Fatal(err)
	}
	equal(t, "kept", []int64{kept.ID, kept.Version}, []int64{target.ID, 1})
	if _, err := b.Record(b.ctx, nil, []driver.Touch{{TargetID: target.ID, Failing: true}}); err != nil {
		t.Fatal(err)
	}
	read := func() *driver.Target {
		t.Helper()
		got, err := b.Targets(b.ctx, nil, []driver.TargetKey{{Source: "webhook", Key: "k", OrganizationID: "org"}, {Source: "none"}})
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		return got[0]
	}
	failing := read()
	if failing.FailingSince == 0 {
		t.Error("failing_since is not set")
	}
	want := *target
	want.FailingSince, want.UpdatedAt = failing.FailingSince, failing.UpdatedAt
	equal(t, "target", *failing, want)
	if _, err := b.Record(b.ctx, nil, []driver.Touch{{TargetID: target.ID, HoldReason: "410"}}); err != nil {
		t.Fatal(err)
	}
	held := read()
	equal(t, "held", []any{held.State, held.Reason, held.Version, held.FailingSince}, []any{driver.TargetHeld, "410", int64(2), failing.FailingSince})
	b.put(t, target)
	resumed := read()
	equal(t, "resumed", []any{resumed.State, resumed.Reason, resumed.Version, resumed.FailingSince}, []any{driver.TargetActive, "", int64(3), int64(0)})
	if _, err := b.Record(b.ctx, nil, []driver.Touch{{TargetID: target.ID, Succeeded: true}}); err != nil {
		t.Fatal(err)
	}
	if read().LastSuccessAt == 0 {
		t.Error("last_success_at is not set")
	}
}

func testOutlook(t *testing.T, b *bench) {
	look := func() driver.Outlook {
		t.Helper()
		out, err := b.Outlook(b.ctx, driver.View{})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	equal(t, "empty", []any{len(look().Due), look().Gone}, []any{0, false})
	a, c, held := b.target(t, "a"), b.target(t, "c"), b.target(t, "h")
	rows := []*driver.Row{b.row(a), b.row(c), b.row(held)}
	b.insert(t, rows...)
	b.claim(t, "t", driver.Want{TargetID: c.ID, First: 1})
	b.record(t, driver.Outcome{ID: rows[1].ID, Token: "t", Status: driver.Pending, Attempts: 1, RetryIn: time.Hour})
	b.claim(t, "t", driver.Want{TargetID: a.ID, First: 1})
	b.insert(t, b.row(a))
	held.State = driver.TargetHeld
	b.put(t, held)
	out := look()
	equal(t, "due targets", len(out.Due), 2)
	equal(t, "due now", []any{out.Due[0].TargetID, out.Due[0].In <= 0}, []any{a.ID, true})
	if in := out.Due[1].In; out.Due[1].TargetID != c.ID || in < 59*time.Minute || in > time.Hour {
		t.Errorf("due later = %+v", out.Due[1])
	}
	claims := func(node string) driver.Claims {
		t.Helper()
		c, err := b.Claims(b.ctx, node, false)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := claims("node"); c.Some {
		t.Errorf("the claims of the asking process are orphaned: %+v", c)
	}
	if c := claims("other"); !c.Some || c.EndIn < 20*time.Second || c.EndIn > 25*time.Second {
		t.Errorf("claims of another process: %+v, want an end in about 25 s", c)
	}
	held.State = driver.TargetGone
	b.put(t, held)
	equal(t, "gone", look().Gone, true)
}

func testRollback(t *testing.T, b *bench) {
	a := b.target(t, "a")
	kept, lost := b.row(a), b.row(a)
	b.insert(t, kept)
	boom := errors.New("boom")
	err := b.tx.InTx(b.ctx, func(ctx context.Context) error {
		in := &bench{Store: b.Store, tx: b.tx, ctx: ctx}
		in.insert(t, lost)
		in.claim(t, "t", driver.Want{TargetID: a.ID, First: 9})
		in.record(t, driver.Outcome{ID: kept.ID, Token: "t", Status: driver.Success, Attempts: 1, ResponseCode: 200, Attempt: attempt(kept, 1)})
		a.State = driver.TargetHeld
		in.put(t, a)
		if _, err := in.Clean(ctx, driver.Clean{Keep: -time.Hour, Limit: 9}); err != nil {
			return err
		}
		return boom
	})
	if !errors.Is(err, boom) {
		t.Fatal(err)
	}
	if b.get(t, lost.ID) != nil {
		t.Error("a row of a rolled back transaction is there")
	}
	row := b.get(t, kept.ID)
	equal(t, "row", []any{row.Status, row.Attempts, row.ClaimToken}, []any{driver.Pending, 0, ""})
	equal(t, "claimable", len(b.claim(t, "t2", driver.Want{TargetID: a.ID, First: 9})), 1)
}
