package sqlstore_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/objecthost/objecthost/pluginhost/sqlstore"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

func eachStore(t *testing.T, f func(t *testing.T, db *storage.DB, s *sqlstore.Store)) {
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		if err := db.Migrate(t.Context(), sqlstore.Migrations()); err != nil {
			t.Fatal(err)
		}
		f(t, db, sqlstore.New(db))
	})
}

func TestValues(t *testing.T) {
	eachStore(t, func(t *testing.T, _ *storage.DB, s *sqlstore.Store) {
		ctx := t.Context()
		for _, key := range []string{"b", "a/1", "a/2", "ä", "a%"} {
			if err := s.SetValue(ctx, "p", key, []byte("old")); err != nil {
				t.Fatal(err)
			}
			if err := s.SetValue(ctx, "p", key, []byte(key+"\x00")); err != nil {
				t.Fatal(err)
			}
		}
		if value, found, err := s.Value(ctx, "p", "ä"); string(value) != "ä\x00" || !found || err != nil {
			t.Errorf("value = %q, %t, %v", value, found, err)
		}
		if _, found, err := s.Value(ctx, "other", "b"); found || err != nil {
			t.Errorf("another plugin's value: %t, %v", found, err)
		}
		for _, tt := range []struct {
			prefix, after string
			want          []string
		}{{"", "", []string{"a%", "a/1", "a/2", "b", "ä"}}, {"a/", "", []string{"a/1", "a/2"}}, {"a/", "a/1", []string{"a/2"}}, {"ä", "", []string{"ä"}}} {
			got, err := s.Keys(ctx, "p", tt.prefix, tt.after, 10)
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("keys %q after %q: %v %s", tt.prefix, tt.after, err, diff)
			}
		}
		if err := s.DeleteValue(ctx, "p", "b"); err != nil {
			t.Fatal(err)
		}
		if _, found, _ := s.Value(ctx, "p", "b"); found {
			t.Error("a deleted value is there")
		}
	})
}

func TestInbox(t *testing.T) {
	eachStore(t, func(t *testing.T, _ *storage.DB, s *sqlstore.Store) {
		ctx := t.Context()
		var events [][]byte
		for i := range 450 {
			events = append(events, []byte(strconv.Itoa(i)))
		}
		if err := s.Put(ctx, "p", "h", events); err != nil {
			t.Fatal(err)
		}
		if err := s.Put(ctx, "p", "other", events[:1]); err != nil {
			t.Fatal(err)
		}
		for done := 0; done < 450; {
			items, err := s.Waiting(ctx, "p", "h", 200)
			if err != nil || len(items) == 0 {
				t.Fatalf("after %d: %d items, %v", done, len(items), err)
			}
			for i, item := range items {
				if string(item.Event) != strconv.Itoa(done+i) {
					t.Fatalf("item %d = %s", done+i, item.Event)
				}
			}
			if err := s.Handled(ctx, items); err != nil {
				t.Fatal(err)
			}
			done += len(items)
		}
		if items, err := s.Waiting(ctx, "p", "h", 1); len(items) != 0 || err != nil {
			t.Errorf("left: %d, %v", len(items), err)
		}
		if items, err := s.Waiting(ctx, "p", "other", 9); len(items) != 1 || err != nil {
			t.Errorf("other handler: %d, %v", len(items), err)
		}
	})
}

func TestLease(t *testing.T) {
	eachStore(t, func(t *testing.T, _ *storage.DB, s *sqlstore.Store) {
		lease := func(owner string, d time.Duration) bool {
			t.Helper()
			ok, err := s.Lease(t.Context(), "p", "h", owner, d)
			if err != nil {
				t.Fatal(err)
			}
			return ok
		}
		if !lease("a", time.Hour) || lease("b", time.Hour) || !lease("a", -time.Second) {
			t.Error("a lease is the owner's until it has passed")
		}
		if !lease("b", time.Hour) || lease("a", time.Hour) {
			t.Error("a lease that has passed is anybody's")
		}
		if err := s.Release(t.Context(), "p", "h", "a"); err != nil || lease("a", time.Hour) {
			t.Errorf("somebody else's release ended the lease: %v", err)
		}
		if err := s.Release(t.Context(), "p", "h", "b"); err != nil || !lease("a", time.Hour) {
			t.Errorf("release: %v", err)
		}
	})
}
