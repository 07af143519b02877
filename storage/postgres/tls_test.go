package postgres_test

import (
	"net/url"
	"testing"

	"github.com/objecthost/objecthost/storage"
	"github.com/objecthost/objecthost/storage/postgres"
	"github.com/objecthost/objecthost/storage/storagetest"
)

// TestConnectionsOnOneMachineAreNotEncrypted looks at what the server says of the
// connection, also where it takes no encrypted ones.
func TestConnectionsOnOneMachineAreNotEncrypted(t *testing.T) {
	var offered bool
	db := storagetest.Open(t, storagetest.Postgres(t), storage.Config{})
	if err := db.Read(t.Context()).QueryRowContext(t.Context(), "SELECT current_setting('ssl')::boolean").Scan(&offered); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[string]bool{"": false, "require": true, "prefer": true, "disable": false} {
		t.Run("sslmode="+mode, func(t *testing.T) {
			t.Setenv("PGSSLMODE", "")
			u, err := url.Parse(storagetest.Postgres(t))
			if err != nil {
				t.Fatal(err)
			}
			q := u.Query()
			q.Del("sslmode")
			if mode != "" {
				q.Set("sslmode", mode)
			}
			u.RawQuery = q.Encode()
			db, err := postgres.Open(t.Context(), u.String(), storage.Config{})
			if mode == "require" && !offered {
				if err == nil {
					t.Error("connected without the encryption that was required")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			var encrypted bool
			err = db.Read(t.Context()).QueryRowContext(t.Context(), "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").Scan(&encrypted)
			if err != nil || encrypted != (want && offered) {
				t.Errorf("encrypted = %v, %v, want %v", encrypted, err, want)
			}
		})
	}
}
