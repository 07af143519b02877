package sqlstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/objecthost/objecthost/plugins/webhooks/sqlstore"
	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// columns of sys_webhook as the data service makes them, those that are read.
const columns = `id, organization_id, name, object_name, triggers, url, method, active, paused, definition_json,
	signing_secret, headers_secret, auth_secret, managed_by, customized, disabled_reason, failing_since, last_success_at`

func setup(t *testing.T, db *storage.DB) *sqlstore.Store {
	t.Helper()
	if err := db.Migrate(t.Context(), sqlstore.Migrations()); err != nil {
		t.Fatal(err)
	}
	exec(t, db, `CREATE TABLE sys_webhook (id TEXT PRIMARY KEY, organization_id TEXT, name TEXT, object_name TEXT, triggers TEXT,
		url TEXT, method TEXT, active BOOLEAN, paused BOOLEAN, definition_json TEXT, signing_secret TEXT, headers_secret TEXT,
		auth_secret TEXT, managed_by TEXT, customized BOOLEAN, disabled_reason TEXT, failing_since BIGINT, last_success_at BIGINT)`)
	return sqlstore.New(db)
}

func exec(t *testing.T, db *storage.DB, query string) {
	t.Helper()
	if _, err := db.Write(t.Context()).ExecContext(t.Context(), query); err != nil {
		t.Fatal(err)
	}
}

func bump(t *testing.T, s *sqlstore.Store, db *storage.DB, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := db.InTx(t.Context(), func(ctx context.Context) error { return s.Bump(ctx, id) }); err != nil {
			t.Fatal(err)
		}
	}
}

func changed(t *testing.T, s *sqlstore.Store, since int64) ([]string, bool) {
	t.Helper()
	ids, known, err := s.ChangedSince(t.Context(), since)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ids)
	return ids, known
}

func TestVersionsAndChanges(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		s := setup(t, db)
		if _, known := changed(t, s, 0); known {
			t.Error("changes are known before the first one")
		}
		bump(t, s, db, "a", "b", "a")
		undone := errors.New("undone")
		err := db.InTx(t.Context(), func(ctx context.Context) error { return errors.Join(s.Bump(ctx, "c"), undone) })
		if !errors.Is(err, undone) {
			t.Fatal(err)
		}
		if version, err := s.Version(t.Context()); err != nil || version != 3 {
			t.Errorf("version %d, %v", version, err)
		}
		for since, want := range map[int64][]string{0: {"a", "b"}, 1: {"a", "b"}, 2: {"a"}, 3: nil} {
			if ids, known := changed(t, s, since); !known || !slices.Equal(ids, want) {
				t.Errorf("since %d: %v, %v, want %v", since, ids, known, want)
			}
		}
		exec(t, db, `UPDATE sys_webhook_version SET version = 20000`)
		bump(t, s, db, "d")
		if ids, known := changed(t, s, 20000); !known || !slices.Equal(ids, []string{"d"}) {
			t.Errorf("after trimming: %v, %v", ids, known)
		}
		if _, known := changed(t, s, 3); known {
			t.Error("trimmed changes count as known")
		}
	})
}

func TestRows(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		s := setup(t, db)
		exec(t, db, `INSERT INTO sys_webhook (`+columns+`) VALUES
			('a', NULL, 'w', NULL, NULL, 'u', NULL, TRUE, FALSE, '{}', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
			('b', 'o1', 'w', 'account', '["create"]', 'v', 'put', FALSE, TRUE, '{"secret":"x"}', 's', 'h', 'c', 'package', TRUE, 'gone', 5, 6)`)
		a := sqlstore.Webhook{ID: "a", Name: "w", URL: "u", Method: "post", Active: true, Definition: "{}"}
		b := sqlstore.Webhook{
			ID: "b", OrganizationID: "o1", Name: "w", ObjectName: "account", Triggers: `["create"]`, URL: "v", Method: "put", Paused: true,
			Definition: `{"secret":"x"}`, Secret: "s", Headers: "h", Auth: "c", ManagedBy: "package", Customized: true,
			DisabledReason: "gone", FailingSince: 5, LastSuccessAt: 6,
		}
		rows := func(got []sqlstore.Webhook, err error) []sqlstore.Webhook {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		ctx := t.Context()
		if got := rows(s.All(ctx)); !slices.Equal(got, []sqlstore.Webhook{a}) {
			t.Errorf("All: %+v", got)
		}
		if got := rows(s.Some(ctx, []string{"b", "nope", "a"})); !slices.Equal(got, []sqlstore.Webhook{a, b}) {
			t.Errorf("Some: %+v", got)
		}
		many := make([]string, 1200)
		for i := range many {
			many[i] = "nope"
		}
		if got := rows(s.Some(ctx, append(many, "b"))); !slices.Equal(got, []sqlstore.Webhook{b}) {
			t.Errorf("Some of many: %+v", got)
		}
		if got := rows(s.Mentioning(ctx, `"headers"`, `"secret"`)); !slices.Equal(got, []sqlstore.Webhook{b}) {
			t.Errorf("Mentioning: %+v", got)
		}
		for org, want := range map[string]*sqlstore.Webhook{"": &a, "o1": &b, "o2": nil} {
			got, err := s.Named(ctx, org, "w")
			if err != nil || (got == nil) != (want == nil) || got != nil && *got != *want {
				t.Errorf("Named in %q: %+v, %v", org, got, err)
			}
		}
		err := db.InTx(ctx, func(ctx context.Context) error {
			if got, err := s.Lock(ctx, "b"); err != nil || *got != b {
				t.Errorf("Lock: %+v, %v", got, err)
			}
			got, err := s.Lock(ctx, "nope")
			if got != nil {
				t.Errorf("Lock of none: %+v", got)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Mark(ctx, "b", sqlstore.Marks{ResetStreak: true}); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get(ctx, "b"); err != nil || got.FailingSince != 0 || got.DisabledReason != "gone" {
			t.Errorf("after a reset: %+v, %v", got, err)
		}
		if err := errors.Join(s.Mark(ctx, "b", sqlstore.Marks{SwitchedOn: true}), s.Mark(ctx, "a", sqlstore.Marks{Customized: true}),
			s.SetHealth(ctx, "a", 1796071586602, 0), s.Mark(ctx, "a", sqlstore.Marks{})); err != nil {
			t.Fatal(err)
		}
		a.Customized, a.FailingSince = true, 1796071586602
		if got := rows(s.Some(ctx, []string{"a", "b"})); got[0] != a || got[1].DisabledReason != "" {
			t.Errorf("after marks: %+v", got)
		}
	})
}
