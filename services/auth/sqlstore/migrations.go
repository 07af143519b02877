package sqlstore

import (
	"io/fs"

	"github.com/objecthost/objecthost/storage"
)

// Migrations returns the numbered migrations of sys_api_key.
func Migrations() storage.Migrations {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return storage.Migrations{Name: "auth", FS: files}
}
