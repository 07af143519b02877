// Package drivertest is the suite that every store of API keys passes.
package drivertest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/objecthost/objecthost/services/auth/driver"
	"github.com/objecthost/objecthost/storage"
)

// Open returns an empty, migrated store and what runs transactions on it.
type Open func(t *testing.T) (driver.Store, storage.Transactor)

var start = time.Date(2026, 3, 1, 12, 0, 0, 123_000_000, time.UTC)

// Run runs the suite.
func Run(t *testing.T, open Open) {
	for name, test := range map[string]func(*testing.T, driver.Store, storage.Transactor){
		"stores every column":            testColumns,
		"not found":                      testNotFound,
		"lists one organization":         testList,
		"revokes once":                   testRevoke,
		"revokes in the organization":    testRevokeOrganization,
		"touches forwards only":          testTouch,
		"first key only when empty":      testFirst,
		"one first key of many hosts":    testFirstRace,
		"writes roll back with their tx": testRollback,
	} {
		t.Run(name, func(t *testing.T) {
			store, tx := open(t)
			test(t, store, tx)
		})
	}
}

func sample(id string) driver.Key {
	return driver.Key{
		ID: id, Name: "Näme <&>", Prefix: "osk_" + id, Hash: "hash-" + id,
		Scopes: []string{"data:read", "object:account:write"}, CreatedAt: start,
	}
}

func insert(t *testing.T, store driver.Store, keys ...driver.Key) {
	t.Helper()
	for _, k := range keys {
		if err := store.Insert(t.Context(), k); err != nil {
			t.Fatalf("Insert(%s) = %v", k.ID, err)
		}
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func byID(t *testing.T, store driver.Store, id string) driver.Key {
	t.Helper()
	k, err := store.ByID(t.Context(), id)
	if err != nil {
		t.Fatalf("ByID(%s) = %v", id, err)
	}
	return k
}

func testColumns(t *testing.T, store driver.Store, _ storage.Transactor) {
	bare, full := sample("bare"), sample("full")
	full.UserID, full.OrganizationID = "u1", "o1"
	full.ExpiresAt, full.LastUsedAt, full.RevokedAt = start.Add(time.Hour), start.Add(time.Second), start.Add(time.Minute)
	insert(t, store, bare, full)
	for _, want := range []driver.Key{bare, full} {
		same(t, "ByID", byID(t, store, want.ID), want)
		got, err := store.ByHash(t.Context(), want.Hash)
		if err != nil {
			t.Fatalf("ByHash = %v", err)
		}
		same(t, "ByHash", got, want)
	}
}

func testNotFound(t *testing.T, store driver.Store, _ storage.Transactor) {
	_, byHash := store.ByHash(t.Context(), "nope")
	_, byID := store.ByID(t.Context(), "nope")
	_, revoked := store.Revoke(t.Context(), "", "nope", start)
	for name, err := range map[string]error{"ByHash": byHash, "ByID": byID, "Revoke": revoked} {
		if !errors.Is(err, driver.ErrNotFound) {
			t.Errorf("%s = %v, want ErrNotFound", name, err)
		}
	}
	keys, err := store.List(t.Context(), "")
	if err != nil || len(keys) != 0 {
		t.Errorf("List = %v, %v, want none", keys, err)
	}
}

func testList(t *testing.T, store driver.Store, _ storage.Transactor) {
	b, a, late, other := sample("b"), sample("a"), sample("late"), sample("other")
	late.CreatedAt = start.Add(time.Second)
	other.OrganizationID = "o1"
	insert(t, store, late, b, other, a)
	for org, want := range map[string][]driver.Key{"": {a, b, late}, "o1": {other}, "o2": {}} {
		got, err := store.List(t.Context(), org)
		if err != nil {
			t.Fatalf("List(%q) = %v", org, err)
		}
		same(t, "List("+org+")", got, want)
	}
}

func testRevoke(t *testing.T, store driver.Store, _ storage.Transactor) {
	want := sample("k")
	insert(t, store, want, sample("other"))
	want.RevokedAt = start.Add(time.Minute)
	for _, at := range []time.Time{want.RevokedAt, start.Add(time.Hour)} {
		got, err := store.Revoke(t.Context(), "", "k", at)
		if err != nil {
			t.Fatalf("Revoke = %v", err)
		}
		same(t, "Revoke", got, want)
	}
	same(t, "stored", byID(t, store, "k"), want)
	same(t, "other", byID(t, store, "other"), sample("other"))
}

func testRevokeOrganization(t *testing.T, store driver.Store, _ storage.Transactor) {
	foreign := sample("k")
	foreign.OrganizationID = "o1"
	insert(t, store, foreign)
	for _, org := range []string{"", "o2"} {
		if _, err := store.Revoke(t.Context(), org, "k", start); !errors.Is(err, driver.ErrNotFound) {
			t.Errorf("Revoke from %q = %v, want ErrNotFound", org, err)
		}
	}
	same(t, "stored", byID(t, store, "k"), foreign)
}

func testTouch(t *testing.T, store driver.Store, _ storage.Transactor) {
	used := sample("used")
	used.LastUsedAt = start.Add(time.Hour)
	insert(t, store, used, sample("fresh"))
	later := start.Add(2 * time.Minute)
	err := store.Touch(t.Context(), map[string]time.Time{"used": later, "fresh": later, "gone": later})
	if err != nil {
		t.Fatalf("Touch = %v", err)
	}
	fresh := sample("fresh")
	fresh.LastUsedAt = later
	same(t, "earlier time", byID(t, store, "used"), used)
	same(t, "first time", byID(t, store, "fresh"), fresh)
}

func testFirst(t *testing.T, store driver.Store, _ storage.Transactor) {
	made, err := store.InsertFirst(t.Context(), sample("first"))
	if err != nil || !made {
		t.Fatalf("InsertFirst = %v, %v, want true", made, err)
	}
	if _, err := store.Revoke(t.Context(), "", "first", start); err != nil {
		t.Fatal(err)
	}
	made, err = store.InsertFirst(t.Context(), sample("second"))
	if err != nil || made {
		t.Errorf("InsertFirst beside a revoked key = %v, %v, want false", made, err)
	}
}

func testFirstRace(t *testing.T, store driver.Store, _ storage.Transactor) {
	const hosts = 8
	var (
		wg    sync.WaitGroup
		begin = make(chan struct{})
		wins  = make(chan string, hosts)
	)
	for i := range hosts {
		wg.Go(func() {
			<-begin
			id := string(rune('a' + i))
			made, err := store.InsertFirst(t.Context(), sample(id))
			if err != nil {
				t.Errorf("InsertFirst(%s) = %v", id, err)
			}
			if made {
				wins <- id
			}
		})
	}
	close(begin)
	wg.Wait()
	close(wins)
	keys, err := store.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if len(wins) != 1 || len(keys) != 1 {
		t.Fatalf("%d hosts made a key, %d are stored, want 1 and 1", len(wins), len(keys))
	}
	if winner := <-wins; keys[0].ID != winner {
		t.Errorf("stored %s, but %s was told it made the key", keys[0].ID, winner)
	}
}

func testRollback(t *testing.T, store driver.Store, tx storage.Transactor) {
	insert(t, store, sample("old"))
	undo := errors.New("undo")
	err := tx.InTx(t.Context(), func(ctx context.Context) error {
		if err := store.Insert(ctx, sample("new")); err != nil {
			return err
		}
		if _, err := store.Revoke(ctx, "", "old", start); err != nil {
			return err
		}
		if k, err := store.ByID(ctx, "new"); err != nil || k.ID != "new" {
			t.Errorf("inside the transaction ByID = %v, %v", k.ID, err)
		}
		return undo
	})
	if !errors.Is(err, undo) {
		t.Fatalf("InTx = %v", err)
	}
	if _, err := store.ByID(t.Context(), "new"); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("after rollback ByID(new) = %v, want ErrNotFound", err)
	}
	same(t, "old", byID(t, store, "old"), sample("old"))
}
