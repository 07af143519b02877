package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/objecthost/objecthost/services/messaging/driver"
	"github.com/objecthost/objecthost/storage"
)

// cleanSQL walks the rows by age, not by their end: an index on the end would
// cost every outcome a write. A row that waits for very long is looked at once
// in each round.
func (s *Store) cleanSQL() string {
	order := `created_at, id`
	if s.db.Dialect() == storage.Postgres {
		order = `created_at NULLS FIRST, id` // as the index has it
	}
	return s.sql(`SELECT id, created_at, COALESCE(finished_at < (SELECT {now} - ?), FALSE) FROM sys_http_delivery
		WHERE (created_at, id) > (?, ?) AND created_at < (SELECT {now} - ?) ORDER BY ` + order + ` LIMIT ?`)
}

// Clean implements [driver.Store].
func (s *Store) Clean(ctx context.Context, c driver.Clean) (done driver.Cleaned, err error) {
	createdAt, id, err := splitCursor(c.After)
	if err != nil {
		return done, err
	}
	keep := c.Keep.Milliseconds()
	err = s.db.InTx(ctx, func(ctx context.Context) error {
		done = driver.Cleaned{Last: c.After}
		old, seen, err := s.aged(s.db.Write(ctx).QueryContext(ctx, s.cleanSQL(), keep, createdAt, id, keep, c.Limit))
		if err != nil {
			return err
		}
		if done.Done = seen.n < c.Limit; seen.n > 0 {
			done.Last = seen.last
		}
		if len(old) == 0 {
			return nil
		}
		done.Removed, err = s.remove(ctx, old)
		return err
	})
	return done, err
}

// seen counts the rows that were looked at.
type seen struct {
	n    int
	last string
}

// aged reads the ids of rows to remove.
func (s *Store) aged(rows *sql.Rows, err error) (old []string, at seen, _ error) {
	if err != nil {
		return nil, at, err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		var createdAt int64
		var over bool
		if err := rows.Scan(&id, &createdAt, &over); err != nil {
			return nil, at, err
		}
		at = seen{n: at.n + 1, last: strconv.FormatInt(createdAt, 10) + " " + id}
		if over {
			old = append(old, id)
		}
	}
	return old, at, rows.Err()
}

// remove deletes rows that have ended, with their attempts. One that was
// redelivered meanwhile stays.
func (s *Store) remove(ctx context.Context, ids []string) (removed int, err error) {
	w := s.db.Write(ctx)
	if s.db.Dialect() == storage.Postgres {
		err = w.QueryRowContext(ctx, `WITH gone AS (
				DELETE FROM sys_http_delivery WHERE id = ANY ($1::text[]) AND finished_at IS NOT NULL RETURNING id
			), attempts AS (
				DELETE FROM sys_http_attempt a USING gone WHERE a.id >= gone.id || '.' AND a.id < gone.id || '/'
			) SELECT COUNT(*) FROM gone`, ids).Scan(&removed)
		return removed, err
	}
	for _, id := range ids {
		low, high := attemptRange(id)
		if _, err := w.ExecContext(ctx, `DELETE FROM sys_http_attempt WHERE id >= ? AND id < ?`, low, high); err != nil {
			return 0, err
		}
		if _, err := w.ExecContext(ctx, `DELETE FROM sys_http_delivery WHERE id = ?`, id); err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}

func splitCursor(cursor string) (createdAt int64, id string, err error) {
	if cursor == "" {
		return -1 << 62, "", nil
	}
	number, id, _ := strings.Cut(cursor, " ")
	if createdAt, err = strconv.ParseInt(number, 10, 64); err != nil {
		return 0, "", fmt.Errorf("cursor %q of a clean-up: %w", cursor, err)
	}
	return createdAt, id, nil
}
