package seal

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/objecthost/objecthost/storage"
)

//go:embed migrations
var files embed.FS

// Migrations is the set with table sys_keyring. Ensure applies it.
func Migrations() storage.Migrations {
	sub, err := fs.Sub(files, "migrations")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return storage.Migrations{Name: "seal", FS: sub}
}

// WrongKeyError tells that the node's keyring isn't the database's.
type WrongKeyError struct {
	// Recorded is the key id that the database asks for.
	Recorded string
	// Given is the primary key id of the node's keyring. It equals Recorded
	// when two different keys have the same id.
	Given string
}

// Error implements error.
func (e *WrongKeyError) Error() string {
	if e.Recorded == e.Given {
		return fmt.Sprintf("seal: key %s of this node is not the database's key %s: they differ under the same id; use the key file of the node that made it",
			e.Given, e.Recorded)
	}
	return fmt.Sprintf("seal: the database's secrets are sealed with key %s, but this node has key %s; give it the same key file as the other nodes",
		e.Recorded, e.Given)
}

// MissingKeyError tells that the database has a key and the node has none.
type MissingKeyError struct {
	// Recorded is the key id that the database asks for.
	Recorded string
	// File is where the node looked; empty when no file was named.
	File string
}

// Error implements error.
func (e *MissingKeyError) Error() string {
	at := ""
	if e.File != "" {
		at = " at " + e.File
	}
	return fmt.Sprintf("seal: the database's secrets are sealed with key %s, and this node has no key%s; copy the key file from the node that made it",
		e.Recorded, at)
}

// Ensured is a keyring that belongs to its database.
type Ensured struct {
	Keyring *Keyring
	// Created tells that the key was made now.
	Created bool
	// File is the key file, when that is where the keyring is.
	File string
	// EveryNode tells that other nodes may share the database and need the
	// same key.
	EveryNode bool
}

// Notice is a sentence for the operator when a key was made; else empty.
func (e Ensured) Notice() string {
	switch {
	case !e.Created:
		return ""
	case e.EveryNode:
		return fmt.Sprintf("made key %s in %s: every node of this database needs a copy of that file; keep one apart from the database's backup",
			e.Keyring.KeyID(), e.File)
	default:
		return fmt.Sprintf("made key %s in %s: keep a copy of that file, the database's secrets can't be read without it",
			e.Keyring.KeyID(), e.File)
	}
}

// Ensure loads the keyring and checks it against the one that the database has
// recorded. On a database without a record it records the keyring, or makes
// one in the source's file when there is none. A promoted key is recorded as
// the one that every node needs from now on.
//
// Errors: *WrongKeyError, *MissingKeyError, ErrNoSource, ErrInvalidKeyring.
func Ensure(ctx context.Context, db *storage.DB, src Source) (Ensured, error) {
	if src.File == "" && db.File() != "" {
		src.File = db.File() + ".key"
	}
	if err := db.Migrate(ctx, Migrations()); err != nil {
		return Ensured{}, fmt.Errorf("seal: prepare sys_keyring: %w", err)
	}
	var out Ensured
	created := false
	err := db.InTx(storage.Named(ctx, "the check of the keyring"), func(ctx context.Context) error {
		rows, err := recorded(ctx, db)
		if err != nil {
			return err
		}
		k, err := Load(src)
		if err != nil {
			return err
		}
		if k == nil {
			if k, err = makeKey(src, rows); err != nil {
				return err
			}
			created = true
		}
		// created is kept when the transaction is tried again: the file was
		// made by this call then.
		out = Ensured{Keyring: k, Created: created, EveryNode: db.Dialect() == storage.Postgres, File: src.usedFile()}
		return bind(ctx, db, k, rows)
	})
	if err != nil {
		return Ensured{}, err
	}
	return out, nil
}

// usedFile is the file when neither Value nor Env takes its place.
func (src Source) usedFile() string {
	if _, place, err := src.read(); err != nil || place != "file "+src.File {
		return ""
	}
	return src.File
}

// record is a row of sys_keyring. The last one is the key every node needs.
type record struct{ keyID, check string }

// recorded reads the table and keeps other nodes from it until the transaction
// ends. SQLite's transactions exclude each other anyway.
func recorded(ctx context.Context, db *storage.DB) ([]record, error) {
	if db.Dialect() == storage.Postgres {
		if _, err := db.Write(ctx).ExecContext(ctx, "LOCK TABLE sys_keyring IN EXCLUSIVE MODE"); err != nil {
			return nil, fmt.Errorf("seal: lock sys_keyring: %w", err)
		}
	}
	rows, err := db.Write(ctx).QueryContext(ctx, "SELECT key_id, check_value FROM sys_keyring ORDER BY position")
	if err != nil {
		return nil, fmt.Errorf("seal: read sys_keyring: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var all []record
	for rows.Next() {
		var r record
		if err := rows.Scan(&r.keyID, &r.check); err != nil {
			return nil, fmt.Errorf("seal: read sys_keyring: %w", err)
		}
		all = append(all, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("seal: read sys_keyring: %w", err)
	}
	return all, nil
}

// makeKey makes the first key, in the source's file.
func makeKey(src Source, rows []record) (*Keyring, error) {
	if len(rows) > 0 {
		return nil, &MissingKeyError{Recorded: rows[len(rows)-1].keyID, File: src.File}
	}
	if src.File == "" {
		return nil, ErrNoSource
	}
	k, err := Generate()
	if err != nil {
		return nil, err
	}
	err = k.createFile(src.File)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("seal: %s appeared while a key was being made; start again: %w", src.File, err)
	}
	return k, err
}

// bind checks the keyring against the recorded keys and records its primary
// key when it is new.
func bind(ctx context.Context, db *storage.DB, k *Keyring, rows []record) error {
	ids := k.KeyIDs()
	known := false
	for i, r := range rows {
		known = known || r.keyID == k.KeyID()
		if !slices.Contains(ids, r.keyID) {
			if i == len(rows)-1 {
				return &WrongKeyError{Recorded: r.keyID, Given: k.KeyID()}
			}
			continue
		}
		one, err := k.only(r.keyID)
		if err != nil {
			return err
		}
		if _, err := one.Open(r.check, checkAAD(r.keyID)); err != nil {
			return &WrongKeyError{Recorded: r.keyID, Given: r.keyID}
		}
	}
	if known {
		return nil
	}
	check, err := k.Seal([]byte("objecthost"), checkAAD(k.KeyID()))
	if err != nil {
		return err
	}
	_, err = db.Write(ctx).ExecContext(ctx, `INSERT INTO sys_keyring (key_id, position, check_value, created_at)
		VALUES ($1, $2, $3, `+db.NowSQL()+`)`, k.KeyID(), len(rows)+1, check)
	if err != nil {
		return fmt.Errorf("seal: record the key: %w", err)
	}
	return nil
}

func checkAAD(keyID string) []byte { return []byte("sys_keyring:" + keyID) }
