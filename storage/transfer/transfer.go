package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/objecthost/objecthost/storage"
)

// Config says what to copy. Both databases have their tables.
type Config struct {
	From, To *storage.DB
	// Fingerprint tells the source from others, so that a copy is resumed from
	// the same one only.
	Fingerprint string
	// Skip lists tables that are not copied.
	Skip []string
	// Seeded tells in which tables migrations leave how many rows, which the
	// source's replace; see [Rows].
	Seeded map[string]int64
	// Fill maps table.column to the SQL expression that stands in the target,
	// for columns that are not copied.
	Fill map[string]string
	// Rewrite maps tables to what is done with each row before it is written
	// and compared; columns that mean something to one database only are
	// translated there.
	Rewrite map[string]func(row map[string]any) error
	// Sequences maps table.column to the name of the sequence that Postgres
	// takes its numbers from, for columns that are no identity.
	Sequences map[string]string
	// Progress is told of each batch, and with done of each table; nil for
	// nobody.
	Progress func(table string, rows int64, done bool)
	// BatchRows and BatchBytes bound a batch. Default 500 and 8 MiB.
	BatchRows, BatchBytes int
}

// NotEmptyError tells that the target holds rows that no copy has put there.
type NotEmptyError struct{ Table string }

// Error implements error.
func (e *NotEmptyError) Error() string {
	return fmt.Sprintf("transfer: the target is not empty: table %s has rows; copy into an empty database", e.Table)
}

// OtherSourceError tells that the target holds a part of another source.
type OtherSourceError struct{}

// Error implements error.
func (*OtherSourceError) Error() string {
	return "transfer: the target holds a part of another database; copy into an empty one"
}

// MismatchError tells that a table's copy differs from it.
type MismatchError struct {
	Table      string
	Rows, Want int64
}

// Error implements error.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("transfer: table %s differs from its copy (%d rows, %d in the copy): the source was written to meanwhile; stop its hosts and copy into an empty database",
		e.Table, e.Want, e.Rows)
}

// Report is what was copied.
type Report struct {
	Tables []TableReport
	// Rows is the sum of all tables.
	Rows int64
}

// TableReport is one table's part of it. Checksum is a SHA-256 over all rows in
// the order of their keys, equal on both sides.
type TableReport struct {
	Table    string
	Rows     int64
	Checksum string
}

// Copy copies, or goes on with a copy that was broken off, and compares all
// tables in the end. Nobody may write to either database meanwhile. When it
// returns an error the target is unfinished, see [Unfinished].
func Copy(ctx context.Context, cfg Config) (Report, error) {
	if cfg.BatchRows == 0 {
		cfg.BatchRows = 500
	}
	if cfg.BatchBytes == 0 {
		cfg.BatchBytes = 8 << 20
	}
	if cfg.Progress == nil {
		cfg.Progress = func(string, int64, bool) {}
	}
	plans, err := cfg.plan(ctx)
	if err != nil {
		return Report{}, err
	}
	if err := cfg.begin(ctx, plans); err != nil {
		return Report{}, err
	}
	for _, p := range plans {
		if err := cfg.copyTable(ctx, p); err != nil {
			return Report{}, fmt.Errorf("transfer: copy table %s: %w", p.name, err)
		}
	}
	if err := cfg.sequences(ctx, plans); err != nil {
		return Report{}, err
	}
	var report Report
	for _, p := range plans {
		one, err := cfg.compare(ctx, p)
		if err != nil {
			return Report{}, err
		}
		report.Tables = append(report.Tables, one)
		report.Rows += one.Rows
	}
	return report, cfg.finish(ctx)
}

// plan is how one table is copied.
type plan struct {
	name string
	// columns are those that are read and written, key the places of the key's
	// among them, kinds how their values are compared.
	columns []column
	kinds   []kind
	key     []int
	// from are the source's columns of the same names.
	from     []column
	filled   []string // the names of the columns that are filled, and their SQL
	fills    []string
	identity string // the column that the database numbers, "" for none
	sequence string // its sequence on Postgres, when it is named
}

// plan compares the tables of both databases.
func (cfg *Config) plan(ctx context.Context) ([]*plan, error) {
	from, err := catalog(ctx, cfg.From)
	if err != nil {
		return nil, fmt.Errorf("transfer: source: %w", err)
	}
	to, err := catalog(ctx, cfg.To)
	if err != nil {
		return nil, fmt.Errorf("transfer: target: %w", err)
	}
	var plans []*plan
	var problems []error
	for name := range from {
		if to[name] == nil && !cfg.skips(name) {
			problems = append(problems, fmt.Errorf("transfer: table %s has no counterpart in the target", name))
		}
	}
	for _, target := range ordered(to) {
		source := from[target.name]
		if source == nil || cfg.skips(target.name) {
			continue
		}
		p, err := cfg.planTable(source, target)
		if err != nil {
			problems = append(problems, fmt.Errorf("transfer: table %s: %w", target.name, err))
			continue
		}
		plans = append(plans, p)
	}
	sort.Slice(problems, func(i, j int) bool { return problems[i].Error() < problems[j].Error() })
	return plans, errors.Join(problems...)
}

func (cfg *Config) skips(name string) bool {
	return name == stateTable || name == "sys_migration" || slices.Contains(cfg.Skip, name)
}

func (cfg *Config) planTable(source, target *table) (*plan, error) {
	p := &plan{name: target.name}
	for _, c := range target.columns {
		if fill, ok := cfg.Fill[target.name+"."+c.name]; ok {
			p.filled, p.fills = append(p.filled, c.name), append(p.fills, fill)
			continue
		}
		s, ok := source.column(c.name)
		if !ok {
			return nil, fmt.Errorf("the source has no column %s; both need the same version of the host", c.name)
		}
		k := c.kind
		if cfg.To.Dialect() == storage.SQLite && cfg.From.Dialect() == storage.Postgres {
			k = s.kind
		}
		if k == "" {
			return nil, fmt.Errorf("column %s has the type %s, which is not copied", c.name, c.typ)
		}
		if c.identity || s.identity {
			p.identity = c.name
		}
		if sequence, named := cfg.Sequences[target.name+"."+c.name]; named {
			p.identity, p.sequence = c.name, sequence
		}
		p.columns, p.from, p.kinds = append(p.columns, c), append(p.from, s), append(p.kinds, k)
	}
	if cfg.From.Dialect() == storage.SQLite && cfg.To.Dialect() == storage.SQLite && p.identity == "" && len(target.key) == 1 {
		p.identity = target.key[0] // as far as SQLite counts it
	}
	for _, s := range source.columns {
		_, there := target.column(s.name)
		if _, filled := cfg.Fill[target.name+"."+s.name]; !there && !filled {
			return nil, fmt.Errorf("the target has no column %s; both need the same version of the host", s.name)
		}
	}
	for _, name := range target.key {
		i := slices.IndexFunc(p.columns, func(c column) bool { return c.name == name })
		if i < 0 || p.kinds[i] != kindInt && p.kinds[i] != kindText {
			return nil, fmt.Errorf("its key %s can't be walked", name)
		}
		p.key = append(p.key, i)
	}
	if len(p.key) == 0 {
		return nil, errors.New("it has no primary key")
	}
	return p, nil
}

func (p *plan) names() []string {
	out := make([]string, len(p.columns))
	for i, c := range p.columns {
		out[i] = c.name
	}
	return out
}

// scan reads the rows of one side after a key, in the order of the keys, at
// most limit of them. Rows of the source are as the target gets them.
func (cfg *Config) scan(ctx context.Context, p *plan, source bool, after []any, limit int, row func([]any) error) error {
	db, columns := cfg.To, p.columns
	if source {
		db, columns = cfg.From, p.from
	}
	var key, params []string
	for n, i := range p.key {
		key = append(key, quote(p.columns[i].name))
		params = append(params, parameter(db.Dialect(), n+1, columns[i]))
	}
	query := "SELECT " + quoted(p.names()) + " FROM " + quote(p.name)
	if after != nil {
		query += " WHERE (" + strings.Join(key, ", ") + ") > (" + strings.Join(params, ", ") + ")"
	}
	query += fmt.Sprintf(" ORDER BY %s LIMIT %d", strings.Join(key, ", "), limit)
	rows, err := db.Read(ctx).QueryContext(ctx, query, after...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		values, to := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			to[i] = &values[i]
		}
		if err := rows.Scan(to...); err != nil {
			return err
		}
		for i := range values {
			if values[i], err = normalise(p.kinds[i], values[i]); err != nil {
				return fmt.Errorf("column %s: %w", p.columns[i].name, err)
			}
		}
		if rewrite := cfg.Rewrite[p.name]; source && rewrite != nil {
			if err := p.rewrite(values, rewrite); err != nil {
				return err
			}
		}
		if err := row(values); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (p *plan) rewrite(values []any, change func(map[string]any) error) error {
	row := make(map[string]any, len(values))
	for i, c := range p.columns {
		row[c.name] = values[i]
	}
	if err := change(row); err != nil {
		return err
	}
	for i, c := range p.columns {
		values[i] = row[c.name]
	}
	return nil
}

func parameter(dialect storage.Dialect, n int, c column) string {
	if dialect == storage.SQLite {
		return fmt.Sprintf("?%d", n)
	}
	return fmt.Sprintf("$%d%s", n, cast(c))
}
