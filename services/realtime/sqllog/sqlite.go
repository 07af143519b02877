package sqllog

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/storage"
)

// sqlite is the log in a database with one writer: numbers are given out in
// the order of commits, so a position is the number of the last event before it.
type sqlite struct{ db *storage.DB }

// sqliteRows is how many events one statement inserts: 13 parameters each,
// far below SQLite's 32766.
const sqliteRows = 64

const sqliteInsert = `INSERT INTO sys_event (partition, id, type, object, record_id, matched,
	changes_json, before_json, after_json, user_id, organization_id, occurred_at, appended_at) VALUES `

// Append implements [driver.Log].
func (s *sqlite) Append(ctx context.Context, events []*event.Event, at int64) error {
	for len(events) > 0 {
		n := min(sqliteRows, len(events))
		if err := s.insert(ctx, events[:n], at); err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}

func (s *sqlite) insert(ctx context.Context, events []*event.Event, at int64) error {
	const row = "(?,?,?,?,?,?,?,?,?,?,?,?,?)"
	args := make([]any, 0, 13*len(events))
	for _, e := range events {
		args = append(args, e.Partition(), e.ID, e.Type, e.Object, e.RecordID, e.Matched,
			optional(e.Changes), optional(e.Before), optional(e.After), e.UserID, e.OrganizationID,
			e.Timestamp.UnixMilli(), at)
	}
	query := sqliteInsert + row + strings.Repeat(","+row, len(events)-1)
	// The rows of one statement get consecutive numbers in the order of the
	// VALUES, and nobody else writes meanwhile.
	res, err := s.db.Write(ctx).ExecContext(ctx, query, args...)
	if err != nil {
		return err
	}
	last, err := res.LastInsertId()
	if err != nil {
		return err
	}
	for i, e := range events {
		e.Sequence = last - int64(len(events)-1-i)
	}
	return nil
}

// Position implements [driver.Log].
func (s *sqlite) Position(ctx context.Context, start driver.Start) (string, error) {
	if start == driver.Earliest {
		return "0", nil
	}
	// Not MAX(sequence): the last events may have been removed.
	var last sql.NullInt64
	err := s.db.Read(ctx).QueryRowContext(ctx, `SELECT MAX(seq) FROM sqlite_sequence WHERE name = 'sys_event'`).Scan(&last)
	return strconv.FormatInt(last.Int64, 10), err
}

// Read implements [driver.Log].
func (s *sqlite) Read(ctx context.Context, q driver.Query) (driver.Page, error) {
	after, err := parseNumber(q.Position)
	if err != nil {
		return driver.Page{}, err
	}
	until := int64(math.MaxInt64)
	if q.Until != "" {
		if until, err = parseNumber(q.Until); err != nil {
			return driver.Page{}, err
		}
	}
	rows, err := s.db.Read(ctx).QueryContext(ctx, `SELECT `+eventColumns+` FROM sys_event
		WHERE sequence > ? AND sequence <= ? AND partition BETWEEN ? AND ? ORDER BY sequence LIMIT ?`, after, until, q.First, q.Last, q.Limit)
	if err != nil {
		return driver.Page{}, err
	}
	events, err := scanEvents(nil, rows)
	if err != nil {
		return driver.Page{}, err
	}
	page := driver.Page{Events: events, Next: q.Position, More: len(events) == q.Limit}
	if q.Marks {
		for _, e := range events {
			page.Marks = append(page.Marks, strconv.FormatInt(e.Sequence, 10))
		}
	}
	if q.Until != "" && !page.More {
		page.Next = q.Until
		return page, nil
	}
	if n := len(events); n > 0 {
		page.Next = strconv.FormatInt(events[n-1].Sequence, 10)
		return page, nil
	}
	last, err := s.emptyUpTo(ctx, after, q)
	page.Next, page.Stale = strconv.FormatInt(last, 10), last-after >= staleAfter
	return page, err
}

// endSQL: not MAX(sequence), as in Position.
func (s *sqlite) endSQL() string {
	return `SELECT '' AS seen, NULL AS own, COALESCE((SELECT MAX(seq) FROM sqlite_sequence WHERE name = 'sys_event'), 0) AS last`
}

func (s *sqlite) ahead(_ context.Context, e end) (func(position string) bool, error) {
	return func(position string) bool {
		n, err := parseNumber(position)
		return err != nil || n != e.last
	}, nil
}

// parseNumber reads a position.
func parseNumber(position string) (int64, error) {
	n, err := strconv.ParseInt(position, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%w: %q", driver.ErrBadPosition, position)
	}
	return n, nil
}

// emptyUpTo returns a sequence up to which the range has nothing after its
// position. The number is read first, so an event that is committed between
// the statements is above it.
func (s *sqlite) emptyUpTo(ctx context.Context, after int64, q driver.Query) (int64, error) {
	var last sql.NullInt64
	err := s.db.Read(ctx).QueryRowContext(ctx, `SELECT MAX(sequence) FROM sys_event`).Scan(&last)
	if err != nil || last.Int64 <= after {
		return after, err
	}
	var found bool
	err = s.db.Read(ctx).QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM sys_event
		WHERE sequence > ? AND sequence <= ? AND partition BETWEEN ? AND ?)`, after, last.Int64, q.First, q.Last).Scan(&found)
	if err != nil || found {
		return after, err
	}
	return last.Int64, nil
}

// Backlog implements [driver.Log].
func (s *sqlite) Backlog(ctx context.Context, q driver.Query) (driver.Backlog, error) {
	after, err := strconv.ParseInt(q.Position, 10, 64)
	if err != nil {
		return driver.Backlog{}, fmt.Errorf("position %q: %w", q.Position, err)
	}
	var b driver.Backlog
	err = s.db.Read(ctx).QueryRowContext(ctx, `SELECT COUNT(*), COALESCE(MIN(appended_at), 0) FROM (
		SELECT appended_at FROM sys_event WHERE sequence > ? AND partition BETWEEN ? AND ? ORDER BY sequence LIMIT ?)`,
		after, q.First, q.Last, q.Limit).Scan(&b.Events, &b.Oldest)
	return b, err
}

// Clean implements [driver.Log].
func (s *sqlite) Clean(ctx context.Context, c driver.Clean) (driver.Cleaned, error) {
	done := driver.Cleaned{Last: c.After, Done: true}
	err := s.db.InTx(ctx, func(ctx context.Context) error {
		var seen, old int
		var last sql.NullInt64
		err := s.db.Write(ctx).QueryRowContext(ctx, `SELECT COUNT(*), COUNT(CASE WHEN appended_at < ?1 THEN 1 END), MAX(sequence)
			FROM (SELECT sequence, appended_at FROM sys_event WHERE sequence > ?2 ORDER BY sequence LIMIT ?3)`,
			c.Before, c.After, c.Limit).Scan(&seen, &old, &last)
		if err != nil || old == 0 {
			return err
		}
		res, err := s.db.Write(ctx).ExecContext(ctx, `DELETE FROM sys_event WHERE sequence > ?1 AND sequence <= ?2 AND appended_at < ?3
			AND NOT EXISTS (SELECT 1 FROM sys_event_consumer c WHERE c.enabled
				AND sys_event.partition BETWEEN c.first_partition AND c.last_partition
				AND CAST(c.position AS INTEGER) < sys_event.sequence)`, c.After, last.Int64, c.Before)
		if err != nil {
			return err
		}
		removed, err := res.RowsAffected()
		done = driver.Cleaned{Removed: int(removed), Last: last.Int64, Done: seen < c.Limit}
		return err
	})
	return done, err
}

// One writer: the transaction is the lock, and numbers are valid in any copy.
func (s *sqlite) lockColumn() string { return ", ''" }
func (s *sqlite) lockClause() string { return "" }

func (s *sqlite) verify(_ context.Context, r driver.Range, _ string) (driver.Range, error) {
	return r, nil
}

// Verify implements [driver.Log].
func (s *sqlite) Verify(context.Context) error { return nil }
