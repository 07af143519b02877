package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/objecthost/objecthost/core/object"
)

// ParseFilter reads a filter in either spelling of the wire protocol, a map
// of conditions ({"age": {"$gte": 18}}) or an array (["age", ">=", 18]), and
// checks it against the object. Null and an empty map or array select
// everything. Errors are *[Error] with CodeInvalidFilter or CodeInvalidField
// and name the field.
func ParseFilter(schema *object.Schema, raw json.RawMessage) (Filter, error) {
	return parseFilter(newTable(*schema, declaredOnly(schema)), raw, "where")
}

// declaredOnly keeps the system columns of a described schema from being
// added anew.
func declaredOnly(schema *object.Schema) func(string) bool {
	if _, described := schema.Field("id"); described {
		return func(string) bool { return false }
	}
	return nil
}

// parseFilter reads and checks a filter that the caller gave in slot.
func parseFilter(t *table, raw json.RawMessage, slot string) (Filter, error) {
	p := filterParser{object: t.name()}
	if len(raw) > maxFilterBytes {
		return Filter{}, &Error{Code: CodeFilterTooLarge, Object: t.name(), Max: maxFilterBytes, Message: fmt.Sprintf("The filter is longer than %d bytes.", maxFilterBytes)}
	}
	value, err := DecodeJSON(raw)
	if errors.Is(err, errTooDeep) {
		return Filter{}, &Error{Code: CodeFilterTooDeep, Object: t.name(), Max: maxFilterDepth, Message: fmt.Sprintf("The filter is nested deeper than %d levels.", maxFilterDepth)}
	}
	if err != nil {
		return Filter{}, p.bad("Query parameter '%s' must be valid JSON. It was not applied, and an unapplied filter would have returned the unfiltered result set.", slot)
	}
	f, err := p.value(value)
	if err != nil {
		return Filter{}, err
	}
	if _, err := t.compile(f, slot, time.Unix(0, 0)); err != nil {
		return Filter{}, err
	}
	return f, nil
}

type filterParser struct{ object string }

// bad is an INVALID_FILTER about the filter's shape.
func (p *filterParser) bad(format string, args ...any) *Error {
	return &Error{Code: CodeInvalidFilter, Object: p.object, Message: fmt.Sprintf(format, args...)}
}

// value reads a condition in either spelling; they may be nested in each other.
func (p *filterParser) value(v any) (Filter, error) {
	switch v := v.(type) {
	case nil:
		return Filter{}, nil
	case map[string]any:
		return p.conditions(v)
	case []any:
		if len(v) == 0 {
			return Filter{}, nil
		}
		return p.array(v)
	default:
		return Filter{}, p.bad("Malformed $filter: expected an object or an array, got %s.", describe(v))
	}
}

// conditions reads {"field": …, "$and": […]}; all of them must hold.
func (p *filterParser) conditions(m map[string]any) (Filter, error) {
	parts := make([]Filter, 0, len(m))
	for _, key := range sortedKeys(m) {
		var f Filter
		var err error
		switch {
		case key == "$and" || key == "$or":
			f, err = p.logic(key, m[key])
		case key == "$not":
			if f, err = p.value(m[key]); err == nil {
				f = Not(f)
			}
		case strings.HasPrefix(key, "$"):
			return Filter{}, p.bad("Unsupported logical operator %q. Supported: $and, $or, $not.", key)
		default:
			f, err = p.field(key, m[key])
		}
		if err != nil {
			return Filter{}, err
		}
		parts = append(parts, f)
	}
	return And(parts...), nil
}

// logic reads the array behind $and or $or.
func (p *filterParser) logic(key string, v any) (Filter, error) {
	list, ok := v.([]any)
	if !ok {
		return Filter{}, p.bad("%q needs an array of conditions, got %s.", key, describe(v))
	}
	parts := make([]Filter, len(list))
	for i, item := range list {
		f, err := p.value(item)
		if err != nil {
			return Filter{}, err
		}
		parts[i] = f
	}
	if key == "$or" {
		return Or(parts...), nil
	}
	return And(parts...), nil
}

// field reads what stands behind a field's name.
func (p *filterParser) field(name string, v any) (Filter, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return Eq(name, v), nil
	}
	if len(m) == 0 {
		return Filter{}, p.bad("The constraint on field %q is empty.", name)
	}
	if ref, isRef, err := p.reference(name, m); isRef || err != nil {
		return Eq(name, ref), err
	}
	parts := make([]Filter, 0, len(m))
	for _, op := range sortedKeys(m) {
		value := m[op]
		if !operatorNames[op] {
			return Filter{}, p.bad("Unsupported filter operator \"%s\" on field \"%s\". Supported operators: %s.", op, name, strings.Join(operatorOrder, ", "))
		}
		if inner, ok := value.(map[string]any); ok {
			ref, isRef, err := p.reference(name, inner)
			if err != nil {
				return Filter{}, err
			}
			if !isRef {
				return Filter{}, p.bad("Operator \"%s\" on field \"%s\" cannot compare with an object.", op, name)
			}
			value = ref
		}
		parts = append(parts, Where(name, op, value))
	}
	return And(parts...), nil
}

// reference reads {"$field": "other"}.
func (p *filterParser) reference(name string, m map[string]any) (FieldRef, bool, error) {
	v, ok := m["$field"]
	if !ok {
		return "", false, nil
	}
	other, isText := v.(string)
	if !isText || len(m) != 1 {
		return "", false, p.bad("{\"$field\": …} on field %q must hold one field's name.", name)
	}
	return FieldRef(other), true, nil
}

// arrayOperators are the spellings of the array form, in lower case.
var arrayOperators = map[string]string{
	"=": "$eq", "==": "$eq", "eq": "$eq", "equals": "$eq",
	"!=": "$ne", "<>": "$ne", "ne": "$ne", "neq": "$ne", "not_equals": "$ne", "notequals": "$ne",
	">": "$gt", "gt": "$gt", "greater_than": "$gt", "greaterthan": "$gt", "after": "$gt",
	">=": "$gte", "gte": "$gte", "greater_than_or_equal": "$gte", "greaterthanorequal": "$gte", "greaterorequal": "$gte",
	"<": "$lt", "lt": "$lt", "less_than": "$lt", "lessthan": "$lt", "before": "$lt",
	"<=": "$lte", "lte": "$lte", "less_than_or_equal": "$lte", "lessthanorequal": "$lte", "lessorequal": "$lte",
	"in": "$in", "nin": "$nin", "not_in": "$nin", "notin": "$nin",
	"contains": "$contains", "not_contains": "$notContains", "notcontains": "$notContains", "icontains": "$icontains",
	"like": "$like", "ilike": "$ilike", "starts_with": "$startsWith", "startswith": "$startsWith",
	"ends_with": "$endsWith", "endswith": "$endsWith", "between": "$between",
	"is_null": "$null", "isnull": "$null", "is_empty": "$null", "isempty": "$null",
	"is_not_null": "$exists", "isnotnull": "$exists", "is_not_empty": "$exists", "isnotempty": "$exists",
}

const arrayHelp = "A filter array is a comparison [field, operator, value], a logical node [\"and\"|\"or\", ...conditions], or a list of those."

// array reads [field, op, value], ["and", …] or a list of conditions.
func (p *filterParser) array(list []any) (Filter, error) {
	first, ok := list[0].(string)
	if !ok {
		return p.list(list, false)
	}
	switch strings.ToLower(first) {
	case "and", "or":
		return p.list(list[1:], strings.EqualFold(first, "or"))
	case "not":
		if len(list) != 2 {
			return Filter{}, p.bad("Malformed $filter: \"not\" takes one condition. %s", arrayHelp)
		}
		f, err := p.value(list[1])
		return Not(f), err
	}
	if len(list) < 2 || len(list) > 3 {
		return Filter{}, p.bad("Malformed $filter: [\"%s\", ...] is not a comparison. %s", first, arrayHelp)
	}
	spelled, ok := list[1].(string)
	op := arrayOperators[strings.ToLower(spelled)]
	if !ok || op == "" {
		return Filter{}, p.bad("Malformed $filter: unrecognised operator %s in [\"%s\", ...]. %s Recognised operators: %s.",
			quoted(list[1]), first, arrayHelp, strings.Join(sortedKeys(arrayOperators), ", "))
	}
	if op == "$null" || op == "$exists" {
		value := any(true)
		if len(list) == 3 && list[2] != nil && list[2] != "" {
			value = list[2]
		}
		return Where(first, op, value), nil
	}
	if len(list) != 3 {
		return Filter{}, p.bad("Malformed $filter: [\"%s\", \"%s\"] lacks a value. %s", first, spelled, arrayHelp)
	}
	value := list[2]
	if m, ok := value.(map[string]any); ok {
		ref, isRef, err := p.reference(first, m)
		if err != nil || !isRef {
			return Filter{}, p.bad("Malformed $filter: [\"%s\", \"%s\", ...] cannot compare with an object.", first, spelled)
		}
		value = ref
	}
	return Where(first, op, value), nil
}

// list reads conditions that stand in an array. Anything else in it is refused:
// a forgotten bracket must not widen a filter.
func (p *filterParser) list(items []any, or bool) (Filter, error) {
	parts := make([]Filter, len(items))
	for i, item := range items {
		switch item.(type) {
		case []any, map[string]any:
		default:
			return Filter{}, p.bad("Malformed $filter: %s stands where a condition should. %s", quoted(item), arrayHelp)
		}
		f, err := p.value(item)
		if err != nil {
			return Filter{}, err
		}
		parts[i] = f
	}
	if or {
		return Or(parts...), nil
	}
	return And(parts...), nil
}

// quoted shows a value in an error, unless it is long.
func quoted(v any) string {
	text, err := encodeJSON(v)
	if err != nil || len(text) > 80 {
		return describe(v)
	}
	return string(text)
}

// describe names the JSON type of a value.
func describe(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	default:
		return "a number"
	}
}

// sortedKeys makes whatever is derived from a map the same every time.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
