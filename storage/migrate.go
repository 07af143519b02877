package storage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Migrations is one package's set of migrations. FS holds a folder per
// dialect, postgres and sqlite, with files NNNN_verb_noun.tx.up.sql and, for
// each, NNNN_verb_noun.tx.down.sql. The number orders the files and is unique.
// A file that was released is never changed again.
//
// An up file whose first line is "-- additive" says that programs which don't
// know it can go on: it makes tables, indexes that aren't unique, or columns
// that may be left out. Then hosts of the version before start and work beside
// newer ones, as they do in a rolling upgrade. All other files are breaking: once
// one is applied, programs that don't know it refuse to start.
type Migrations struct {
	// Name names the set in the database, the owning package's name.
	Name string
	FS   fs.FS
}

// SchemaTooNewError tells that the database has a breaking migration that this
// program doesn't know: a newer version has run on it.
type SchemaTooNewError struct {
	Set  string
	ID   int
	Name string
}

// Error implements error.
func (e *SchemaTooNewError) Error() string {
	return fmt.Sprintf("storage: the database has migration %s/%04d_%s, which this program doesn't know; use a newer version of it",
		e.Set, e.ID, e.Name)
}

// ChecksumError tells that the file of an applied migration was changed.
type ChecksumError struct {
	Set              string
	ID               int
	Name             string
	Applied, Present string
}

// Error implements error.
func (e *ChecksumError) Error() string {
	return fmt.Sprintf("storage: migration %s/%04d_%s was changed after it was applied (checksum %.12s, now %.12s)",
		e.Set, e.ID, e.Name, e.Applied, e.Present)
}

// MigrationError tells which migration failed. It has left nothing behind.
type MigrationError struct {
	Set  string
	ID   int
	Name string
	Err  error
}

// Error implements error.
func (e *MigrationError) Error() string {
	return fmt.Sprintf("storage: migration %s/%04d_%s: %v", e.Set, e.ID, e.Name, e.Err)
}

// Unwrap returns what the database said.
func (e *MigrationError) Unwrap() error { return e.Err }

// migration is one file pair.
type migration struct {
	id       int
	name     string
	up, down string
	checksum string
	additive bool
}

var migrationFile = regexp.MustCompile(`^(\d{4})_([a-z0-9]+(?:_[a-z0-9]+)*)\.tx\.(up|down)\.sql$`)

// load reads the set's files for one dialect, ordered by id.
func (m Migrations) load(dialect Dialect) ([]migration, error) {
	if m.Name == "" {
		return nil, fmt.Errorf("storage: a set of migrations has no name")
	}
	entries, err := fs.ReadDir(m.FS, string(dialect))
	if err != nil {
		return nil, fmt.Errorf("storage: read migrations of %s: %w", m.Name, err)
	}
	byID := map[int]*migration{}
	for _, entry := range entries {
		parts := migrationFile.FindStringSubmatch(entry.Name())
		if parts == nil {
			return nil, fmt.Errorf("storage: %s: %s is not named NNNN_verb_noun.tx.up.sql or .tx.down.sql", m.Name, entry.Name())
		}
		text, err := fs.ReadFile(m.FS, path.Join(string(dialect), entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("storage: read migrations of %s: %w", m.Name, err)
		}
		id, _ := strconv.Atoi(parts[1])
		file := byID[id]
		if file == nil {
			file = &migration{id: id, name: parts[2]}
			byID[id] = file
		}
		if file.name != parts[2] {
			return nil, fmt.Errorf("storage: %s has two migrations %04d: %s and %s", m.Name, id, file.name, parts[2])
		}
		if parts[3] == "up" {
			file.up, file.checksum = string(text), checksum(text)
			if file.additive, err = additive(file.up); err != nil {
				return nil, fmt.Errorf("storage: %s: %s: %w", m.Name, entry.Name(), err)
			}
		} else {
			file.down = string(text)
		}
	}
	var files []migration
	for _, file := range byID {
		if strings.TrimSpace(file.up) == "" || strings.TrimSpace(file.down) == "" {
			return nil, fmt.Errorf("storage: %s/%04d_%s needs both an up and a down file with statements", m.Name, file.id, file.name)
		}
		files = append(files, *file)
	}
	slices.SortFunc(files, func(a, b migration) int { return a.id - b.id })
	return files, nil
}

var (
	// subtracts finds what no older program can go on with.
	subtracts  = regexp.MustCompile(`(?i)\b(DROP|RENAME|TRUNCATE|DELETE|UPDATE|ALTER\s+COLUMN|SET\s+NOT\s+NULL|ADD\s+CONSTRAINT|UNIQUE\s+INDEX)\b`)
	addsColumn = regexp.MustCompile(`(?is)\bADD\s+(?:COLUMN\s+)?[^;,]*\bNOT\s+NULL\b[^;,]*`)
	hasDefault = regexp.MustCompile(`(?i)\bDEFAULT\b`)
	comment    = regexp.MustCompile(`--[^\n]*`)
)

// additive reads the mark of an up file, and refuses one that can't be true.
func additive(up string) (bool, error) {
	first, _, _ := strings.Cut(strings.ReplaceAll(up, "\r\n", "\n"), "\n")
	if strings.TrimSpace(first) != "-- additive" {
		return false, nil
	}
	statements := comment.ReplaceAllString(up, "")
	if found := subtracts.FindString(statements); found != "" {
		return false, fmt.Errorf("is marked as additive but has %s", strings.ToUpper(strings.Join(strings.Fields(found), " ")))
	}
	for _, clause := range addsColumn.FindAllString(statements, -1) {
		if !hasDefault.MatchString(clause) {
			return false, fmt.Errorf("is marked as additive but adds a column that older programs would have to fill")
		}
	}
	return true, nil
}

// checksum is the file's SHA-256; line ends don't count, which a checkout on
// Windows changes.
func checksum(text []byte) string {
	sum := sha256.Sum256([]byte(strings.ReplaceAll(string(text), "\r\n", "\n")))
	return hex.EncodeToString(sum[:])
}

// applied is a row of sys_migration.
type applied struct {
	id             int
	name, checksum string
	additive       bool
}

// Migrate applies the migrations that the database doesn't have yet, set by
// set and in the order of their numbers. Each file is one transaction in which
// it is also marked as applied, so a migration is there as a whole or not at
// all. Hosts that start at the same time wait for each other.
//
// Before anything is applied, all sets are checked: an applied breaking migration
// that a set doesn't have gives a *SchemaTooNewError, one whose file has changed a
// *ChecksumError. A statement that fails gives a *MigrationError.
func (db *DB) Migrate(ctx context.Context, sets ...Migrations) error {
	ctx = Named(ctx, "the migration of the database")
	pending := make([][]migration, len(sets))
	err := db.InTx(ctx, func(ctx context.Context) error {
		if err := db.prepareMigrations(ctx); err != nil {
			return err
		}
		for i, set := range sets {
			files, err := set.load(db.Dialect())
			if err != nil {
				return err
			}
			if pending[i], err = db.pending(ctx, set.Name, files, false); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, set := range sets {
		for _, file := range pending[i] {
			if err := db.applyUp(ctx, set.Name, file); err != nil {
				return err
			}
		}
	}
	return nil
}

// prepareMigrations takes the lock and makes sure that the table exists.
func (db *DB) prepareMigrations(ctx context.Context) error {
	if err := db.driver.LockSchema(ctx, db.Write(ctx)); err != nil {
		return fmt.Errorf("storage: lock the schema: %w", err)
	}
	text := "TEXT"
	if db.Dialect() == Postgres {
		text = `TEXT COLLATE "C"`
	}
	_, err := db.Write(ctx).ExecContext(ctx, `CREATE TABLE IF NOT EXISTS sys_migration (
		set_name `+text+` NOT NULL,
		id BIGINT NOT NULL,
		name `+text+` NOT NULL,
		checksum `+text+` NOT NULL,
		applied_at BIGINT NOT NULL,
		additive BIGINT NOT NULL DEFAULT 0,
		PRIMARY KEY (set_name, id))`)
	if err != nil {
		return fmt.Errorf("storage: create sys_migration: %w", err)
	}
	return db.upgradeMigrations(ctx)
}

// upgradeMigrations adds the column that tables from before it lack.
func (db *DB) upgradeMigrations(ctx context.Context) error {
	query := `SELECT COUNT(*) FROM pragma_table_info('sys_migration') WHERE name = 'additive'`
	if db.Dialect() == Postgres {
		query = `SELECT COUNT(*) FROM information_schema.columns
			WHERE table_schema = current_schema() AND table_name = 'sys_migration' AND column_name = 'additive'`
	}
	var n int
	err := db.Write(ctx).QueryRowContext(ctx, query).Scan(&n)
	if err == nil && n == 0 {
		_, err = db.Write(ctx).ExecContext(ctx, `ALTER TABLE sys_migration ADD COLUMN additive BIGINT NOT NULL DEFAULT 0`)
	}
	if err != nil {
		return fmt.Errorf("storage: upgrade sys_migration: %w", err)
	}
	return nil
}

// pending returns the files that aren't applied after checking those that are.
// Applied ones that the files lack have to be additive, and with strict there may
// be none.
func (db *DB) pending(ctx context.Context, set string, files []migration, strict bool) ([]migration, error) {
	have, err := db.appliedMigrations(ctx, set)
	if err != nil {
		return nil, err
	}
	known := map[int]migration{}
	for _, file := range files {
		known[file.id] = file
	}
	done := map[int]bool{}
	for _, row := range have {
		file, ok := known[row.id]
		if !ok && row.additive && !strict {
			continue
		}
		if !ok || file.name != row.name {
			return nil, &SchemaTooNewError{Set: set, ID: row.id, Name: row.name}
		}
		if file.checksum != row.checksum {
			return nil, &ChecksumError{Set: set, ID: row.id, Name: row.name, Applied: row.checksum, Present: file.checksum}
		}
		done[row.id] = true
	}
	return slices.DeleteFunc(slices.Clone(files), func(f migration) bool { return done[f.id] }), nil
}

func (db *DB) appliedMigrations(ctx context.Context, set string) (have []applied, err error) {
	rows, err := db.Write(ctx).QueryContext(ctx,
		"SELECT id, name, checksum, additive FROM sys_migration WHERE set_name = $1 ORDER BY id", set)
	if err != nil {
		return nil, fmt.Errorf("storage: read sys_migration: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var a applied
		var additive int64
		if err := rows.Scan(&a.id, &a.name, &a.checksum, &additive); err != nil {
			return nil, fmt.Errorf("storage: read sys_migration: %w", err)
		}
		a.additive = additive != 0
		have = append(have, a)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("storage: read sys_migration: %w", err)
	}
	return have, nil
}

// applyUp applies one file unless another host was faster.
func (db *DB) applyUp(ctx context.Context, set string, file migration) error {
	return db.InTx(ctx, func(ctx context.Context) error {
		if err := db.prepareMigrations(ctx); err != nil {
			return err
		}
		have, err := db.appliedMigrations(ctx, set)
		if err != nil || slices.ContainsFunc(have, func(a applied) bool { return a.id == file.id }) {
			return err
		}
		if err := db.driver.ExecScript(ctx, db.Write(ctx), file.up); err != nil {
			return &MigrationError{Set: set, ID: file.id, Name: file.name, Err: err}
		}
		additive := 0
		if file.additive {
			additive = 1
		}
		_, err = db.Write(ctx).ExecContext(ctx, `INSERT INTO sys_migration (set_name, id, name, checksum, applied_at, additive)
			VALUES ($1, $2, $3, $4, `+db.NowSQL()+`, $5)`, set, file.id, file.name, file.checksum, additive)
		if err != nil {
			return fmt.Errorf("storage: mark %s/%04d as applied: %w", set, file.id, err)
		}
		return nil
	})
}

// MigrateDown takes back the applied migrations of a set whose number is above
// to, the last one first; with 0 all of them. Each file is one transaction.
func (db *DB) MigrateDown(ctx context.Context, set Migrations, to int) error {
	files, err := set.load(db.Dialect())
	if err != nil {
		return err
	}
	ctx = Named(ctx, "the migration of the database")
	for _, file := range slices.Backward(files) {
		if file.id <= to {
			break
		}
		err := db.InTx(ctx, func(ctx context.Context) error {
			if err := db.prepareMigrations(ctx); err != nil {
				return err
			}
			pending, err := db.pending(ctx, set.Name, files, true)
			if err != nil || slices.ContainsFunc(pending, func(m migration) bool { return m.id == file.id }) {
				return err
			}
			if err := db.driver.ExecScript(ctx, db.Write(ctx), file.down); err != nil {
				return &MigrationError{Set: set.Name, ID: file.id, Name: file.name, Err: err}
			}
			_, err = db.Write(ctx).ExecContext(ctx,
				"DELETE FROM sys_migration WHERE set_name = $1 AND id = $2", set.Name, file.id)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
