// Package sqlstore keeps flows, runs, schedules and the notes about record
// changes, on SQLite and PostgreSQL.
package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"io/fs"

	"github.com/objecthost/objecthost/storage"
)

//go:embed migrations
var files embed.FS

// Migrations creates the tables of this package.
func Migrations() storage.Migrations {
	sub, err := fs.Sub(files, "migrations")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return storage.Migrations{Name: "automation", FS: sub}
}

// ErrNotFound is returned for a row that is not there.
var ErrNotFound = errors.New("automation store: not found")

// Store reads and writes in the transaction of its context where there is one.
// It returns the database's errors as they are.
type Store struct{ db *storage.DB }

// New returns a store on db, on which [Migrations] have run.
func New(db *storage.DB) *Store { return &Store{db: db} }

// Now is the database's clock in milliseconds since 1970.
func (s *Store) Now(ctx context.Context) (int64, error) { return s.db.NowMillis(ctx) }

func found(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNotFound
	}
	return err
}

func affected(result sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}
