package data

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A cursor holds the sort keys of the last record of a page, so that the next
// page begins behind it: an index leads there however far in it is, and records
// that come or go meanwhile shift nothing. It says nothing that the caller has
// not seen, and grants nothing: values are compiled as those of a filter, and the
// caller's permissions and filter apply as ever.

// cursorStart asks for the first page of a reading by cursors.
const cursorStart = "*"

// maxCursor bounds a cursor's text: a few indexed values.
const maxCursor = 16 << 10

// cursorText is a cursor's content.
type cursorText struct {
	// Order is the sort that it belongs to.
	Order string `json:"o"`
	// Values of the sort keys, as records hold them.
	Values []any `json:"v"`
}

// orderText names a sort, the id included.
func orderText(order []Sort) string {
	parts := make([]string, len(order))
	for i, s := range order {
		parts[i] = s.Field
		if s.Desc {
			parts[i] = "-" + s.Field
		}
	}
	return strings.Join(parts, ",")
}

// cursorAfter is the cursor behind a record.
func cursorAfter(order []Sort, record Record) (string, error) {
	c := cursorText{Order: orderText(order), Values: make([]any, len(order))}
	for i, s := range order {
		c.Values[i] = record[s.Field]
	}
	text, err := encodeJSON(c)
	if err != nil {
		return "", fmt.Errorf("make a cursor: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(text), nil
}

// readCursor decodes a cursor and checks that it belongs to the order.
func (t *table) readCursor(text string, order []Sort) ([]any, error) {
	bad := func(reason string) ([]any, error) {
		return nil, &Error{Code: CodeInvalidCursor, Object: t.name(), Message: "The cursor " + reason}
	}
	if len(text) > maxCursor {
		return bad("is too long to be one of this host's.")
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return bad("is not one of this host's.")
	}
	value, err := DecodeJSON(raw)
	m, ok := value.(map[string]any)
	values, isList := m["v"].([]any)
	if err != nil || !ok || !isList || len(m) != 2 {
		return bad("is not one of this host's.")
	}
	if m["o"] != orderText(order) || len(values) != len(order) {
		return bad("belongs to another sort; begin anew with '*'.")
	}
	return values, nil
}

// after compiles a cursor into predicates that follow each other: each selects
// records behind the cursor and in front of all those of the next one. Nulls
// come first ascending, as everywhere.
func (t *table) after(text string, order []Sort, now time.Time) ([]predicate, error) {
	values, err := t.readCursor(text, order)
	if err != nil {
		return nil, err
	}
	keys := make([]cursorKey, len(order))
	for i, s := range order {
		keys[i] = cursorKey{column: t.byName[s.Field], desc: s.Desc}
		if values[i] == nil {
			continue
		}
		c := compiler{table: t, slot: "cursor", now: now}
		if keys[i].value, err = c.value(&comparison{field: s.Field, op: "$eq", value: values[i]}, keys[i].column, values[i]); err != nil {
			return nil, &Error{Code: CodeInvalidCursor, Object: t.name(), Message: "The cursor is not one of this host's.", cause: err}
		}
	}
	if keys[len(keys)-1].value == nil {
		return nil, &Error{Code: CodeInvalidCursor, Object: t.name(), Message: "The cursor is not one of this host's.", cause: errors.New("it lacks the id")}
	}
	switch len(keys) {
	case 1:
		return []predicate{keys[0].beyond()}, nil
	case 2:
		return inSteps(keys[0], keys[1]), nil
	default:
		return []predicate{lexicographic(keys)}, nil
	}
}

// cursorKey is one sort key and where the cursor stands in it; value is nil for
// null.
type cursorKey struct {
	column *column
	desc   bool
	value  any
}

func (k cursorKey) isNull(negate bool) predicate {
	return &leaf{column: k.column, test: testNull, negate: negate}
}

// same selects the key's own value.
func (k cursorKey) same() predicate {
	if k.value == nil {
		return k.isNull(false)
	}
	return &leaf{column: k.column, test: testEq, value: k.value}
}

// beyond selects what comes behind the key's value.
func (k cursorKey) beyond() predicate {
	switch {
	case k.value == nil && k.desc:
		return constant(false)
	case k.value == nil:
		return k.isNull(true)
	case k.desc:
		return &group{or: true, parts: []predicate{&leaf{column: k.column, test: testLt, value: k.value}, k.isNull(false)}}
	default:
		return &leaf{column: k.column, test: testGt, value: k.value}
	}
}

// inSteps is for the usual sort by one field and the id, both in one direction:
// the pair is compared as one, which an index on both serves, and nulls are a
// step of their own.
func inSteps(k, id cursorKey) []predicate {
	beyondID := &leaf{column: id.column, test: testGt, value: id.value}
	if id.desc {
		beyondID.test = testLt
	}
	switch {
	case k.value != nil && k.desc:
		return []predicate{&pair{first: k.column, second: id.column, less: true, values: [2]any{k.value, id.value}}, k.isNull(false)}
	case k.value != nil:
		return []predicate{&pair{first: k.column, second: id.column, values: [2]any{k.value, id.value}}}
	case k.desc:
		return []predicate{&group{parts: []predicate{k.isNull(false), beyondID}}}
	default:
		return []predicate{&group{parts: []predicate{k.isNull(false), beyondID}}, k.isNull(true)}
	}
}

// lexicographic is the general case: behind in the first key, or the same there
// and behind in the second, and so on.
func lexicographic(keys []cursorKey) predicate {
	any := &group{or: true}
	for i := range keys {
		all := &group{}
		for _, k := range keys[:i] {
			all.parts = append(all.parts, k.same())
		}
		all.parts = append(all.parts, keys[i].beyond())
		any.parts = append(any.parts, simplify(all))
	}
	return simplify(any)
}

// pair compares two columns as one: (first, second) > (values), or < when less.
// It is null where one of them is.
type pair struct {
	first, second *column
	less          bool
	values        [2]any
}

// pair writes the comparison as both dialects have it.
func (b *builder) pair(p *pair) {
	sign := " > "
	if p.less {
		sign = " < "
	}
	b.text("(", quote(p.first.Name), ", ", quote(p.second.Name), ")", sign, "(")
	b.operand(p.first, p.values[0])
	b.text(", ")
	b.operand(p.second, p.values[1])
	b.text(")")
}
