package data

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"github.com/objecthost/objecthost/core/object"
	"github.com/objecthost/objecthost/storage"
)

// Aggregation is a value over the records of a group: count (of records, or of
// the field's values), count_distinct, sum, avg, min or max.
type Aggregation struct {
	Function string `json:"function"`
	Field    string `json:"field,omitempty"`
	Alias    string `json:"alias"`
}

var aliasPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,59}$`)

// aggregations reads [{"function", "field", "alias"}] and checks the shape only;
// whether functions and fields go together is seen when the query runs.
func (p *queryParser) aggregations(raw []byte) ([]Aggregation, error) {
	value, err := DecodeJSON(raw)
	list, ok := value.([]any)
	if err != nil || !ok {
		return nil, p.bad(CodeValidationFailed, "aggregations must be an array of {function, field, alias}")
	}
	out := make([]Aggregation, len(list))
	for i, item := range list {
		m, ok := item.(map[string]any)
		if !ok {
			return nil, p.bad(CodeValidationFailed, "aggregations[%d] must be an object {function, field, alias}", i)
		}
		for _, key := range sortedKeys(m) {
			text, isText := m[key].(string)
			switch {
			case key == "function" && isText:
				out[i].Function = text
			case key == "field" && isText:
				out[i].Field = text
			case key == "alias" && isText:
				out[i].Alias = text
			default:
				return nil, p.bad(CodeValidationFailed, "aggregations[%d].%s is not allowed", i, key)
			}
		}
	}
	return out, nil
}

// having reads a filter on groups; its fields are checked with the query.
func (p *queryParser) having(raw []byte) (Filter, error) {
	value, err := DecodeJSON(raw)
	if err != nil || len(raw) > maxFilterBytes {
		return Filter{}, p.bad(CodeInvalidFilter, "having must be valid JSON")
	}
	return (&filterParser{object: p.table.name()}).value(value)
}

// maxGroups bounds the groups of a query; they are sorted and cut in memory.
const maxGroups = 50_000

// aggregation is a checked Aggregation: its column in the answer, and whether
// it needs the exact sum.
type aggregation struct {
	Aggregation
	source *column
	column *column
	summed bool
}

// aggregate answers a query for groups. Sums are exact: PostgreSQL adds up
// itself, on SQLite the values of a group are added up here. Averages are
// divided here on both, to 20 decimals.
func (e *Engine) aggregate(ctx context.Context, t *table, q Query, p predicate) (*Page, error) {
	groups, aggs, virtual, err := t.plan(q)
	if err != nil {
		return nil, err
	}
	having, err := virtual.compile(q.Having, "having", e.now())
	if err != nil {
		return nil, err
	}
	order, err := virtual.groupOrder(q.OrderBy)
	if err != nil {
		return nil, err
	}
	records, err := e.groups(ctx, t, p, groups, aggs)
	if err != nil {
		return nil, err
	}
	records = slices.DeleteFunc(records, func(record Record) bool { return !match(having, record) })
	slices.SortStableFunc(records, func(a, b Record) int {
		for _, s := range order {
			if c := compareValues(virtual.byName[s.Field].kind, a[s.Field], b[s.Field]); c != 0 {
				if s.Desc {
					return -c
				}
				return c
			}
		}
		return 0
	})
	total := len(records)
	from := min(q.Offset, total)
	to := total
	if q.Limit != nil {
		to = min(from+*q.Limit, total)
	}
	page := &Page{Records: records[from:to], HasMore: to < total}
	page.setTotal(q, total)
	return page, nil
}

// plan checks the groups and aggregations and makes the table that the answer
// looks like.
func (t *table) plan(q Query) (groups []*column, aggs []aggregation, virtual *table, err error) {
	virtual = &table{schema: object.Schema{Name: t.name()}, byName: map[string]*column{}}
	for _, name := range q.GroupBy {
		c, ok := t.visible(name)
		switch {
		case !ok:
			return nil, nil, nil, errUnknownField(t.name(), name)
		case !c.filterable() || c.kind == kindJSON:
			return nil, nil, nil, &Error{Code: CodeInvalidRequest, Object: t.name(), Message: fmt.Sprintf("Field '%s' of type %s cannot be grouped by", name, c.Type)}
		}
		groups = append(groups, c)
		virtual.byName[name] = c
	}
	for _, a := range q.Aggregations {
		agg, err := t.aggregation(a)
		if err != nil {
			return nil, nil, nil, err
		}
		if virtual.byName[a.Alias] != nil {
			return nil, nil, nil, &Error{Code: CodeInvalidRequest, Object: t.name(), Message: fmt.Sprintf("The alias '%s' is taken", a.Alias)}
		}
		virtual.byName[a.Alias] = agg.column
		aggs = append(aggs, agg)
	}
	return groups, aggs, virtual, nil
}

// aggregation checks one aggregation against the object and works out the kind
// of its result: that of the field for min and max, a number for the others.
func (t *table) aggregation(a Aggregation) (aggregation, error) {
	agg := aggregation{Aggregation: a}
	refuse := func(format string, args ...any) (aggregation, error) {
		return agg, &Error{Code: CodeInvalidRequest, Object: t.name(), Message: fmt.Sprintf(format, args...)}
	}
	if !aliasPattern.MatchString(a.Alias) {
		return refuse("An aggregation needs an alias of letters, digits and _, not '%s'", a.Alias)
	}
	if a.Field != "" {
		c, ok := t.visible(a.Field)
		if !ok {
			return agg, errUnknownField(t.name(), a.Field)
		}
		if !c.filterable() {
			return refuse("Field '%s' of type %s cannot be aggregated", a.Field, c.Type)
		}
		agg.source = c
	}
	result := &object.Field{Name: a.Alias, Type: object.Number}
	agg.column = &column{Field: result, kind: kindDecimal}
	switch a.Function {
	case "count":
		return agg, nil
	case "count_distinct", "sum", "avg", "min", "max":
	default:
		return refuse("'%s' is not an aggregation: count, count_distinct, sum, avg, min, max", a.Function)
	}
	if agg.source == nil {
		return refuse("The aggregation %s needs a field", a.Function)
	}
	k := agg.source.kind
	agg.summed = a.Function == "sum" || a.Function == "avg"
	switch {
	case agg.summed && k != kindDecimal,
		(a.Function == "min" || a.Function == "max") && (k == kindBool || k == kindList || k == kindJSON):
		return refuse("The aggregation %s cannot be applied to field '%s' of type %s", a.Function, a.Field, agg.source.Type)
	case a.Function == "min" || a.Function == "max":
		result.Type, result.Format = agg.source.Type, agg.source.Format
		agg.column.kind = k
	}
	return agg, nil
}

// groupOrder checks the sort keys of a query for groups.
func (t *table) groupOrder(sorts []Sort) ([]Sort, error) {
	for _, s := range sorts {
		if t.byName[s.Field] == nil {
			return nil, &Error{Code: CodeInvalidSort, Object: t.name(), Message: fmt.Sprintf("'%s' is neither a group nor an alias of the query", s.Field)}
		}
	}
	return sorts, nil
}

// groups reads the groups in the order of their keys.
func (e *Engine) groups(ctx context.Context, t *table, p predicate, groups []*column, aggs []aggregation) (records []Record, err error) {
	b := e.builder()
	b.text("SELECT ")
	columns := slices.Clone(groups)
	counts := make([]sql.NullInt64, len(aggs))
	sums := make([]sql.NullString, len(aggs))
	var keys []string
	for _, c := range groups {
		keys = append(keys, quote(c.Name))
	}
	parts := slices.Clone(keys)
	var extra []any
	for _, a := range aggs {
		if a.Function == "min" || a.Function == "max" {
			parts = append(parts, a.Function+"("+quote(a.source.Name)+")")
			columns = append(columns, a.column)
		}
	}
	for i, a := range aggs {
		if a.Function == "min" || a.Function == "max" {
			continue
		}
		parts = append(parts, countSQL(a), e.sumSQL(a))
		extra = append(extra, &counts[i], &sums[i])
	}
	b.text(strings.Join(parts, ", "), " FROM ", quote(t.name()), " WHERE ")
	b.where(p)
	b.groupBy(keys)
	b.text(" LIMIT ", itoa(maxGroups+1))
	rows, err := e.db.Read(ctx).QueryContext(ctx, b.String(), b.args...)
	if err != nil {
		return nil, fmt.Errorf("aggregate %s: %w", t.name(), err)
	}
	defer func() { err = firstError(err, rows.Close()) }()
	records = []Record{}
	s := newScanner(columns, extra...)
	for rows.Next() {
		record, err := s.scan(rows)
		if err != nil {
			return nil, err
		}
		if err := fill(record, aggs, counts, sums); err != nil {
			return nil, err
		}
		if records = append(records, record); len(records) > maxGroups {
			return nil, &Error{Code: CodeInvalidRequest, Object: t.name(), Message: fmt.Sprintf("The query makes more than %d groups", maxGroups)}
		}
	}
	return records, rows.Err()
}

// groupBy groups and sorts by the keys, nulls first.
func (b *builder) groupBy(keys []string) {
	for i, key := range keys {
		if i == 0 {
			b.text(" GROUP BY ", strings.Join(keys, ", "), " ORDER BY ")
		} else {
			b.text(", ")
		}
		b.text(key)
		if b.postgres {
			b.text(" NULLS FIRST")
		}
	}
}

// countSQL counts what the aggregation is about. Sums and averages count as
// well: an average is their sum over this count.
func countSQL(a aggregation) string {
	switch {
	case a.source == nil:
		return "count(*)"
	case a.Function == "count_distinct":
		return "count(DISTINCT " + quote(a.source.Name) + ")"
	default:
		return "count(" + quote(a.source.Name) + ")"
	}
}

// sumSQL is the sum as text; on SQLite, whose sum would round, the values.
func (e *Engine) sumSQL(a aggregation) string {
	switch {
	case !a.summed:
		return "NULL"
	case e.db.Dialect() == storage.Postgres:
		return "sum(" + quote(a.source.Name) + ")::text"
	default:
		return "group_concat(" + quote(a.source.Name) + ", ' ')"
	}
}

// fill works out the counted and summed values of a group.
func fill(record Record, aggs []aggregation, counts []sql.NullInt64, sums []sql.NullString) error {
	for i, a := range aggs {
		switch a.Function {
		case "min", "max":
		case "count", "count_distinct":
			record[a.Alias] = json.Number(fmt.Sprint(counts[i].Int64))
		default:
			if !sums[i].Valid {
				record[a.Alias] = nil
				continue
			}
			total := new(big.Rat)
			for _, text := range strings.Fields(sums[i].String) {
				value, ok := new(big.Rat).SetString(text)
				if !ok {
					return fmt.Errorf("add up %s: %q is no number", a.Field, text)
				}
				total.Add(total, value)
			}
			if a.Function == "avg" {
				total.Quo(total, new(big.Rat).SetInt64(counts[i].Int64))
				record[a.Alias] = decimalText(total, 20)
				continue
			}
			record[a.Alias] = decimalText(total, 38)
		}
	}
	return nil
}

// decimalText writes a number in plain notation without trailing zeros.
func decimalText(r *big.Rat, decimals int) json.Number {
	text := r.FloatString(decimals)
	text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	if text == "-0" || text == "" {
		text = "0"
	}
	return json.Number(text)
}
