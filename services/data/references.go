package data

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/objecthost/objecthost/core/object"
)

// itoa is short for strconv.Itoa in statements.
func itoa(n int) string { return strconv.Itoa(n) }

// violated finds the field whose unique index was violated: constraint is an
// index's name, or on SQLite also "table.column, …". "" when it is not one
// field.
func (t *table) violated(constraint string) string {
	if fields := t.uniques[constraint]; len(fields) == 1 {
		return fields[0]
	}
	_, name, found := strings.Cut(constraint, ".")
	if found && !strings.Contains(name, ",") && t.byName[name] != nil {
		return name
	}
	if constraint == t.name()+"_pkey" {
		return "id"
	}
	return ""
}

// targets lists the ids that a record's reference holds.
func targets(value any) []string {
	switch value := value.(type) {
	case string:
		return []string{value}
	case []any:
		ids := make([]string, 0, len(value))
		for _, item := range value {
			if id, ok := item.(string); ok {
				ids = append(ids, id)
			}
		}
		return ids
	default:
		return nil
	}
}

// checkReferences makes sure that what records point at is there and visible
// to the writer, with one query per object that is pointed at. For updates,
// rows tells what was there before, and only changed references are looked at.
func (e *Engine) checkReferences(ctx context.Context, t *table, records []Record, rows []*row) error {
	wanted := map[string][]string{}
	for i, record := range records {
		for _, c := range t.references {
			if rows != nil {
				if _, changed := rows[i].changes[c.Name]; !changed {
					continue
				}
			}
			wanted[c.Target()] = append(wanted[c.Target()], targets(record[c.Name])...)
		}
	}
	there := map[string]map[string]bool{}
	for _, target := range sortedKeys(wanted) {
		if len(wanted[target]) == 0 {
			continue
		}
		known, err := e.existing(ctx, target, wanted[target])
		if err != nil {
			return err
		}
		there[target] = known
	}
	for i, record := range records {
		var failed []FieldError
		for _, c := range t.references {
			if rows != nil {
				if _, changed := rows[i].changes[c.Name]; !changed {
					continue
				}
			}
			known, checked := there[c.Target()]
			for _, id := range targets(record[c.Name]) {
				if checked && known != nil && !known[id] && id != record["id"] {
					f := fail(c, "reference_not_found", "refers to a record that does not exist")
					f.Value = id
					failed = append(failed, *f)
					break
				}
			}
		}
		if len(failed) > 0 {
			index := i
			if rows != nil {
				index = rows[i].index
			}
			return &rowError{index, Invalid(t.name(), failed...)}
		}
	}
	return nil
}

// existing tells which ids exist; nil when the object is not defined, which
// happens for the host's own objects in a host without them.
func (e *Engine) existing(ctx context.Context, target string, ids []string) (map[string]bool, error) {
	other, err := e.table(target)
	if err != nil {
		return nil, nil //nolint:nilerr // nothing to check against
	}
	slices.Sort(ids)
	known := map[string]bool{}
	for chunk := range slices.Chunk(slices.Compact(ids), 5000) {
		b := e.builder()
		b.text("SELECT id FROM ", quote(target), " WHERE ")
		b.where(other.scope(ctx, other.byID(chunk...), false))
		if b.postgres {
			// A delete of the target waits, or this write sees that it is gone.
			b.text(" FOR KEY SHARE")
		}
		records, err := e.query(ctx, b, other.pick([]string{"id"}))
		if err != nil {
			return nil, fmt.Errorf("check references to %s: %w", target, err)
		}
		for _, record := range records {
			known[record["id"].(string)] = true
		}
	}
	return known, nil
}

// number gives new records the next numbers of their autonumber fields, in
// each organization on its own unless the field is unique over all of them. The
// counter's row is locked until the transaction ends, so numbers have no gaps.
func (e *Engine) number(ctx context.Context, t *table, records []Record) error {
	for i := range t.columns {
		c := &t.columns[i]
		if !isAutonumber(c) {
			continue
		}
		counters := map[string][]Record{}
		for _, record := range records {
			counter := c.Name
			if organization, ok := record["organization_id"].(string); ok && c.Unique != object.UniqueGlobal {
				counter += "@" + organization
			}
			counters[counter] = append(counters[counter], record)
		}
		for _, counter := range sortedKeys(counters) {
			if err := e.countUp(ctx, t, c, counter, counters[counter]); err != nil {
				return err
			}
		}
	}
	return nil
}

// countUp takes the next numbers of one counter.
func (e *Engine) countUp(ctx context.Context, t *table, c *column, counter string, records []Record) error {
	b := e.builder()
	b.text("INSERT INTO sys_data_counter (object_name, field_name, value) VALUES (")
	b.arg(kindText, t.name())
	b.text(", ")
	b.arg(kindText, counter)
	b.text(", ")
	b.arg(kindInstant, int64(len(records)))
	b.text(") ON CONFLICT (object_name, field_name) DO UPDATE SET value = sys_data_counter.value + excluded.value RETURNING value")
	var last int64
	if err := e.db.Write(ctx).QueryRowContext(ctx, b.String(), b.args...).Scan(&last); err != nil {
		return fmt.Errorf("count %s.%s up: %w", t.name(), counter, err)
	}
	for j, record := range records {
		record[c.Name] = formatNumber(c, last-int64(len(records)-1-j))
	}
	return nil
}

// formatNumber puts a number into the field's format, with leading zeros up to
// its width; larger numbers are written out.
func formatNumber(c *column, n int64) any {
	if c.Format == "" {
		return json.Number(strconv.FormatInt(n, 10))
	}
	open, end := strings.IndexByte(c.Format, '{'), strings.IndexByte(c.Format, '}')
	return fmt.Sprintf("%s%0*d%s", c.Format[:open], end-open-1, n, c.Format[end+1:])
}
