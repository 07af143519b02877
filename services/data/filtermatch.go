package data

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/objecthost/objecthost/storage"
)

// match evaluates a compiled filter on a record in memory, as both databases
// do on their rows.
func match(p predicate, record Record) bool {
	switch p := p.(type) {
	case constant:
		return bool(p)
	case *group:
		for _, part := range p.parts {
			if match(part, record) == p.or {
				return p.or
			}
		}
		return !p.or
	case *leaf:
		return p.holds(record) != p.negate
	default:
		return false
	}
}

// holds is the leaf without its negation; false for null.
func (l *leaf) holds(record Record) bool {
	value := record[l.column.Name]
	if l.test == testNull {
		return value == nil
	}
	if value == nil {
		return false
	}
	operand := l.value
	if l.other != nil {
		if operand = record[l.other.Name]; operand == nil {
			return false
		}
	}
	switch l.test {
	case testIn:
		return slices.ContainsFunc(l.values, func(v any) bool { return compareValues(l.column.kind, value, v) == 0 })
	case testHas:
		list, _ := value.([]any)
		return slices.ContainsFunc(l.values, func(v any) bool { return slices.Contains(list, v) })
	case testContains:
		return strings.Contains(value.(string), operand.(string))
	case testIContains:
		return strings.Contains(foldASCII(value.(string)), operand.(string))
	case testStarts:
		return strings.HasPrefix(value.(string), operand.(string))
	case testEnds:
		return strings.HasSuffix(value.(string), operand.(string))
	case testLike:
		return matchLike(l.like, value.(string))
	case testILike:
		return matchLike(l.like, foldASCII(value.(string)))
	}
	c := compareValues(l.column.kind, value, operand)
	switch l.test {
	case testEq:
		return c == 0
	case testGt:
		return c > 0
	case testGte:
		return c >= 0
	case testLt:
		return c < 0
	default:
		return c <= 0
	}
}

// compareValues orders two values of a kind, null first.
func compareValues(k kind, a, b any) int {
	if a == nil || b == nil {
		return boolOrder(a != nil, b != nil)
	}
	switch k {
	case kindDecimal:
		return storage.CompareDecimal(a.(json.Number).String(), b.(json.Number).String())
	case kindBool:
		return boolOrder(a.(bool), b.(bool))
	case kindInstant:
		x, _ := instant(a, epoch)
		y, _ := instant(b, epoch)
		return cmp.Compare(x, y)
	case kindList, kindJSON:
		return strings.Compare(jsonText(a), jsonText(b))
	default:
		return strings.Compare(a.(string), b.(string))
	}
}

// boolOrder puts false before true.
func boolOrder(a, b bool) int { return cmp.Compare(boolInt(a), boolInt(b)) }

// jsonText is the stored form of a list, which filters carry as text already.
func jsonText(v any) string {
	if text, ok := v.(string); ok {
		return text
	}
	text, _ := encodeJSON(v)
	return string(text)
}

// matchLike matches a whole text against a pattern, going back to the last %
// only, which keeps it quadratic at worst.
func matchLike(parts []likePart, text string) bool {
	var units []likePart // one per character
	for _, part := range parts {
		if part.wildcard != 0 {
			units = append(units, part)
			continue
		}
		for _, r := range part.literal {
			units = append(units, likePart{literal: string(r)})
		}
	}
	runes := []rune(text)
	u, r, star, mark := 0, 0, -1, 0
	for r < len(runes) {
		switch {
		case u < len(units) && units[u].wildcard == '%':
			star, mark = u, r
			u++
		case u < len(units) && (units[u].wildcard == '_' || units[u].literal == string(runes[r])):
			u++
			r++
		case star >= 0:
			mark++
			u, r = star+1, mark
		default:
			return false
		}
	}
	for u < len(units) && units[u].wildcard == '%' {
		u++
	}
	return u == len(units)
}
