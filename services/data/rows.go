package data

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/objecthost/objecthost/storage"
)

// stored is how a record's value lies in its column.
func (b *builder) stored(c *column, value any) error {
	if value == nil {
		b.arg(c.kind, nil)
		return nil
	}
	switch c.kind {
	case kindDecimal:
		n := value.(json.Number).String()
		if c.integer {
			i, err := strconv.ParseInt(n, 10, 64)
			b.arg(kindInstant, i)
			return err
		}
		b.arg(kindDecimal, n)
	case kindBool:
		if b.postgres {
			b.arg(kindBool, value)
		} else {
			b.arg(kindBool, boolInt(value.(bool)))
		}
	case kindInstant:
		ms, ok := instant(value, epoch)
		if !ok {
			return fmt.Errorf("field %s: %v is no instant", c.Name, value)
		}
		b.arg(kindInstant, ms)
	case kindList, kindJSON:
		text, err := encodeJSON(value)
		if err != nil {
			return fmt.Errorf("field %s: %w", c.Name, err)
		}
		b.arg(c.kind, string(text))
	default:
		b.arg(c.kind, value)
	}
	return nil
}

// scanner reads rows of a fixed set of columns into records.
type scanner struct {
	columns []*column
	texts   []sql.NullString
	numbers []sql.NullInt64
	bools   []sql.NullBool
	targets []any
}

// newScanner makes targets for the columns and for extra values after them.
func newScanner(columns []*column, extra ...any) *scanner {
	n := len(columns)
	s := &scanner{columns: columns, texts: make([]sql.NullString, n), numbers: make([]sql.NullInt64, n), bools: make([]sql.NullBool, n)}
	for i, c := range columns {
		switch c.kind {
		case kindInstant:
			s.targets = append(s.targets, &s.numbers[i])
		case kindBool:
			s.targets = append(s.targets, &s.bools[i])
		default:
			s.targets = append(s.targets, &s.texts[i])
		}
	}
	s.targets = append(s.targets, extra...)
	return s
}

// scan reads the current row.
func (s *scanner) scan(rows *sql.Rows) (Record, error) {
	if err := rows.Scan(s.targets...); err != nil {
		return nil, err
	}
	record := make(Record, len(s.columns))
	for i, c := range s.columns {
		value, err := s.value(i, c)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.Name, err)
		}
		record[c.Name] = value
	}
	return record, nil
}

// value brings a scanned column into record form. Numbers of External tables may
// be stored with trailing zeros, so every number is made canonical.
func (s *scanner) value(i int, c *column) (any, error) {
	switch c.kind {
	case kindInstant:
		if !s.numbers[i].Valid {
			return nil, nil
		}
		return apiInstant(c, s.numbers[i].Int64), nil
	case kindBool:
		if !s.bools[i].Valid {
			return nil, nil
		}
		return s.bools[i].Bool, nil
	}
	if !s.texts[i].Valid {
		return nil, nil
	}
	text := s.texts[i].String
	switch c.kind {
	case kindDecimal:
		canonical, err := storage.CanonicalDecimal(text)
		if err != nil {
			return nil, err
		}
		return json.Number(canonical), nil
	case kindList, kindJSON:
		return readJSON(text)
	default:
		return text, nil
	}
}

// readJSON reads JSON that this engine, or a table's owner, has stored.
func readJSON(text string) (any, error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var value any
	err := dec.Decode(&value)
	return value, err
}

// pick returns the columns called names, all columns for none.
func (t *table) pick(names []string) []*column {
	if names == nil {
		return t.all
	}
	var columns []*column
	for _, c := range t.all {
		if slices.Contains(names, c.Name) {
			columns = append(columns, c)
		}
	}
	return columns
}

// selectList names columns for a SELECT.
func selectList(columns []*column) string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = quote(c.Name)
	}
	return strings.Join(names, ", ")
}

// load reads whole records that a predicate selects, in the order of their
// ids. Inside a transaction that will change them, lock holds them.
func (e *Engine) load(ctx context.Context, t *table, p predicate, lock bool) ([]Record, error) {
	b := e.builder()
	b.text("SELECT ", strings.Join(t.names, ", "), " FROM ", quote(t.name()), " WHERE ")
	b.where(p)
	b.text(" ORDER BY id")
	if lock && b.postgres {
		b.text(" FOR UPDATE")
	}
	records, err := e.query(ctx, b, t.pick(nil))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", t.name(), err)
	}
	return records, nil
}

// query reads all rows of a statement. The rows are closed before it returns: an
// open cursor would keep SQLite's log from being checkpointed.
func (e *Engine) query(ctx context.Context, b *builder, columns []*column, extra ...any) (records []Record, err error) {
	rows, err := e.db.Read(ctx).QueryContext(ctx, b.String(), b.args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = firstError(err, rows.Close()) }()
	records = []Record{}
	s := newScanner(columns, extra...)
	for rows.Next() {
		record, err := s.scan(rows)
		if err != nil {
			return nil, err
		}
		records = append(records, record)
	}
	return records, rows.Err()
}

// byID selects records by their ids.
func (t *table) byID(ids ...string) predicate {
	values := make([]any, len(ids))
	for i, id := range ids {
		values[i] = id
	}
	if len(values) == 0 {
		return constant(false)
	}
	return &leaf{column: t.byName["id"], test: testIn, values: values}
}

// present makes the record that a caller sees: without internal fields, and
// with sealed fields masked or, for the writer, as references.
func (t *table) present(record Record, echo bool) Record {
	out := make(Record, len(record))
	for name, value := range record {
		c := t.byName[name]
		switch {
		case c == nil:
			out[name] = value
		case c.Internal, c.restricted, value == nil && (name == "deleted_at" || name == "deleted_by"):
		case c.kind == kindSealed:
			out[name] = shown(c, value, echo)
		default:
			out[name] = value
		}
	}
	return out
}

// eventJSON is the JSON object of a record, or of changes, in an event: in the
// order of the columns, without internal and sealed fields.
func (t *table) eventJSON(record Record) (json.RawMessage, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i := range t.columns {
		c := &t.columns[i]
		value, ok := record[c.Name]
		if !ok || c.Internal || c.kind == kindSealed || c.Name == "deleted_at" || c.Name == "deleted_by" {
			continue
		}
		text, err := encodeJSON(value)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", c.Name, err)
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		b.WriteString(c.Name)
		b.WriteString(`":`)
		b.Write(text)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
