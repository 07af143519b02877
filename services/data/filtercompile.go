package data

import (
	"fmt"
	"strings"
	"time"

	"github.com/objecthost/objecthost/core/object"
)

// The tests of a compiled filter.
type test string

const (
	testEq        test = "="
	testGt        test = ">"
	testGte       test = ">="
	testLt        test = "<"
	testLte       test = "<="
	testIn        test = "in"
	testNull      test = "null"
	testContains  test = "contains"
	testStarts    test = "starts"
	testEnds      test = "ends"
	testIContains test = "icontains"
	testLike      test = "like"
	testILike     test = "ilike"
	testHas       test = "has" // a list holds a value
)

// predicate is a compiled filter in negation normal form: a *group, a *leaf
// or a constant.
type predicate interface{}

type constant bool

type group struct {
	or    bool
	parts []predicate
}

// leaf tests one field. A negated leaf also selects records whose field (or
// the other field) is null, unless the test is for null.
type leaf struct {
	column *column
	test   test
	negate bool
	value  any   // normalized as filterValue has it
	values []any // of testIn and of testHas (any of them)
	other  *column
	like   []likePart
	// aside keeps SQLite, which has no statistics, from taking the column's
	// index: most records pass the test.
	aside bool
}

// compiler checks a filter against a table.
type compiler struct {
	table  *table
	slot   string // what errors call the filter
	now    time.Time
	values int
}

// compile checks a filter and brings it into the form that SQL and the
// evaluation in memory share: negations stand at the leaves only, so that three
// valued logic never meets a NOT around a group. now is what NOW() stands for.
func (t *table) compile(f Filter, slot string, now time.Time) (predicate, error) {
	c := compiler{table: t, slot: slot, now: now}
	return c.node(f.node, false, 0)
}

// bad is an INVALID_FILTER. Its message names the field; the error's Field stays
// empty, as clients know it.
func (c *compiler) bad(format string, args ...any) *Error {
	return &Error{Code: CodeInvalidFilter, Object: c.table.name(), Message: fmt.Sprintf(format, args...)}
}

// over is a refusal of a filter that is beyond a limit.
func (c *compiler) over(code, format string, most int) *Error {
	return &Error{Code: code, Object: c.table.name(), Max: most, Message: fmt.Sprintf(format, most)}
}

// node compiles a condition; negate tells that an odd number of negations stands
// around it. By De Morgan a negated group turns into the other kind.
func (c *compiler) node(n node, negate bool, depth int) (predicate, error) {
	if depth > maxFilterDepth {
		return nil, c.over(CodeFilterTooDeep, "The filter is nested deeper than %d levels.", maxFilterDepth)
	}
	switch n := n.(type) {
	case nil:
		return constant(!negate), nil
	case *negation:
		return c.node(n.part, !negate, depth+1)
	case *logic:
		g := &group{or: n.or != negate}
		for _, part := range n.parts {
			p, err := c.node(part, negate, depth+1)
			if err != nil {
				return nil, err
			}
			g.parts = append(g.parts, p)
		}
		return simplify(g), nil
	case *comparison:
		return c.comparison(n, negate)
	default:
		return nil, c.bad("The filter holds a %T.", n)
	}
}

// simplify folds constants, so that SQL never has to hold an empty group.
func simplify(g *group) predicate {
	out := &group{or: g.or}
	for _, part := range g.parts {
		if k, ok := part.(constant); ok {
			if bool(k) == g.or {
				return k
			}
			continue
		}
		out.parts = append(out.parts, part)
	}
	switch len(out.parts) {
	case 0:
		return constant(!g.or)
	case 1:
		return out.parts[0]
	default:
		return out
	}
}

// comparison resolves the field and hands over to the operator's family.
func (c *compiler) comparison(n *comparison, negate bool) (predicate, error) {
	column, ok := c.table.visible(n.field)
	if !ok {
		return nil, &Error{
			Code: CodeInvalidField, Object: c.table.name(), Field: n.field,
			Message: fmt.Sprintf("Query parameter '%s' filters on '%s', which is not a field on object '%s'. A filter on a field that does not exist can only match zero records, so the query was refused instead of answered with an empty list.", c.slot, n.field, c.table.name()),
		}
	}
	if !column.filterable() {
		return nil, c.bad("Field \"%s\" of type %s cannot be filtered on.", n.field, column.Type)
	}
	if c.values++; c.values > maxFilterValues {
		return nil, c.over(CodeTooManyValues, "The filter holds more than %d values.", maxFilterValues)
	}
	switch n.op {
	case "$ne", "$nin", "$notContains":
		negate = !negate
	}
	l := &leaf{column: column, negate: negate}
	switch n.op {
	case "$null", "$exists":
		want, ok := n.value.(bool)
		if !ok {
			if text, _ := n.value.(string); text == "true" || text == "false" {
				want, ok = text == "true", true
			}
		}
		if !ok {
			return nil, c.bad("Operator \"%s\" on field \"%s\" needs true or false.", n.op, n.field)
		}
		l.test, l.negate = testNull, negate != (want != (n.op == "$null"))
		return l, nil
	case "$eq", "$ne":
		return c.equal(l, n)
	case "$gt", "$gte", "$lt", "$lte":
		return c.order(l, n)
	case "$between":
		return c.between(n, column, negate)
	case "$in", "$nin":
		return c.in(l, n)
	case "$contains", "$notContains", "$startsWith", "$endsWith", "$icontains", "$like", "$ilike":
		return c.text(l, n)
	default:
		return nil, c.bad("Unsupported filter operator \"%s\" on field \"%s\". Supported operators: %s.", n.op, n.field, strings.Join(operatorOrder, ", "))
	}
}

// equal compiles $eq and $ne. On a list a scalar asks whether the list holds
// it, an array compares with the whole list in its order.
func (c *compiler) equal(l *leaf, n *comparison) (predicate, error) {
	if n.value == nil {
		l.test = testNull
		return l, nil
	}
	l.test = testEq
	switch l.column.kind {
	case kindJSON:
		return nil, c.inapplicable(n, l.column)
	case kindList:
		if text, ok := n.value.(string); ok && !strings.HasPrefix(strings.TrimSpace(text), "[") {
			l.test, l.values = testHas, []any{text}
			return l, c.storable(n, text)
		}
		items, failed := normalizeList(&column{Field: bare(l.column), kind: kindList}, n.value)
		if failed != nil {
			return nil, c.bad("Invalid value for field \"%s\": %s.", n.field, failed.Message)
		}
		text, err := encodeJSON(items)
		l.value = string(text)
		return l, err
	}
	return c.operand(l, n)
}

// order compiles $gt, $gte, $lt and $lte for kinds that have an order.
func (c *compiler) order(l *leaf, n *comparison) (predicate, error) {
	switch l.column.kind {
	case kindJSON, kindList, kindBool:
		return nil, c.inapplicable(n, l.column)
	}
	l.test = map[string]test{"$gt": testGt, "$gte": testGte, "$lt": testLt, "$lte": testLte}[n.op]
	if n.value == nil {
		return nil, c.bad("Operator \"%s\" on field \"%s\" cannot compare with null.", n.op, n.field)
	}
	return c.operand(l, n)
}

// operand fills in the value of a comparison, or the other field.
func (c *compiler) operand(l *leaf, n *comparison) (predicate, error) {
	ref, ok := n.value.(FieldRef)
	if !ok {
		var err error
		l.value, err = c.value(n, l.column, n.value)
		return l, err
	}
	other, ok := c.table.visible(string(ref))
	switch {
	case !ok || !other.filterable():
		return nil, c.bad("Operator \"%s\" on field \"%s\" compares with \"%s\", which is not a field that can be compared with on object '%s'.", n.op, n.field, string(ref), c.table.name())
	case other.kind != l.column.kind || other.kind == kindList || other.kind == kindJSON:
		return nil, c.bad("Field \"%s\" of type %s cannot be compared with field \"%s\" of type %s.", n.field, l.column.Type, string(ref), other.Type)
	}
	l.other = other
	return l, nil
}

// between is both comparisons; negated it is their negations, one of which has
// to hold.
func (c *compiler) between(n *comparison, column *column, negate bool) (predicate, error) {
	pair, ok := n.value.([]any)
	if !ok || len(pair) != 2 || pair[0] == nil || pair[1] == nil {
		return nil, c.bad("Operator \"$between\" on field \"%s\" needs [min, max].", n.field)
	}
	g := &group{or: negate}
	for i, op := range []string{"$gte", "$lte"} {
		p, err := c.order(&leaf{column: column, negate: negate}, &comparison{field: n.field, op: op, value: pair[i]})
		if err != nil {
			return nil, err
		}
		g.parts = append(g.parts, p)
	}
	return g, nil
}

// in compiles $in and $nin. On a list they ask whether it holds any of the
// values. An empty array is a constant: SQL has no empty IN ().
func (c *compiler) in(l *leaf, n *comparison) (predicate, error) {
	list, ok := n.value.([]any)
	if !ok {
		return nil, c.bad("Operator \"%s\" on field \"%s\" needs an array.", n.op, n.field)
	}
	if len(list) == 0 {
		return constant(l.negate), nil
	}
	l.test = testIn
	switch l.column.kind {
	case kindJSON:
		return nil, c.inapplicable(n, l.column)
	case kindList:
		l.test = testHas
	}
	for _, item := range list {
		if item == nil {
			return nil, c.bad("Operator \"%s\" on field \"%s\" cannot hold null; use $null.", n.op, n.field)
		}
		if c.values++; c.values > maxFilterValues {
			return nil, c.over(CodeTooManyValues, "The filter holds more than %d values.", maxFilterValues)
		}
		value, err := c.value(n, l.column, item)
		if err != nil {
			return nil, err
		}
		l.values = append(l.values, value)
	}
	return l, nil
}

// text compiles the operators on texts, and membership for lists. Letter case
// is folded here once, so that the databases fold the column only.
func (c *compiler) text(l *leaf, n *comparison) (predicate, error) {
	text, ok := n.value.(string)
	if !ok {
		return nil, c.bad("Operator \"%s\" on field \"%s\" needs a text.", n.op, n.field)
	}
	if err := c.storable(n, text); err != nil {
		return nil, err
	}
	if l.column.kind == kindList && (n.op == "$contains" || n.op == "$notContains") {
		l.test, l.values = testHas, []any{text}
		return l, nil
	}
	if l.column.kind != kindText {
		return nil, c.inapplicable(n, l.column)
	}
	l.value = text
	switch n.op {
	case "$contains", "$notContains":
		l.test = testContains
	case "$startsWith":
		l.test = testStarts
	case "$endsWith":
		l.test = testEnds
	case "$icontains":
		l.test, l.value = testIContains, foldASCII(text)
	default:
		l.test = testLike
		if n.op == "$ilike" {
			l.test, text = testILike, foldASCII(text)
		}
		parts, ok := parseLike(text)
		if !ok {
			return nil, c.bad("The pattern on field \"%s\" is longer than %d characters or ends in a lone \\.", n.field, maxPattern)
		}
		l.like = parts
	}
	return l, nil
}

// inapplicable refuses an operator that has no meaning for the field's type.
func (c *compiler) inapplicable(n *comparison, column *column) error {
	return c.bad("Operator \"%s\" cannot be applied to field \"%s\" of type %s.", n.op, n.field, column.Type)
}

// storable refuses texts that no column can hold: PostgreSQL would fail on
// them where SQLite finds nothing.
func (c *compiler) storable(n *comparison, text string) error {
	if !storable(text) {
		return c.bad("The value for field \"%s\" holds invalid UTF-8 or a NUL character.", n.field)
	}
	return nil
}

// value normalizes an operand: text, canonical number, bool, or milliseconds.
func (c *compiler) value(n *comparison, column *column, v any) (any, error) {
	var failed *FieldError
	var out any
	switch column.kind {
	case kindText, kindList:
		text, ok := v.(string)
		if number, isNumber := numberText(v); !ok && isNumber {
			text, ok = number, true
		}
		if !ok {
			return nil, c.bad("Invalid value for field \"%s\": a text is needed.", n.field)
		}
		return text, c.storable(n, text)
	case kindDecimal:
		number, ok := canonicalNumber(v)
		if !ok {
			return nil, c.bad("Invalid value for field \"%s\": a number is needed.", n.field)
		}
		return number, nil
	case kindBool:
		out, failed = normalizeBool(column, v)
	case kindInstant:
		ms, ok := instant(v, c.now)
		if !ok {
			return nil, c.bad("Invalid value for field \"%s\": a date and time is needed.", n.field)
		}
		return ms, nil
	case kindDate, kindClock:
		out, failed = normalizeCalendar(column, v, c.now)
	default:
		return nil, c.inapplicable(n, column)
	}
	if failed != nil {
		return nil, c.bad("Invalid value for field \"%s\": %s.", n.field, failed.Message)
	}
	return out, nil
}

// foldASCII lowers A to Z and nothing else, as both databases do for us.
func foldASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// likePart is a piece of a $like pattern: literal text, or a wildcard.
type likePart struct {
	literal  string
	wildcard byte // '%', '_', or 0
}

// parseLike splits a pattern; \ makes the next character literal.
func parseLike(pattern string) ([]likePart, bool) {
	if len(pattern) > 4*maxPattern || len([]rune(pattern)) > maxPattern {
		return nil, false
	}
	parts := []likePart{}
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			parts = append(parts, likePart{literal: literal.String()})
			literal.Reset()
		}
	}
	escaped := false
	for _, r := range pattern {
		switch {
		case escaped:
			literal.WriteRune(r)
			escaped = false
		case r == '\\':
			escaped = true
		case r == '%' || r == '_':
			flush()
			parts = append(parts, likePart{wildcard: byte(r)})
		default:
			literal.WriteRune(r)
		}
	}
	flush()
	return parts, !escaped
}

// bare is a column's field without its options: a filter may ask for values
// that are none.
func bare(c *column) *object.Field {
	f := *c.Field
	f.Options = nil
	return &f
}
