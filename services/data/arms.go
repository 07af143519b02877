package data

import "slices"

// maxArms bounds into how many parts a filter is split.
const maxArms = 8

// arms splits a filter that asks for a few values of an indexed field into one
// filter per value. An index holds the records of one value in order, so the
// first of each value can be read from it and merged; those of several values
// lie apart in it, and a database would sort all of them, or look through the
// whole table. A filter that is not of that kind is its own single arm.
func arms(p predicate) []predicate {
	var parts []predicate
	switch p := p.(type) {
	case *leaf:
		parts = []predicate{p}
	case *group:
		if !p.or {
			parts = p.parts
		}
	}
	for i, part := range parts {
		l, ok := part.(*leaf)
		if !ok || l.test != testIn || l.negate || !l.column.Index {
			continue
		}
		values := distinctValues(l.values)
		if len(values) < 2 || len(values) > maxArms {
			continue
		}
		out := make([]predicate, len(values))
		for j, value := range values {
			arm := slices.Clone(parts)
			arm[i] = &leaf{column: l.column, test: testEq, value: value}
			out[j] = simplify(&group{parts: arm})
		}
		return out
	}
	return []predicate{p}
}

// distinctValues keeps the first of equal operands, which are in canonical form.
func distinctValues(values []any) []any {
	var out []any
	for _, v := range values {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}
