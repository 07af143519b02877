// Package sqlstore keeps what the plugin host stores for plugins: their values
// by key, and the events that wait for them.
package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/objecthost/objecthost/storage"
)

//go:embed migrations
var migrations embed.FS

// Migrations are the schema of the tables.
func Migrations() storage.Migrations {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return storage.Migrations{Name: "pluginhost", FS: files}
}

// Store keeps values and events. Its methods join the transaction of their
// context. It is safe for concurrent use.
type Store struct{ db *storage.DB }

// New returns a store on a database that holds [Migrations].
func New(db *storage.DB) *Store { return &Store{db} }

// bind spells the placeholders of a query as the dialect does.
func (s *Store) bind(query string) string {
	if s.db.Dialect() != storage.Postgres {
		return query
	}
	var b strings.Builder
	n := 0
	for _, c := range query {
		if c == '?' {
			n++
			b.WriteString("$" + strconv.Itoa(n))
		} else {
			b.WriteRune(c)
		}
	}
	return b.String()
}

// Value returns a plugin's value, and false when there is none.
func (s *Store) Value(ctx context.Context, plugin, key string) (value []byte, found bool, err error) {
	err = s.db.Read(ctx).QueryRowContext(ctx, s.bind("SELECT value FROM sys_plugin_value WHERE plugin = ? AND name = ?"), plugin, key).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, false, nil
	}
	return value, err == nil, err
}

// SetValue stores a plugin's value.
func (s *Store) SetValue(ctx context.Context, plugin, key string, value []byte) error {
	if value == nil {
		value = []byte{}
	}
	_, err := s.db.Write(ctx).ExecContext(ctx, s.bind("INSERT INTO sys_plugin_value (plugin, name, value, updated_at) VALUES (?, ?, ?, "+s.db.NowSQL()+") "+
		"ON CONFLICT (plugin, name) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at"), plugin, key, value)
	return err
}

// DeleteValue removes a plugin's value, if there is one.
func (s *Store) DeleteValue(ctx context.Context, plugin, key string) error {
	_, err := s.db.Write(ctx).ExecContext(ctx, s.bind("DELETE FROM sys_plugin_value WHERE plugin = ? AND name = ?"), plugin, key)
	return err
}

// Keys lists a plugin's keys with the prefix in byte order, after the given
// one.
func (s *Store) Keys(ctx context.Context, plugin, prefix, after string, limit int) (keys []string, err error) {
	query := "SELECT name FROM sys_plugin_value WHERE plugin = ? AND name > ? AND name >= ? AND substr(name, 1, ?) = ? ORDER BY name LIMIT " + strconv.Itoa(limit)
	rows, err := s.db.Read(ctx).QueryContext(ctx, s.bind(query), plugin, after, prefix, len([]rune(prefix)), prefix)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, rows.Err()
}

// Item is an event that waits.
type Item struct {
	ID    int64
	Event []byte
}

// Put adds events to the inbox of a plugin's handler.
func (s *Store) Put(ctx context.Context, plugin, handler string, events [][]byte) error {
	const rows = 200 // three parameters each, below every limit
	for len(events) > 0 {
		n := min(rows, len(events))
		args := make([]any, 0, 3*n)
		for _, e := range events[:n] {
			args = append(args, plugin, handler, e)
		}
		query := "INSERT INTO sys_plugin_inbox (plugin, handler, event) VALUES (?, ?, ?)" + strings.Repeat(", (?, ?, ?)", n-1)
		if _, err := s.db.Write(ctx).ExecContext(ctx, s.bind(query), args...); err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}

// Waiting returns the oldest events of a handler's inbox. Rows are removed once
// handled, so that one that was committed late, with a lower id, is found too.
func (s *Store) Waiting(ctx context.Context, plugin, handler string, limit int) (items []Item, err error) {
	rows, err := s.db.Read(ctx).QueryContext(ctx,
		s.bind("SELECT id, event FROM sys_plugin_inbox WHERE plugin = ? AND handler = ? ORDER BY id LIMIT "+strconv.Itoa(limit)), plugin, handler)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var i Item
		if err := rows.Scan(&i.ID, &i.Event); err != nil {
			return nil, err
		}
		items = append(items, i)
	}
	return items, rows.Err()
}

// Handled removes events from the inbox.
func (s *Store) Handled(ctx context.Context, items []Item) error {
	const rows = 500
	for len(items) > 0 {
		n := min(rows, len(items))
		args := make([]any, n)
		for i, item := range items[:n] {
			args[i] = item.ID
		}
		if _, err := s.db.Write(ctx).ExecContext(ctx, s.bind("DELETE FROM sys_plugin_inbox WHERE id IN (?"+strings.Repeat(", ?", n-1)+")"), args...); err != nil {
			return err
		}
		items = items[n:]
	}
	return nil
}

// Lease makes owner the one who hands over a handler's events, until the time
// has passed by the database's clock. It returns false while somebody else is.
func (s *Store) Lease(ctx context.Context, plugin, handler, owner string, d time.Duration) (bool, error) {
	now := s.db.NowSQL()
	result, err := s.db.Write(ctx).ExecContext(ctx, s.bind("INSERT INTO sys_plugin_handler (plugin, handler, owner, leased_until) VALUES (?, ?, ?, "+now+" + ?) "+
		"ON CONFLICT (plugin, handler) DO UPDATE SET owner = excluded.owner, leased_until = excluded.leased_until "+
		"WHERE sys_plugin_handler.owner = excluded.owner OR sys_plugin_handler.leased_until < "+now), plugin, handler, owner, d.Milliseconds())
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 1, err
}

// Release ends owner's lease, if it holds one.
func (s *Store) Release(ctx context.Context, plugin, handler, owner string) error {
	_, err := s.db.Write(ctx).ExecContext(ctx, s.bind("DELETE FROM sys_plugin_handler WHERE plugin = ? AND handler = ? AND owner = ?"), plugin, handler, owner)
	return err
}

// Forget removes what waits for a handler, and its lease.
func (s *Store) Forget(ctx context.Context, plugin, handler string) error {
	return s.db.InTx(ctx, func(ctx context.Context) error {
		for _, table := range []string{"sys_plugin_inbox", "sys_plugin_handler"} {
			if _, err := s.db.Write(ctx).ExecContext(ctx, s.bind("DELETE FROM "+table+" WHERE plugin = ? AND handler = ?"), plugin, handler); err != nil {
				return err
			}
		}
		return nil
	})
}

// Clear removes all values of a plugin.
func (s *Store) Clear(ctx context.Context, plugin string) error {
	_, err := s.db.Write(ctx).ExecContext(ctx, s.bind("DELETE FROM sys_plugin_value WHERE plugin = ?"), plugin)
	return err
}
