package sqlite

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/objecthost/objecthost/storage"
)

func TestAFileKeepsItsPageSize(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	file, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.ExecContext(t.Context(), "PRAGMA page_size = 4096; CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (7)"); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := Open(t.Context(), path, storage.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var size, n int
	err = db.Write(t.Context()).QueryRowContext(t.Context(), "SELECT page_size, n FROM pragma_page_size, t").Scan(&size, &n)
	if err != nil || size != 4096 || n != 7 {
		t.Errorf("page size and row = %d, %d, %v, want 4096 and 7", size, n, err)
	}
}
