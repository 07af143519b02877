package sqllog

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/objecthost/objecthost/core/event"
	"github.com/objecthost/objecthost/services/realtime/driver"
	"github.com/objecthost/objecthost/storage"
)

//go:embed migrations
var files embed.FS

// Migrations are the migrations of the log's tables.
func Migrations() storage.Migrations {
	dir, err := fs.Sub(files, "migrations")
	if err != nil {
		panic(err) // the directory is embedded
	}
	return storage.Migrations{Name: "realtime", FS: dir}
}

// Log is a log in a database whose tables are migrated.
type Log struct {
	db *storage.DB
	dialect
	bind func(string) string
}

// dialect is the part of a log that differs between databases.
type dialect interface {
	Append(ctx context.Context, events []*event.Event, at int64) error
	Position(ctx context.Context, start driver.Start) (string, error)
	Read(ctx context.Context, q driver.Query) (driver.Page, error)
	Backlog(ctx context.Context, q driver.Query) (driver.Backlog, error)
	Clean(ctx context.Context, c driver.Clean) (driver.Cleaned, error)
	// endSQL selects where the log ends, in one row; the columns are those of end.
	endSQL() string
	// ahead makes [driver.Survey.Ahead].
	ahead(ctx context.Context, e end) (func(position string) bool, error)
	// lockColumn is a text column that Lock selects for verify, and lockClause
	// ends a SELECT that locks its row.
	lockColumn() string
	lockClause() string
	Verify(ctx context.Context) error
	// verify repairs all positions when the locked range's is of another
	// database, and returns the range as it is then.
	verify(ctx context.Context, r driver.Range, column string) (driver.Range, error)
}

var _ driver.Log = (*Log)(nil)

// New returns the log of db. A nil logger discards; the log only speaks when it
// repairs the positions of a database that was restored from another one.
func New(db *storage.DB, logger *slog.Logger) *Log {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	l := &Log{db: db, bind: func(q string) string { return q }}
	if db.Dialect() == storage.Postgres {
		l.dialect = &postgres{db: db, log: logger}
	} else {
		l.dialect = &sqlite{db: db}
		l.bind = questionMarks
	}
	return l
}

var dollar = regexp.MustCompile(`\$(\d+)`)

// questionMarks turns $1 into ?1.
func questionMarks(query string) string { return dollar.ReplaceAllString(query, "?$1") }

const rangeColumns = `name, first_partition, last_partition, position, enabled, failure_event_id,
	failure_sequence, failure_attempts, failure_error, failure_since, updated_at`

// scanRange reads rangeColumns and, after them, more.
func scanRange(row interface{ Scan(...any) error }, more ...any) (driver.Range, error) {
	var r driver.Range
	var id, text sql.NullString
	var sequence, attempts, since sql.NullInt64
	err := row.Scan(append([]any{&r.Consumer, &r.First, &r.Last, &r.Position, &r.Enabled,
		&id, &sequence, &attempts, &text, &since, &r.UpdatedAt}, more...)...)
	if id.Valid {
		r.Failure = &driver.Failure{EventID: id.String, Sequence: sequence.Int64, Attempts: int(attempts.Int64), Error: text.String, Since: since.Int64}
	}
	return r, err
}

// scanRanges reads rangeColumns and closes rows.
func scanRanges(rows *sql.Rows) ([]driver.Range, error) {
	defer func() { _ = rows.Close() }()
	var all []driver.Range
	for rows.Next() {
		r, err := scanRange(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, rows.Err()
}

// rangeValues are the values of rangeColumns.
func rangeValues(r driver.Range) []any {
	values := []any{r.Consumer, r.First, r.Last, r.Position, r.Enabled, nil, nil, nil, nil, nil, r.UpdatedAt}
	if f := r.Failure; f != nil {
		copy(values[5:], []any{f.EventID, f.Sequence, f.Attempts, f.Error, f.Since})
	}
	return values
}

// end is where the log ends at one moment.
type end struct {
	// seen is a snapshot of PostgreSQL, own the transaction that took it.
	seen string
	own  sql.NullString
	// last is the highest number that was given out.
	last int64
}

// surveySQL has a row for each range, or one without a range. A range's columns
// are not null: rangeColumns, which scanRange reads.
const surveySQL = `SELECT COALESCE(name, ''), COALESCE(first_partition, 0), COALESCE(last_partition, 0), COALESCE(position, ''),
	COALESCE(enabled, FALSE), failure_event_id, failure_sequence, failure_attempts, failure_error, failure_since,
	COALESCE(updated_at, 0), log_end.seen, log_end.own, log_end.last FROM ({end}) log_end
	LEFT JOIN sys_event_consumer ON $1 = '' OR name = $1 ORDER BY name, first_partition`

// Survey implements [driver.Log].
func (l *Log) Survey(ctx context.Context, consumer string) (driver.Survey, error) {
	query := l.bind(strings.Replace(surveySQL, "{end}", l.endSQL(), 1))
	rows, err := l.db.Read(ctx).QueryContext(ctx, query, l.db.Hot(consumer)...)
	if err != nil {
		return driver.Survey{}, err
	}
	defer func() { _ = rows.Close() }()
	var s driver.Survey
	var e end
	for rows.Next() {
		r, err := scanRange(rows, &e.seen, &e.own, &e.last)
		if err != nil {
			return driver.Survey{}, err
		}
		if r.Consumer != "" {
			s.Ranges = append(s.Ranges, r)
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return driver.Survey{}, err
	}
	s.Ahead, err = l.ahead(ctx, e)
	return s, err
}

// Insert implements [driver.Log].
func (l *Log) Insert(ctx context.Context, r driver.Range) (bool, error) {
	res, err := l.db.Write(ctx).ExecContext(ctx, l.bind(`INSERT INTO sys_event_consumer (`+rangeColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (name, first_partition) DO NOTHING`), rangeValues(r)...)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

// Lock implements [driver.Log].
func (l *Log) Lock(ctx context.Context, consumer string, first int) (driver.Range, error) {
	var column string
	r, err := scanRange(l.db.Write(ctx).QueryRowContext(ctx, l.bind(`SELECT `+rangeColumns+l.lockColumn()+` FROM sys_event_consumer
		WHERE name = $1 AND first_partition = $2`+l.lockClause()), l.db.Hot(consumer, first)...), &column)
	if errors.Is(err, sql.ErrNoRows) {
		return r, driver.ErrNoRange
	}
	if err != nil {
		return r, err
	}
	return l.verify(ctx, r, column)
}

// Save implements [driver.Log].
func (l *Log) Save(ctx context.Context, r driver.Range) error {
	_, err := l.db.Write(ctx).ExecContext(ctx, l.bind(`UPDATE sys_event_consumer SET last_partition = $3, position = $4, enabled = $5,
		failure_event_id = $6, failure_sequence = $7, failure_attempts = $8, failure_error = $9, failure_since = $10, updated_at = $11
		WHERE name = $1 AND first_partition = $2`), l.db.Hot(rangeValues(r)...)...)
	return err
}

// Scan implements [driver.Log].
func (l *Log) Scan(ctx context.Context, s driver.Scan) (driver.Scanned, error) {
	var first, last sql.NullInt64
	for query, to := range map[string]*sql.NullInt64{
		`SELECT MIN(sequence) FROM sys_event WHERE sequence > $1`: &first,
		`SELECT MAX(sequence) FROM sys_event WHERE sequence > $1`: &last,
	} {
		if err := l.db.Read(ctx).QueryRowContext(ctx, l.bind(query), s.After).Scan(to); err != nil {
			return driver.Scanned{}, err
		}
	}
	if !first.Valid || !last.Valid {
		return driver.Scanned{Last: s.After, Done: true}, nil
	}
	end := min(first.Int64-1+driver.ScanWindow, last.Int64)
	rows, err := l.db.Read(ctx).QueryContext(ctx, l.bind(`SELECT `+eventColumns+` FROM sys_event
		WHERE sequence > $1 AND sequence <= $2 AND occurred_at >= $3 AND occurred_at < $4 ORDER BY sequence LIMIT $5`),
		s.After, end, s.From, s.To, s.Limit)
	if err != nil {
		return driver.Scanned{}, err
	}
	events, err := scanEvents(nil, rows)
	if err != nil {
		return driver.Scanned{}, err
	}
	found := driver.Scanned{Events: events, Last: end}
	if len(events) == s.Limit {
		found.Last = events[s.Limit-1].Sequence
	}
	found.Done = found.Last >= last.Int64
	return found, nil
}

// Drop implements [driver.Log].
func (l *Log) Drop(ctx context.Context, consumer string) (bool, error) {
	res, err := l.db.Write(ctx).ExecContext(ctx, l.bind(`DELETE FROM sys_event_consumer WHERE name = $1`), consumer)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

const eventColumns = `sequence, id, type, object, record_id, matched, changes_json, before_json, after_json,
	user_id, organization_id, occurred_at`

// scanEvents appends the events of rows, which are eventColumns, and closes
// them. The JSON parts are what was appended, byte for byte.
func scanEvents(events []*event.Event, rows *sql.Rows) ([]*event.Event, error) {
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var e event.Event
		var at int64
		err := rows.Scan(&e.Sequence, &e.ID, &e.Type, &e.Object, &e.RecordID, &e.Matched,
			(*[]byte)(&e.Changes), (*[]byte)(&e.Before), (*[]byte)(&e.After), &e.UserID, &e.OrganizationID, &at)
		if err != nil {
			return nil, err
		}
		e.Timestamp = time.UnixMilli(at).UTC()
		events = append(events, &e)
	}
	return events, rows.Err()
}

// optional is the column of a JSON part that may be absent.
func optional(part json.RawMessage) any {
	if len(part) == 0 {
		return nil
	}
	return string(part)
}
