package storage_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/storagetest"
)

const additiveUp = "-- additive\nALTER TABLE n ADD COLUMN w BIGINT;\nALTER TABLE n ADD COLUMN z BIGINT NOT NULL DEFAULT 1;"

// A program that doesn't know an additive migration goes on, one that doesn't
// know a breaking one refuses, also when an additive one lies between.
func TestOlderProgramsReadAdditiveSchemas(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		older, newer := set(up1, down1), set(up1, down1, additiveUp, "ALTER TABLE n DROP COLUMN w;")
		for _, step := range []storage.Migrations{older, newer, older, newer, older} {
			if err := db.Migrate(t.Context(), step); err != nil {
				t.Fatal(err)
			}
		}
		exec(t, t.Context(), db, `INSERT INTO n (k, v) VALUES ('from the older one', 2)`)
		// Taking back needs a program that knows what to take back.
		var tooNew *storage.SchemaTooNewError
		if err := db.MigrateDown(t.Context(), older, 0); !errors.As(err, &tooNew) || tooNew.ID != 2 {
			t.Errorf("MigrateDown = %v, want a SchemaTooNewError of 2", err)
		}
		breaking := set(up1, down1, additiveUp, "ALTER TABLE n DROP COLUMN w;", "ALTER TABLE n DROP COLUMN v;", "ALTER TABLE n ADD COLUMN v BIGINT;")
		if err := db.Migrate(t.Context(), breaking); err != nil {
			t.Fatal(err)
		}
		for _, old := range []storage.Migrations{older, newer} {
			err := db.Migrate(t.Context(), old)
			if !errors.As(err, &tooNew) || tooNew.ID != 3 || !strings.Contains(err.Error(), "use a newer version") {
				t.Errorf("Migrate = %v, want a SchemaTooNewError of 3", err)
			}
		}
	})
}

// A database from before the mark counts all its migrations as breaking.
func TestMigrationsFromBeforeTheMark(t *testing.T) {
	t.Parallel()
	storagetest.EachDialect(t, func(t *testing.T, db *storage.DB) {
		newer := set(up1, down1, additiveUp, "ALTER TABLE n DROP COLUMN w;")
		if err := db.Migrate(t.Context(), newer); err != nil {
			t.Fatal(err)
		}
		exec(t, t.Context(), db, `ALTER TABLE sys_migration DROP COLUMN additive`)
		if err := db.Migrate(t.Context(), newer); err != nil {
			t.Fatal(err)
		}
		var tooNew *storage.SchemaTooNewError
		if err := db.Migrate(t.Context(), set(up1, down1)); !errors.As(err, &tooNew) {
			t.Errorf("Migrate = %v, want a SchemaTooNewError", err)
		}
	})
}

func TestMarksThatCannotBeTrue(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.SQLite(t), storage.Config{})
	for up, want := range map[string]string{
		"-- additive\nALTER TABLE n DROP COLUMN v;":                                     "has DROP",
		"-- additive\nALTER TABLE n RENAME COLUMN v TO w;":                              "has RENAME",
		"-- additive\nCREATE UNIQUE INDEX i ON n (v);":                                  "has UNIQUE INDEX",
		"-- additive\nALTER TABLE n\n  ALTER  COLUMN v SET NOT NULL;":                   "has ALTER COLUMN",
		"-- additive\nUPDATE n SET v = 1;":                                              "has UPDATE",
		"-- additive\nALTER TABLE n ADD COLUMN w BIGINT NOT NULL;":                      "would have to fill",
		"-- additive\nALTER TABLE n ADD COLUMN w BIGINT NOT NULL, ADD x INT DEFAULT 1;": "would have to fill",
	} {
		if err := db.Migrate(t.Context(), set(up, "SELECT 1;")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", up, err, want)
		}
	}
	// Comments and other statements are no reason.
	ok := "-- additive\n-- DROP nothing\nCREATE TABLE fine (a BIGINT NOT NULL, b BIGINT);\nCREATE INDEX fine_b ON fine (b);"
	if err := db.Migrate(t.Context(), set(ok, "DROP TABLE fine;")); err != nil {
		t.Error(err)
	}
}
