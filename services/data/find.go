package data

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/objecthost/objecthost/core/identity"
)

// MaxTotal is up to where a query counts its matches.
const MaxTotal = 10_000

// Sort is one key of an order.
type Sort struct {
	Field string
	Desc  bool
}

// Query selects, orders and cuts records. The zero value is all records in
// the order of their ids, with all fields.
type Query struct {
	Where Filter
	// Fields to return; nil means all.
	Fields []string
	// OrderBy sorts; nulls come first ascending, and the id breaks ties.
	OrderBy []Sort
	// Limit bounds the records; nil means no bound, 0 none at all.
	Limit  *int
	Offset int
	// Cursor reads on where a page ended: the NextCursor of that page, or "*"
	// for the first page. It belongs to the sort, needs a limit, goes with no
	// offset, and leaves the total out unless it is "*".
	Cursor string
	// NoCount leaves the total out.
	NoCount bool
	// Search keeps records that hold every one of its words, in any letter
	// case of A to Z, in one of SearchFields (by default those that the object
	// names as searchable).
	Search       string
	SearchFields []string
	// Expand replaces references by the records that they point at.
	Expand []string
	// GroupBy and Aggregations make groups of the records; Having selects
	// among them by group fields and aliases.
	GroupBy      []string
	Aggregations []Aggregation
	Having       Filter
	// Trash looks at deleted records instead of live ones.
	Trash bool
}

// Page is the answer to a query.
type Page struct {
	Records []Record
	// Total is how many records match; nil when it was not asked for or is
	// above [MaxTotal].
	Total *int
	// TotalCapped tells that there are more than MaxTotal matches.
	TotalCapped bool
	// HasMore tells that there are matches after the last record.
	HasMore bool
	// NextCursor is the Cursor of the next page, where the query had one and
	// there is more.
	NextCursor string
}

// Get returns one record, with the given fields or all of them. Errors are
// *[Error] with CodeRecordNotFound, CodeObjectNotFound, CodeInvalidField and
// those of refused callers.
func (e *Engine) Get(ctx context.Context, object, id string, fields ...string) (Record, error) {
	t, err := e.open(ctx, identity.OperationRead, object)
	if err != nil {
		return nil, err
	}
	if err := t.checkSelect(fields); err != nil {
		return nil, err
	}
	record, err := e.one(ctx, t, id)
	if err != nil {
		return nil, err
	}
	return t.project(t.present(record, false), fields), nil
}

// project keeps the given fields, all of them for none given.
func (t *table) project(record Record, fields []string) Record {
	if len(fields) == 0 {
		return record
	}
	out := make(Record, len(fields))
	for _, name := range fields {
		out[name] = record[name]
	}
	return out
}

// checkSelect refuses fields that callers cannot see.
func (t *table) checkSelect(fields []string) error {
	for _, name := range fields {
		if _, ok := t.visible(name); !ok {
			return &Error{
				Code: CodeInvalidField, Object: t.name(), Field: name,
				Message: fmt.Sprintf("Unknown field '%s' on object '%s'. 'select' chooses which fields to return; dropping an unknown one silently answered a NARROWER projection with a WIDER one — a projection naming no known field fell all the way back to every field.", name, t.name()),
			}
		}
	}
	return nil
}

// Find returns the records that a query selects. Errors are *[Error] with
// CodeInvalidFilter, CodeInvalidSort, CodeInvalidField, CodeInvalidRequest,
// CodeObjectNotFound and those of refused callers.
func (e *Engine) Find(ctx context.Context, object string, q Query) (*Page, error) {
	t, err := e.open(ctx, identity.OperationList, object)
	if err != nil {
		return nil, err
	}
	p, err := e.selection(ctx, t, q)
	if err != nil {
		return nil, err
	}
	if q.Offset < 0 || q.Limit != nil && *q.Limit < 0 {
		return nil, &Error{Code: CodeInvalidRequest, Object: object, Message: "limit and offset must not be negative"}
	}
	if err := q.checkCursor(object); err != nil {
		return nil, err
	}
	if len(q.GroupBy)+len(q.Aggregations) > 0 {
		return e.aggregate(ctx, t, q, p)
	}
	if !q.Having.IsZero() {
		return nil, &Error{Code: CodeInvalidRequest, Object: object, Message: "having needs groupBy or aggregations"}
	}
	if err := t.checkSelect(q.Fields); err != nil {
		return nil, err
	}
	if err := e.checkExpand(t, q.Expand); err != nil {
		return nil, err
	}
	order, err := t.order(q.OrderBy)
	if err != nil {
		return nil, err
	}
	if q.Limit != nil && *q.Limit == 0 {
		page := &Page{Records: []Record{}}
		if !q.NoCount {
			page.Total = new(int)
		}
		return page, nil
	}
	return e.page(ctx, t, q, p, order)
}

// selection compiles a query's filter and search, scoped to the principal.
func (e *Engine) selection(ctx context.Context, t *table, q Query) (predicate, error) {
	p, err := t.compile(q.Where, "where", e.now())
	if err != nil {
		return nil, err
	}
	search, err := t.searchFor(q.Search, q.SearchFields)
	if err != nil {
		return nil, err
	}
	if q.Trash && !t.trash {
		return nil, &Error{Code: CodeInvalidRequest, Object: t.name(), Message: "Object '" + t.name() + "' keeps no trash"}
	}
	return t.scope(ctx, simplify(&group{parts: []predicate{p, search}}), q.Trash), nil
}

// searchFor is the predicate of a search.
func (t *table) searchFor(text string, fields []string) (predicate, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return constant(true), nil
	}
	if !storable(text) || len(words) > 20 {
		return nil, &Error{Code: CodeInvalidRequest, Object: t.name(), Message: "search must be at most 20 words of valid text"}
	}
	if len(fields) == 0 {
		fields = t.search
	}
	all := &group{}
	for _, word := range words {
		anywhere := &group{or: true}
		for _, name := range fields {
			c, ok := t.visible(name)
			if !ok || !c.filterable() || c.kind != kindText {
				return nil, &Error{Code: CodeInvalidField, Object: t.name(), Field: name, Message: fmt.Sprintf("Field '%s' of object '%s' cannot be searched", name, t.name())}
			}
			anywhere.parts = append(anywhere.parts, &leaf{column: c, test: testIContains, value: foldASCII(word)})
		}
		all.parts = append(all.parts, simplify(anywhere))
	}
	return simplify(all), nil
}

// order checks sort keys and adds the id, so that pages never overlap.
func (t *table) order(sorts []Sort) ([]Sort, error) {
	out := make([]Sort, 0, len(sorts)+1)
	for _, s := range sorts {
		c, ok := t.visible(s.Field)
		if !ok {
			return nil, &Error{
				Code: CodeInvalidSort, Object: t.name(),
				Message: fmt.Sprintf("Query parameter 'sort' sorts by '%s', which is not a field on object '%s'. It was not applied, and an unapplied sort returns the rows in an arbitrary order — which 'top'/'limit' then slices into an arbitrary page.", s.Field, t.name()),
			}
		}
		if !c.sortable() {
			return nil, &Error{Code: CodeInvalidSort, Object: t.name(), Message: fmt.Sprintf("Field '%s' of type %s on object '%s' cannot be sorted by", s.Field, c.Type, t.name())}
		}
		if !slices.ContainsFunc(out, func(o Sort) bool { return o.Field == s.Field }) {
			out = append(out, s)
		}
		if s.Field == "id" {
			return out, nil
		}
	}
	// The tie-breaker goes the way of the last key, so that an index serves.
	desc := len(out) > 0 && out[len(out)-1].Desc
	return append(out, Sort{Field: "id", Desc: desc}), nil
}

// orderBy writes the sort with nulls first ascending on both dialects, in the
// words that the indexes were made with.
func (b *builder) orderBy(sorts []Sort) {
	b.text(" ORDER BY ")
	for i, s := range sorts {
		if i > 0 {
			b.text(", ")
		}
		b.text(quote(s.Field))
		switch {
		case s.Field == "id" && s.Desc:
			b.text(" DESC")
		case s.Field == "id":
		case s.Desc && b.postgres:
			b.text(" DESC NULLS LAST")
		case s.Desc:
			b.text(" DESC")
		case b.postgres:
			b.text(" ASC NULLS FIRST")
		}
	}
}

// checkExpand refuses names that are no references.
func (e *Engine) checkExpand(t *table, names []string) error {
	for _, name := range names {
		c, ok := t.visible(name)
		if ok && c.IsReference() {
			continue
		}
		return &Error{Code: CodeInvalidField, Object: t.name(), Field: name, Message: fmt.Sprintf("Field '%s' on object '%s' is not a reference that can be expanded", name, t.name())}
	}
	return nil
}

// expand replaces references by records, with one query per field. What the
// caller may not read, what is gone, and what points at an object that this host
// does not have, stays an id.
func (e *Engine) expand(ctx context.Context, t *table, records []Record, names []string) error {
	for _, name := range names {
		target := t.byName[name].Target()
		if e.allow(ctx, identity.OperationRead, target) != nil {
			continue
		}
		other, err := e.table(target)
		if err != nil {
			continue // every object has columns for parts that a host may lack
		}
		other = e.restrict(ctx, other)
		var ids []string
		for _, record := range records {
			ids = append(ids, targets(record[name])...)
		}
		slices.Sort(ids)
		found := map[string]Record{}
		for chunk := range slices.Chunk(slices.Compact(ids), 5000) {
			loaded, err := e.load(ctx, other, other.scope(ctx, other.byID(chunk...), false), false)
			if err != nil {
				return err
			}
			for _, record := range loaded {
				found[record["id"].(string)] = other.present(record, false)
			}
		}
		for _, record := range records {
			record[name] = expanded(record[name], found)
		}
	}
	return nil
}

// expanded replaces the ids that were found.
func expanded(value any, found map[string]Record) any {
	if list, ok := value.([]any); ok {
		out := make([]any, len(list))
		for i, item := range list {
			out[i] = expanded(item, found)
		}
		return out
	}
	if id, ok := value.(string); ok && found[id] != nil {
		return found[id]
	}
	return value
}
