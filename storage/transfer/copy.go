package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/objecthost/objecthost/storage"
)

// stateTable stands in the target while the copy is not finished. The row
// without a name holds the source's fingerprint, the others how far a table is.
const stateTable = "sys_transfer"

// Unfinished tells whether a database is the target of a copy that was not
// finished. Nobody may serve it.
func Unfinished(ctx context.Context, db *storage.DB) (bool, error) {
	query := `SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = '` + stateTable + `'`
	if db.Dialect() == storage.Postgres {
		query = `SELECT COUNT(*) FROM pg_class WHERE relname = '` + stateTable + `' AND relnamespace = current_schema()::regnamespace`
	}
	var n int
	if err := db.Read(ctx).QueryRowContext(ctx, query).Scan(&n); err != nil {
		return false, fmt.Errorf("transfer: look for an unfinished copy: %w", err)
	}
	return n > 0, nil
}

// Rows counts the rows of the tables that have some: in a database that was
// only migrated, those that migrations leave.
func Rows(ctx context.Context, db *storage.DB) (map[string]int64, error) {
	tables, err := catalog(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("transfer: %w", err)
	}
	found := map[string]int64{}
	for name := range tables {
		n, err := count(ctx, db, name, math.MaxInt32)
		if err != nil {
			return nil, fmt.Errorf("transfer: count table %s: %w", name, err)
		}
		if n > 0 {
			found[name] = n
		}
	}
	return found, nil
}

// count counts up to a limit.
func count(ctx context.Context, db *storage.DB, name string, limit int64) (n int64, err error) {
	query := fmt.Sprintf("SELECT COUNT(*) FROM (SELECT 1 FROM %s LIMIT %d) AS found", quote(name), limit)
	err = db.Read(ctx).QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

// progress is how far a table is.
type progress struct {
	cursor []any // nil at the beginning
	rows   int64
	done   bool
}

// begin makes sure that the target is empty, or holds a part of the source.
func (cfg *Config) begin(ctx context.Context, plans []*plan) error {
	resumed, err := Unfinished(ctx, cfg.To)
	if err != nil {
		return err
	}
	if resumed {
		var fingerprint string
		err := cfg.To.Read(ctx).QueryRowContext(ctx, `SELECT place FROM `+stateTable+` WHERE name = ''`).Scan(&fingerprint)
		if err == nil && fingerprint != cfg.Fingerprint {
			return &OtherSourceError{}
		}
		return err
	}
	for _, p := range plans {
		n, err := count(ctx, cfg.To, p.name, cfg.Seeded[p.name]+1)
		if err != nil {
			return fmt.Errorf("transfer: look into the target's table %s: %w", p.name, err)
		}
		if n > cfg.Seeded[p.name] {
			return &NotEmptyError{Table: p.name}
		}
	}
	return cfg.To.InTx(ctx, func(ctx context.Context) error {
		q := cfg.To.Write(ctx)
		_, err := q.ExecContext(ctx, `CREATE TABLE `+stateTable+` (name TEXT PRIMARY KEY NOT NULL, place TEXT NOT NULL, copied BIGINT NOT NULL, done BIGINT NOT NULL)`)
		if err == nil {
			_, err = q.ExecContext(ctx, cfg.sql(`INSERT INTO `+stateTable+` (name, place, copied, done) VALUES ('', $1, 0, 0)`), cfg.Fingerprint)
		}
		if err != nil {
			return fmt.Errorf("transfer: note the beginning: %w", err)
		}
		return nil
	})
}

// sql makes $1 into ?1 for a target on SQLite.
func (cfg *Config) sql(query string) string {
	if cfg.To.Dialect() == storage.SQLite {
		return strings.ReplaceAll(query, "$", "?")
	}
	return query
}

func (cfg *Config) progress(ctx context.Context, p *plan) (progress, error) {
	var state progress
	var place string
	var done int64
	err := cfg.To.Read(ctx).QueryRowContext(ctx, cfg.sql(`SELECT place, copied, done FROM `+stateTable+` WHERE name = $1`), p.name).Scan(&place, &state.rows, &done)
	if errors.Is(err, sql.ErrNoRows) {
		return state, nil
	}
	if err != nil {
		return state, err
	}
	state.done = done != 0
	dec := json.NewDecoder(bytes.NewReader([]byte(place)))
	dec.UseNumber()
	if err := dec.Decode(&state.cursor); err != nil {
		return state, fmt.Errorf("read where the copy was: %w", err)
	}
	for i, v := range state.cursor {
		if n, ok := v.(json.Number); ok {
			if state.cursor[i], err = n.Int64(); err != nil {
				return state, fmt.Errorf("read where the copy was: %w", err)
			}
		}
	}
	return state, nil
}

func (cfg *Config) save(ctx context.Context, p *plan, state progress) error {
	place, err := json.Marshal(state.cursor)
	if err != nil {
		return err
	}
	done := 0
	if state.done {
		done = 1
	}
	_, err = cfg.To.Write(ctx).ExecContext(ctx, cfg.sql(`INSERT INTO `+stateTable+` (name, place, copied, done) VALUES ($1, $2, $3, $4)
		ON CONFLICT (name) DO UPDATE SET place = excluded.place, copied = excluded.copied, done = excluded.done`), p.name, string(place), state.rows, done)
	return err
}

// copyTable copies the rows of one table that were not copied yet.
func (cfg *Config) copyTable(ctx context.Context, p *plan) error {
	state, err := cfg.progress(ctx, p)
	if err != nil || state.done {
		return err
	}
	for !state.done {
		var batch [][]any
		bytes, read := 0, 0
		full := errors.New("full")
		err := cfg.scan(ctx, p, true, state.cursor, cfg.BatchRows, func(row []any) error {
			read++
			batch = append(batch, row)
			for _, v := range row {
				bytes += size(v)
			}
			if bytes >= cfg.BatchBytes {
				return full
			}
			return nil
		})
		if err != nil && !errors.Is(err, full) {
			return err
		}
		next := progress{cursor: state.cursor, rows: state.rows + int64(len(batch)), done: err == nil && read < cfg.BatchRows}
		if len(batch) > 0 {
			last := batch[len(batch)-1]
			next.cursor = nil
			for _, i := range p.key {
				next.cursor = append(next.cursor, last[i])
			}
		}
		if err := cfg.write(ctx, p, batch, next, state.cursor == nil); err != nil {
			return err
		}
		state = next
		cfg.Progress(p.name, state.rows, state.done)
	}
	return nil
}

// write stores a batch and the place after it in one transaction. Before the
// first one, rows that migrations left are removed.
func (cfg *Config) write(ctx context.Context, p *plan, batch [][]any, next progress, first bool) error {
	return cfg.To.InTx(ctx, func(ctx context.Context) error {
		if first && cfg.Seeded[p.name] > 0 {
			if _, err := cfg.To.Write(ctx).ExecContext(ctx, "DELETE FROM "+quote(p.name)); err != nil {
				return err
			}
		}
		// Statements of one size are prepared once, and parsing one grows faster
		// than its number of parameters.
		const most = 1000
		at := max(1, most/len(p.columns))
		for rows := range slices.Chunk(batch, at) {
			if err := cfg.insert(ctx, p, rows); err != nil {
				return err
			}
		}
		return cfg.save(ctx, p, next)
	})
}

func (cfg *Config) insert(ctx context.Context, p *plan, rows [][]any) error {
	dialect := cfg.To.Dialect()
	var b strings.Builder
	b.WriteString("INSERT INTO " + quote(p.name) + " (" + quoted(append(p.names(), p.filled...)) + ")")
	if dialect == storage.Postgres && p.identity != "" && p.sequence == "" {
		b.WriteString(" OVERRIDING SYSTEM VALUE")
	}
	b.WriteString(" VALUES ")
	args := make([]any, 0, len(rows)*len(p.columns))
	for n, row := range rows {
		if n > 0 {
			b.WriteString(", ")
		}
		b.WriteByte('(')
		for i, v := range row {
			if i > 0 {
				b.WriteString(", ")
			}
			args = append(args, bound(dialect, v))
			if dialect == storage.SQLite {
				b.WriteByte('?') // a number would be looked up among all before
				continue
			}
			b.WriteString(parameter(dialect, len(args), p.columns[i]))
		}
		for _, fill := range p.fills {
			b.WriteString(", " + fill)
		}
		b.WriteByte(')')
	}
	_, err := cfg.To.Write(ctx).ExecContext(ctx, b.String(), args...)
	return err
}

// compare reads a table on both sides.
func (cfg *Config) compare(ctx context.Context, p *plan) (TableReport, error) {
	var sums [2]string
	var counts [2]int64
	for side := range 2 {
		h := sha256.New()
		var after []any
		for more := true; more; {
			n := 0
			err := cfg.scan(ctx, p, side == 0, after, cfg.BatchRows, func(row []any) error {
				n++
				for _, v := range row {
					digest(h, v)
				}
				after = after[:0]
				for _, i := range p.key {
					after = append(after, row[i])
				}
				return nil
			})
			if err != nil {
				return TableReport{}, fmt.Errorf("transfer: compare table %s: %w", p.name, err)
			}
			counts[side] += int64(n)
			more = n == cfg.BatchRows
		}
		sums[side] = hex.EncodeToString(h.Sum(nil))
	}
	if counts[0] != counts[1] || sums[0] != sums[1] {
		return TableReport{}, &MismatchError{Table: p.name, Rows: counts[1], Want: counts[0]}
	}
	return TableReport{Table: p.name, Rows: counts[0], Checksum: sums[0]}, nil
}

// sequences lets numbers go on where the source's are.
func (cfg *Config) sequences(ctx context.Context, plans []*plan) error {
	for _, p := range plans {
		if p.identity == "" {
			continue
		}
		last, err := lastNumber(ctx, cfg.From, p)
		if err == nil && last > 0 {
			err = setNumber(ctx, cfg.To, p, last)
		}
		if err != nil {
			return fmt.Errorf("transfer: numbers of table %s: %w", p.name, err)
		}
	}
	return nil
}

// sequenceOf is the name of a column's sequence as SQL.
func sequenceOf(ctx context.Context, db *storage.DB, p *plan) (string, error) {
	if p.sequence != "" {
		return quote(p.sequence), nil
	}
	var name string
	err := db.Read(ctx).QueryRowContext(ctx, `SELECT pg_get_serial_sequence($1::text, $2::text)`, quote(p.name), p.identity).Scan(&name)
	return name, err
}

func lastNumber(ctx context.Context, db *storage.DB, p *plan) (int64, error) {
	var last sql.NullInt64
	if db.Dialect() == storage.SQLite {
		err := db.Read(ctx).QueryRowContext(ctx, `SELECT MAX(seq) FROM sqlite_sequence WHERE name = ?1`, p.name).Scan(&last)
		return last.Int64, err
	}
	sequence, err := sequenceOf(ctx, db, p)
	if err != nil {
		return 0, err
	}
	err = db.Read(ctx).QueryRowContext(ctx, `SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM `+sequence).Scan(&last)
	return last.Int64, err
}

func setNumber(ctx context.Context, db *storage.DB, p *plan, last int64) error {
	if db.Dialect() == storage.Postgres {
		sequence, err := sequenceOf(ctx, db, p)
		if err == nil {
			_, err = db.Write(ctx).ExecContext(ctx, `SELECT setval($1::text::regclass, $2::bigint)`, sequence, last)
		}
		return err
	}
	return db.InTx(ctx, func(ctx context.Context) error {
		if _, err := db.Write(ctx).ExecContext(ctx, `DELETE FROM sqlite_sequence WHERE name = ?1`, p.name); err != nil {
			return err
		}
		_, err := db.Write(ctx).ExecContext(ctx, `INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)`, p.name, last)
		return err
	})
}

// finish removes what tells that the target is unfinished.
func (cfg *Config) finish(ctx context.Context) error {
	if _, err := cfg.To.Write(ctx).ExecContext(ctx, `DROP TABLE `+stateTable); err != nil {
		return fmt.Errorf("transfer: note the end: %w", err)
	}
	return nil
}
