package data

import (
	"context"
	"fmt"
	"slices"
)

// checkCursor refuses what makes no sense with a cursor.
func (q *Query) checkCursor(object string) error {
	refuse := func(message string) error {
		return &Error{Code: CodeInvalidRequest, Object: object, Message: message}
	}
	switch {
	case q.Cursor == "":
	case q.Limit == nil || *q.Limit == 0:
		return refuse("a cursor needs a limit above 0")
	case q.Offset > 0:
		return refuse("a cursor and an offset exclude each other")
	case len(q.GroupBy)+len(q.Aggregations) > 0:
		return refuse("groups have no cursor")
	}
	return nil
}

// page reads one page, one record further than asked to see whether there are
// more, and counts in the same statement.
func (e *Engine) page(ctx context.Context, t *table, q Query, p predicate, order []Sort) (*Page, error) {
	steps := []predicate{constant(true)}
	if q.Cursor != "" && q.Cursor != cursorStart {
		var err error
		if steps, err = t.after(q.Cursor, order, e.now()); err != nil {
			return nil, err
		}
		q.NoCount = true
	}
	var records []Record
	total, rest := 0, q.Limit
	for _, step := range steps {
		found, err := e.readStep(ctx, t, q, p, step, order, rest, &total)
		if err != nil {
			return nil, err
		}
		records = append(records, found...)
		if q.Limit == nil || len(records) > *q.Limit {
			break
		}
		left := *q.Limit - len(records)
		rest = &left
	}
	page := &Page{Records: records}
	if q.Limit != nil && len(records) > *q.Limit {
		page.Records, page.HasMore = records[:*q.Limit], true
	}
	if page.HasMore && q.Cursor != "" {
		var err error
		if page.NextCursor, err = cursorAfter(order, page.Records[len(page.Records)-1]); err != nil {
			return nil, err
		}
	}
	if q.Limit == nil {
		total = len(records)
	}
	for i, record := range page.Records {
		page.Records[i] = t.project(t.present(record, false), t.shown(q))
	}
	if err := e.expand(ctx, t, page.Records, q.Expand); err != nil {
		return nil, err
	}
	page.setTotal(q, total)
	return page, nil
}

// readStep reads up to one record more than limit of those that a step of a cursor
// selects, and counts all matches when the query asks for it.
func (e *Engine) readStep(ctx context.Context, t *table, q Query, p, step predicate, order []Sort, limit *int, total *int) ([]Record, error) {
	columns := t.pick(t.wanted(q, order))
	b := e.builder()
	b.text("SELECT ", selectList(columns))
	counted := !q.NoCount && limit != nil
	var extra []any
	if counted {
		b.text(", ")
		e.count(b, t, p)
		extra = []any{total}
	}
	e.source(b, t, t.pick(t.sorted(columns, order)), p, step, order, limit, q.Offset)
	b.orderBy(order)
	if limit != nil {
		b.text(" LIMIT ")
		b.arg(kindInstant, int64(*limit)+1)
	} else if q.Offset > 0 && !b.postgres {
		b.text(" LIMIT -1")
	}
	if q.Offset > 0 {
		b.text(" OFFSET ")
		b.arg(kindInstant, int64(q.Offset))
	}
	records, err := e.query(ctx, b, columns, extra...)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", t.name(), err)
	}
	if counted && len(records) == 0 && q.Offset > 0 {
		*total, err = e.countAlone(ctx, t, p)
	}
	return records, err
}

// source writes where records are read from: the table, or, for a filter with
// arms, the first records of each arm, to be merged by the caller's sort.
func (e *Engine) source(b *builder, t *table, columns []*column, p, step predicate, order []Sort, limit *int, offset int) {
	parts := []predicate{p}
	if limit != nil {
		parts = arms(p)
	}
	if len(parts) == 1 {
		b.text(" FROM ", quote(t.name()), " WHERE ")
		b.where(simplify(&group{parts: []predicate{p, step}}))
		return
	}
	b.text(" FROM (")
	for i, arm := range parts {
		if i > 0 {
			b.text(" UNION ALL ")
		}
		b.text("SELECT * FROM (SELECT ", selectList(columns), " FROM ", quote(t.name()), " WHERE ")
		b.where(simplify(&group{parts: []predicate{arm, step}}))
		b.orderBy(order)
		b.text(" LIMIT ")
		b.arg(kindInstant, int64(*limit)+1+int64(offset))
		b.text(") AS ", quote("arm"+itoa(i)))
	}
	b.text(") AS arms")
}

// setTotal tells the total, or that it is above the bound. Without a limit all
// matches were read, so that their number is always exact.
func (p *Page) setTotal(q Query, total int) {
	switch {
	case q.NoCount:
	case total > MaxTotal && q.Limit != nil:
		p.TotalCapped = true
	default:
		p.Total = &total
	}
}

// wanted are the columns that a query has to read: a cursor is made of the sort
// keys.
func (t *table) wanted(q Query, order []Sort) []string {
	names := t.shown(q)
	if names == nil || q.Cursor == "" {
		return names
	}
	for _, s := range order {
		names = append(names, s.Field)
	}
	return names
}

// sorted are the names of columns and of sort keys.
func (t *table) sorted(columns []*column, order []Sort) []string {
	names := make([]string, 0, len(columns)+len(order))
	for _, c := range columns {
		names = append(names, c.Name)
	}
	for _, s := range order {
		names = append(names, s.Field)
	}
	return names
}

// shown are the fields that an answer has, nil for all.
func (t *table) shown(q Query) []string {
	if len(q.Fields) == 0 {
		return nil
	}
	return append(slices.Clone(q.Fields), q.Expand...)
}

// count writes a subquery that stops counting above the bound: the cost of a
// total does not grow with the table.
func (e *Engine) count(b *builder, t *table, p predicate) {
	b.text("(SELECT count(*) FROM (")
	for i, arm := range arms(p) {
		if i > 0 {
			b.text(" UNION ALL ")
		}
		b.text("SELECT * FROM (SELECT 1 FROM ", quote(t.name()), " WHERE ")
		b.where(arm)
		b.text(" LIMIT ", itoa(MaxTotal+1), ") AS ", quote("count"+itoa(i)))
	}
	b.text(") AS matches)")
}

// countAlone counts for a page beyond the last record, which has no row to carry
// the total.
func (e *Engine) countAlone(ctx context.Context, t *table, p predicate) (int, error) {
	b := e.builder()
	b.text("SELECT ")
	e.count(b, t, p)
	var total int
	if err := e.db.Read(ctx).QueryRowContext(ctx, b.String(), b.args...).Scan(&total); err != nil {
		return 0, fmt.Errorf("count %s: %w", t.name(), err)
	}
	return total, nil
}
